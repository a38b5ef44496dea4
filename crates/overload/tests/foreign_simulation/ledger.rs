//! The fate of every request.

use base::Nanos;

/// The length of a bin, by the time at which its requests were due.
const BIN: Nanos = Nanos::from_millis(100);
/// The time in which an answer is good.
const IN_TIME: Nanos = Nanos::from_millis(200);

/// The account of a run.
#[derive(Default)]
pub struct Ledger {
    offered: Vec<u64>,
    good: Vec<u64>,
    answered: Vec<u64>,
    /// The waits of the answered requests, in milliseconds, by bin.
    waits: Vec<Vec<f64>>,
    /// SYNs that the hook saw, and those that it refused.
    pub syns: u64,
    pub refused: u64,
    /// SYNs dropped because the accept queue was full.
    pub dropped: u64,
    /// Changes of state, with their times.
    pub changes: Vec<(Nanos, overload::State)>,
}

fn bin(at: Nanos) -> usize {
    (at.0 / BIN.0) as usize
}

impl Ledger {
    pub fn new(length: Nanos) -> Ledger {
        let bins = bin(length) + 1;
        Ledger {
            offered: vec![0; bins],
            good: vec![0; bins],
            answered: vec![0; bins],
            waits: vec![Vec::new(); bins],
            ..Ledger::default()
        }
    }

    /// Records connections of the load that were due.
    pub fn offered(&mut self, due: Nanos) {
        self.offered[bin(due)] += 1;
    }

    /// Records the last answer of a connection that was due at a time, the longest wait of whose answers was `wait`.
    pub fn served(&mut self, due: Nanos, wait: Nanos) {
        self.answered[bin(due)] += 1;
        self.good[bin(due)] += u64::from(wait <= IN_TIME);
        self.waits[bin(due)].push(wait.as_secs_f64() * 1e3);
    }

    fn sum(values: &[u64], from: Nanos, to: Nanos) -> f64 {
        values[bin(from)..bin(to)].iter().sum::<u64>() as f64
    }

    /// Connections served in time per second, of those due in a span.
    pub fn good_per_s(&self, from: Nanos, to: Nanos) -> f64 {
        Ledger::sum(&self.good, from, to) / (to - from).as_secs_f64()
    }

    /// Connections served within a time, in milliseconds, per second, of those due in a span.
    pub fn within_per_s(&self, from: Nanos, to: Nanos, most_ms: f64) -> f64 {
        let waits = self.waits[bin(from)..bin(to)].iter().flatten();
        waits.filter(|wait| **wait <= most_ms).count() as f64 / (to - from).as_secs_f64()
    }

    /// The part of the connections due in a span that was served in time.
    pub fn good_share(&self, from: Nanos, to: Nanos) -> f64 {
        Ledger::sum(&self.good, from, to) / Ledger::sum(&self.offered, from, to).max(1.0)
    }

    /// The part of the connections due in a span that was served, in time or not.
    pub fn served_share(&self, from: Nanos, to: Nanos) -> f64 {
        Ledger::sum(&self.answered, from, to) / Ledger::sum(&self.offered, from, to).max(1.0)
    }

    /// A percentile of the waits of the answered connections that were due in a span, in milliseconds.
    pub fn wait_ms(&self, from: Nanos, to: Nanos, percentile: f64) -> f64 {
        let mut waits: Vec<f64> = self.waits[bin(from)..bin(to)].concat();
        waits.sort_by(f64::total_cmp);
        waits.get((waits.len() as f64 * percentile / 100.0) as usize).copied().unwrap_or_default()
    }
}
