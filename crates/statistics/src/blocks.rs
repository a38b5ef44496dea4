//! Resamples a series in blocks of neighbours: the moving-block bootstrap.
//!
//! A second with a long queue is followed by another one. Resampling single seconds would lose that relation
//! and give intervals that are too narrow; blocks keep the relation within them.

use base::Rng;
use rand::RngExt;

use crate::bootstrap::{Resampled, drawn};

/// Number of neighbours in a block: the cube root of the series' length, rounded up. This order makes the
/// error of an estimated variance least (Künsch 1989; Hall, Horowitz and Jing 1995).
pub fn block_length(count: usize) -> usize {
    (1..).find(|length: &usize| length.saturating_pow(3) >= count).unwrap_or(1)
}

/// The ratio of a statistic of the second series to that of the first, over independent draws of both. The
/// ratio is 1 if both are 0, and infinite if only the first is 0. Draws in which the statistic has no value
/// are absent.
pub fn ratio_of_series<T: Copy>(
    first: &[T],
    second: &[T],
    rng: &mut Rng,
    statistic: impl Fn(&[T]) -> Option<f64>,
) -> Resampled {
    drawn(|| {
        let (under, over) = (statistic(&in_blocks(first, rng))?, statistic(&in_blocks(second, rng))?);
        Some(if under == over { 1.0 } else { over / under }).filter(|ratio| !ratio.is_nan())
    })
}

/// A resample of the series' length, in blocks from anywhere in the series. The last block is cut to fit.
fn in_blocks<T: Copy>(series: &[T], rng: &mut Rng) -> Vec<T> {
    let length = block_length(series.len());
    let mut values = Vec::with_capacity(series.len() + length);
    while values.len() < series.len() {
        let from = rng.random_range(0..=series.len() - length);
        values.extend_from_slice(&series[from..from + length]);
    }
    values.truncate(series.len());
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mean;
    use base::Seed;
    use proptest::prelude::*;

    fn mean_of(values: &[f64]) -> Option<f64> {
        (!values.is_empty()).then(|| mean(values))
    }

    /// Values around 100. The deviation of each is nine tenths of the one before, plus a small random step.
    fn wandering(count: usize, rng: &mut base::Rng) -> Vec<f64> {
        let mut off = 0.0;
        let next = || {
            off = 0.9 * off + rng.random_range(-1.0..1.0);
            100.0 + off
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn blocks_grow_slowly_with_the_series() {
        assert_eq!([0, 1, 2, 8, 9, 27, 30, 1_000].map(block_length), [1, 1, 2, 2, 3, 3, 4, 10]);
    }

    #[test]
    fn blocks_hold_neighbouring_values_and_all_of_them() {
        let series: Vec<usize> = (0..30).collect();
        let drawn = in_blocks(&series, &mut Seed(1).rng());
        assert_eq!(drawn.len(), 30);
        assert!(
            drawn.chunks(4).all(|block| block.windows(2).all(|pair| pair[1] == pair[0] + 1)),
            "{drawn:?}"
        );
        assert!(in_blocks::<f64>(&[], &mut Seed(1).rng()).is_empty());
    }

    #[test]
    fn a_ratio_has_its_interval_and_repeats_with_its_seed() {
        let (one, other) = (vec![2.0; 20], vec![3.0; 40]);
        let ratio = |seed| ratio_of_series(&one, &other, &mut Seed(seed).rng(), mean_of);
        let ci95 = ratio(1).ci95.unwrap();
        assert_eq!((ci95.low, ci95.high), (1.5, 1.5));
        assert_eq!(ratio(1), ratio(1));
    }

    #[test]
    fn ratio_of_zeros_is_one_and_over_zero_is_infinite() {
        let ratio = |one: &[f64], other: &[f64]| {
            ratio_of_series(one, other, &mut Seed(1).rng(), mean_of).ci95.map(|ci95| (ci95.low, ci95.high))
        };
        assert_eq!(ratio(&[0.0; 9], &[0.0; 9]), Some((1.0, 1.0)));
        assert_eq!(ratio(&[0.0; 9], &[1.0; 9]), Some((f64::INFINITY, f64::INFINITY)));
        assert_eq!(ratio(&[1.0; 9], &[0.0; 9]), Some((0.0, 0.0)));
        assert_eq!(ratio(&[], &[1.0; 9]), None);
        assert_eq!(ratio(&[f64::NAN; 9], &[1.0; 9]), None);
    }

    /// Resampling single values ascribes to a difference the variation that neighbours share; blocks do not.
    #[test]
    fn neighbours_that_are_alike_make_the_interval_wide() {
        let mut rng = Seed(5).rng();
        let (one, other) = (wandering(60, &mut rng), wandering(60, &mut rng));
        let blocks = ratio_of_series(&one, &other, &mut rng, mean_of).ci95.unwrap();
        let single = drawn(|| {
            Some(
                mean(&crate::bootstrap::resample(&other, &mut rng))
                    / mean(&crate::bootstrap::resample(&one, &mut rng)),
            )
        });
        let single = single.ci95.unwrap();
        assert!(blocks.high - blocks.low > 1.3 * (single.high - single.low), "{blocks:?} {single:?}");
    }

    proptest! {
        #[test]
        fn any_values_have_a_ratio_or_none(
            one in prop::collection::vec(any::<f64>(), 0..20),
            other in prop::collection::vec(any::<f64>(), 0..20),
            seed: u64,
        ) {
            let seen = ratio_of_series(&one, &other, &mut Seed(seed).rng(), mean_of);
            prop_assert!((0.0..=1.0).contains(&seen.absent));
            if let Some(ci95) = seen.ci95 {
                prop_assert!(ci95.low <= ci95.high);
            }
        }
    }
}
