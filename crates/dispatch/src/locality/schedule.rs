//! Chooses the sets to poll and the time to block, without system calls and without a clock.
//!
//! ```text
//!   calls    1      2      3      4      5      6      7      8      9         N = 3
//!            nap on        look   nap on        look   nap on        look
//!            active        at     active        at     active        at all
//!                          doze                 doze
//! ```
//!
//! A call that polls more than the first set only *looks*. Blocking on a descriptor costs three times as much
//! as looking at it: the kernel puts the thread into its wait queue and takes it out again. The calls
//! in between are one *nap*: a poll of the first set that blocks until an event comes. A nap counts as the
//! number of empty calls that fit into its time.
//!
//! Invariants: no nap goes past the next look or the sleep threshold; a sleep polls every set.

use base::Nanos;

use super::controller::Tuning;
use super::sets::Sets;

/// The next step of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Polls this number of sets without blocking.
    Look(usize),
    /// Blocks on the first set, for at most this time.
    Nap(Nanos),
    /// Blocks on all sets.
    Sleep,
}

/// The tuning and the counts of the calls so far.
pub(super) struct Schedule {
    /// The tuning in force. The sets keep N itself.
    pub(super) tuning: Tuning,
    /// Length of an empty call.
    nap: Nanos,
    /// Consecutive calls without an event.
    empty_calls: u64,
    /// Time of the last poll of every set.
    all_polled: Nanos,
}

impl Schedule {
    pub(super) fn new(tuning: Tuning, nap: Nanos, now: Nanos) -> Schedule {
        Schedule { tuning, nap, empty_calls: 0, all_polled: now }
    }

    /// The next step of a wait that may block.
    pub(super) fn next(&self, sets: &Sets, now: Nanos) -> Next {
        let threshold = u64::from(self.tuning.sleep_threshold);
        if self.empty_calls >= threshold {
            return Next::Sleep;
        }
        let due = self.due(sets, now);
        if due > 1 {
            return Next::Look(due);
        }
        let calls = sets.until_due().min(threshold - self.empty_calls);
        let until_all = self.tuning.longest.saturating_sub(self.not_all_since(now));
        Next::Nap(Nanos(self.nap.0.saturating_mul(calls)).min(until_all))
    }

    /// Number of sets that the next call polls. A call that looks polls all sets if their time comes before
    /// half of the time to the next look has passed: a second look would cost as much again.
    pub(super) fn due(&self, sets: &Sets, now: Nanos) -> usize {
        let due = sets.due();
        let Tuning { longest, horizon, .. } = self.tuning;
        let longest = if due > 1 { longest.saturating_sub(horizon / 2) } else { longest };
        if self.not_all_since(now) >= longest { sets.count() } else { due }
    }

    /// Time since every set was polled.
    pub(super) fn not_all_since(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.all_polled)
    }

    /// Number of calls that a poll counts as, if it took `took` and might have blocked for `longest`.
    pub(super) fn counts_as(&self, took: Nanos, longest: Nanos) -> u64 {
        took.min(longest).0.div_ceil(self.nap.0.max(1)).max(1)
    }

    /// Records that every set was polled.
    pub(super) fn all_polled(&mut self, now: Nanos) {
        self.all_polled = now;
    }

    /// Records that `calls` calls have found events, or none.
    pub(super) fn found(&mut self, calls: u64, events: bool) {
        self.empty_calls = if events { 0 } else { self.empty_calls.saturating_add(calls) };
    }
}

#[cfg(test)]
mod tests;
