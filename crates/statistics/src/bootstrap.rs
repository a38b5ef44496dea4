//! Resamples many measurements, to estimate the variation of a statistic.

use base::Rng;
use rand::RngExt;

use crate::{Estimate, Interval, TAIL, mean, quantile};

/// Number of resamples: the ends of a 95 % interval are then stable to about a hundredth of its width.
const RESAMPLES: usize = 2_000;

/// The mean of at least one value, with its interval.
pub fn mean_with_interval(values: &[f64], rng: &mut Rng) -> Estimate {
    Estimate { value: mean(values), ci95: interval(rng, |rng| mean(&resample(values, rng))) }
}

/// The result of resampling a statistic that some draws lack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resampled {
    /// The middle 95 % of the draws with a value; `None` if no draw had one.
    pub ci95: Option<Interval>,
    /// The fraction of draws without a value.
    pub absent: f64,
}

/// Collects many draws of a statistic.
pub(crate) fn drawn(draw: impl FnMut() -> Option<f64>) -> Resampled {
    let mut values: Vec<f64> = std::iter::repeat_with(draw).take(RESAMPLES).flatten().collect();
    values.sort_by(f64::total_cmp);
    Resampled {
        ci95: (!values.is_empty()).then(|| middle(&values)),
        absent: 1.0 - values.len() as f64 / RESAMPLES as f64,
    }
}

/// A resample of the same length: each value is drawn from all.
pub fn resample<T: Copy>(values: &[T], rng: &mut Rng) -> Vec<T> {
    (0..values.len()).map(|_| values[rng.random_range(0..values.len())]).collect()
}

/// The middle 95 % of many draws of a statistic.
pub fn interval(rng: &mut Rng, mut statistic: impl FnMut(&mut Rng) -> f64) -> Interval {
    let mut values: Vec<f64> = (0..RESAMPLES).map(|_| statistic(rng)).collect();
    values.sort_by(f64::total_cmp);
    middle(&values)
}

fn middle(sorted: &[f64]) -> Interval {
    Interval { low: quantile(sorted, TAIL), high: quantile(sorted, 1.0 - TAIL) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Seed;

    #[test]
    fn mean_lies_in_its_interval_and_repeats_by_seed() {
        let values: Vec<f64> = (0..200).map(|n| f64::from(n % 10)).collect();
        let estimate = mean_with_interval(&values, &mut Seed(3).rng());
        assert_eq!(estimate.value, 4.5);
        assert!(estimate.ci95.low < 4.5 && estimate.ci95.high > 4.5);
        // The standard error is 2.87 / sqrt(200) = 0.203. The interval reaches about 1.96 times as far each
        // way.
        assert!((estimate.ci95.high - estimate.ci95.low - 0.796).abs() < 0.08, "{estimate:?}");
        assert_eq!(estimate, mean_with_interval(&values, &mut Seed(3).rng()));
        let same = mean_with_interval(&[1.0; 50], &mut Seed(3).rng());
        assert_eq!(same.ci95, Interval { low: 1.0, high: 1.0 });
    }

    #[test]
    fn draws_without_a_value_are_counted() {
        let largest = |drawn: &[f64]| drawn.iter().copied().filter(|value| *value > 2.0).reduce(f64::max);
        let resampled = |items: &[f64]| {
            let mut rng = Seed(5).rng();
            drawn(|| largest(&resample(items, &mut rng)))
        };
        let seen = resampled(&[1.0, 2.0, 3.0, 4.0]);
        // Four draws from values of which half are above 2: one draw in sixteen has none above 2.
        assert!((seen.absent - 0.0625).abs() < 0.02, "{seen:?}");
        assert_eq!(seen.ci95, Some(Interval { low: 3.0, high: 4.0 }));
        let never = resampled(&[1.0]);
        assert_eq!(never, Resampled { ci95: None, absent: 1.0 });
        assert_eq!(resampled(&[]).absent, 1.0);
    }
}
