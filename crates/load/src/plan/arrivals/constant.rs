//! Evenly spaced arrivals. Each time is computed from its number, not from the time before, so that rounding
//! errors do not add up. The lanes take turns.

use base::{Nanos, PerSecond};

use super::Lane;

pub(super) struct Constant {
    next: u64,
    step: u64,
    interval_ns: f64,
}

impl Constant {
    pub(super) fn new(rate: PerSecond, lane: Lane) -> Constant {
        Constant { next: u64::from(lane.index), step: u64::from(lane.count), interval_ns: 1e9 / rate.0 }
    }
}

impl Iterator for Constant {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        let at = Nanos((self.next as f64 * self.interval_ns) as u64);
        self.next += self.step;
        Some(at)
    }
}
