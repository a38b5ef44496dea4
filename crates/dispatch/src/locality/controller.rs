//! A live counter N and a sleep threshold that tune themselves: what the FDM paper leaves open.
//!
//! *What it observes*, over a window of [`WINDOW`] calls: how long a call takes from one to the next (T, not
//! counting sleep on all sets), how many members each set k has (m_k), and how many events a second are
//! found there (e_k). *What it decides*, at the end of the window: N and the sleep threshold of the next.
//!
//! *The live counter.* Set k is polled every N^k calls. So a second costs
//!
//! ```text
//!     scanning  Σ  DESCRIPTOR · m_k / (T · N^k)
//!     delay     Σ  PRICE · e_k · N^k · T / 2        an event waits half a period of its set on average
//! ```
//!
//! Scanning falls with N and delay rises, so their sum has one minimum. N moves one step towards it, and
//! only if the step is worth [`WORTH`]: the observations hold near the present N only, because members
//! move between sets when N changes.
//!
//! *The sleep threshold.* Sleeping on all sets costs a scan of everything when it begins and another when
//! it ends; an empty call costs a scan of what is due. How long the emptiness will last is not known: that
//! is the ski-rental problem, and going on calling until as much has been spent as sleeping costs is never
//! worse than twice what would have been best.
//!
//! *Bounds.* N stays in [`LIVE_COUNTERS`], the threshold in [`SLEEP_THRESHOLDS`]. Pure: no clock, no
//! system call.

use std::ops::RangeInclusive;

use base::Nanos;

use super::Adapts;

/// Calls between two decisions: 28 polls of an idle set at N = 3.
pub const WINDOW: u64 = 256;
/// Where N stays. The paper calls 3 to 10 useful; below, the idle set is polled every fourth call.
pub const LIVE_COUNTERS: RangeInclusive<u32> = 2..=10;
/// Where the sleep threshold stays.
pub const SLEEP_THRESHOLDS: RangeInclusive<u32> = 1..=1000;

/// Seconds that poll takes for one idle TCP socket: 705 us for 6000, measured on Linux 6.18.
const DESCRIPTOR: f64 = 0.117e-6;
/// Seconds that a call takes whatever it polls, a wake-up included.
const CALL: f64 = 3e-6;
/// Seconds of processor that a second of one request's delay is worth: the delay of a nap, 500 us, as much
/// as the 25 us that a request costs to serve.
pub const PRICE: f64 = 0.05;
/// The part of the cost that a step must save.
const WORTH: f64 = 0.02;

/// What the controller decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// N.
    pub live_counter: u32,
    /// Consecutive empty calls before a wait sleeps on all sets.
    pub sleep_threshold: u32,
}

/// Observations of one window, and the tuning in force.
#[derive(Clone, Debug)]
pub struct Controller {
    tuning: Tuning,
    adapts: Adapts,
    calls: u64,
    /// Events found in each set.
    events: Vec<u64>,
    began: Nanos,
    slept: Nanos,
}

impl Controller {
    /// A controller of so many sets that begins with this tuning.
    pub fn new(sets: usize, tuning: Tuning, adapts: Adapts, now: Nanos) -> Controller {
        Controller { tuning, adapts, calls: 0, events: vec![0; sets], began: now, slept: Nanos::ZERO }
    }

    /// An event was found in a set.
    pub fn event(&mut self, set: usize) {
        self.events[set] += 1;
    }

    /// A sleep on all sets has ended.
    pub fn slept(&mut self, time: Nanos) {
        self.slept += time;
    }

    /// A call was made; true where the window is full and a decision is due.
    pub fn call(&mut self) -> bool {
        self.calls += 1;
        self.calls >= WINDOW
    }

    /// Ends the window: the tuning of the next one, for sets that have so many members.
    pub fn decide(&mut self, now: Nanos, members: &[usize]) -> Tuning {
        let awake = now.saturating_sub(self.began).saturating_sub(self.slept).as_secs_f64().max(1e-9);
        let interval = awake / self.calls.max(1) as f64;
        let cost = |n: u32| {
            let sets = members.iter().zip(&self.events).enumerate();
            sets.map(|(set, (members, events))| {
                let period = interval * f64::from(n).powi(set as i32);
                DESCRIPTOR * *members as f64 / period + PRICE * *events as f64 / awake * period / 2.0
            })
            .sum::<f64>()
        };
        let present = self.tuning.live_counter.clamp(*LIVE_COUNTERS.start(), *LIVE_COUNTERS.end());
        let steps = [present - 1, present + 1].into_iter().filter(|n| LIVE_COUNTERS.contains(n));
        let better = steps.min_by(|one, other| cost(*one).total_cmp(&cost(*other)));
        let worth_it = better.filter(|better| cost(*better) < cost(present) * (1.0 - WORTH));
        if self.adapts.live_counter {
            self.tuning.live_counter = worth_it.unwrap_or(present);
        }
        if self.adapts.sleep_threshold {
            self.tuning.sleep_threshold = sleep_threshold(self.tuning.live_counter, members);
        }
        *self = Controller::new(self.events.len(), self.tuning, self.adapts, now);
        self.tuning
    }
}

/// How many empty calls cost as much as to sleep on all sets and to wake up.
fn sleep_threshold(n: u32, members: &[usize]) -> u32 {
    let all: usize = members.iter().sum();
    let polled =
        members.iter().enumerate().map(|(set, members)| *members as f64 / f64::from(n).powi(set as i32));
    let sleep = 2.0 * (CALL + DESCRIPTOR * all as f64);
    let call = CALL + DESCRIPTOR * polled.sum::<f64>();
    ((sleep / call).round() as u32).clamp(*SLEEP_THRESHOLDS.start(), *SLEEP_THRESHOLDS.end())
}

#[cfg(test)]
mod tests;
