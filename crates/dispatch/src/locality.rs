//! Locality-aware event dispatching (Liu and Chen, "A Scalable Locality-Aware Event Dispatching Mechanism for
//! Network Servers"). Polling sets differ in frequency, because most connections are idle most of the time
//! and poll(2) pays for all of them at every call.
//!
//! ```text
//!             N-1 polls without an event          N-1 polls without an event
//!    active ----------------------------> doze ----------------------------> idle
//!    every call                           every N calls                      every N² calls
//!      ^                                   |                                  |
//!      +------- events in two consecutive polls of its set -------------------+
//! ```
//!
//! N-1 polls of the active set take N-1 calls, and N-1 polls of the doze set take N²-N calls: the paper's
//! numbers. A descriptor is watched in one direction or both, and its payload comes back with every event. A
//! deadline is checked when its descriptor's set is polled, and is reported once, as an event. Owns no
//! descriptors: their owner removes a descriptor before closing it.
//!
//! Section 3 of the paper has another rule than the drawn one of section 4.1, which was measured; see [`Rule`].
//!
//! The paper's server burns its processor: it polls without blocking and sleeps 500 us after 100 empty calls
//! (the `spin` module). Waiting is therefore our own design:
//!
//! - An empty call on the active set is a *nap* of [`Settings::nap`]; an event in that set ends it early
//!   (`schedule`). An event in a rarer set is noticed after at most N^k naps.
//! - After [`Settings::sleep_threshold`] consecutive empty calls the wait sleeps on all sets at once. A sleep
//!   polls every set, so that no event is slept on.
//! - A wait that may block polls every set before it ends empty, at its end or at most
//!   [`Settings::freshness`] earlier. A wait that may not block is one call and polls the sets that are due.
//!
//! The modules: `sets` has the members and the rules that move them, `schedule` chooses the next step of a
//! wait, and `controller` tunes N and the sleep threshold.

mod controller;
mod schedule;
mod sets;

pub use controller::{LONGEST, PRICE, Tuning};
pub use sets::Rule;

use std::io;
use std::os::fd::RawFd;

use base::{Clock, Nanos, RealClock};
use sys::readiness::poll::{self, PollFd};

use crate::{Waited, unless_interrupted};
use controller::Controller;
use schedule::{Next, Schedule};
use sets::{Member, Sets};

/// The number of sets, their frequencies, and the limits of sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of polling sets, at least 1. The paper has 3.
    pub sets: u8,
    /// N, the default live counter, at least 2; values from 3 to 10 are useful. The paper has 3.
    pub live_counter: u32,
    /// The rule that moves descriptors. A live counter that tunes itself needs [`Rule::Silences`].
    pub rule: Rule,
    /// Consecutive empty calls after which a wait sleeps on all sets. The paper has 100.
    pub sleep_threshold: u32,
    /// Longest time an empty call blocks on the active set. Zero spins as the paper does.
    pub nap: Nanos,
    /// Maximum age of a set's last poll when a wait returns empty. Zero suits callers that need the current
    /// state. Loops whose timers end their waits can use more.
    pub freshness: Nanos,
    /// The settings that tune themselves, beginning with the given values.
    pub adapts: Adapts,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sets: 3,
            live_counter: 3,
            rule: Rule::Silences,
            sleep_threshold: 100,
            nap: Nanos::from_micros(500),
            freshness: Nanos::ZERO,
            adapts: Adapts::default(),
        }
    }
}

/// Selects which of the two settings tune themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adapts {
    /// [`Settings::live_counter`].
    pub live_counter: bool,
    /// [`Settings::sleep_threshold`].
    pub sleep_threshold: bool,
}

impl Adapts {
    /// Both settings tune themselves.
    pub const BOTH: Adapts = Adapts { live_counter: true, sleep_threshold: true };

    fn any(self) -> bool {
        self.live_counter || self.sleep_threshold
    }
}

/// The report of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The descriptor's number.
    pub fd: RawFd,
    /// The payload given at registration.
    pub payload: u64,
    /// The events, in [`sys::readiness::poll::bits`]; 0 for a deadline.
    pub bits: i16,
    /// The descriptor's deadline has passed and is cleared.
    pub timed_out: bool,
}

/// The polling sets, and the calls that poll them.
///
/// ```
/// use dispatch::locality::{PollingSets, Settings};
/// use std::os::fd::AsRawFd;
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let mut sets = PollingSets::new(Settings::default(), base::RealClock::new());
/// sets.register(listener.as_raw_fd(), sys::readiness::poll::bits::IN, 7, true);
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
    /// The end of the last poll.
    ended: Nanos,
    freshness: Nanos,
    clock: C,
    /// Number of members with a deadline.
    deadlines: usize,
}

/// The result of a poll.
#[derive(PartialEq, Eq)]
enum Polled {
    Events,
    Nothing,
    Interrupted,
}

impl<C: Clock> PollingSets<C> {
    /// Empty sets. Values below a setting's range count as the range's smallest.
    pub fn new(settings: Settings, clock: C) -> PollingSets<C> {
        let longest = if settings.adapts.live_counter { LONGEST } else { Nanos::MAX };
        let Settings { sleep_threshold, nap, adapts, freshness, .. } = settings;
        let live_counter = settings.live_counter.max(2);
        let tuning = Tuning { live_counter, sleep_threshold, longest, horizon: Nanos::ZERO };
        let now = clock.now();
        let mut sets = Sets::new(usize::from(settings.sets.max(1)), live_counter);
        sets.rule = settings.rule;
        PollingSets {
            sets,
            schedule: Schedule::new(tuning, nap, now),
            controller: adapts.any().then(|| Controller::new(tuning, adapts, nap, now)),
            ended: now,
            freshness,
            clock,
            deadlines: 0,
        }
    }

    /// Adds a descriptor, or changes a known one's bits ([`sys::readiness::poll::bits`]), payload and lock. The
    /// descriptor starts active and without a deadline. A locked one stays active.
    pub fn register(&mut self, fd: RawFd, bits: i16, payload: u64, locked: bool) {
        self.unregister(fd);
        let since = self.controller.as_ref().map_or(Nanos::ZERO, |_| self.clock.now());
        self.sets.insert(fd, bits, Member::new(payload, locked, since));
    }

    /// Changes a descriptor's bits, payload and deadline, and leaves it in its set. Returns false for an
    /// unknown descriptor.
    pub fn update(&mut self, fd: RawFd, bits: i16, payload: u64, deadline: Option<Nanos>) -> bool {
        let Some(member) = self.sets.member(fd) else { return false };
        self.deadlines -= usize::from(member.deadline.is_some());
        self.deadlines += usize::from(deadline.is_some());
        (member.payload, member.deadline) = (payload, deadline);
        self.sets.set_bits(fd, bits);
        true
    }

    /// Forgets a descriptor. Returns false for an unknown one.
    pub fn unregister(&mut self, fd: RawFd) -> bool {
        let removed = self.sets.remove(fd);
        self.deadlines -= usize::from(removed.is_some_and(|member| member.deadline.is_some()));
        removed.is_some()
    }

    /// Number of descriptors in each set, the most often polled first.
    pub fn lengths(&self) -> Vec<usize> {
        self.sets.lengths().collect()
    }

    /// The tuning in force.
    pub fn tuning(&self) -> Tuning {
        self.schedule.tuning
    }

    /// Waits and appends events. A timeout of `None` waits forever; zero makes one call that does not block.
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

    /// Ends a wait whose timeout has passed without an event.
    fn end_empty(&mut self, now: Nanos, events: &mut Vec<Event>) -> io::Result<Waited> {
        if self.schedule.not_all_since(now) <= self.freshness {
            return Ok(Waited::Ready);
        }
        self.call(self.sets.count(), Nanos::ZERO, now, events).map(ended)
    }

    /// Polls the first `sets` sets and reports their events. Counts as one call or several.
    fn call(
        &mut self,
        sets: usize,
        longest: Nanos,
        now: Nanos,
        events: &mut Vec<Event>,
    ) -> io::Result<Polled> {
        let Some(ended) = self.poll(sets, longest)? else { return Ok(Polled::Interrupted) };
        let calls = self.schedule.counts_as(ended - now, longest);
        let polled = self.apply_poll(sets, calls, ended, events);
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
        Ok(self.apply_poll(all, 1, ended, events))
    }

    /// Polls the first `sets` sets. Returns the poll's end, or `None` if a signal arrived first.
    fn poll(&mut self, sets: usize, longest: Nanos) -> io::Result<Option<Nanos>> {
        let polled = unless_interrupted(poll::wait(self.sets.fds(sets), Some(longest)))?;
        Ok(polled.map(|_| self.clock.now()))
    }

    /// Applies the rules to the results of polling the first `sets` sets, and reports the events.
    fn apply_poll(&mut self, sets: usize, calls: u64, now: Nanos, events: &mut Vec<Event>) -> Polled {
        self.ended = now;
        if self.sets.are_all(sets) {
            self.schedule.all_polled(now);
        }
        let before = events.len();
        let controller = &mut self.controller;
        self.sets.apply_rules((sets, calls, now), PollFd::reported, |fd, member, bits, gap| {
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

    /// The time until the next deadline in the first `sets` sets; `Nanos::MAX` without one.
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
