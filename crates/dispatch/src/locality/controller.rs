//! A live counter N and a sleep threshold that tune themselves: what the FDM paper leaves open.
//!
//! *What it observes*: for how long each event's member had been silent, how long an event takes to be
//! served, and how many members there are. *What it decides*, once in a [`WINDOW`], by the cost model in
//! [`model`]: N, the longest time between two polls of every set, and the sleep threshold.
//!
//! *N and the longest time* are those of least cost on a grid, if they save enough against those in
//! force. N has a horizon: members that are silent for less stay active. One in a rarer set comes up with an event
//! after such a silence, because the rule of events in two polls in a row would never bring up one that
//! speaks less often than its set is polled.
//!
//! *The sleep threshold.* To sleep on all sets costs a block on all once, to go on costs what calling costs
//! a second. How long the emptiness will last is not known: that is the ski-rental problem, and going on
//! until as much has been spent as sleeping costs is never worse than twice what would have been best. Where
//! events usually come before that, only an emptiness that would be a surprise at their rate is slept on.
//!
//! *Bounds.* N stays in [`LIVE_COUNTERS`], the threshold in [`SLEEP_THRESHOLDS`], and every set is polled
//! once in [`LONGEST`], however rare events are there. Pure: no clock, no system call.

mod gaps;
mod model;

use std::ops::RangeInclusive;

use base::Nanos;

use super::Adapts;
use gaps::Gaps;
use model::{Choice, Model};

/// Between two decisions.
pub const WINDOW: Nanos = Nanos::from_millis(250);
/// Where N stays.
pub const LIVE_COUNTERS: RangeInclusive<u32> = 2..=10_000;
/// Where the sleep threshold stays.
pub const SLEEP_THRESHOLDS: RangeInclusive<u32> = 1..=1000;
/// The longest that an adaptive N leaves a set alone.
pub const LONGEST: Nanos = Nanos::SECOND;
/// Seconds of processor that a second of one request's delay is worth: the delay of a nap, 500 us, as much
/// as the 25 us that a request costs to serve.
pub const PRICE: f64 = 0.05;

/// What the controller decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// N.
    pub live_counter: u32,
    /// Consecutive empty calls before a wait sleeps on all sets.
    pub sleep_threshold: u32,
    /// The longest time between two polls of every set; N² calls may be less.
    pub longest: Nanos,
    /// A member that was silent for less comes up with its event; zero where N is fixed, and only the paper's
    /// rule holds.
    pub horizon: Nanos,
}

/// Observations, and the tuning in force.
#[derive(Clone, Debug)]
pub struct Controller {
    tuning: Tuning,
    adapts: Adapts,
    /// The length of an empty call, in seconds.
    nap: f64,
    gaps: Gaps,
    choice: Choice,
    /// Since the last decision.
    window: Window,
}

/// What is counted between two decisions.
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
    /// A controller that begins with this tuning, where an empty call is so long.
    pub fn new(tuning: Tuning, adapts: Adapts, nap: Nanos, now: Nanos) -> Controller {
        let nap = nap.as_secs_f64().max(1e-6);
        let horizon = f64::from(tuning.live_counter) * nap;
        let choice = Choice { horizon, longest: tuning.longest.as_secs_f64() };
        let window = Window { began: now, ..Window::default() };
        Controller { tuning, adapts, nap, gaps: Gaps::default(), choice, window }
    }

    /// A member has an event after so long a silence.
    pub fn event(&mut self, gap: Nanos) {
        self.gaps.event(gap);
        self.window.events += 1;
    }

    /// A wait begins, so long after the one before it ended.
    pub fn served(&mut self, time: Nanos) {
        self.window.serving += time;
    }

    /// A sleep on all sets has ended.
    pub fn slept(&mut self, time: Nanos) {
        self.window.slept += time;
    }

    /// So many calls were made; true where a decision is due.
    pub fn called(&mut self, calls: u64, now: Nanos) -> bool {
        self.window.calls += calls;
        now.saturating_sub(self.window.began) >= WINDOW
    }

    /// Decides for so many sets with so many members.
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
