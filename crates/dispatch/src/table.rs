//! All mechanisms side by side: Table 1 of the FDM paper for this machine.
//!
//! [`table`] tries each mechanism on this machine. It adds two mechanisms of the paper that Linux never had, and names
//! their replacements. The module knows no other mechanism by name.

use std::fmt;

use base::setting::{AnySetting, Chosen, add_all, is_among};
use serde::Serialize;

use crate::capabilities::{Capabilities, InitialState, Overflow, Trigger};
use crate::locality::Rule;
use crate::mechanism::{Epoll, LIVE_COUNTER, Mechanism, RULE};
use crate::wait_settings::{self, SLEEP_THRESHOLD, Tunable, WAIT, spins};

/// Solaris's interface, from which epoll descends; it lacks epoll's exclusive wake-ups.
const DEV_POLL: Capabilities = Capabilities {
    name: "/dev/poll",
    descriptor_limit: "RLIMIT_NOFILE",
    exclusive_wake: false,
    ..Epoll::CAPABILITIES
};

/// Banga, Mogul, Druschel, "A Scalable and Explicit Event Delivery Mechanism for UNIX", 1999. Its queue can overflow,
/// as the FDM paper's table says.
const DECLARE_INTEREST: Capabilities = Capabilities {
    name: "declare_interest",
    many_interest_sets: false,
    overflow: Overflow::Queue,
    kernel_falls_back: true,
    trigger: Trigger::Edge,
    ..DEV_POLL
};

/// One mechanism in the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The mechanism's capabilities.
    #[serde(flatten)]
    pub capabilities: Capabilities,
    /// True if the owner of a descriptor must read or write until the call would block.
    pub must_drain: bool,
    /// True if the mechanism works on this machine for this user.
    pub available: bool,
    /// The reason why the mechanism is not available.
    pub why_not: Option<String>,
    /// The mechanism that has the same properties on Linux, for one that Linux lacks.
    pub stands_for_it: Option<&'static str>,
}

/// All mechanisms side by side. Prints as text, serialises as an array of rows.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Table {
    /// The rows in the command line's order, followed by the historical mechanisms.
    pub rows: Vec<Row>,
}

/// The capabilities of the command line's mechanisms, in its order.
pub fn declared() -> Vec<Capabilities> {
    macro_rules! declaration_of_each {
        ($($name:literal => $mechanism:ty,)*) => { vec![$(<$mechanism as Mechanism>::CAPABILITIES,)*] };
    }
    crate::for_each_mechanism!(declaration_of_each)
}

/// The capabilities of the command line's mechanism of this name.
pub fn by_name(name: &str) -> Option<Capabilities> {
    declared().into_iter().find(|known| known.name == name)
}

/// All settings of the mechanisms and of the wait, each once.
pub fn settings() -> Vec<&'static dyn AnySetting> {
    let mut all: Vec<&'static dyn AnySetting> = Vec::new();
    declared().iter().for_each(|mechanism| add_all(&mut all, mechanism.settings));
    add_all(&mut all, &[&WAIT]);
    add_all(&mut all, wait_settings::SETTINGS);
    all
}

/// The mechanisms and the wait that use the setting of a flag; empty if all mechanisms do.
pub fn users(flag: &str) -> Vec<&'static str> {
    let mechanisms =
        declared().into_iter().filter(|known| is_among(known.settings, flag)).map(|known| known.name);
    mechanisms.chain(is_among(wait_settings::SETTINGS, flag).then_some("--wait spin")).collect()
}

/// Refuses settings that have no effect with the mechanism of this name, and those that exclude each other.
///
/// # Errors
/// A line with the setting, and what uses it.
pub fn check(mechanism: &str, chosen: &Chosen) -> Result<(), String> {
    let known = by_name(mechanism);
    let uses = |flag: &str| {
        known.is_some_and(|known| is_among(known.settings, flag))
            || is_among(&[&WAIT], flag)
            || spins(chosen) && is_among(wait_settings::SETTINGS, flag)
    };
    if let Some((declaration, text)) = chosen.iter().find(|(declaration, _)| !uses(declaration.flag)) {
        let (flag, users) = (declaration.flag, users(declaration.flag).join(", "));
        return Err(format!(
            "{flag} {text} has no effect: {mechanism} {}; the setting is for {users}",
            declaration.without
        ));
    }
    let refused = |flag: &str, with| Err(format!("{flag} adaptive has no effect with {with}: give a number"));
    let tunes = |setting| chosen.get(setting) == Some(Tunable::Adaptive);
    if tunes(&SLEEP_THRESHOLD) && spins(chosen) {
        refused("--sleep-threshold", "--wait spin")
    } else if tunes(&LIVE_COUNTER) && spins(chosen) {
        refused("--fdm-live-counter", "--wait spin")
    } else if tunes(&LIVE_COUNTER) && chosen.get(&RULE) == Some(Rule::Counter) {
        refused("--fdm-live-counter", "--fdm-rule counter")
    } else {
        Ok(())
    }
}

/// Sets all mechanisms side by side and tries each on this machine. The trial makes an empty interest set and
/// drops it, in a thread of its own, because a mechanism may keep state per thread.
pub fn table() -> Table {
    macro_rules! row_of_each {
        ($($name:literal => $mechanism:ty,)*) => { vec![$(row::<$mechanism>(),)*] };
    }
    let mut rows = crate::for_each_mechanism!(row_of_each);
    rows.push(historical(DEV_POLL, "epoll", "has its properties"));
    rows.push(historical(DECLARE_INTEREST, "epoll-et", "has its properties, without a queue that overflows"));
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

fn historical(capabilities: Capabilities, today: &'static str, how: &str) -> Row {
    Row {
        capabilities,
        must_drain: capabilities.must_drain(),
        available: false,
        why_not: Some(format!("Linux does not have it; {today} {how}")),
        stands_for_it: Some(today),
    }
}

const HEADINGS: [&str; 15] = [
    "mechanism",
    "scales",
    "collapses",
    "many/call",
    "overflows",
    "kernel falls back",
    "recovers by",
    "initial state",
    "many sets",
    "file in one set",
    "trigger",
    "must drain",
    "descriptors up to",
    "exclusive",
    "available",
];

impl Row {
    fn cells(&self) -> [&str; 15] {
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
            yes_or_no(row.kernel_falls_back),
            row.recovers_by.unwrap_or("-"),
            match row.initial_state {
                InitialState::Reported => "reported",
                InitialState::PolledOnce => "polled once",
            },
            yes_or_no(row.many_interest_sets),
            yes_or_no(row.one_set_per_file),
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
    fn table_lists_each_mechanism_once_with_fallbacks() {
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
    fn each_overflow_has_exactly_one_recovery() {
        for row in table().rows {
            let Capabilities { name, overflow, kernel_falls_back, recovers_by, .. } = row.capabilities;
            assert_eq!(kernel_falls_back, name == "declare_interest");
            let recoveries = usize::from(kernel_falls_back) + usize::from(recovers_by.is_some());
            assert_eq!(recoveries, usize::from(overflow != Overflow::Never), "{name}");
        }
    }

    #[test]
    fn capabilities_are_found_by_the_mechanisms_name() {
        assert!(by_name("epoll").is_some_and(|known| !known.one_set_per_file));
        #[cfg(feature = "mechanisms")]
        assert!(by_name("rt-per-fd").is_some_and(|known| known.one_set_per_file));
        assert!(by_name("declare_interest").is_none());
    }

    #[test]
    fn table_prints_a_line_or_an_object_per_mechanism() {
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
