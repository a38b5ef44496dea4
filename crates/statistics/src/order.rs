//! The median by the order of the measurements: exact for any distribution.
//!
//! Half of the measurements lie on each side of the true median, on average, so their number on one side is
//! that of heads among coins (Dixon and Mood, 1946; Thompson, 1936). The interval lies between two of the
//! measurements, and the sign test counts those on one side of a bound.

use crate::{Estimate, Interval, TAIL, median};

/// The median of at least one value, with its interval. Its confidence is at least 95 %, or
/// [`confidence_of_median`] for fewer than six values: then the interval reaches from the least to the largest.
pub fn median_with_interval(values: &[f64]) -> Estimate {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let outside = (0..count / 2).take_while(|k| heads_at_most(*k, count) <= TAIL).last().unwrap_or(0);
    let ci95 = Interval { low: sorted[outside], high: sorted[count - 1 - outside] };
    Estimate { value: median(values), ci95 }
}

/// The probability that the true median lies between the least and the largest of `count` independent
/// measurements, at most 0.95. It is 1 - 2^(1-n), because all measurements lie on one side of the median as
/// rarely as n coins agree. No interval within their range can have a higher confidence.
pub fn confidence_of_median(count: usize) -> f64 {
    let halvings = i32::try_from(count).unwrap_or(i32::MAX).saturating_sub(1);
    (1.0 - 0.5_f64.powi(halvings)).clamp(0.0, 0.95)
}

/// The probability of at most `heads` heads among `coins` coins.
pub(crate) fn heads_at_most(heads: usize, coins: usize) -> f64 {
    if heads >= coins {
        return 1.0;
    }
    // The sum uses logarithms, because binomial coefficients of some thousand coins exceed a float.
    let mut log_term = -(coins as f64) * 2.0_f64.ln();
    let mut sum = log_term.exp();
    for k in 1..=heads {
        log_term += ((coins + 1 - k) as f64 / k as f64).ln();
        sum += log_term.exp();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_measurements_are_less_sure_than_95_per_cent() {
        assert_eq!(
            [0, 1, 2, 3, 5, 6, 10_000].map(confidence_of_median),
            [0.0, 0.0, 0.5, 0.75, 0.9375, 0.95, 0.95]
        );
    }

    #[test]
    fn intervals_end_at_the_measurements_of_the_tables() {
        let ends = |count: u32| {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let ci95 = median_with_interval(&values).ci95;
            (ci95.low, ci95.high)
        };
        assert_eq!([1, 3, 6, 8].map(ends), [(1.0, 1.0), (1.0, 3.0), (1.0, 6.0), (1.0, 8.0)]);
        assert_eq!([9, 10, 15, 20].map(ends), [(2.0, 8.0), (2.0, 9.0), (4.0, 12.0), (6.0, 15.0)]);
    }

    #[test]
    fn coins_are_fair() {
        assert!((heads_at_most(1, 10) - 11.0 / 1024.0).abs() < 1e-15);
        assert!((heads_at_most(9, 10) - 1023.0 / 1024.0).abs() < 1e-12);
        assert_eq!(heads_at_most(0, 0), 1.0);
        assert!((heads_at_most(1_500, 3_000) - 0.5).abs() < 0.01);
    }

    proptest! {
        #[test]
        fn median_lies_in_its_interval_within_the_values(
            values in prop::collection::vec(-1e9_f64..1e9, 1..30),
        ) {
            let estimate = median_with_interval(&values);
            prop_assert!(values.contains(&estimate.ci95.low) && values.contains(&estimate.ci95.high));
            prop_assert!(estimate.ci95.low <= estimate.value && estimate.value <= estimate.ci95.high);
        }
    }
}
