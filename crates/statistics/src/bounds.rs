//! A range that a quantity should lie in, and the two tests that decide it.

use crate::Sample;

/// The range of a quantity. A bound that is not finite does not bind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The lower bound.
    pub at_least: f64,
    /// The upper bound.
    pub at_most: f64,
}

impl Bounds {
    /// The same range, wider by a share of each bound.
    pub fn widened(self, share: f64) -> Bounds {
        Bounds {
            at_least: self.at_least - self.at_least.abs() * share,
            at_most: self.at_most + self.at_most.abs() * share,
        }
    }

    /// The range with both bounds moved inwards by a factor above 1, or outwards by one below.
    pub fn moved(self, factor: f64) -> Bounds {
        Bounds { at_least: self.at_least * factor, at_most: self.at_most / factor }
    }

    /// The probability of such a sample if the quantity lies outside. With two bounds these are two one-sided tests
    /// (Schuirmann, 1987): both must exclude their bound, so the greater probability counts.
    pub fn chance_within(self, sample: &Sample) -> f64 {
        let above = self.at_least.is_finite().then(|| sample.chance_above(self.at_least));
        let below = self.at_most.is_finite().then(|| sample.chance_below(self.at_most));
        above.into_iter().chain(below).reduce(f64::max).unwrap_or(1.0)
    }

    /// The probability of such a sample if the quantity lies within. With two bounds either test may exclude the range,
    /// so the lesser probability counts twice (Bonferroni).
    pub fn chance_outside(self, sample: &Sample) -> f64 {
        // A quantity at a bound lies within, and one that was not found lies beyond either bound.
        let beyond = |place| sample.with_unknown_at(place);
        let below = || beyond(f64::NEG_INFINITY).chance_below(self.at_least.next_down());
        let above = || beyond(f64::INFINITY).chance_above(self.at_most.next_up());
        let below = self.at_least.is_finite().then(below);
        let above = self.at_most.is_finite().then(above);
        let count = usize::from(below.is_some()) + usize::from(above.is_some());
        below.into_iter().chain(above).reduce(f64::min).map_or(1.0, |least| (least * count as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Sample {
        Sample::Products([0.99, 1.01, 1.02, 0.98, 1.0, 1.01].to_vec())
    }

    #[test]
    fn equality_within_five_per_cent_needs_both_tests() {
        let chances = |at_least, at_most| {
            let bounds = Bounds { at_least, at_most };
            (bounds.chance_within(&sample()), bounds.chance_outside(&sample()))
        };
        assert!(chances(0.95, 1.05).0 < 0.01);
        assert!(chances(0.95, 1.001).0 > 0.05, "the upper bound is not excluded");
        assert!(chances(1.05, 1.2).1 < 0.01);
        assert_eq!(chances(1.05, f64::INFINITY).1 * 2.0, chances(1.05, 1.2).1);
        assert_eq!(chances(f64::NEG_INFINITY, f64::INFINITY), (1.0, 1.0));
    }

    #[test]
    fn a_quantity_at_its_bound_is_within() {
        let ones = Sample::Places(vec![1.0; 6]);
        let bounds = Bounds { at_least: 1.0, at_most: 1.0 };
        assert!(bounds.chance_within(&ones) < 0.02);
        assert_eq!(bounds.chance_outside(&ones), 1.0);
    }

    #[test]
    fn what_was_not_found_lies_within_no_bounds() {
        let places = |known: &[f64]| Sample::Places([known, &[f64::NAN; 5]].concat());
        let bounds = Bounds { at_least: 2.0, at_most: 3.0 };
        let close = |chance: f64, expected: f64| (chance - expected).abs() < 1e-12;
        assert!(close(bounds.chance_outside(&places(&[1.0; 4])), 2.0 / 512.0));
        assert!(close(bounds.chance_outside(&places(&[9.0; 4])), 2.0 / 512.0));
        assert!(close(bounds.chance_outside(&places(&[])), 2.0 / 32.0));
        assert_eq!(bounds.chance_outside(&places(&[2.5; 5])), 1.0);
        assert!(close(bounds.chance_within(&places(&[2.5; 5])), 638.0 / 1024.0));
    }

    #[test]
    fn a_range_widens_away_from_itself() {
        let bounds = Bounds { at_least: -0.2, at_most: 2.0 }.widened(0.5);
        assert!((bounds.at_least + 0.3).abs() < 1e-12 && (bounds.at_most - 3.0).abs() < 1e-12);
    }
}
