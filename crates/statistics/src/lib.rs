//! Statistics of repeated measurements, with their confidence: medians, means, paired ratios, slopes, knees
//! and crossings.
//!
//! The number of measurements decides the method. `method.md` in the documentation has the reasons, and the tests in
//! `tests/` measure how often an interval holds the truth:
//!
//! - A few independent measurements of a quantity are a [`Sample`]: Student's interval and test, on logarithms where
//!   noise multiplies.
//! - A median has an exact interval between two of its measurements ([`median_with_interval`]). Few measurements
//!   allow less than 95 % ([`confidence_of_median`]).
//! - Some hundred measurements are resampled: percentile bootstraps (Efron and Tibshirani, 1993, chapter 13). Measurements
//!   are drawn again with replacement, from a seed, and the interval contains 95 % of the resulting values. With few
//!   measurements this interval would be too narrow.
//!
//! Neighbours in a time series are alike, so an additional value carries less information than an independent
//! one. Series are therefore resampled in blocks (Künsch, 1989, The Annals of Statistics 17).
//!
//! Owns arithmetic only: it knows nothing of trials and servers, and judges nothing.
//!
//! Invariants: the same values and the same seed give the same numbers. No function panics on values from a
//! file, finite or not.
//!
//! The modules: `sample` has the tests of a few measurements, with Student's distribution in `student`. `bounds` tests
//! a range, and `repetition` has the unit of measurement and its order. `order` has the
//! median by order, and `holm` corrects many tests together. `bootstrap` and `blocks` resample measurements. `slope` and `curve` fit a quantity against another, and `spread` is a median with its
//! extremes.
#![forbid(unsafe_code)]

mod blocks;
mod bootstrap;
mod bounds;
mod curve;
mod holm;
mod order;
mod repetition;
mod sample;
mod slope;
mod spread;
mod student;

pub use blocks::{block_length, ratio_of_series};
pub use bootstrap::{Resampled, interval, mean_with_interval, resample};
pub use bounds::Bounds;
pub use curve::{crossing, knee};
pub use holm::corrected_for_many;
pub use order::{confidence_of_median, median_with_interval};
pub use repetition::{complete, mirrored};
pub use sample::{ERROR_MAX, Sample};
pub use slope::{log_slope, log_slope_through};
pub use spread::Spread;
pub use student::exceeded_with;

use serde::{Deserialize, Deserializer, Serialize};

/// The probability that an interval leaves out at each end.
const TAIL: f64 = 0.025;

/// A number that may be infinite. JSON has no infinity: serde writes null for it.
pub type MaybeInfinite = f64;

/// Reads the ends of an interval that serde wrote. A null stands for infinity, because only ratios have infinite ends.
///
/// # Errors
/// What is written is neither null nor two numbers, each of which may be null.
pub fn read_ends<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[MaybeInfinite; 2]>, D::Error> {
    let written: Option<[Option<f64>; 2]> = Deserialize::deserialize(from)?;
    Ok(written.map(|ends| ends.map(|end| end.unwrap_or(f64::INFINITY))))
}

/// An interval with 95 % confidence. An infinite end is null in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: MaybeInfinite,
    /// The upper end.
    pub high: MaybeInfinite,
}

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The value's 95 % interval.
    pub ci95: Interval,
}

impl Estimate {
    /// The same estimate after a monotonic change, such as a change of unit.
    pub fn map(self, change: impl Fn(f64) -> f64) -> Estimate {
        let ends = (change(self.ci95.low), change(self.ci95.high));
        let ci95 = Interval { low: ends.0.min(ends.1), high: ends.0.max(ends.1) };
        Estimate { value: change(self.value), ci95 }
    }
}

/// The arithmetic mean; NaN for no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The ratio of one quantity to another: from 0 to infinity, and 1 for equal ones, even if both are 0. `None` for a
/// negative quantity, and for one that is not a number.
pub fn ratio(of: f64, over: f64) -> Option<f64> {
    let ratio = if of == over { 1.0 } else { of / over };
    (of >= 0.0 && over >= 0.0 && !ratio.is_nan()).then_some(ratio)
}

/// The value with a fraction `q` of the values at or below it (nearest rank). `sorted` has at least one
/// value.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The middle value, or the mean of the two middle values. The values may be in any order. NaN for no values.
pub fn median(values: &[f64]) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_to_or_from_nothing_is_a_ratio() {
        let of = |pair: (f64, f64)| ratio(pair.0, pair.1);
        let ratios = [(3.0, 2.0), (0.0, 3.0), (3.0, 0.0), (0.0, 0.0)].map(of);
        assert_eq!(ratios, [1.5, 0.0, f64::INFINITY, 1.0].map(Some));
        assert_eq!([(f64::NAN, 1.0), (1.0, f64::NAN), (-1.0, 2.0)].map(of), [None; 3]);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!([0.0, 0.5, 0.51, 0.95, 1.0].map(|q| quantile(&sorted, q)), [1.0, 2.0, 3.0, 4.0, 4.0]);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0]), 5.0);
    }

    #[test]
    fn an_estimate_turned_round_keeps_its_ends_in_order() {
        let estimate = Estimate { value: 2.0, ci95: Interval { low: 1.0, high: 4.0 } };
        assert_eq!(estimate.map(|value| 1.0 / value).ci95, Interval { low: 0.25, high: 1.0 });
    }
}
