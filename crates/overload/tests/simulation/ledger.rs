//! The fate of every arrival.

use base::Nanos;
use hdrhistogram::Histogram;

/// The length of a bin, by the intended time of the arrivals in it.
const BIN: Nanos = Nanos::from_millis(50);
/// The time in which a reply is good, from the intended time.
const IN_TIME: Nanos = Nanos::from_millis(200);

/// The arrivals of a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bin {
    /// Connections that clients meant to make.
    pub offered: u64,
    /// Connections whose first reply was in time.
    pub good: u64,
}

impl Bin {
    /// The fraction that was served in time.
    pub fn share(&self) -> f64 {
        self.good as f64 / self.offered.max(1) as f64
    }
}

/// The account of a run.
pub struct Ledger {
    bins: Vec<Bin>,
    /// Waits for the first reply of a connection, from the intended time, in microseconds.
    first: Histogram<u32>,
    /// Waits for the replies of established sessions, in microseconds.
    later: Histogram<u32>,
    /// Requests of established sessions.
    pub later_sent: u64,
    /// Replies within 200 ms, of all requests, before the end of the load.
    pub in_time: u64,
    load_ends: u64,
    /// SYNs that reached the hook.
    pub syns: u64,
    /// SYNs that the hook dropped.
    pub refused: u64,
    /// SYNs and final ACKs that the listener dropped.
    pub dropped: u64,
    /// First requests that got a 503 because they had waited too long.
    pub late: u64,
    /// Packets dropped because the ring was full.
    pub lost: u64,
    /// Changes of state.
    pub changes: u32,
}

impl Ledger {
    /// Empty ledger for a run of this length, with a load that ends before it.
    pub fn new(length: Nanos, load_ends: Nanos) -> Ledger {
        let histogram = || Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are allowed");
        Ledger {
            bins: vec![Bin::default(); (length.0 / BIN.0) as usize + 1],
            first: histogram(),
            later: histogram(),
            later_sent: 0,
            in_time: 0,
            load_ends: load_ends.0,
            syns: 0,
            refused: 0,
            dropped: 0,
            late: 0,
            lost: 0,
            changes: 0,
        }
    }

    /// Records that a client means to connect.
    pub fn offered(&mut self, at: u64) {
        self.bins[(at / BIN.0) as usize].offered += 1;
    }

    /// Records the first reply of a connection.
    pub fn answered_first(&mut self, intended: u64, now: u64) {
        let wait = now - intended;
        self.bins[(intended / BIN.0) as usize].good += u64::from(wait <= IN_TIME.0);
        self.in_time += u64::from(wait <= IN_TIME.0 && now <= self.load_ends);
        self.first.saturating_record(wait / 1000);
    }

    /// Records a reply within an established session.
    pub fn answered_later(&mut self, asked: u64, now: u64) {
        let wait = now - asked;
        self.in_time += u64::from(wait <= IN_TIME.0 && now <= self.load_ends);
        self.later.saturating_record(wait / 1000);
    }

    /// The arrivals of a span.
    pub fn between(&self, from: Nanos, to: Nanos) -> Bin {
        let bins = &self.bins[(from.0 / BIN.0) as usize..(to.0 / BIN.0) as usize];
        bins.iter().fold(Bin::default(), |sum, bin| Bin {
            offered: sum.offered + bin.offered,
            good: sum.good + bin.good,
        })
    }

    /// Connections that clients meant to make.
    pub fn all_offered(&self) -> u64 {
        self.bins.iter().map(|bin| bin.offered).sum()
    }

    /// SYNs and ACKs turned away, by the hook or by the listener.
    pub fn turned_away(&self) -> u64 {
        self.refused + self.dropped
    }

    /// A percentile of the waits for a first reply, in milliseconds.
    pub fn first_ms(&self, percentile: f64) -> f64 {
        self.first.value_at_percentile(percentile) as f64 / 1e3
    }

    /// A percentile of the waits within established sessions, in milliseconds.
    pub fn later_ms(&self, percentile: f64) -> f64 {
        self.later.value_at_percentile(percentile) as f64 / 1e3
    }

    /// Requests of established sessions that were answered.
    pub fn later_answered(&self) -> u64 {
        self.later.len()
    }
}
