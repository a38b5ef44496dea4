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
//! - empty calls on the active set are a *nap* of [`Settings::nap`] each, ended early by an event in that
//!   set (`schedule`). An event in a rarer set is noticed after at most N^k naps;
//! - after [`Settings::sleep_threshold`] consecutive empty calls the wait sleeps on all sets at once: nothing
//!   sleeps without having polled every set, or an event would be slept on;
//! - no wait that may block ends empty without having polled every set, at its end or
//!   [`Settings::freshness`] before. A wait that may not block is one call and polls what is due.

mod controller;
mod schedule;
mod sets;

pub use controller::{LONGEST, PRICE, Tuning};

use std::io;
use std::os::fd::RawFd;

use base::{Clock, Nanos, RealClock};
use sys::poll::{self, PollFd};

use crate::{Waited, unless_interrupted};
use controller::Controller;
use schedule::{Next, Schedule};
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
    /// The longest an empty call stays with the active set; zero spins as the paper does.
    pub nap: Nanos,
    /// How long before the end of a wait that ends empty every set may have been polled for the last time. Zero
    /// for callers who want to know what there is; more for loops whose waits are ended by timers.
    pub freshness: Nanos,
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
            freshness: Nanos::ZERO,
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
    schedule: Schedule,
    controller: Option<Controller>,
    /// When the last poll ended.
    ended: Nanos,
    freshness: Nanos,
    clock: C,
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
        let longest = if settings.adapts.live_counter { LONGEST } else { Nanos::MAX };
        let Settings { sleep_threshold, nap, adapts, freshness, .. } = settings;
        let live_counter = settings.live_counter.max(2);
        let tuning = Tuning { live_counter, sleep_threshold, longest, horizon: Nanos::ZERO };
        let now = clock.now();
        PollingSets {
            sets: Sets::new(usize::from(settings.sets.max(1)), live_counter),
            schedule: Schedule::new(tuning, nap, now),
            controller: adapts.any().then(|| Controller::new(tuning, adapts, nap, now)),
            ended: now,
            freshness,
            clock,
            deadlines: 0,
        }
    }

    /// Adds a descriptor, or gives a known one other bits ([`sys::poll::bits`]), payload and lock. It
    /// starts active, without a deadline; locked, it stays active.
    pub fn register(&mut self, fd: RawFd, bits: i16, payload: u64, locked: bool) {
        self.unregister(fd);
        let since = self.controller.as_ref().map_or(Nanos::ZERO, |_| self.clock.now());
        self.sets.insert(fd, bits, Member::new(payload, locked, since));
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

    /// What tunes itself, as it is in force.
    pub fn tuning(&self) -> Tuning {
        self.schedule.tuning
    }

    /// Waits and appends events. `None` waits for ever, zero is one call and does not block.
    ///
    /// # Errors
    /// None that a peer can cause.
    pub fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        let mut now = self.clock.now();
        if let Some(controller) = &mut self.controller {
            controller.served(now.saturating_sub(self.ended));
        }
        if timeout == Some(Nanos::ZERO) {
            let due = self.schedule.due(&self.sets, now);
            return self.call(due, Nanos::ZERO, now, events).map(ended);
        }
        let until = timeout.map(|timeout| now.saturating_add(timeout));
        loop {
            let left = until.map_or(Nanos::MAX, |until| until.saturating_sub(now));
            let polled = match self.schedule.next(&self.sets, now) {
                Next::Look(sets) => self.call(sets, Nanos::ZERO, now, events)?,
                Next::Nap(nap) => {
                    self.call(1, nap.min(left).min(self.until_deadline(1, now)), now, events)?
                }
                Next::Sleep => self.sleep(left, now, events)?,
            };
            if polled != Polled::Nothing {
                return Ok(ended(polled));
            }
            now = self.ended;
            if until.is_some_and(|until| until <= now) {
                return self.end_empty(now, events);
            }
        }
    }

    /// The time of a wait is over.
    fn end_empty(&mut self, now: Nanos, events: &mut Vec<Event>) -> io::Result<Waited> {
        if self.schedule.not_all_since(now) <= self.freshness {
            return Ok(Waited::Ready);
        }
        self.call(self.sets.count(), Nanos::ZERO, now, events).map(ended)
    }

    /// Polls the first sets and reports; counts as a call, or as several.
    fn call(
        &mut self,
        sets: usize,
        longest: Nanos,
        now: Nanos,
        events: &mut Vec<Event>,
    ) -> io::Result<Polled> {
        let Some(ended) = self.poll(sets, longest)? else { return Ok(Polled::Interrupted) };
        let calls = self.schedule.counts_as(ended - now, longest);
        let polled = self.settle(sets, calls, ended, events);
        if self.controller.as_mut().is_some_and(|controller| controller.called(calls, ended)) {
            self.tune(ended);
        }
        Ok(polled)
    }

    /// Waits for all sets at once.
    fn sleep(&mut self, left: Nanos, now: Nanos, events: &mut Vec<Event>) -> io::Result<Polled> {
        let all = self.sets.count();
        let longest = left.min(self.until_deadline(all, now));
        let Some(ended) = self.poll(all, longest)? else { return Ok(Polled::Interrupted) };
        if let Some(controller) = &mut self.controller {
            controller.slept(ended - now);
        }
        Ok(self.settle(all, 1, ended, events))
    }

    /// Polls the first sets; returns when that ended, or nothing where a signal came first.
    fn poll(&mut self, sets: usize, longest: Nanos) -> io::Result<Option<Nanos>> {
        let polled = unless_interrupted(poll::wait(self.sets.fds(sets), Some(longest)))?;
        Ok(polled.map(|_| self.clock.now()))
    }

    /// Applies the rules to what a poll of the first sets has found, and reports it.
    fn settle(&mut self, sets: usize, calls: u64, now: Nanos, events: &mut Vec<Event>) -> Polled {
        self.ended = now;
        if self.sets.are_all(sets) {
            self.schedule.all_polled(now);
        }
        let before = events.len();
        let controller = &mut self.controller;
        self.sets.settle((sets, calls, now), PollFd::reported, |fd, member, bits, gap| {
            if let Some(controller) = controller {
                controller.event(gap);
            }
            events.push(Event { fd, payload: member.payload, bits, timed_out: false });
        });
        self.report_deadlines(sets, now, events);
        let found = events.len() > before;
        self.schedule.found(calls, found);
        if found { Polled::Events } else { Polled::Nothing }
    }

    fn tune(&mut self, now: Nanos) {
        let Some(controller) = &mut self.controller else { return };
        let tuning = controller.decide(now, self.sets.count(), self.sets.members());
        self.schedule.tuning = tuning;
        self.sets.tune(tuning.live_counter, tuning.horizon);
    }

    fn report_deadlines(&mut self, sets: usize, now: Nanos, events: &mut Vec<Event>) {
        if self.deadlines == 0 {
            return;
        }
        let passed = self.sets.take_passed(sets, now, |fd, payload| {
            events.push(Event { fd, payload, bits: 0, timed_out: true });
        });
        self.deadlines -= passed;
    }

    /// How long until the next deadline in the first sets, if there is one.
    fn until_deadline(&self, sets: usize, now: Nanos) -> Nanos {
        if self.deadlines == 0 {
            return Nanos::MAX;
        }
        self.sets.next_deadline(sets).map_or(Nanos::MAX, |next| next.saturating_sub(now))
    }
}

fn ended(polled: Polled) -> Waited {
    if polled == Polled::Interrupted { Waited::Interrupted } else { Waited::Ready }
}
