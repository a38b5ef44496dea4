//! The feedback handler: the throughput of each worker, smoothed (SMPED).
//!
//! Each period, `T_i <- alpha x T_i(old) + (1 - alpha) x T_i(sample)`. T_i is 0 at the start, and again
//! whenever the worker's connection count falls to 0. Replies on ended connections predict nothing about the
//! next ones.
//!
//! Deviation: in the paper's prose alpha weighs the new sample, in its formula the old value. This module
//! follows the formula; an alpha of 0.8 instead of 0.2 gives the other reading.

use base::Nanos;

/// The smoothed throughput of one worker, in replies per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Feedback {
    smoothed: f64,
    /// Replies since the last period's end.
    replies: u64,
}

impl Feedback {
    /// Adds replies that the worker reports.
    pub fn replied(&mut self, replies: u64) {
        self.replies += replies;
    }

    /// Ends a period of this length. Does nothing for a length of zero.
    pub fn period(&mut self, length: Nanos, alpha: f64) {
        if length == Nanos::ZERO {
            return;
        }
        let sample = std::mem::take(&mut self.replies) as f64 / length.as_secs_f64();
        self.smoothed = alpha * self.smoothed + (1.0 - alpha) * sample;
    }

    /// T_i, in replies per second.
    pub fn throughput(&self) -> f64 {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_formula() {
        let mut feedback = Feedback::default();
        assert_eq!(feedback.throughput(), 0.0);
        feedback.replied(6);
        feedback.replied(4);
        feedback.period(Nanos::from_millis(100), 0.2);
        assert_eq!(feedback.throughput(), 80.0);
        feedback.period(Nanos::from_millis(100), 0.2);
        assert_eq!(feedback.throughput(), 16.0);
        feedback.period(Nanos::ZERO, 0.2);
        assert_eq!(feedback.throughput(), 16.0);
    }

    proptest! {
        #[test]
        fn stays_between_what_was_sampled(
            replies in prop::collection::vec(0_u64..100_000, 1..50),
            alpha in 0.0..1.0,
        ) {
            let mut feedback = Feedback::default();
            let most = replies.iter().max().copied().unwrap_or(0) as f64 * 10.0;
            for count in replies {
                feedback.replied(count);
                feedback.period(Nanos::from_millis(100), alpha);
                prop_assert!((0.0..=most * (1.0 + 1e-9)).contains(&feedback.throughput()));
            }
        }
    }
}
