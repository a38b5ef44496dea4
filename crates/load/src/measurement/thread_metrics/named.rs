//! The figures of requests by their name in a file.

use base::Nanos;
use hdrhistogram::Histogram;
use record::load::NamedRequests;
use record::{Latency, Outcome};
use serde::{Deserialize, Serialize};

use crate::measurement::histograms::exact;
use crate::measurement::ledger;

/// The figures of one name. Requests count that were due in the measured window and ended, while under way, by a reply, a
/// failure or the run's end. The requests that a session did not come to are in no name.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Named {
    outcomes: [u64; Outcome::ALL.len()],
    in_flight_at_end: u64,
    #[serde(with = "crate::measurement::histograms::exact")]
    latency_intended: Histogram<u64>,
}

impl Default for Named {
    fn default() -> Named {
        Named { outcomes: [0; Outcome::ALL.len()], in_flight_at_end: 0, latency_intended: exact() }
    }
}

impl Named {
    /// Counts a request that ended after `latency` from its intended time.
    pub fn ended(&mut self, outcome: Outcome, latency: Nanos) {
        self.outcomes[outcome as usize] += 1;
        if outcome == Outcome::Ok {
            self.latency_intended.saturating_record(latency.0);
        }
    }

    /// Counts a request that the run's end has interrupted.
    pub fn interrupted(&mut self) {
        self.in_flight_at_end += 1;
    }

    fn merge(&mut self, other: &Named) {
        self.outcomes.iter_mut().zip(other.outcomes).for_each(|(sum, count)| *sum += count);
        self.in_flight_at_end += other.in_flight_at_end;
        self.latency_intended.add(&other.latency_intended).expect("all names have the same bounds");
    }

    /// The record. Failed requests are in the percentiles as longer than `beyond`.
    pub fn record(&self, beyond: Nanos) -> NamedRequests {
        let mut record = NamedRequests {
            outcomes: ledger::named(&self.outcomes),
            in_flight_at_end: self.in_flight_at_end,
            latency_intended_ns: Latency::default(),
        };
        record.latency_intended_ns = Latency::new(&self.latency_intended, record.failed(), beyond.0);
        record
    }
}

/// Adds the figures of another thread, which has the same names in the same order, or none yet.
pub(crate) fn merge(sum: &mut Vec<Named>, other: &[Named]) {
    sum.resize_with(sum.len().max(other.len()), Named::default);
    sum.iter_mut().zip(other).for_each(|(sum, named)| sum.merge(named));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_by_name() {
        let mut sum = Vec::new();
        let mut one = [Named::default(), Named::default()];
        one[1].ended(Outcome::Ok, Nanos::from_millis(3));
        one[1].ended(Outcome::Reset, Nanos::from_millis(1));
        one[1].interrupted();
        merge(&mut sum, &one);
        merge(&mut sum, &one);
        let record = sum[1].record(Nanos::SECOND);
        assert_eq!((record.outcomes.get(Outcome::Ok), record.outcomes.get(Outcome::Reset)), (2, 2));
        assert_eq!((record.in_flight_at_end, record.offered(), record.failed()), (2, 6, 4));
        assert_eq!((record.latency_intended_ns.unanswered, record.latency_intended_ns.p99), (4, None));
        assert_eq!(sum[0].record(Nanos::SECOND).outcomes.total(), 0);
    }
}
