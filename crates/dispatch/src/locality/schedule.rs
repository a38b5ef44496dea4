//! When which sets are polled, and for how long: without system calls, without a clock.
//!
//! ```text
//!   calls    1      2      3      4      5      6      7      8      9         N = 3
//!            nap on        look   nap on        look   nap on        look
//!            active        at     active        at     active        at all
//!                          doze                 doze
//! ```
//!
//! A call that polls more than the first set only *looks*: to block on a descriptor costs three times as
//! much as to look at it, because the kernel puts us into its wait queue and takes us out again. The calls in
//! between are one *nap*: a poll of the first set that blocks until there is an event in it, and counts as
//! the empty calls that fit into its time.
//!
//! Invariants: no nap goes past the next look or the sleep threshold; a sleep polls every set.

use base::Nanos;

use super::controller::Tuning;
use super::sets::Sets;

/// What a wait does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Polls so many sets, and does not block.
    Look(usize),
    /// Blocks on the first set, for at most so long.
    Nap(Nanos),
    /// Blocks on all sets.
    Sleep,
}

/// What follows from the calls so far.
pub(super) struct Schedule {
    /// In force. N itself is kept by the sets.
    pub(super) tuning: Tuning,
    /// The length of an empty call.
    nap: Nanos,
    /// Consecutive calls without an event.
    empty_calls: u64,
    /// When every set was polled.
    all_polled: Nanos,
}

impl Schedule {
    pub(super) fn new(tuning: Tuning, nap: Nanos, now: Nanos) -> Schedule {
        Schedule { tuning, nap, empty_calls: 0, all_polled: now }
    }

    /// What a wait that may block does next.
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

    /// How many sets the next call polls. One that looks anyway looks at all, if the time to do that comes
    /// before half of the time to the next look has gone by: to look twice would cost twice as much.
    pub(super) fn due(&self, sets: &Sets, now: Nanos) -> usize {
        let due = sets.due();
        let Tuning { longest, horizon, .. } = self.tuning;
        let longest = if due > 1 { longest.saturating_sub(horizon / 2) } else { longest };
        if self.not_all_since(now) >= longest { sets.count() } else { due }
    }

    /// For how long no poll was one of every set.
    pub(super) fn not_all_since(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.all_polled)
    }

    /// How many calls one counts as that took so long, of which it might have blocked for `longest`.
    pub(super) fn counts_as(&self, took: Nanos, longest: Nanos) -> u64 {
        took.min(longest).0.div_ceil(self.nap.0.max(1)).max(1)
    }

    /// Every set was polled.
    pub(super) fn all_polled(&mut self, now: Nanos) {
        self.all_polled = now;
    }

    /// So many calls have found events, or none.
    pub(super) fn found(&mut self, calls: u64, events: bool) {
        self.empty_calls = if events { 0 } else { self.empty_calls.saturating_add(calls) };
    }
}

#[cfg(test)]
mod tests;
