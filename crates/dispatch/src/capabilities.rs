//! What each mechanism can do, as data: Table 1 of the FDM paper with columns of our own.
//!
//! Every mechanism declares its [`Capabilities`] beside its code; [`table`] sets them side by side, asks
//! this machine which ones it has, and adds the two of the paper that Linux never got, with what stands
//! for them today. Knows no mechanism by name but those two.

use std::fmt;

use serde::Serialize;

use crate::Mechanism;
use crate::mechanism::Epoll;

/// When a mechanism reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// As long as the descriptor is ready.
    Level,
    /// Once, when it becomes ready: whoever is told must drain it until the call would block. An edge may
    /// be reported without need, and it may name a direction nobody is waiting for any more.
    Edge,
}

/// Whether reports can be lost for want of room, so that every descriptor must be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// There is room for as many reports as there are descriptors.
    Never,
    /// A queue of events is fetched piece by piece and can grow past its limit.
    Queue,
    /// The kernel's queue can, between two waits; every wait empties it into one entry a descriptor.
    BetweenWaits,
}

/// Whether one hears of what was ready before it was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitialState {
    /// The kernel reports it.
    Reported,
    /// The kernel does not; the mechanism polls each descriptor once after it is registered.
    PolledOnce,
}

/// What a mechanism can do, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Its name on the command line.
    pub name: &'static str,
    /// A wait costs by what is ready, not by what is registered.
    pub scales: bool,
    /// Several events of one descriptor are one report.
    pub collapses: bool,
    /// One call reports many events.
    pub many_events_per_call: bool,
    /// Whether it can overflow.
    pub overflow: Overflow,
    /// What it looks at every descriptor with after an overflow.
    pub falls_back_to: Option<&'static str>,
    /// Whether what is ready at registration is reported.
    pub initial_state: InitialState,
    /// A process may have several interest sets at once.
    pub many_interest_sets: bool,
    /// Level or edge.
    pub trigger: Trigger,
    /// The setting of the system that bounds how many descriptors it can watch.
    pub descriptor_limit: &'static str,
    /// Of several waiters on one listener only one need be woken.
    pub exclusive_wake: bool,
    /// The settings that it takes, as they are named on the command line.
    pub settings: &'static [&'static str],
}

impl Capabilities {
    /// Whether whoever is told must go on until the call would block.
    pub fn must_drain(&self) -> bool {
        self.trigger == Trigger::Edge
    }
}

/// What epoll grew out of, without what epoll added.
const DEV_POLL: Capabilities = Capabilities {
    name: "/dev/poll",
    descriptor_limit: "RLIMIT_NOFILE",
    exclusive_wake: false,
    ..Epoll::CAPABILITIES
};

/// Banga, Mogul, Druschel, "A Scalable and Explicit Event Delivery Mechanism for UNIX", 1999.
const DECLARE_INTEREST: Capabilities =
    Capabilities { name: "declare_interest", many_interest_sets: false, trigger: Trigger::Edge, ..DEV_POLL };

/// One mechanism in the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it can do.
    #[serde(flatten)]
    pub capabilities: Capabilities,
    /// As [`Capabilities::must_drain`].
    pub must_drain: bool,
    /// Whether it works on this machine, for this user.
    pub available: bool,
    /// Why it does not.
    pub why_not: Option<String>,
    /// What has its properties today, where Linux does not have it.
    pub stands_for_it: Option<&'static str>,
}

/// All mechanisms side by side. Prints as text, serialises as an array of rows.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Table {
    /// In the order of the command line's list, the historical ones last.
    pub rows: Vec<Row>,
}

/// What every mechanism of the command line's list says of itself, in its order.
pub fn declared() -> Vec<Capabilities> {
    macro_rules! declaration_of_each {
        ($($name:literal => $mechanism:ty,)*) => { vec![$(<$mechanism as Mechanism>::CAPABILITIES,)*] };
    }
    crate::for_each_mechanism!(declaration_of_each)
}

/// Sets all mechanisms side by side and tries each on this machine: makes an empty interest set of each
/// kind and drops it, in a thread that ends, because a mechanism may keep something per thread.
pub fn table() -> Table {
    macro_rules! row_of_each {
        ($($name:literal => $mechanism:ty,)*) => { vec![$(row::<$mechanism>(),)*] };
    }
    let mut rows = crate::for_each_mechanism!(row_of_each);
    rows.push(historical(DEV_POLL, "epoll"));
    rows.push(historical(DECLARE_INTEREST, "epoll-et"));
    Table { rows }
}

fn row<M: Mechanism>() -> Row {
    let tried = std::thread::spawn(|| M::new().err().map(|error| error.to_string())).join();
    let why_not = tried.unwrap_or_else(|_| Some("setting it up panicked".to_owned()));
    Row {
        capabilities: M::CAPABILITIES,
        must_drain: M::CAPABILITIES.must_drain(),
        available: why_not.is_none(),
        why_not,
        stands_for_it: None,
    }
}

fn historical(capabilities: Capabilities, today: &'static str) -> Row {
    Row {
        capabilities,
        must_drain: capabilities.must_drain(),
        available: false,
        why_not: Some(format!("Linux does not have it; {today} has its properties")),
        stands_for_it: Some(today),
    }
}

const HEADINGS: [&str; 13] = [
    "mechanism",
    "scales",
    "collapses",
    "many/call",
    "overflows",
    "falls back",
    "initial state",
    "many sets",
    "trigger",
    "must drain",
    "descriptors up to",
    "exclusive",
    "available",
];

impl Row {
    fn cells(&self) -> [&str; 13] {
        let row = &self.capabilities;
        [
            row.name,
            yes_or_no(row.scales),
            yes_or_no(row.collapses),
            yes_or_no(row.many_events_per_call),
            match row.overflow {
                Overflow::Never => "never",
                Overflow::Queue => "queue",
                Overflow::BetweenWaits => "between waits",
            },
            row.falls_back_to.unwrap_or("-"),
            match row.initial_state {
                InitialState::Reported => "reported",
                InitialState::PolledOnce => "polled once",
            },
            yes_or_no(row.many_interest_sets),
            match row.trigger {
                Trigger::Level => "level",
                Trigger::Edge => "edge",
            },
            yes_or_no(self.must_drain),
            row.descriptor_limit,
            yes_or_no(row.exclusive_wake),
            if self.available { "yes" } else { self.why_not.as_deref().unwrap_or("no") },
        ]
    }
}

fn yes_or_no(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = std::iter::once(HEADINGS).chain(self.rows.iter().map(Row::cells)).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
        for line in &lines {
            let (last, padded) = line.split_last().expect("a line has cells");
            for (cell, width) in padded.iter().zip(&widths) {
                write!(f, "{cell:<width$}  ")?;
            }
            writeln!(f, "{last}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_mechanism_once_and_names_what_stands_for_the_missing() {
        let table = table();
        let mut names: Vec<&str> = table.rows.iter().map(|row| row.capabilities.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), table.rows.len());
        for row in table.rows.iter().filter(|row| row.stands_for_it.is_some()) {
            let today = row.stands_for_it.unwrap();
            let stand_in = table.rows.iter().find(|row| row.capabilities.name == today).unwrap();
            assert_eq!(row.capabilities.trigger, stand_in.capabilities.trigger);
            assert!(!row.available);
        }
        let epoll = table.rows.iter().find(|row| row.capabilities.name == "epoll").unwrap();
        assert!(epoll.available && epoll.why_not.is_none());
    }

    #[test]
    fn what_can_overflow_says_what_it_falls_back_to() {
        for row in table().rows {
            let capabilities = row.capabilities;
            assert_eq!(capabilities.overflow != Overflow::Never, capabilities.falls_back_to.is_some());
        }
    }

    #[test]
    fn as_text_a_line_a_mechanism_and_as_json_an_object_each() {
        let table = table();
        let text = table.to_string();
        assert_eq!(text.lines().count(), table.rows.len() + 1);
        assert!(text.contains("declare_interest") && text.contains("epoll-et has its properties"));
        let json = serde_json::to_value(&table).unwrap();
        assert_eq!(json.as_array().unwrap().len(), table.rows.len());
        assert_eq!(json[0]["name"], "epoll");
        assert_eq!(json[0]["trigger"], "level");
        assert_eq!(json[0]["must_drain"], false);
        assert_eq!(json[0]["available"], true);
    }
}
