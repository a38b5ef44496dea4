//! The middle and the ends of a few measurements.

use serde::Serialize;

/// The median of repeated measurements, with the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// The spread of some measurements; nothing where there is none.
pub fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    Some(Spread { median: f64::midpoint(below, above), min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0]), Some(Spread { median: 3.0, min: 3.0, max: 3.0 }));
        assert_eq!(spread(&[9.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 9.0 }));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 9.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
    }
}
