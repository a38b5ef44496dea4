//! The growth of a quantity with another: the exponent, from a line through logarithms.

use base::Rng;

use crate::bootstrap::{interval, resample};
use crate::{Estimate, mean};

/// The slope of ln y over ln x by least squares: 1 if y grows in proportion, 0 if y is constant. `y` is the
/// statistic of each group of samples. Returns `None` with fewer than two different x, or if a y is not above
/// 0.
pub fn log_slope(groups: &[(f64, &[f64])], statistic: fn(&[f64]) -> f64, rng: &mut Rng) -> Option<Estimate> {
    let points: Vec<(f64, f64)> = groups.iter().map(|(x, samples)| (*x, statistic(samples))).collect();
    let value = log_slope_through(&points)?;
    let resampled = |rng: &mut Rng| {
        let point = |(x, samples): &(f64, &[f64])| (*x, statistic(&resample(samples, rng)));
        // A resample with a zero statistic has no slope and counts as the measured one.
        log_slope_through(&groups.iter().map(point).collect::<Vec<_>>()).unwrap_or(value)
    };
    Some(Estimate { value, ci95: interval(rng, resampled) })
}

/// The slope of ln y over ln x through single measurements (x, y). Returns `None` when [`log_slope`] would.
pub fn log_slope_through(points: &[(f64, f64)]) -> Option<f64> {
    let has_logarithms = |(x, y): &(f64, f64)| *x > 0.0 && *y > 0.0 && x.is_finite() && y.is_finite();
    if !points.iter().all(has_logarithms) {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let (xs, ys): (Vec<f64>, Vec<f64>) = logs.iter().copied().unzip();
    let (x_mean, y_mean) = (mean(&xs), mean(&ys));
    let spread: f64 = xs.iter().map(|x| (x - x_mean).powi(2)).sum();
    let together: f64 = logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    (spread > 1e-12).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::median;
    use base::Seed;

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
    fn a_line_has_its_slope_and_one_place_has_none() {
        let line: Vec<(f64, f64)> = (1..=20).map(|n| (f64::from(n), 5.0 * f64::from(n))).collect();
        assert!((log_slope_through(&line).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(log_slope_through(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn one_place_along_x_has_no_slope() {
        let mut rng = Seed(1).rng();
        assert_eq!(log_slope(&[(10.0, &[1.0][..])], median, &mut rng), None);
        assert_eq!(log_slope(&[(10.0, &[1.0][..]), (10.0, &[2.0][..])], median, &mut rng), None);
        assert_eq!(log_slope(&[(10.0, &[1.0][..]), (20.0, &[0.0][..])], median, &mut rng), None);
        assert_eq!(log_slope(&[(10.0, &[1.0][..]), (20.0, &[f64::NAN][..])], median, &mut rng), None);
        assert_eq!(log_slope(&[], median, &mut rng), None);
    }
}
