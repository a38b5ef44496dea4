//! The rate of a run, changed by hand while it runs.
//!
//! The schedule of an open run is drawn before the run and never changes. After a change its time passes
//! faster or slower than the clock's time, or stands still. Bursts stay bursts, and the same seed gives the
//! same sessions in the same order.
//!
//! Invariants: neither time goes back. An intended time is the clock's time at which the schedule reached it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::Nanos;

/// The speed of the schedule, as a multiple of the configured rate. All clones share one value.
#[derive(Clone, Debug)]
pub struct Tempo(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The bits of an `f64`.
    share: AtomicU64,
    changes: AtomicU32,
    /// The greatest share.
    most: f64,
}

impl Default for Tempo {
    fn default() -> Tempo {
        Tempo::up_to(f64::INFINITY)
    }
}

impl Tempo {
    /// The configured rate, which may change to at most `most` times that.
    pub fn up_to(most: f64) -> Tempo {
        let share = AtomicU64::new(1.0_f64.to_bits());
        Tempo(Arc::new(Shared { share, changes: AtomicU32::new(0), most }))
    }

    /// Sets the rate to `share` times the configured rate, or to the most that is allowed; 0 is a pause. The engines
    /// notice within 50 ms.
    pub fn set(&self, share: f64) {
        self.0.share.store(share.clamp(0.0, self.0.most).to_bits(), Ordering::Relaxed);
        self.0.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// The share last set; initially 1.
    pub fn share(&self) -> f64 {
        f64::from_bits(self.0.share.load(Ordering::Relaxed))
    }

    /// The number of calls to [`Tempo::set`].
    pub fn changes(&self) -> u32 {
        self.0.changes.load(Ordering::Relaxed)
    }
}

/// The relation between the clock's time and the schedule's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Passage {
    /// The clock's time and the schedule's time at the last change.
    clock: Nanos,
    schedule: Nanos,
    /// The speed since the last change, and the speed before it.
    share: f64,
    share_before: f64,
}

impl Passage {
    /// The configured rate from the start.
    pub const AS_ASKED: Passage =
        Passage { clock: Nanos::ZERO, schedule: Nanos::ZERO, share: 1.0, share_before: 1.0 };

    /// The share in force.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Adopts a share if it has changed.
    pub fn follow(&mut self, share: f64, now: Nanos) {
        if share != self.share {
            let passed = scaled(now.saturating_sub(self.clock), self.share);
            *self = Passage { clock: now, schedule: self.schedule + passed, share, share_before: self.share };
        }
    }

    /// The clock's time for a time of the schedule; `None` for a time after the current pause.
    pub fn on_the_clock(&self, at: Nanos) -> Option<Nanos> {
        match at.0.checked_sub(self.schedule.0) {
            Some(to_come) if self.share > 0.0 => {
                Some(self.clock.saturating_add(scaled(Nanos(to_come), 1.0 / self.share)))
            }
            Some(_) => None,
            // A session that was overdue at the change stays as late as it was.
            None if self.share_before > 0.0 => {
                let overdue = scaled(self.schedule - at, 1.0 / self.share_before);
                Some(self.clock.saturating_sub(overdue))
            }
            None => Some(self.clock),
        }
    }
}

/// Multiplies a time; exact for the factor 1.
fn scaled(time: Nanos, factor: f64) -> Nanos {
    if factor == 1.0 { time } else { Nanos((time.0 as f64 * factor) as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_copies_are_one() {
        let (tempo, engines) = (Tempo::default(), Tempo::default());
        let copy = tempo.clone();
        tempo.set(0.5);
        assert_eq!((copy.share(), copy.changes()), (0.5, 1));
        assert_eq!((engines.share(), engines.changes()), (1.0, 0));
    }

    #[test]
    fn what_was_overdue_at_a_change_stays_as_late() {
        let mut passage = Passage::AS_ASKED;
        passage.follow(2.0, Nanos(1000));
        assert_eq!(passage.on_the_clock(Nanos(900)), Some(Nanos(900)));
        assert_eq!(passage.on_the_clock(Nanos(1200)), Some(Nanos(1100)));
        passage.follow(0.0, Nanos(1100));
        assert_eq!(passage.on_the_clock(Nanos(1100)), Some(Nanos(1050)));
        assert_eq!(passage.on_the_clock(Nanos(1200)), None);
    }

    proptest! {
        /// Only changes make a difference, and neither time ever goes back.
        #[test]
        fn both_times_go_forward(changes in prop::collection::vec((1u64..1_000_000, 0u32..40), 1..50)) {
            let (mut passage, mut now, mut reached) = (Passage::AS_ASKED, Nanos::ZERO, Nanos::ZERO);
            prop_assert_eq!(passage.on_the_clock(Nanos(12_345)), Some(Nanos(12_345)));
            for (after, tenths) in changes {
                now += Nanos(after);
                let share = f64::from(tenths) / 10.0;
                if share == passage.share() {
                    continue;
                }
                passage.follow(share, now);
                prop_assert!(passage.schedule >= reached);
                reached = passage.schedule;
                // The time of the change itself is still to come, and nothing comes in a pause.
                prop_assert_eq!(passage.on_the_clock(reached), (tenths > 0).then_some(now));
                prop_assert!(passage.on_the_clock(reached + Nanos(100)).is_none_or(|at| at > now));
            }
        }
    }
}
