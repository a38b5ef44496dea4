//! Watching a run while it goes on.

use base::Nanos;
use hdrhistogram::Histogram;
use record::{Outcomes, Point};

/// Where a run stands after an interval.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Since the start, warm-up included.
    pub elapsed: Nanos,
    /// What the whole run is to take.
    pub total: Nanos,
    /// Whether the interval that has ended began in the warm-up.
    pub warming_up: bool,
    /// The interval that has ended, all threads together.
    pub point: &'a Point,
    /// The point's latencies from the intended time, in nanoseconds, two digits.
    pub latency_intended: &'a Histogram<u32>,
    /// The point's lateness, in the same way.
    pub lateness: &'a Histogram<u32>,
    /// How requests ended since the start, warm-up included.
    pub outcomes: &'a Outcomes,
    /// Connections established since the start, warm-up included.
    pub established: u64,
    /// Where the populations stand, in the order they were given.
    pub populations: &'a [Standing],
}

/// Where a population stands.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The text that asked for it.
    pub name: String,
    /// Its sockets at the end of its last interval.
    pub sockets: u64,
    /// Its complete replies since the start.
    pub replies: u64,
    /// How its requests ended since the start.
    pub outcomes: Outcomes,
}

/// Told of every interval. Called by the thread that called [`crate::run`], never by an engine: a slow
/// terminal slows nothing down.
pub trait Observer {
    /// An interval has ended.
    fn interval(&mut self, snapshot: &Snapshot<'_>);
}

impl<F: FnMut(&Snapshot<'_>)> Observer for F {
    fn interval(&mut self, snapshot: &Snapshot<'_>) {
        self(snapshot);
    }
}
