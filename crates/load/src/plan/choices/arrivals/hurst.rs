//! The Hurst parameter of a stream, which says how bursts persist over time scales: 0.5 for independent
//! arrivals, up to 1 for self-similar ones.
//!
//! The method is variance-time on the *differences* of neighbouring blocks: the Allan variance, the same as a
//! Haar-wavelet estimate (Abry and Veitch 1998). The mean square of the difference between the counts of two
//! neighbouring blocks grows with their length to the power 2H. The usual method takes the variance of the
//! block means themselves. That variance is too low by the variance of the mean of all blocks, which is not
//! small in such streams.

use base::Nanos;

/// The shortest block: the smallest scale at which our self-similar process is self-similar.
const BLOCK: Nanos = Nanos::SECOND;

/// The fewest pairs of blocks for a block length to count.
const PAIRS_MIN: usize = 16;

/// The fewest block lengths for a slope. Estimates from three minutes of one process lie 0.3 apart, those
/// from an hour 0.1. Streams shorter than about nine minutes have no estimate.
const LENGTHS_MIN: usize = 5;

/// The estimate for a stream of length `until`; `None` for a stream that is too short or does not vary.
pub(super) fn hurst(times: impl Iterator<Item = Nanos>, until: Nanos) -> Option<f64> {
    let mut counts = vec![0.0_f64; (until.0 / BLOCK.0) as usize];
    for at in times {
        // Arrivals after the last whole block do not count.
        if let Some(count) = counts.get_mut((at.0 / BLOCK.0) as usize) {
            *count += 1.0;
        }
    }
    let mut points = Vec::new();
    while counts.len() / 2 >= PAIRS_MIN {
        let pairs = counts.chunks_exact(2);
        let weight = pairs.len() as f64;
        let mean_square = pairs.clone().map(|pair| (pair[0] - pair[1]).powi(2)).sum::<f64>() / weight;
        points.push((points.len() as f64, mean_square.log2(), weight));
        counts = pairs.map(|pair| pair[0] + pair[1]).collect();
    }
    let estimate = slope(&points) / 2.0;
    (points.len() >= LENGTHS_MIN && estimate.is_finite()).then_some(estimate)
}

/// The slope of the line through points (x, y, weight), by weighted least squares.
fn slope(points: &[(f64, f64, f64)]) -> f64 {
    let sum = |value: fn(f64, f64) -> f64| points.iter().map(|(x, y, w)| w * value(*x, *y)).sum::<f64>();
    let (weight, x, y) = (sum(|_, _| 1.0), sum(|x, _| x), sum(|_, y| y));
    (weight * sum(|x, y| x * y) - x * y) / (weight * sum(|x, _| x * x) - x * x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::choices::arrivals::poisson::Poisson;
    use crate::plan::choices::arrivals::{ArrivalProcess, Lane};
    use base::{PerSecond, Seed};

    #[test]
    fn independent_arrivals_have_one_half() {
        let until = Nanos::from_secs(1 << 13);
        let times = Poisson.arrivals(PerSecond(50.0), until, Lane { index: 0, count: 1 }, Seed(11));
        let estimate = hurst(times.take_while(|at| *at < until), until).unwrap();
        assert!((estimate - 0.5).abs() < 0.04, "{estimate}");
    }

    #[test]
    fn what_is_short_or_regular_has_none() {
        let regular = |until: u64| (0..until * 10).map(|number| Nanos(number * 100_000_000));
        assert_eq!(hurst(regular(1000), Nanos::from_secs(1000)), None);
        assert_eq!(hurst(regular(30), Nanos::from_secs(30)), None);
    }
}
