//! The requests of a connection: the law counts requests, and a hook admits connections.

use super::RequestTotals;

/// The time over which the mean is taken, in seconds.
const MEMORY: f64 = 2.0;
/// The fewest connections that make a mean.
const FEWEST: f64 = 4.0;

/// The mean number of requests of a connection: all requests over first requests of recent seconds.
#[derive(Clone, Copy, Debug)]
pub struct RequestsPerConnection {
    first: f64,
    all: f64,
    mean: f64,
}

impl Default for RequestsPerConnection {
    fn default() -> RequestsPerConnection {
        RequestsPerConnection { first: 0.0, all: 0.0, mean: 1.0 }
    }
}

impl RequestsPerConnection {
    /// Counts the requests of a tick.
    pub fn measure(&mut self, now: &RequestTotals, before: &RequestTotals, seconds: f64) {
        let keep = (-seconds / MEMORY).exp();
        self.first = self.first * keep + now.first_asked.saturating_sub(before.first_asked) as f64;
        self.all = self.all * keep + now.asked.saturating_sub(before.asked) as f64;
        if self.first >= FEWEST {
            self.mean = (self.all / self.first).max(1.0);
        }
    }

    /// The mean, at least 1; 1 until it is known.
    pub fn get(&self) -> f64 {
        self.mean
    }
}
