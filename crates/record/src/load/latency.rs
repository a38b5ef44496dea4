//! Distributions of times: one of the measured values, and one of all requests that should have had a value.
//!
//! A percentile of the answered requests alone hides the requests that a server did not answer. [`Latency`] therefore
//! ranks every offered request, and a request without a correct reply ranks above every answer. A percentile that
//! falls among the unanswered requests is `None`, in JSON null. It is longer than [`Latency::beyond_ns`], the longest
//! time that the run could have seen.
//!
//! Invariant: a percentile of [`Latency`] is never below the same percentile of [`Latency::answered`].

use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Serialize};

/// The percentiles of measured times, in nanoseconds. Without measurements all are zero; in JSON they are null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Distribution {
    /// Measured values.
    pub count: u64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 95th percentile; 0 in a record of a version without this field.
    pub p95: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The largest value.
    pub max: u64,
}

/// The percentiles of all offered requests, or of all attempted connects, in nanoseconds. In JSON, `count` and `mean`
/// cover only the answered ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenLatency", into = "WrittenLatency")]
pub struct Latency {
    /// The distribution of the answered requests, or of the established connections.
    pub answered: Distribution,
    /// Requests or connects without an answer: they failed, or had not ended when the run did.
    pub unanswered: u64,
    /// The longest time that the run could have seen. A percentile of `None` is longer.
    pub beyond_ns: u64,
    /// The median of all.
    pub p50: Option<u64>,
    /// The 90th percentile.
    pub p90: Option<u64>,
    /// The 95th percentile.
    pub p95: Option<u64>,
    /// The 99th percentile.
    pub p99: Option<u64>,
    /// The 99.9th percentile.
    pub p999: Option<u64>,
    /// The largest; `None` if any request has no answer.
    pub max: Option<u64>,
}

impl<C: Counter> From<&Histogram<C>> for Distribution {
    fn from(histogram: &Histogram<C>) -> Distribution {
        if histogram.is_empty() {
            return Distribution::default();
        }
        Distribution {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p95: histogram.value_at_quantile(0.95),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

impl Latency {
    /// Makes the latencies of `answers` and of `unanswered` requests without an answer.
    pub fn new<C: Counter>(answers: &Histogram<C>, unanswered: u64, beyond_ns: u64) -> Latency {
        let all = answers.len() + unanswered;
        let quantile = |quantile: f64| {
            let rank = ((quantile * all as f64).ceil() as u64).max(1);
            // Half a rank below, so that rounding does not reach the next one.
            (rank <= answers.len())
                .then(|| answers.value_at_quantile((rank as f64 - 0.5) / answers.len() as f64))
        };
        Latency {
            answered: Distribution::from(answers),
            unanswered,
            beyond_ns: beyond_ns.max(answers.max()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: (unanswered == 0 && !answers.is_empty()).then(|| answers.max()),
        }
    }

    /// Returns the number of requests, answered or not.
    pub fn all(&self) -> u64 {
        self.answered.count + self.unanswered
    }

    /// Returns a lower bound of the mean of all requests, or `None` without requests. An unanswered request counts as
    /// the longest time that the run could have seen.
    pub fn mean_at_least(&self) -> Option<f64> {
        let answered = self.answered.mean * self.answered.count as f64;
        let sum = answered + self.beyond_ns as f64 * self.unanswered as f64;
        (self.all() > 0).then(|| sum / self.all() as f64)
    }
}

/// Treats every request as answered.
impl From<Distribution> for Latency {
    fn from(answered: Distribution) -> Latency {
        let known = |value: u64| (answered.count > 0).then_some(value);
        Latency {
            answered,
            unanswered: 0,
            beyond_ns: answered.max,
            p50: known(answered.p50),
            p90: known(answered.p90),
            p95: known(answered.p95),
            p99: known(answered.p99),
            p999: known(answered.p999),
            max: known(answered.max),
        }
    }
}

/// A distribution in JSON, where a missing time is null.
#[derive(Serialize, Deserialize)]
struct Written {
    /// Measured values.
    count: u64,
    /// The arithmetic mean; null without values.
    mean: Option<f64>,
    /// The median.
    p50: Option<u64>,
    /// The 90th percentile.
    p90: Option<u64>,
    /// The 95th percentile.
    p95: Option<u64>,
    /// The 99th percentile.
    p99: Option<u64>,
    /// The 99.9th percentile.
    p999: Option<u64>,
    /// The largest value.
    max: Option<u64>,
}

impl From<Distribution> for Written {
    fn from(from: Distribution) -> Written {
        let known = |value: u64| (from.count > 0).then_some(value);
        Written {
            count: from.count,
            mean: (from.count > 0).then_some(from.mean),
            p50: known(from.p50),
            p90: known(from.p90),
            p95: known(from.p95),
            p99: known(from.p99),
            p999: known(from.p999),
            max: known(from.max),
        }
    }
}

impl From<Written> for Distribution {
    fn from(from: Written) -> Distribution {
        Distribution {
            count: from.count,
            mean: from.mean.unwrap_or_default(),
            p50: from.p50.unwrap_or_default(),
            p90: from.p90.unwrap_or_default(),
            p95: from.p95.unwrap_or_default(),
            p99: from.p99.unwrap_or_default(),
            p999: from.p999.unwrap_or_default(),
            max: from.max.unwrap_or_default(),
        }
    }
}

/// A latency in JSON: the percentiles of all requests, and apart from them those of the answered ones. Before
/// `inrush.load/2`, the same names held the percentiles of the answers. `count` and `mean` cover the answers.
#[derive(Serialize, Deserialize)]
struct WrittenLatency {
    #[serde(flatten)]
    all: Written,
    /// Requests without a correct reply, or connects that were not established.
    #[serde(default)]
    unanswered: u64,
    /// The longest time that the run could have seen. A percentile that is null is longer.
    #[serde(default)]
    beyond_ns: u64,
    /// The percentiles of the answered ones alone.
    answered: Option<Distribution>,
}

impl From<Latency> for WrittenLatency {
    fn from(from: Latency) -> WrittenLatency {
        let Latency { answered, unanswered, beyond_ns, p50, p90, p95, p99, p999, max } = from;
        let all = Written { p50, p90, p95, p99, p999, max, ..Written::from(answered) };
        WrittenLatency { all, unanswered, beyond_ns, answered: Some(answered) }
    }
}

impl From<WrittenLatency> for Latency {
    fn from(from: WrittenLatency) -> Latency {
        let WrittenLatency { all, unanswered, beyond_ns, answered: Some(answered) } = from else {
            return Latency::from(Distribution::from(from.all));
        };
        let Written { p50, p90, p95, p99, p999, max, .. } = all;
        Latency { answered, unanswered, beyond_ns, p50, p90, p95, p99, p999, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        values.into_iter().for_each(|value| histogram.record(value).unwrap());
        histogram
    }

    #[test]
    fn an_empty_histogram_has_an_empty_distribution() {
        assert_eq!(Distribution::from(&histogram([])), Distribution::default());
    }

    #[test]
    fn requests_without_an_answer_rank_above_every_answer() {
        let latency = Latency::new(&histogram(1..=95), 5, 4_000);
        assert_eq!((latency.p50, latency.p90, latency.p95), (Some(50), Some(90), Some(95)));
        assert_eq!((latency.p99, latency.p999, latency.max), (None, None, None));
        assert_eq!((latency.all(), latency.answered.max, latency.beyond_ns), (100, 95, 4_000));
        let half = Latency::new(&histogram(1..=50), 50, 4_000);
        assert_eq!((half.p50, half.p90, half.answered.p90), (Some(50), None, 45));
    }

    #[test]
    fn percentiles_are_of_answers_when_all_answered() {
        for count in [1, 2, 3, 7, 99, 100, 101, 997] {
            let histogram = histogram(1..=count);
            let expected = Latency::from(Distribution::from(&histogram));
            assert_eq!(Latency::new(&histogram, 0, 0), expected, "{count}");
        }
    }

    #[test]
    fn mean_counts_unanswered_as_the_longest_time() {
        assert_eq!(Latency::new(&histogram([10, 20]), 2, 100).mean_at_least(), Some(57.5));
        assert_eq!(Latency::default().mean_at_least(), None);
    }

    #[test]
    fn nothing_measured_is_written_as_null() {
        let written = serde_json::to_value(Latency::new(&histogram([]), 800, 4_000)).unwrap();
        let none = json!({ "count": 0, "mean": null, "p50": null, "p90": null, "p95": null, "p99": null, "p999": null, "max": null });
        let mut expected = none.clone();
        (expected["unanswered"], expected["beyond_ns"], expected["answered"]) =
            (800.into(), 4_000.into(), none);
        assert_eq!(written, expected);
    }

    #[test]
    fn latencies_of_this_and_the_first_schema_read_back() {
        for latency in [Latency::default(), Latency::new(&histogram(1..=95), 5, 4_000)] {
            let text = serde_json::to_string(&latency).unwrap();
            assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), latency);
        }
        let old = json!({ "count": 2, "mean": 1.5, "p50": 1, "p90": 2, "p99": 2, "p999": 2, "max": 2 });
        let read: Latency = serde_json::from_value(old).unwrap();
        assert_eq!((read.p99, read.answered.p99, read.unanswered), (Some(2), 2, 0));
        let empty = json!({ "count": 0, "mean": 0.0, "p50": 0, "p90": 0, "p99": 0, "p999": 0, "max": 0 });
        assert_eq!(serde_json::from_value::<Latency>(empty).unwrap(), Latency::default());
    }
}
