//! The median and the extremes of a few measurements.

use std::borrow::Borrow;

use serde::Serialize;

/// The median of repeated measurements, with the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value, or the mean of the two middle values.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of the finite values; `None` if there is none.
    pub fn of<T: Borrow<f64>>(values: impl IntoIterator<Item = T>) -> Option<Spread> {
        let values = values.into_iter().map(|value| *value.borrow());
        let mut sorted: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Spread { median: f64::midpoint(below, above), min, max })
    }

    /// The same quantity in another unit.
    pub fn map(self, change: impl Fn(f64) -> f64) -> Spread {
        Spread { median: change(self.median), min: change(self.min), max: change(self.max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of::<f64>([]), None);
        assert_eq!(Spread::of([f64::NAN, 3.0]), Some(Spread { median: 3.0, min: 3.0, max: 3.0 }));
        assert_eq!(Spread::of([9.0, 1.0, 2.0].iter()), Some(Spread { median: 2.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 9.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
    }
}
