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
use std::os::fd::OwnedFd;

use base::Nanos;
use confine::Rights;
use overload::{Change, ForeignControl, Readings, RequestTotals, State};
use rustix::net::AddressFamily;
use sys::network::netlink::{Listener, SocketDiagnostics};

use crate::GuardError;
use crate::address::Address;
use crate::attachment::Wanted;
use crate::parts::Parts;
use crate::queue::AcceptQueues;
use crate::search::target::Place;
use crate::starter::{Link, Starter};
use crate::status::{RequestFigures, Split, Status};

/// The time between two looks at devices.
const DEVICES_EVERY: Nanos = Nanos::from_millis(200);
/// The time after which a failed attachment is tried again.
const RETRY: Nanos = Nanos::SECOND;
/// The time between two lists of the listeners of both families. A list walks over the kernel's whole table. In between,
/// one known listener is looked up by its address, and of several the known families are listed.
const FAMILIES_EVERY: Nanos = Nanos::from_millis(100);
/// The shortest time between two ticks: that of the smallest target.
const TICK_LEAST: Nanos = Nanos::from_micros(250);
/// The time between two ticks while there is nothing to decide.
const TICK_UNGUARDED: Nanos = Nanos::from_millis(20);
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
    address: Address,
    settings: Settings,
    link: Link,
    /// The rights of the starter, if it is another process, and of this process.
    rights: Option<Split>,
    diagnostics: SocketDiagnostics,
    queues: AcceptQueues,
    listeners: Vec<Listener>,
    parts: Option<Parts>,
    control: ForeignControl,
    /// The time of the last tick.
    ticked: Nanos,
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
    /// Finds the listeners of a place and begins to guard them, with a starter in this process.
    ///
    /// # Errors
    /// [`GuardError::NoListener`], and those of attaching.
    pub fn open(place: Place, settings: Settings, now: Nanos) -> Result<Guard, GuardError> {
        let mut starter = Starter::open(place, settings.wanted.clone())?;
        let (ours, theirs) = sys::socket::passing::pair()?;
        std::thread::Builder::new().name("starter".to_owned()).spawn(move || {
            // Its end is seen by the guard, which says so.
            let _ = starter.serve(&theirs, None);
        })?;
        Guard::connect(ours, settings, now)
    }

    /// Begins to guard the listeners of a starter, which serves the other end of `socket`. Needs no right.
    ///
    /// # Errors
    /// [`GuardError::Starter`], with the starter's reason.
    pub fn connect(socket: OwnedFd, settings: Settings, now: Nanos) -> Result<Guard, GuardError> {
        let (link, ready) = Link::open(socket)?;
        let mut guard = Guard {
            control: ForeignControl::new(settings.target, now),
            ticked: now,
            address: ready.address,
            settings,
            link,
            rights: ready.rights.map(|starter| Split { starter, controller: Rights::default() }),
            diagnostics: ready.diagnostics,
            queues: AcceptQueues::new(ready.snmp),
            listeners: Vec::new(),
            parts: None,
            retry: None,
            devices_due: now,
            families_due: now,
            readings: Readings::default(),
            before: Totals::default(),
            would_refuse: 0.0,
            window: Window { began: now, ..Window::default() },
        };
        let listeners = guard.list(now)?;
        // A controller that is started again may find the server away. It attaches when the server is back.
        if !listeners.is_empty() {
            guard.attach(listeners)?;
        }
        Ok(guard)
    }

    /// Shows these rights of this process beside those of its starter.
    pub fn set_rights(&mut self, controller: Rights) {
        if let Some(split) = &mut self.rights {
            split.controller = controller;
        }
    }

    /// True once the starter has ended. Everything is admitted then, for ever.
    pub fn is_alone(&self) -> bool {
        self.link.is_gone()
    }

    /// The time of the next tick.
    pub fn due(&self) -> Nanos {
        let decides = self.parts.is_some() && !self.listeners.is_empty();
        self.control.due().max(self.ticked + if decides { TICK_LEAST } else { TICK_UNGUARDED })
    }

    /// One line: the listener, its owner, and what was taken.
    pub fn description(&self) -> String {
        let taken = self.parts.as_ref().map(|parts| parts.description().to_string()).unwrap_or_default();
        format!("{} {taken}", self.address)
    }

    /// Reads the signals, decides, and tells the hook. Follows the server. Makes some ten system calls.
    pub fn tick(&mut self, now: Nanos) -> Vec<Event> {
        let mut events = Vec::new();
        self.ticked = now;
        match self.list(now) {
            Ok(listeners) => events.extend(self.follow(listeners, now)),
            // The kernel was busy with the list. The next tick reads it.
            Err(_) => return events,
        }
        if now >= self.devices_due {
            self.devices_due = now + DEVICES_EVERY;
            if self.parts.as_ref().is_some_and(Parts::is_on_devices) {
                // A starter that has ended is said by `is_alone`.
                let lines = self.link.follow_devices().unwrap_or_default();
                events.extend(lines.into_iter().map(Event::Devices));
            }
        }
        events.extend(self.decide(now));
        if now >= self.window.began + WINDOW {
            self.measure(now);
        }
        events
    }

    /// Takes the guard away, in order.
    pub fn close(mut self) {
        self.parts = None;
        // A starter that has ended has undone less, and nothing more can be done here.
        let _ = self.link.release();
    }

    /// The server's listeners, without a sink of ours.
    fn list(&mut self, now: Nanos) -> std::io::Result<Vec<Listener>> {
        let own = self.parts.as_ref().and_then(Parts::own_inode);
        let port = self.address.port;
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
        found.retain(|listener| self.address.is_taken_by(listener) && Some(listener.inode) != own);
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
            self.retry = None;
            if let Some(parts) = &mut self.parts {
                parts.admit_all();
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
        // The starter looks for the listeners too, and must not find our sink among them.
        self.parts = None;
        let (description, descriptors) = self.link.attach()?;
        let mut parts =
            Parts::open(description, descriptors, self.settings.wanted.salt, &self.settings.wanted.exempt)?;
        let (syns, refused) = parts.syns();
        let total = Totals { syns: self.readings.syns.unwrap_or_default(), refused: self.readings.refused };
        self.before.syns = total.syns.saturating_sub(syns.unwrap_or_default());
        self.before.refused = total.refused.saturating_sub(refused);
        self.parts = Some(parts);
        Ok(())
    }

    /// Reads, decides and refuses.
    fn decide(&mut self, now: Nanos) -> Option<Event> {
        let parts = self.parts.as_mut().filter(|_| !self.listeners.is_empty())?;
        let requests = parts.requests().map(|programs| totals(programs.counts()));
        let (syns, refused) = parts.syns();
        let refused_inside = if parts.refuses_at_the_listener() { refused } else { 0 };
        let queue = self.queues.read(&self.listeners, requests.is_none(), refused_inside);
        let before = self.readings;
        self.readings = Readings {
            requests,
            queue: Some(queue),
            syns: syns.map(|syns| syns + self.before.syns),
            refused: refused + self.before.refused,
        };
        let change = self.control.tick(now, &self.readings);
        let admission = self.control.decision().admission;
        match parts.hook() {
            Some(hook) => {
                if let Err(error) = hook.admit(&admission) {
                    self.parts = None;
                    self.retry = Some(now + RETRY);
                    return Some(Event::Failed(error.into()));
                }
            }
            None => {
                let came = arrivals(&self.readings).saturating_sub(arrivals(&before));
                self.would_refuse += came as f64 * (1.0 - admission.share);
            }
        }
        change.map(Event::Changed)
    }

    /// Ends a window of a second.
    fn measure(&mut self, now: Nanos) {
        let seconds = (now - self.window.began).as_secs_f64();
        let answered = self.readings.requests.unwrap_or_default().answered;
        let times = self.parts.as_ref().and_then(Parts::requests).map(|programs| programs.times());
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
        let state = match (&self.parts, decision.state) {
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
            address: self.address.to_string(),
            state,
            signal: self.parts.as_ref().map_or("none", Parts::signal_name),
            hook: self.parts.as_ref().map_or("none", Parts::hook_name),
            listeners: self.listeners.len(),
            owners: self
                .parts
                .as_ref()
                .filter(|_| !self.listeners.is_empty())
                .map(|parts| parts.description().owners.clone())
                .unwrap_or_default(),
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
            rights: self.rights.clone(),
        }
    }
}

/// The connections that have come: SYNs if the programs see them, or else what the accept queue has got and dropped.
fn arrivals(readings: &Readings) -> u64 {
    let of_the_queue =
        || readings.queue.map_or(0, |queue| queue.accepted + u64::from(queue.depth) + queue.dropped);
    readings.syns.unwrap_or_else(of_the_queue)
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
