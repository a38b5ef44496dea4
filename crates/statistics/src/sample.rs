//! A few independent measurements of one quantity: the estimate, and tests against a bound.

use crate::order::{confidence_of_median, heads_at_most, median_with_interval};
use crate::student::{exceeded_with, upper_tail};
use crate::{Estimate, Interval, TAIL, mean};

/// The probability that any verdict of a document is wrong, at most.
pub const ERROR_MAX: f64 = 0.05;

/// The spread, in proportion to the mean, below which measurements count as equal. It is the error of a float's sum.
const EQUAL: f64 = 1e-12;

/// Independent measurements of one quantity, with the method that suits them.
#[derive(Clone, Debug, PartialEq)]
pub enum Sample {
    /// Numbers whose noise adds up, such as slopes: the mean, and Student's test.
    Sums(Vec<f64>),
    /// Ratios of pairs, from 0 to infinity, whose noise multiplies: the geometric mean, and Student's test on logarithms.
    /// If one of them is 0 or infinite, they have no such mean, and the median, its interval and the sign test count.
    Products(Vec<f64>),
    /// Numbers of any distribution, such as times and places on an axis: the median, its exact interval and the sign test. NaN
    /// stands for a measurement that found no place, which lies within no bounds.
    Places(Vec<f64>),
}

impl Sample {
    fn values(&self) -> &[f64] {
        let (Sample::Sums(values) | Sample::Products(values) | Sample::Places(values)) = self;
        values
    }

    /// The measurements that are numbers.
    fn known(&self) -> Vec<f64> {
        self.values().iter().copied().filter(|value| !value.is_nan()).collect()
    }

    /// The same measurements, with `place` for each that found none.
    pub(crate) fn with_unknown_at(&self, place: f64) -> Sample {
        match self {
            Sample::Places(values) => Sample::Places(
                values.iter().map(|value| if value.is_nan() { place } else { *value }).collect(),
            ),
            Sample::Sums(_) | Sample::Products(_) => self.clone(),
        }
    }

    /// The number of measurements.
    pub fn count(&self) -> usize {
        self.values().len()
    }

    /// Tells whether the tests go by the order of the measurements, and not by their spread.
    fn goes_by_order(&self) -> bool {
        match self {
            Sample::Sums(values) => are_equal(values),
            Sample::Products(values) => are_equal(values) || values.contains(&0.0),
            Sample::Places(_) => true,
        }
    }

    /// The quantity with its interval; `None` without a measurement that is a number.
    pub fn estimate(&self) -> Option<Estimate> {
        let known = self.known();
        match self {
            _ if known.is_empty() => None,
            _ if self.goes_by_order() => Some(median_with_interval(&known)),
            Sample::Products(values) => Some(mean_by_student(&logarithms(values)).map(f64::exp)),
            Sample::Sums(values) | Sample::Places(values) => Some(mean_by_student(values)),
        }
    }

    /// The greatest confidence that the interval can have, from 0 to 0.95.
    pub fn confidence(&self) -> f64 {
        match self.goes_by_order() {
            true => confidence_of_median(self.known().len()),
            false => 0.95,
        }
    }

    /// The least number of measurements that can decide at 5 % among `together` claims. Student's test has no least
    /// probability. All of `n` measurements lie on one side of their median with 1 in 2^n, and the correction for many
    /// claims multiplies that by `together`: 5 decide alone, 11 among 86.
    pub fn needed(&self, together: usize) -> usize {
        match self {
            Sample::Sums(values) | Sample::Products(values) if values.len() < 2 || !self.goes_by_order() => 3,
            _ => {
                let is_enough = |count: &i32| 0.5_f64.powi(*count) * together.max(1) as f64 <= ERROR_MAX;
                (1..64).find(is_enough).unwrap_or(64) as usize
            }
        }
    }

    /// The change from the first measurement to the last, by a line through all in their order, with its interval. As
    /// a factor for products; `None` for places and for fewer than three measurements.
    pub fn drift(&self) -> Option<Estimate> {
        match self {
            Sample::Sums(values) => change(values),
            Sample::Products(values) => Some(change(&logarithms(values))?.map(f64::exp)),
            Sample::Places(_) => None,
        }
    }

    /// The probability of measurements at least this far above `bound` if the quantity is not above it.
    pub fn chance_above(&self, bound: f64) -> f64 {
        match self {
            Sample::Sums(values) if !self.goes_by_order() => student(values, bound),
            Sample::Products(values) if !self.goes_by_order() => {
                if bound > 0.0 {
                    student(&logarithms(values), bound.ln())
                } else {
                    0.0
                }
            }
            Sample::Sums(values) | Sample::Products(values) | Sample::Places(values) => {
                let met = values.iter().filter(|value| **value >= bound).count();
                heads_at_most(values.len() - met, values.len())
            }
        }
    }

    /// The probability of measurements at least this far below `bound` if the quantity is not below it.
    pub fn chance_below(&self, bound: f64) -> f64 {
        match self {
            Sample::Products(_) if bound <= 0.0 => 1.0,
            Sample::Products(values) => {
                let turned = values.iter().map(|value| 1.0 / value).collect();
                Sample::Products(turned).chance_above(1.0 / bound)
            }
            Sample::Sums(values) => {
                Sample::Sums(values.iter().map(|value| -value).collect()).chance_above(-bound)
            }
            Sample::Places(values) => {
                Sample::Places(values.iter().map(|value| -value).collect()).chance_above(-bound)
            }
        }
    }
}

fn logarithms(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.ln()).collect()
}

/// Tells whether measurements have no spread from which an error could be estimated; true with an infinite one.
fn are_equal(values: &[f64]) -> bool {
    let (error, mean) = (standard_error(values), mean(values));
    values.len() < 2 || error <= EQUAL * mean.abs() || !error.is_finite()
}

fn standard_error(values: &[f64]) -> f64 {
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    let count = values.len() as f64;
    (squares / (count - 1.0) / count).sqrt()
}

fn mean_by_student(values: &[f64]) -> Estimate {
    let middle = mean(values);
    let reach = exceeded_with(TAIL, values.len() - 1) * standard_error(values);
    Estimate { value: middle, ci95: Interval { low: middle - reach, high: middle + reach } }
}

/// The rise of the line of least squares from the first value to the last.
fn change(values: &[f64]) -> Option<Estimate> {
    let count = values.len();
    if count < 3 {
        return None;
    }
    // Places from -1/2 to 1/2, so that the slope is the whole change.
    let place = |at: usize| at as f64 / (count - 1) as f64 - 0.5;
    let squares: f64 = (0..count).map(|at| place(at).powi(2)).sum();
    let middle = mean(values);
    let value = values.iter().enumerate().map(|(at, y)| place(at) * y).sum::<f64>() / squares;
    let off: f64 = values.iter().enumerate().map(|(at, y)| (y - middle - value * place(at)).powi(2)).sum();
    let reach = exceeded_with(TAIL, count - 2) * (off / (count - 2) as f64 / squares).sqrt();
    Some(Estimate { value, ci95: Interval { low: value - reach, high: value + reach } })
}

fn student(values: &[f64], bound: f64) -> f64 {
    upper_tail((mean(values) - bound) / standard_error(values), values.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(chance: f64, expected: f64) -> bool {
        (chance - expected).abs() < 1e-12
    }

    #[test]
    fn ratios_turned_round_are_their_inverse() {
        let (ratios, turned) = ([1.2, 1.5, 1.1, 1.3], [1.2, 1.5, 1.1, 1.3].map(|ratio| 1.0 / ratio));
        let (one, other) = (Sample::Products(ratios.to_vec()), Sample::Products(turned.to_vec()));
        let (a, b) = (one.estimate().unwrap(), other.estimate().unwrap());
        assert!((a.value * b.value - 1.0).abs() < 1e-12 && (a.ci95.low * b.ci95.high - 1.0).abs() < 1e-12);
        assert!((one.chance_above(1.15) - other.chance_below(1.0 / 1.15)).abs() < 1e-12);
        assert!((one.chance_above(1.15) + one.chance_below(1.15) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_test_agrees_with_the_interval() {
        let sample = Sample::Sums(vec![0.1, 0.4, 0.2, 0.6, 0.3]);
        let ci95 = sample.estimate().unwrap().ci95;
        assert!((sample.chance_above(ci95.low) - 0.025).abs() < 1e-9);
        assert!((sample.chance_below(ci95.high) - 0.025).abs() < 1e-9);
        assert_eq!(sample.confidence(), 0.95);
    }

    #[test]
    fn a_drift_is_the_change_from_first_to_last() {
        let drift = Sample::Sums(vec![1.0, 2.0, 3.1, 3.9, 5.0]).drift().unwrap();
        assert!((drift.value - 3.96).abs() < 1e-9 && drift.ci95.low > 3.0, "{drift:?}");
        let halved = Sample::Products(vec![4.0, 3.0, 2.0]).drift().unwrap();
        assert!((halved.value - 0.5).abs() < 1e-9);
        let steady = Sample::Products(vec![1.0, 1.1, 0.9, 1.0]).drift().unwrap();
        assert!(steady.ci95.low < 1.0 && steady.ci95.high > 1.0);
        assert_eq!(Sample::Sums(vec![1.0, 2.0]).drift(), None);
        assert_eq!(Sample::Places(vec![1.0, 2.0, 3.0]).drift(), None);
    }

    #[test]
    fn equal_measurements_are_as_sure_as_their_number() {
        for sample in
            [Sample::Sums(vec![2.0; 3]), Sample::Products(vec![2.0; 3]), Sample::Places(vec![2.0; 3])]
        {
            assert!(
                is(sample.chance_above(2.0), 0.125) && is(sample.chance_below(2.0), 0.125),
                "at the bound"
            );
            assert!(is(sample.chance_above(2.1), 1.0) && is(sample.chance_below(1.9), 1.0));
            assert_eq!(sample.confidence(), 0.75);
        }
        assert!(is(Sample::Products(vec![2.0]).chance_above(1.0), 0.5), "one measurement is a coin");
    }

    #[test]
    fn a_missing_place_is_on_no_side() {
        let sample = Sample::Places(vec![3.0, f64::NAN, 4.0]);
        assert!(is(sample.chance_above(1.0), 0.5) && is(sample.chance_below(9.0), 0.5));
        assert_eq!(sample.estimate().unwrap().value, 3.5);
        assert_eq!(sample.confidence(), 0.5, "the interval is that of two places");
        assert_eq!(Sample::Places(vec![f64::NAN; 5]).confidence(), 0.0);
        assert_eq!(Sample::Places(vec![f64::NAN; 5]).estimate(), None);
        assert_eq!(Sample::Sums(vec![]).estimate(), None);
    }

    #[test]
    fn a_collapse_to_nothing_is_a_ratio_on_one_side() {
        let sample = Sample::Products([vec![0.0; 7], vec![1.0, 1.1, 1.05]].concat());
        let estimate = sample.estimate().unwrap();
        assert_eq!((estimate.value, estimate.ci95.low, sample.needed(1)), (0.0, 0.0, 5));
        assert!(sample.chance_above(0.5) > 0.9 && sample.chance_below(0.5) < 0.2);
        let turned = Sample::Products([vec![f64::INFINITY; 7], vec![1.0, 1.1, 1.05]].concat());
        assert!(is(sample.chance_below(0.5), turned.chance_above(2.0)));
    }

    #[test]
    fn more_claims_need_more_measurements() {
        let places = Sample::Places(vec![2.0; 3]);
        assert_eq!([1, 2, 6, 86].map(|together| places.needed(together)), [5, 6, 7, 11]);
        let agreeing = |count: usize| Sample::Places(vec![2.0; count]).chance_above(1.0) * 86.0;
        assert!(agreeing(10) > ERROR_MAX && agreeing(11) <= ERROR_MAX);
        assert_eq!(
            Sample::Products(vec![1.0, 2.0]).needed(86),
            3,
            "Student's test decides if the effect is large"
        );
    }

    #[test]
    fn every_ratio_is_above_nothing() {
        let products = Sample::Products(vec![1.0, 2.0]);
        assert_eq!((products.chance_above(0.0), products.chance_below(0.0)), (0.0, 1.0));
    }
}
