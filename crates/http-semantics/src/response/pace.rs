//! The pace of a response: the most bytes of its content that may leave in a time.
//!
//! ```text
//!   bytes
//!     │                     ┌────
//!     │                ┌────┘      a grant for each quarter of a second
//!     │           ┌────┘
//!     │           │
//!     │  at once: `after`, and the first second of the rate
//!     └───────────┴────┴────┴──── time
//!                1 s
//! ```
//!
//! Owns the arithmetic. Protocol machines spend the budget and wait; drivers keep the time.
//!
//! Invariants: t seconds after its beginning, a response has spent at most `after` + rate × (t + 1) bytes, which is
//! nginx's bound too (`ngx_http_write_filter`). A budget without bytes names the time of its next grant. A response that
//! was held up, by its client or by the server, gets one grant more than its share, and loses the others.

use std::num::NonZeroU64;

use base::Nanos;

/// Grants in a second of a rate. More of them smooth the rate, and each costs a wake-up. nginx counts in whole seconds.
const GRANTS_PER_S: u64 = 4;

/// A bound on the rate at which the content of a response leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second.
    pub bytes_per_s: NonZeroU64,
    /// Bytes at the beginning that the rate does not count.
    pub after: u64,
}

impl Pace {
    /// Bytes that leave at once.
    fn first(self) -> u64 {
        self.after.saturating_add(self.bytes_per_s.get())
    }

    /// Bytes of a later grant.
    fn grant(self) -> u64 {
        (self.bytes_per_s.get() / GRANTS_PER_S).max(1)
    }

    /// Time between two grants, rounded up.
    fn span(self) -> Nanos {
        let nanos = u128::from(self.grant()) * u128::from(Nanos::SECOND.0);
        Nanos(nanos.div_ceil(u128::from(self.bytes_per_s.get())) as u64)
    }
}

/// The bytes that a paced response may send now.
#[derive(Debug)]
pub struct Budget {
    pace: Pace,
    left: u64,
    /// The time of the next grant.
    due: Nanos,
}

impl Budget {
    /// The budget of `content` bytes that begin at `now`; `None` if they all leave at once.
    pub fn new(pace: Pace, content: u64, now: Nanos) -> Option<Budget> {
        let due = now.saturating_add(Nanos::SECOND);
        (content > pace.first()).then(|| Budget { pace, left: pace.first(), due })
    }

    /// Lets `count` bytes leave that are no content.
    pub fn exempt(&mut self, count: u64) {
        self.left = self.left.saturating_add(count);
    }

    /// Bytes that may leave now.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Records that `count` bytes have left, [`Budget::left`] at most.
    pub fn spend(&mut self, count: u64) {
        self.left -= count;
    }

    /// The time of the next grant, if nothing may leave before it.
    pub fn paused_until(&self) -> Option<Nanos> {
        (self.left == 0).then_some(self.due)
    }

    /// Grants the next bytes, if nothing is left and the time has come.
    pub fn refill(&mut self, now: Nanos) {
        if self.paused_until().is_some_and(|due| due <= now) {
            self.left = self.pace.grant();
            let span = self.pace.span();
            self.due = self.due.max(now.saturating_sub(span)).saturating_add(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pace(bytes_per_s: u64, after: u64) -> Pace {
        Pace { bytes_per_s: NonZeroU64::new(bytes_per_s).unwrap(), after }
    }

    #[test]
    fn budget_grants_a_second_and_then_quarters() {
        let mut budget = Budget::new(pace(1000, 500), 10_000, Nanos::ZERO).unwrap();
        assert_eq!((budget.left(), budget.paused_until()), (1500, None));
        budget.refill(Nanos::from_secs(9));
        assert_eq!(budget.left(), 1500, "it has not been spent");
        budget.spend(1500);
        assert_eq!(budget.paused_until(), Some(Nanos::SECOND));
        budget.refill(Nanos::from_millis(999));
        assert_eq!(budget.left(), 0);
        for quarter in 5..40 {
            budget.refill(budget.paused_until().unwrap());
            assert_eq!(budget.left(), 250);
            budget.spend(250);
            assert_eq!(budget.paused_until(), Some(Nanos::from_millis(250) * quarter));
        }
    }

    #[test]
    fn short_content_needs_no_budget() {
        assert!(Budget::new(pace(1000, 500), 1500, Nanos::ZERO).is_none());
        assert!(Budget::new(pace(1000, 500), 1501, Nanos::ZERO).is_some());
        assert!(Budget::new(pace(u64::MAX, u64::MAX), u64::MAX, Nanos::ZERO).is_none());
    }

    #[test]
    fn late_timer_does_not_slow_the_rate_down() {
        let mut budget = Budget::new(pace(1000, 0), 10_000, Nanos::ZERO).unwrap();
        budget.spend(1000);
        let mut sent = 1000;
        while let Some(due) = budget.paused_until().filter(|due| *due < Nanos::from_secs(5)) {
            budget.refill(due + Nanos::from_millis(16));
            sent += budget.left();
            budget.spend(budget.left());
        }
        assert_eq!(sent, 5000);
    }

    #[test]
    fn pause_of_the_client_is_not_made_up_for() {
        let mut budget = Budget::new(pace(1000, 0), 1_000_000, Nanos::ZERO).unwrap();
        let now = Nanos::from_secs(100);
        let mut sent = 0;
        while budget.paused_until().is_none_or(|due| due <= now) {
            budget.refill(now);
            sent += budget.left();
            budget.spend(budget.left());
        }
        assert_eq!(sent, 1000 + 2 * 250);
    }

    proptest! {
        #[test]
        fn budget_stays_within_after_plus_rate_times_time(
            bytes_per_s in prop_oneof![1_u64..10, 1_u64..1_000_000, Just(u64::MAX / 4)],
            after in 0_u64..100_000,
            steps in prop::collection::vec((0_u64..2_000_000_000, 0.0_f64..=1.0), 1..60),
        ) {
            let mut budget = Budget::new(pace(bytes_per_s, after), u64::MAX, Nanos::ZERO).unwrap();
            let (mut now, mut sent) = (Nanos::ZERO, 0_u128);
            for (wait, part) in steps {
                now += Nanos(wait);
                budget.refill(now);
                let count = (budget.left() as f64 * part) as u64;
                let count = count.min(budget.left());
                budget.spend(count);
                sent += u128::from(count);
                let by_time = u128::from(bytes_per_s) * (u128::from(now.0) + 1_000_000_000) / 1_000_000_000;
                prop_assert!(sent <= u128::from(after) + by_time, "{sent} at {now}");
            }
        }
    }
}
