//! The histograms of a run, and how they travel between its processes.
//!
//! A histogram travels as its buckets: for each, one value inside it and its count. Both processes create
//! histograms with the same bounds, so each count arrives in its own bucket and merging stays exact.

use base::Nanos;
use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest time that a histogram can hold: far above any sensible timeout.
pub const LONGEST: Nanos = Nanos::from_secs(600);

/// A histogram of the totals.
pub(crate) fn exact() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST.0, 3).expect("the bounds are in order")
}

/// A histogram of an interval: about 12 KiB.
pub(crate) fn compact() -> Histogram<u32> {
    Histogram::new_with_bounds(1_000, LONGEST.0, 2).expect("the bounds are in order")
}

fn serialize<S: Serializer, C: Counter + Serialize>(
    histogram: &Histogram<C>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let buckets = histogram.iter_recorded();
    serializer.collect_seq(buckets.map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())))
}

fn fill<'de, D: Deserializer<'de>, C: Counter + Deserialize<'de>>(
    mut histogram: Histogram<C>,
    deserializer: D,
) -> Result<Histogram<C>, D::Error> {
    for (value, count) in Vec::<(u64, C)>::deserialize(deserializer)? {
        histogram.saturating_record_n(value, count);
    }
    Ok(histogram)
}

/// For `#[serde(with)]`: the histograms of the totals.
pub(crate) mod exact {
    use super::*;

    pub fn serialize<S: Serializer>(histogram: &Histogram<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        super::serialize(histogram, serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Histogram<u64>, D::Error> {
        fill(super::exact(), deserializer)
    }
}

/// For `#[serde(with)]`: the histograms of the intervals.
pub(crate) mod compact {
    use super::*;

    pub fn serialize<S: Serializer>(histogram: &Histogram<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        super::serialize(histogram, serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Histogram<u32>, D::Error> {
        fill(super::compact(), deserializer)
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;
    use proptest::prelude::*;
    use record::Distribution;

    use super::LONGEST;
    use crate::measurement::recorder::{Interval, Totals};

    proptest! {
        #[test]
        fn what_arrives_is_what_was_sent(values in prop::collection::vec(0..2 * LONGEST.0, 0..200)) {
            let (mut totals, mut interval) = (Totals::default(), Interval::new(Nanos::SECOND));
            for value in &values {
                totals.connect.saturating_record(*value);
                interval.lateness.saturating_record(*value);
            }
            interval.offered = values.len() as u64;
            let there: Totals = serde_json::from_str(&serde_json::to_string(&totals).unwrap()).unwrap();
            prop_assert_eq!(Distribution::from(&there.connect), Distribution::from(&totals.connect));
            let there: Interval = serde_json::from_str(&serde_json::to_string(&interval).unwrap()).unwrap();
            prop_assert_eq!(Distribution::from(&there.lateness), Distribution::from(&interval.lateness));
            prop_assert_eq!((there.from, there.offered), (interval.from, interval.offered));
        }
    }
}
