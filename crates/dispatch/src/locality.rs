//! Locality-aware event dispatching (Liu and Chen, "A Scalable Locality-Aware Event Dispatching Mechanism
//! for Network Servers"): polling sets of different frequency, because most connections are idle most of
//! the time and poll pays for all of them at every call.
//!
//! ```text
//!             N-1 polls without an event          N-1 polls without an event
//!    active ----------------------------> doze ----------------------------> idle
//!    every call                           every N calls                      every N² calls
//!      ^                                   |                                  |
//!      +------- events in two consecutive polls of its set -------------------+
//! ```
//!
//! N-1 polls of the active set are N-1 calls, N-1 polls of the doze set N²-N calls: the paper's numbers.
//! One direction at a time or both; a payload comes back with every event; a deadline is checked when its
//! descriptor's set is polled and reported as an event, once. Owns no descriptors: whoever closes one
//! removes it first.
//!
//! How a call waits is ours, because the paper's server burns its processor: it polls without blocking and
//! sleeps 500 us after 100 empty calls. Here
//!
//! - an empty call *naps* on the sets it polls, for at most [`Settings::nap`], and is ended early by an event
//!   in one of them. An event in a rarer set is noticed after at most N^k naps;
//! - after [`Settings::sleep_threshold`] consecutive empty calls the wait sleeps on all sets at once;
//! - no wait that may block ends empty, and none sleeps longer than a nap, without having polled every set,
//!   or an event would be slept on. A wait that may not block is one call and polls what is due.

mod controller;
mod sets;

pub use controller::{PRICE, Tuning};

use std::io;
use std::os::fd::RawFd;

use base::{Clock, Nanos, RealClock};
use sys::poll::{self, PollFd};

use crate::Waited;
use controller::Controller;
use sets::{Member, Sets};

/// How many sets, how often they are polled, and how a wait sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Polling sets: 1 or more. The paper's three.
    pub sets: u8,
    /// N, the default live counter: 2 or more, 3 to 10 is useful. The paper's 3.
    pub live_counter: u32,
    /// Consecutive empty calls after which a wait sleeps on all sets. The paper's 100.
    pub sleep_threshold: u32,
    /// The longest an empty call stays with the sets it polls; zero spins as the paper does.
    pub nap: Nanos,
    /// What tunes itself, from the given value on.
    pub adapts: Adapts,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sets: 3,
            live_counter: 3,
            sleep_threshold: 100,
            nap: Nanos::from_micros(500),
            adapts: Adapts::default(),
        }
    }
}

/// Which of the two settings tune themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adapts {
    /// [`Settings::live_counter`].
    pub live_counter: bool,
    /// [`Settings::sleep_threshold`].
    pub sleep_threshold: bool,
}

impl Adapts {
    /// Both.
    pub const BOTH: Adapts = Adapts { live_counter: true, sleep_threshold: true };

    fn any(self) -> bool {
        self.live_counter || self.sleep_threshold
    }
}

/// What is reported of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which one.
    pub fd: RawFd,
    /// What was given with it.
    pub payload: u64,
    /// What happened, in [`sys::poll::bits`]; 0 for a deadline.
    pub bits: i16,
    /// Its deadline has passed; it has none now.
    pub timed_out: bool,
}

/// The polling sets and the calls.
///
/// ```
/// use dispatch::locality::{PollingSets, Settings};
/// use std::os::fd::AsRawFd;
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let mut sets = PollingSets::new(Settings::default(), base::RealClock::new());
/// sets.register(listener.as_raw_fd(), sys::poll::bits::IN, 7, true);
///
/// let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
/// let mut events = Vec::new();
/// sets.wait(&mut events, None)?;
/// assert_eq!(events[0].payload, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PollingSets<C = RealClock> {
    sets: Sets,
    /// What tunes itself is kept in `tuning`.
    nap: Nanos,
    tuning: Tuning,
    controller: Option<Controller>,
    clock: C,
    calls: u64,
    /// Consecutive calls without an event.
    empty_calls: u32,
    /// Members that have a deadline.
    deadlines: usize,
}

/// How a poll ended.
#[derive(PartialEq, Eq)]
enum Polled {
    Events,
    Nothing,
    Interrupted,
}

impl<C: Clock> PollingSets<C> {
    /// Empty sets. Numbers below the settings' ranges count as the smallest in it.
    pub fn new(settings: Settings, clock: C) -> PollingSets<C> {
        let count = usize::from(settings.sets.max(1));
        let tuning =
            Tuning { live_counter: settings.live_counter.max(2), sleep_threshold: settings.sleep_threshold };
        PollingSets {
            sets: Sets::new(count, tuning.live_counter),
            nap: settings.nap,
            tuning,
            controller: settings
                .adapts
                .any()
                .then(|| Controller::new(count, tuning, settings.adapts, clock.now())),
            clock,
            calls: 0,
            empty_calls: 0,
            deadlines: 0,
        }
    }

    /// Adds a descriptor, or gives a known one other bits ([`sys::poll::bits`]), payload and lock. It
    /// starts active, without a deadline; locked, it stays active.
    pub fn register(&mut self, fd: RawFd, bits: i16, payload: u64, locked: bool) {
        self.unregister(fd);
        self.sets.insert(fd, bits, Member::new(payload, locked));
    }

    /// Changes bits, payload and deadline of a descriptor and leaves it in its set. False where it is not
    /// known.
    pub fn update(&mut self, fd: RawFd, bits: i16, payload: u64, deadline: Option<Nanos>) -> bool {
        let Some(member) = self.sets.member(fd) else { return false };
        self.deadlines -= usize::from(member.deadline.is_some());
        self.deadlines += usize::from(deadline.is_some());
        (member.payload, member.deadline) = (payload, deadline);
        self.sets.set_bits(fd, bits);
        true
    }

    /// Forgets a descriptor. False where it is not known.
    pub fn unregister(&mut self, fd: RawFd) -> bool {
        let removed = self.sets.remove(fd);
        self.deadlines -= usize::from(removed.is_some_and(|member| member.deadline.is_some()));
        removed.is_some()
    }

    /// How many descriptors each set has, the most often polled first.
    pub fn lengths(&self) -> Vec<usize> {
        self.sets.lengths().collect()
    }

    /// The live counter and the sleep threshold in force.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Waits and appends events. `None` waits for ever, zero is one call and does not block.
    ///
    /// # Errors
    /// None that a peer can cause.
    pub fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        if timeout == Some(Nanos::ZERO) {
            let due = self.next_call();
            return self.poll(due, events, timeout).map(ended);
        }
        let until = timeout.map(|timeout| self.clock.now().saturating_add(timeout));
        let all = self.sets.count();
        loop {
            let left = until.map(|until| until.saturating_sub(self.clock.now()));
            let polled = if left == Some(Nanos::ZERO) {
                return self.poll(all, events, left).map(ended);
            } else if self.empty_calls < self.tuning.sleep_threshold {
                let nap = self.nap.min(left.unwrap_or(Nanos::MAX));
                let due = self.next_call();
                self.poll(due, events, Some(nap))?
            } else {
                self.sleep(events, left)?
            };
            if polled != Polled::Nothing {
                return Ok(ended(polled));
            }
        }
    }

    /// Counts a call and says how many sets it polls.
    fn next_call(&mut self) -> usize {
        self.calls += 1;
        if self.controller.as_mut().is_some_and(Controller::call) {
            self.tune();
        }
        self.sets.due(self.calls)
    }

    fn tune(&mut self) {
        let members = self.lengths();
        if let Some(controller) = &mut self.controller {
            self.tuning = controller.decide(self.clock.now(), &members);
            self.sets.set_live_counter(self.tuning.live_counter);
        }
    }

    /// Waits for all sets at once.
    fn sleep(&mut self, events: &mut Vec<Event>, left: Option<Nanos>) -> io::Result<Polled> {
        let began = self.controller.as_ref().map(|_| self.clock.now());
        let longest = [left, self.until_next_deadline()].into_iter().flatten().min();
        let polled = self.poll(self.sets.count(), events, longest)?;
        if let (Some(controller), Some(began)) = (&mut self.controller, began) {
            controller.slept(self.clock.now() - began);
        }
        Ok(polled)
    }

    /// Polls the first sets, and reports.
    fn poll(&mut self, sets: usize, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Polled> {
        match poll::wait(self.sets.fds(sets), timeout) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Polled::Interrupted),
            Err(error) => return Err(error),
        }
        let before = events.len();
        let controller = &mut self.controller;
        self.sets.settle(sets, PollFd::reported, |set, fd, member, bits| {
            if let Some(controller) = controller {
                controller.event(set);
            }
            events.push(Event { fd, payload: member.payload, bits, timed_out: false });
        });
        self.report_deadlines(sets, events);
        if events.len() == before {
            self.empty_calls = self.empty_calls.saturating_add(1);
            return Ok(Polled::Nothing);
        }
        self.empty_calls = 0;
        Ok(Polled::Events)
    }

    fn report_deadlines(&mut self, sets: usize, events: &mut Vec<Event>) {
        if self.deadlines == 0 {
            return;
        }
        let now = self.clock.now();
        let passed = self.sets.take_passed(sets, now, |fd, payload| {
            events.push(Event { fd, payload, bits: 0, timed_out: true });
        });
        self.deadlines -= passed;
    }

    fn until_next_deadline(&self) -> Option<Nanos> {
        if self.deadlines == 0 {
            return None;
        }
        let next = self.sets.members().filter_map(|member| member.deadline).min()?;
        Some(next.saturating_sub(self.clock.now()))
    }
}

fn ended(polled: Polled) -> Waited {
    if polled == Polled::Interrupted { Waited::Interrupted } else { Waited::Ready }
}
