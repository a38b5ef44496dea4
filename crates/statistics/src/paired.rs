//! The ratio of two quantities that were measured side by side, again and again.

use crate::Estimate;
use crate::order::{heads_at_most, median_with_interval};

/// A ratio over pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median of the pairs' ratios, with its interval.
    pub ratio: Estimate,
    /// Probability that chance alone puts as many pairs on one side of 1: the two-sided sign test without the
    /// equal pairs. 1 if every pair is equal.
    pub chance: f64,
    /// Number of pairs with a ratio.
    pub pairs: usize,
}

/// The ratio of the first to the second of each pair. Both halves of a pair share the drift of a machine, so
/// the ratio of a pair is steadier than that of two medians. Pairs without a ratio are left out. Returns `None` if no
/// pair has one.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let ratios: Vec<f64> = pairs.iter().filter_map(|(a, b)| ratio(*a, *b)).collect();
    if ratios.is_empty() {
        return None;
    }
    Some(Ratio { ratio: median_with_interval(&ratios), chance: sign_test(&ratios), pairs: ratios.len() })
}

/// The ratio of one quantity to another: from 0 to infinity, and 1 for equal ones, even if both are 0. `None` for a
/// negative quantity, and for one that is not a number.
pub fn ratio(of: f64, over: f64) -> Option<f64> {
    let ratio = if of == over { 1.0 } else { of / over };
    (of >= 0.0 && over >= 0.0 && !ratio.is_nan()).then_some(ratio)
}

/// The two-sided test against a median of 1 (Dixon and Mood, 1946).
fn sign_test(ratios: &[f64]) -> f64 {
    let above = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    let below = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    (2.0 * heads_at_most(above.min(below), above + below)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_drift_that_pairs_share_does_not_widen_the_ratio() {
        // The machine slows down to half its speed. The first is 1.4 times the second throughout.
        let pairs: Vec<(f64, f64)> =
            (0..8).map(|n| 1_000.0 / (1.0 + f64::from(n) / 8.0)).map(|b| (1.4 * b, b)).collect();
        let ratio = paired_ratio(&pairs).unwrap();
        assert!((ratio.ratio.value - 1.4).abs() < 1e-9);
        assert!(ratio.ratio.ci95.high - ratio.ratio.ci95.low < 1e-9);
        assert_eq!(ratio.pairs, 8);
        assert!((ratio.chance - 2.0 / 256.0).abs() < 1e-12);
    }

    #[test]
    fn the_sign_test_of_known_tables() {
        let with = |above: usize, below: usize| {
            let ratios: Vec<f64> = [vec![2.0; above], vec![0.5; below], vec![1.0; 3]].concat();
            sign_test(&ratios)
        };
        assert_eq!(with(0, 0), 1.0);
        assert!((with(5, 0) - 0.0625).abs() < 1e-12);
        assert!((with(9, 1) - 0.021_484_375).abs() < 1e-12);
        assert_eq!(with(4, 4), 1.0);
        assert!(with(3_000, 0) < 1e-300);
    }

    #[test]
    fn pairs_without_a_ratio_are_left_out() {
        assert_eq!(paired_ratio(&[]), None);
        assert_eq!(paired_ratio(&[(f64::NAN, 1.0), (1.0, f64::NAN), (-1.0, 2.0)]), None);
        assert_eq!(paired_ratio(&[(f64::NAN, 1.0), (4.0, 2.0)]).unwrap().pairs, 1);
    }

    #[test]
    fn changes_to_and_from_zero_count() {
        let appears = paired_ratio(&[(3.0, 0.0); 6]).unwrap();
        assert_eq!((appears.ratio.value, appears.ratio.ci95.low), (f64::INFINITY, f64::INFINITY));
        let vanishes = paired_ratio(&[(0.0, 3.0); 6]).unwrap();
        assert_eq!((vanishes.ratio.value, vanishes.ratio.ci95.high), (0.0, 0.0));
        assert!((appears.chance - 2.0 / 64.0).abs() < 1e-12 && appears.chance == vanishes.chance);
        let none = paired_ratio(&[(0.0, 0.0); 6]).unwrap();
        assert_eq!((none.ratio.value, none.chance, none.pairs), (1.0, 1.0, 6));
    }

    proptest! {
        #[test]
        fn turned_round_the_ratio_is_its_inverse(
            pairs in prop::collection::vec((0.1_f64..10.0, 0.1_f64..10.0), 1..20),
        ) {
            let turned: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let one = paired_ratio(&pairs).unwrap();
            let other = paired_ratio(&turned).unwrap();
            prop_assert!((one.chance - other.chance).abs() < 1e-12);
            if pairs.len() % 2 == 1 {
                prop_assert!((one.ratio.value * other.ratio.value - 1.0).abs() < 1e-9);
            }
        }
    }
}
