//! Means, percentiles, slopes and their uncertainty; and how evenly connections fell.
//!
//! Intervals are percentile bootstraps (Efron and Tibshirani, 1993, chapter 13): resampled with
//! replacement, from a seed, with 95 % of the resampled values inside. Settle times have long tails and
//! wake-ups are often all the same, so nothing is assumed of their distribution.

use base::Rng;
use rand::RngExt;
use serde::Serialize;

/// Enough for the ends of a 95 % interval to be stable to a hundredth of its width or so.
const RESAMPLES: usize = 2_000;

/// What is left out at each end.
const TAIL: f64 = 0.025;

/// Between these, with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A value and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Its 95 % interval.
    pub ci95: Interval,
}

/// The arithmetic mean; of nothing, NaN.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The value with a share of `q` at or below it, of sorted values, at least one (nearest rank).
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The median, of values in any order, at least one.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// The mean with its interval, of at least one value.
pub fn mean_with_interval(values: &[f64], rng: &mut Rng) -> Estimate {
    Estimate { value: mean(values), ci95: bootstrap(rng, |rng| mean(&resample(values, rng))) }
}

/// The slope of ln y over ln x by least squares: 1 where y grows in proportion, 0 where it stays. `y` is
/// the statistic of each group of samples. None with fewer than two different x, or where a y is not above 0.
pub fn log_slope(groups: &[(f64, &[f64])], statistic: fn(&[f64]) -> f64, rng: &mut Rng) -> Option<Estimate> {
    let points: Vec<(f64, f64)> = groups.iter().map(|(x, samples)| (*x, statistic(samples))).collect();
    let value = slope(&points)?;
    let resampled = |rng: &mut Rng| {
        let point = |(x, samples): &(f64, &[f64])| (*x, statistic(&resample(samples, rng)));
        // A resample with a zero statistic has no slope; it says nothing against the one there is.
        slope(&groups.iter().map(point).collect::<Vec<_>>()).unwrap_or(value)
    };
    Some(Estimate { value, ci95: bootstrap(rng, resampled) })
}

fn slope(points: &[(f64, f64)]) -> Option<f64> {
    if points.iter().any(|(x, y)| *x <= 0.0 || *y <= 0.0) {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let (xs, ys): (Vec<f64>, Vec<f64>) = logs.iter().copied().unzip();
    let (x_mean, y_mean) = (mean(&xs), mean(&ys));
    let spread: f64 = xs.iter().map(|x| (x - x_mean).powi(2)).sum();
    let together: f64 = logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    (spread > 1e-12).then(|| together / spread)
}

fn resample(values: &[f64], rng: &mut Rng) -> Vec<f64> {
    (0..values.len()).map(|_| values[rng.random_range(0..values.len())]).collect()
}

fn bootstrap(rng: &mut Rng, mut statistic: impl FnMut(&mut Rng) -> f64) -> Interval {
    let mut values: Vec<f64> = (0..RESAMPLES).map(|_| statistic(rng)).collect();
    values.sort_by(f64::total_cmp);
    Interval { low: quantile(&values, TAIL), high: quantile(&values, 1.0 - TAIL) }
}

/// How evenly connections fell on waiters: Jain's index (Jain, Chiu and Hawe, 1984), (sum x)^2 / (n sum x^2),
/// divided by the most that so many connections on so many waiters allow. 1 is as even as can be: nobody
/// got two more than another. One waiter that got all of k connections gives 1/min(k, n), if n divides k
/// or k < n. None where there was no connection.
pub fn fairness(connections: &[u64]) -> Option<f64> {
    let total: u64 = connections.iter().sum();
    if total == 0 {
        return None;
    }
    let squares: u64 = connections.iter().map(|count| count * count).sum();
    let (each, left) = (total / connections.len() as u64, total % connections.len() as u64);
    // Some got one more than `each` where it does not come out even.
    let least = connections.len() as u64 * each * each + left * (2 * each + 1);
    Some(least as f64 / squares as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Seed;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!([0.0, 0.5, 0.51, 0.95, 1.0].map(|q| quantile(&sorted, q)), [1.0, 2.0, 3.0, 4.0, 4.0]);
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
    }

    #[test]
    fn a_mean_lies_in_its_interval_and_repeats_with_its_seed() {
        let values: Vec<f64> = (0..200).map(|n| f64::from(n % 10)).collect();
        let estimate = mean_with_interval(&values, &mut Seed(3).rng());
        assert_eq!(estimate.value, 4.5);
        assert!(estimate.ci95.low < 4.5 && estimate.ci95.high > 4.5);
        // The standard error is 2.87 / sqrt(200) = 0.203; the interval about 1.96 of it each way.
        assert!((estimate.ci95.high - estimate.ci95.low - 0.796).abs() < 0.08, "{estimate:?}");
        assert_eq!(estimate, mean_with_interval(&values, &mut Seed(3).rng()));
        let same = mean_with_interval(&[1.0; 50], &mut Seed(3).rng());
        assert_eq!(same.ci95, Interval { low: 1.0, high: 1.0 });
    }

    #[test]
    fn slopes_of_powers_are_their_exponents() {
        let groups = |exponent: f64| {
            [10.0_f64, 100.0, 1000.0].map(|x| (x, [3.0 * x.powf(exponent), 3.0 * x.powf(exponent)]))
        };
        for exponent in [0.0, 0.8, 1.0] {
            let groups = groups(exponent);
            let groups: Vec<(f64, &[f64])> = groups.iter().map(|(x, ys)| (*x, &ys[..])).collect();
            let slope = log_slope(&groups, median, &mut Seed(1).rng()).unwrap();
            assert!((slope.value - exponent).abs() < 1e-9);
            assert!((slope.ci95.high - slope.ci95.low).abs() < 1e-9);
        }
    }

    #[test]
    fn one_number_of_waiters_has_no_slope() {
        let mut rng = Seed(1).rng();
        assert_eq!(log_slope(&[(10.0, &[1.0][..])], median, &mut rng), None);
        assert_eq!(log_slope(&[(10.0, &[1.0][..]), (10.0, &[2.0][..])], median, &mut rng), None);
        assert_eq!(log_slope(&[(10.0, &[1.0][..]), (20.0, &[0.0][..])], median, &mut rng), None);
        assert_eq!(log_slope(&[], median, &mut rng), None);
    }

    #[test]
    fn fairness_is_one_where_it_could_not_be_more_even() {
        assert_eq!(fairness(&[3, 3, 3]), Some(1.0));
        assert_eq!(fairness(&[1, 0, 1, 0]), Some(1.0));
        assert_eq!(fairness(&[2, 1, 2]), Some(1.0));
        assert_eq!(fairness(&[8, 0, 0, 0]), Some(0.25));
        assert_eq!(fairness(&[2, 0, 0, 0]), Some(0.5));
        assert_eq!(fairness(&[0, 0]), None);
    }
}
