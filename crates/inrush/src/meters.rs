//! The counters of a run in progress, for remote observers: a Prometheus server that reads them, or an
//! OpenTelemetry collector that receives them.
//!
//! All counters begin at the run's start, warm-up included, because both systems compute differences
//! themselves. Times are in seconds, in buckets. A request without a correct reply is in the last bucket,
//! which has no upper end, and adds nothing to the sum.
//!
//! The modules: `prometheus` and `otlp` have the two formats.

mod otlp;
mod prometheus;

pub use otlp::{Collector, Exporter};
pub use prometheus::page;

use ::load::Snapshot;
use hdrhistogram::Histogram;
use record::{Outcome, Outcomes, Statuses};

/// Upper ends of the buckets in microseconds: 1, 2, 5 and so on, from the kernel's own delays to the clients'
/// timeouts.
const BUCKETS_US: [u64; 17] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// Times, counted by bucket.
#[derive(Clone, Debug, Default, PartialEq)]
struct Times {
    /// Counts by bucket. The last one is for values above all upper ends.
    counts: [u64; BUCKETS_US.len() + 1],
    sum_s: f64,
}

impl Times {
    /// Adds the times of an interval, in nanoseconds.
    fn add(&mut self, histogram: &Histogram<u32>) {
        for value in histogram.iter_recorded() {
            let (nanos, count) = (value.value_iterated_to(), value.count_since_last_iteration());
            let bucket = BUCKETS_US.partition_point(|end| end * 1_000 < nanos);
            self.counts[bucket] += count;
            self.sum_s += nanos as f64 / 1e9 * count as f64;
        }
    }

    /// Adds requests without a correct reply.
    fn add_unanswered(&mut self, requests: u64) {
        self.counts[BUCKETS_US.len()] += requests;
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The state of a run.
#[derive(Clone, Debug, Default)]
pub struct Meters {
    offered: u64,
    sent: u64,
    replies: u64,
    outcomes: Vec<(Outcome, u64)>,
    statuses: Statuses,
    established: u64,
    sockets: u64,
    latency: Times,
    lateness: Times,
}

impl Meters {
    /// Meters of a run that has counted nothing, with each outcome and a status.
    pub fn sample() -> Meters {
        let mut statuses = Statuses::default();
        statuses.add(200, 0);
        Meters { outcomes: Outcomes::default().iter().collect(), statuses, ..Meters::default() }
    }

    /// Adds an interval.
    pub fn add(&mut self, snapshot: &Snapshot<'_>) {
        let point = snapshot.point;
        self.offered += point.offered;
        self.sent += point.sent;
        self.replies += point.replies;
        self.outcomes = snapshot.outcomes.iter().collect();
        self.statuses.merge(&point.statuses);
        self.established = snapshot.established;
        self.sockets = point.sockets;
        self.latency.add(snapshot.latency_intended);
        self.latency.add_unanswered(point.latency_intended_ns.unanswered);
        self.lateness.add(snapshot.lateness);
    }

    /// The counters: name, meaning, count.
    fn counters(&self) -> [(&'static str, &'static str, u64); 4] {
        [
            ("offered", "Requests scheduled", self.offered),
            ("sent", "Requests sent", self.sent),
            ("replies", "Complete replies of any status", self.replies),
            ("established", "Connections established", self.established),
        ]
    }

    /// The histograms: name, meaning, buckets.
    fn times(&self) -> [(&'static str, &'static str, &Times); 2] {
        [
            (
                "latency",
                "From the intended time to the correct reply; requests without one are above every bound and not in the sum",
                &self.latency,
            ),
            ("lateness", "From a session's scheduled time to its connect", &self.lateness),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;
    use record::{Latency, Point};

    /// Meters after one interval with two replies, of 1 ms and 20 s, and a request without a reply.
    pub(super) fn after_an_interval() -> Meters {
        let mut latency = Histogram::new_with_bounds(1_000, 600_000_000_000, 2).unwrap();
        latency.record(1_000_000).unwrap();
        latency.record(20_000_000_000).unwrap();
        let mut outcomes = Outcomes::default();
        outcomes.add(Outcome::Ok, 2);
        let mut statuses = Statuses::default();
        statuses.add(200, 2);
        let mut meters = Meters::default();
        meters.add(&Snapshot {
            elapsed: Nanos::SECOND,
            total: Nanos::SECOND,
            warming_up: false,
            point: &Point {
                interval_s: 1.0,
                offered: 3,
                sent: 3,
                replies: 2,
                statuses,
                sockets: 1,
                latency_intended_ns: Latency { unanswered: 1, ..Latency::default() },
                ..Point::default()
            },
            latency_intended: &latency,
            lateness: &Histogram::new_with_bounds(1_000, 600_000_000_000, 2).unwrap(),
            outcomes: &outcomes,
            populations: &[],
            established: 3,
        });
        meters
    }

    #[test]
    fn times_fall_into_the_bucket_ending_at_or_above() {
        let meters = after_an_interval();
        let latency = &meters.latency;
        assert_eq!(latency.count(), 3);
        assert_eq!(latency.counts[BUCKETS_US.len()], 2, "above all ends, and without an answer");
        // A value has only the two digits of its histogram: 1 ms may be a little above 1 ms.
        assert_eq!(latency.counts[4] + latency.counts[5], 1);
        assert!((20.0..20.2).contains(&latency.sum_s), "{}", latency.sum_s);
    }
}
