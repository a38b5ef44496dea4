//! A live counter N and a sleep threshold that tune themselves, which the FDM paper leaves open.
//!
//! *Observations*: the silence before each event, the time to serve an event, and the number of members.
//! *Decisions*, once in a [`WINDOW`], by the cost model in [`model`]: N, the longest time between two polls
//! of every set, and the sleep threshold.
//!
//! *N and the longest time* are the pair of least cost on a grid, if it saves enough against the pair in
//! force. N has a horizon: members whose silences are shorter stay active. In a rarer set, an event after
//! such a silence moves its member up by itself. The paper's rule of events in two consecutive polls would
//! never move up a member that speaks less often than its set is polled.
//!
//! *The sleep threshold.* Sleeping costs one block on all sets; going on costs processor time for every call.
//! The length of the emptiness is unknown, so this is the ski-rental problem. Going on until the calls have
//! cost as much as the sleep is at most twice as expensive as the best choice. If events usually arrive
//! earlier, the wait sleeps only on an emptiness that would be a surprise at their rate.
//!
//! *Bounds.* N stays in [`LIVE_COUNTERS`], the threshold in [`SLEEP_THRESHOLDS`], and every set is polled
//! once in [`LONGEST`], however rare its events are. Pure: no clock, no system call.
//!
//! The modules: `gaps` is the histogram of silences, `model` the cost of a choice.

mod gaps;
mod model;

use std::ops::RangeInclusive;

use base::Nanos;

use super::Adapts;
use gaps::Gaps;
use model::{Choice, Model};

/// Time between two decisions.
pub const WINDOW: Nanos = Nanos::from_millis(250);
/// Range of N.
pub const LIVE_COUNTERS: RangeInclusive<u32> = 2..=10_000;
/// Range of the sleep threshold.
pub const SLEEP_THRESHOLDS: RangeInclusive<u32> = 1..=1000;
/// Longest time between two polls of a set under an adaptive N.
pub const LONGEST: Nanos = Nanos::SECOND;
/// Seconds of processor time that are worth one second of one request's delay. A nap's delay of 500 us then
/// equals the 25 us that a request costs to serve.
pub const PRICE: f64 = 0.05;

/// The controller's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// N, the live counter.
    pub live_counter: u32,
    /// Consecutive empty calls before a wait sleeps on all sets.
    pub sleep_threshold: u32,
    /// Longest time between two polls of every set, even if N² calls take longer.
    pub longest: Nanos,
    /// A silence below the horizon moves a member up with its next event. Zero if N is fixed: then the
    /// paper's rule alone holds.
    pub horizon: Nanos,
}

/// The observations since the last decision, and the tuning in force.
#[derive(Clone, Debug)]
pub struct Controller {
    tuning: Tuning,
    adapts: Adapts,
    /// Length of an empty call, in seconds.
    nap: f64,
    gaps: Gaps,
    choice: Choice,
    /// Observations since the last decision.
    window: Window,
}

/// Counts between two decisions.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Nanos,
    calls: u64,
    events: u64,
    /// Time between waits.
    serving: Nanos,
    /// Time asleep on all sets.
    slept: Nanos,
}

impl Controller {
    /// A controller that begins with `tuning`; an empty call takes `nap`.
    pub fn new(tuning: Tuning, adapts: Adapts, nap: Nanos, now: Nanos) -> Controller {
        let nap = nap.as_secs_f64().max(1e-6);
        let horizon = f64::from(tuning.live_counter) * nap;
        let choice = Choice { horizon, longest: tuning.longest.as_secs_f64() };
        let window = Window { began: now, ..Window::default() };
        Controller { tuning, adapts, nap, gaps: Gaps::default(), choice, window }
    }

    /// Records an event of a member after a silence of `gap`.
    pub fn event(&mut self, gap: Nanos) {
        self.gaps.event(gap);
        self.window.events += 1;
    }

    /// Records the time between the end of one wait and the beginning of the next.
    pub fn served(&mut self, time: Nanos) {
        self.window.serving += time;
    }

    /// Records the length of a sleep on all sets.
    pub fn slept(&mut self, time: Nanos) {
        self.window.slept += time;
    }

    /// Records calls. Returns true if a decision is due.
    pub fn called(&mut self, calls: u64, now: Nanos) -> bool {
        self.window.calls += calls;
        now.saturating_sub(self.window.began) >= WINDOW
    }

    /// Decides for `sets` sets with `members` members in all.
    pub fn decide(&mut self, now: Nanos, sets: usize, members: usize) -> Tuning {
        let window = std::mem::replace(&mut self.window, Window { began: now, ..Window::default() });
        let elapsed = now.saturating_sub(window.began);
        self.gaps.pass(elapsed);
        let service = window.serving.as_secs_f64() / window.events.max(1) as f64;
        let model = Model { gaps: &self.gaps, sets, members, nap: self.nap, service };
        if self.adapts.live_counter {
            self.choice = model.best(self.choice);
            self.tuning.live_counter = model.live_counter(self.choice);
            self.tuning.longest = Nanos::from_secs_f64(self.choice.longest);
            self.tuning.horizon = Nanos::from_secs_f64(self.choice.horizon);
        } else {
            let call = elapsed.saturating_sub(window.slept).as_secs_f64() / window.calls.max(1) as f64;
            self.choice.horizon = (f64::from(self.tuning.live_counter) * call).max(self.nap);
        }
        if self.adapts.sleep_threshold {
            let calls = (model.emptiness(self.choice) / self.nap).round() as u32;
            self.tuning.sleep_threshold = calls.clamp(*SLEEP_THRESHOLDS.start(), *SLEEP_THRESHOLDS.end());
        }
        self.tuning
    }
}

#[cfg(test)]
mod tests;
