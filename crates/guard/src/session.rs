//! One guarded listener: reads the signals, asks the law, tells the hook, and keeps up with the server.
//!
//! ```text
//!              listener found                   listener gone
//!   start ───────────────────> guarding ───────────────────────> gone: everything admitted
//!                                 ^  │ listeners changed             │ listener found
//!                                 │  v                               v
//!                                 └─ attach again <──────────────────┘
//!                                        │ failed: everything admitted, tried again each second
//! ```
//!
//! Owns the loop's one step, [`Guard::tick`]. The caller owns the loop, the clock and the printing.
//!
//! Invariant: the hook obeys the law only while the listener is there. In every other state everything is admitted.

use std::fmt;

use base::Nanos;
use overload::{Change, ForeignControl, Readings, RequestTotals, State};
use rustix::net::AddressFamily;
use sys::netlink::{Listener, SocketDiagnostics};

use crate::GuardError;
use crate::attachment::{Attachment, Found, Wanted};
use crate::owner::{Holding, Owner, holders};
use crate::queue::AcceptQueues;
use crate::status::{RequestFigures, Status};
use crate::target::Place;

/// The time between two looks at devices.
const DEVICES_EVERY: Nanos = Nanos::from_millis(200);
/// The time after which a failed attachment is tried again.
const RETRY: Nanos = Nanos::SECOND;
/// The time between two lists of the listeners of both families. A list walks over the kernel's whole table. In between,
/// one known listener is looked up by its address, and of several the known families are listed.
const FAMILIES_EVERY: Nanos = Nanos::from_millis(100);
/// The time over which rates and quantiles are taken.
const WINDOW: Nanos = Nanos::SECOND;

/// The settings of a guard.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The approximate maximum wait of clients for their turn: 1 ms or more.
    pub target: Nanos,
    /// The parts in the kernel.
    pub wanted: Wanted,
}

/// A line for the operator.
#[derive(Debug)]
pub enum Event {
    /// The law began or ended to refuse.
    Changed(Change),
    /// No listener is left.
    Gone,
    /// A listener is there again, or others are; what was taken.
    Following(String),
    /// The listener is there and cannot be guarded.
    Failed(GuardError),
    /// A change of the devices.
    Devices(String),
}

/// Guards the listeners of one address.
pub struct Guard {
    place: Place,
    settings: Settings,
    diagnostics: SocketDiagnostics,
    queues: AcceptQueues,
    listeners: Vec<Listener>,
    owners: Vec<Owner>,
    attachment: Option<Attachment>,
    control: ForeignControl,
    /// The time of the next attempt after a failure.
    retry: Option<Nanos>,
    devices_due: Nanos,
    families_due: Nanos,
    readings: Readings,
    /// Totals before the present attachment.
    before: Totals,
    would_refuse: f64,
    window: Window,
}

/// Counts that start again with each attachment.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    syns: u64,
    refused: u64,
}

/// The answers of the last whole second.
#[derive(Default)]
struct Window {
    began: Nanos,
    answered: u64,
    times: Option<bpf::guard::Times>,
    answers_per_s: f64,
    p50: Option<Nanos>,
    p99: Option<Nanos>,
}

impl Guard {
    /// Finds the listeners of a place and begins to guard them.
    ///
    /// # Errors
    /// [`GuardError::NoListener`], and those of attaching.
    pub fn open(place: Place, settings: Settings, now: Nanos) -> Result<Guard, GuardError> {
        let opened =
            place.within(|| Ok::<_, std::io::Error>((SocketDiagnostics::open()?, AcceptQueues::open()?)))?;
        let (diagnostics, queues) = opened?;
        let mut guard = Guard {
            control: ForeignControl::new(settings.target, now),
            place,
            settings,
            diagnostics,
            queues,
            listeners: Vec::new(),
            owners: Vec::new(),
            attachment: None,
            retry: None,
            devices_due: now,
            families_due: now,
            readings: Readings::default(),
            before: Totals::default(),
            would_refuse: 0.0,
            window: Window { began: now, ..Window::default() },
        };
        let listeners = guard.list(now)?;
        if listeners.is_empty() {
            let place = "this network namespace".to_owned();
            return Err(GuardError::NoListener { place, address: Some(guard.place.address) });
        }
        guard.attach(listeners)?;
        Ok(guard)
    }

    /// The time of the next tick.
    pub fn due(&self) -> Nanos {
        self.control.due()
    }

    /// One line: the listener, its owner, and what was taken.
    pub fn description(&self) -> String {
        let owner = match self.owners.as_slice() {
            [] => "owner not visible to this user".to_owned(),
            [one] => format!("{}, process {}", one.name, one.pid),
            [first, rest @ ..] => format!("{}, process {} and {} more", first.name, first.pid, rest.len()),
        };
        let taken = self.attachment.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("{} ({owner}): {taken}", self.place.address)
    }

    /// Reads the signals, decides, and tells the hook. Follows the server. Makes some ten system calls.
    pub fn tick(&mut self, now: Nanos) -> Vec<Event> {
        let mut events = Vec::new();
        match self.list(now) {
            Ok(listeners) => events.extend(self.follow(listeners, now)),
            // The kernel was busy with the list. The next tick reads it.
            Err(_) => return events,
        }
        if now >= self.devices_due {
            self.devices_due = now + DEVICES_EVERY;
            let lines = self.attachment.as_mut().map(Attachment::follow_devices).unwrap_or_default();
            events.extend(lines.into_iter().map(Event::Devices));
        }
        events.extend(self.decide(now));
        if now >= self.window.began + WINDOW {
            self.measure(now);
        }
        events
    }

    /// Takes the guard away, in order.
    pub fn close(mut self) {
        if let Some(mut attachment) = self.attachment.take() {
            attachment.release();
        }
    }

    /// The server's listeners, without a sink of ours.
    fn list(&mut self, now: Nanos) -> std::io::Result<Vec<Listener>> {
        let own = self.attachment.as_ref().and_then(Attachment::own_inode);
        let port = self.place.address.port;
        if now < self.families_due
            && let [known] = self.listeners.as_slice()
            && let Some(listener) = self.diagnostics.listener(known)?
        {
            return Ok(vec![listener]);
        }
        let are_v4 = |all: &[Listener]| all.iter().all(|listener| listener.address.is_ipv4());
        let mut found = match now < self.families_due && are_v4(&self.listeners) {
            true => self.diagnostics.listeners_of(AddressFamily::INET, port)?,
            false => {
                self.families_due = now + FAMILIES_EVERY;
                self.diagnostics.listeners(port)?
            }
        };
        found.retain(|listener| self.place.address.is_taken_by(listener) && Some(listener.inode) != own);
        Ok(found)
    }

    /// Attaches to listeners that differ from the known ones. Returns what is worth a line.
    fn follow(&mut self, listeners: Vec<Listener>, now: Nanos) -> Option<Event> {
        let cookies = |listeners: &[Listener]| {
            let mut cookies: Vec<u64> = listeners.iter().map(|listener| listener.cookie).collect();
            cookies.sort_unstable();
            cookies
        };
        let is_same = cookies(&listeners) == cookies(&self.listeners);
        if is_same && self.retry.is_none_or(|retry| now < retry) {
            self.listeners = listeners;
            return None;
        }
        if listeners.is_empty() {
            self.listeners.clear();
            self.owners.clear();
            self.retry = None;
            if let Some(attachment) = &mut self.attachment {
                attachment.open();
            }
            return Some(Event::Gone);
        }
        let failed_before = self.retry.take().is_some() && is_same;
        match self.attach(listeners) {
            Ok(()) => Some(Event::Following(self.description())),
            Err(error) => {
                self.retry = Some(now + RETRY);
                (!failed_before).then_some(Event::Failed(error))
            }
        }
    }

    fn attach(&mut self, listeners: Vec<Listener>) -> Result<(), GuardError> {
        self.listeners = listeners;
        let holdings = self.holdings()?;
        let mut pids: Vec<i32> = holdings.iter().map(|holding| holding.pid).collect();
        pids.dedup();
        self.owners = pids.into_iter().filter_map(Owner::of).collect();
        let found = Found { place: &self.place, listeners: &self.listeners, holdings: &holdings };
        let attached = match self.attachment.take() {
            None => Attachment::make(&self.settings.wanted, found),
            Some(mut attachment) => attachment.follow(found).map(|()| attachment),
        };
        let mut attached = attached?;
        let (syns, refused) = attached.syns();
        let total = Totals { syns: self.readings.syns.unwrap_or_default(), refused: self.readings.refused };
        self.before.syns = total.syns.saturating_sub(syns.unwrap_or_default());
        self.before.refused = total.refused.saturating_sub(refused);
        self.attachment = Some(attached);
        Ok(())
    }

    /// The descriptors of the listeners. Those of an MPTCP listener name its outer socket.
    fn holdings(&mut self) -> std::io::Result<Vec<Holding>> {
        let outer = self.diagnostics.mptcp_listeners(self.place.address.port)?;
        let inodes: Vec<u32> = self
            .listeners
            .iter()
            .chain(&outer)
            .map(|listener| listener.inode)
            .filter(|inode| *inode != 0)
            .collect();
        let mut found: Vec<Holding> = holders(&inodes).into_values().flatten().collect();
        found.sort_unstable_by_key(|holding| (holding.pid, holding.descriptor));
        Ok(found)
    }

    /// Reads, decides and refuses.
    fn decide(&mut self, now: Nanos) -> Option<Event> {
        let attachment = self.attachment.as_mut().filter(|_| !self.listeners.is_empty())?;
        let requests = attachment.requests().map(|programs| totals(programs.counts()));
        let queue = self.queues.read(&self.listeners, requests.is_none());
        let (syns, refused) = attachment.syns();
        let before = self.readings;
        self.readings = Readings {
            requests,
            queue: Some(queue),
            syns: syns.map(|syns| syns + self.before.syns),
            refused: refused + self.before.refused,
        };
        let change = self.control.tick(now, &self.readings);
        let admission = self.control.decision().admission;
        match attachment.hook() {
            Some(hook) => {
                if let Err(error) = hook.admit(&admission) {
                    self.attachment = None;
                    self.retry = Some(now + RETRY);
                    return Some(Event::Failed(error.into()));
                }
            }
            None => {
                let came =
                    self.readings.syns.unwrap_or_default().saturating_sub(before.syns.unwrap_or_default());
                self.would_refuse += came as f64 * (1.0 - admission.share);
            }
        }
        change.map(Event::Changed)
    }

    /// Ends a window of a second.
    fn measure(&mut self, now: Nanos) {
        let seconds = (now - self.window.began).as_secs_f64();
        let answered = self.readings.requests.unwrap_or_default().answered;
        let times = self.attachment.as_ref().and_then(Attachment::requests).map(|programs| programs.times());
        let last = match (&times, &self.window.times) {
            (Some(now), Some(then)) => Some(now.since(then)),
            (Some(now), None) => Some(now.clone()),
            (None, _) => None,
        };
        let quantile = |fraction| last.as_ref().and_then(|last| last.quantile(fraction));
        let answers_per_s = answered.saturating_sub(self.window.answered) as f64 / seconds;
        let (p50, p99) = (quantile(0.5), quantile(0.99));
        self.window = Window { began: now, answered, times, answers_per_s, p50, p99 };
    }

    /// The present figures.
    pub fn status(&self) -> Status {
        let decision = self.control.decision();
        let queue = self.readings.queue.unwrap_or_default();
        let state = match (&self.attachment, decision.state) {
            _ if self.listeners.is_empty() => "gone",
            (None, _) => "unguarded",
            (Some(_), State::Open) if decision.is_cautious => "cautious",
            (Some(_), State::Open) => "open",
            (Some(_), State::Shedding) => "refusing",
        };
        let figures = |requests: RequestTotals| RequestFigures {
            asked: requests.asked,
            answered: requests.answered,
            ended: requests.ended,
            unanswered: requests.unanswered(),
            stuck: decision.stuck,
            connections: requests.first_asked,
            per_connection: decision.requests_per_connection,
            answers_per_s: self.window.answers_per_s,
            first_byte_ns_p50: self.window.p50.map(|time| time.0),
            first_byte_ns_p99: self.window.p99.map(|time| time.0),
        };
        Status {
            address: self.place.address.to_string(),
            state,
            signal: self.attachment.as_ref().map_or("none", Attachment::signal_name),
            hook: self.attachment.as_ref().map_or("none", Attachment::hook_name),
            listeners: self.listeners.len(),
            owners: self.owners.clone(),
            queue_depth: queue.depth,
            queue_limit: queue.limit,
            queue_dropped: queue.dropped,
            requests: self.readings.requests.map(figures),
            waiting: decision.waiting,
            wait_ns: decision.queueing_delay.0,
            offered_per_s: decision.offered.0,
            service_per_s: decision.service_rate.map(|rate| rate.0),
            share: decision.admission.share,
            refused: self.readings.refused,
            would_refuse: self.would_refuse as u64,
        }
    }
}

fn totals(counts: bpf::guard::Counts) -> RequestTotals {
    RequestTotals {
        asked: counts.asked,
        answered: counts.answered,
        ended: counts.ended,
        first_asked: counts.first,
        answered_promptly: counts.prompt,
        ahead: counts.ahead,
        overtaking: counts.overtaking,
        first_byte_time: Nanos(counts.time_ns),
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Changed(change) => write!(f, "{change}"),
            Event::Gone => {
                write!(f, "the listener is gone: everything is admitted, and a new one will be guarded")
            }
            Event::Following(description) => write!(f, "the listeners have changed; guarding {description}"),
            Event::Failed(error) => {
                write!(f, "not guarded, everything is admitted: {error}; tried again each second")
            }
            Event::Devices(line) => write!(f, "{line}"),
        }
    }
}
