//! The weight that a server reports to a load balancer.
//!
//! ```text
//!   signals ──> load, 0 to 1.5 ──> less than fits the weight: it rises
//!                                  more: it falls                        ──> at most x 1.5 a second ──> 1 to 100 %
//!
//!   100 % ┤──────────╮
//!         │           ╲   the load that fits
//!    10 % ┤            ╲
//!     1 % ┤             ╲──
//!         └────┬────┬────┬── load
//!             0.4  0.8  1.2
//! ```
//!
//! The load is the larger of the used parts of the processors and of the connection limit, plus half of the accept
//! queue's signal: its wait, or the refused part of connections. Servers behind weighted round-robin shift load to
//! each other until their weights fit. A server cannot see the others, so a smaller weight must fit a greater load: a
//! weight that rose with throughput would attract the load that raises it.
//!
//! The logarithm of the weight moves by 0.4 a second for each unit of load that is missing or too much. The weight thus
//! follows the mean load of some seconds, and stops where it fits. Because it moves slowly, the line may be flat: a
//! quarter of the weight fits a load that is higher by 0.15. With a report every two seconds or more often the weights are
//! stable; the tests show them beside a law in a hurry, which oscillates.
//!
//! A weight begins at 1 %, so a server that joins a loaded fleet is not flooded.
//!
//! No clock, no I/O: times are passed in. Reports may come at any interval and from several load balancers, because
//! steps are measured in time.
//!
//! Invariant: the weight is a whole number from 1 to 100, and a second changes it by a factor of 1.5 at most, apart
//! from rounding.

use base::Nanos;

/// The constants of the law.
#[derive(Clone, Copy, Debug)]
struct Law {
    /// The load that fits a weight of 100 %. Below it the share matters little to a server.
    fits_full: f64,
    /// The load that fits the least weight.
    fits_least: f64,
    /// The change of the weight's logarithm in a second, for each unit of load that is missing.
    rate_per_s: f64,
    /// The most that the weight's logarithm changes in a second: a factor of 1.5.
    step_per_s: f64,
}

const CHOSEN: Law = Law { fits_full: 0.7, fits_least: 1.2, rate_per_s: 0.4, step_per_s: 0.405 };

/// The part of the load that a full accept queue adds.
const QUEUE: f64 = 0.5;

/// The longest interval that counts for the step of one report.
const LONGEST_STEP_S: f64 = 2.0;

/// The least weight. HAProxy would drain a server with a lower one.
const LEAST: f64 = 0.01;

/// A server's load since the last report. Each is from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// The used part of the processors' time.
    pub busy: f64,
    /// The used part of the connection limit.
    pub connections: f64,
    /// The wait in the accept queue as a part of the longest, or the refused part of connections.
    pub queue: f64,
}

impl Signals {
    /// Returns the load, from 0 to 1.5.
    pub fn load(&self) -> f64 {
        self.busy.max(self.connections) + QUEUE * self.queue
    }
}

/// The weight of one server.
#[derive(Clone, Debug)]
pub struct Weight {
    law: Law,
    /// The weight's natural logarithm.
    log: f64,
    at: Nanos,
}

impl Weight {
    /// Makes a weight of 1 %.
    pub fn new(now: Nanos) -> Weight {
        Weight { law: CHOSEN, log: LEAST.ln(), at: now }
    }

    /// Returns the weight in percent, from the load since the last report.
    pub fn report(&mut self, now: Nanos, signals: &Signals) -> u32 {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        self.at = now;
        let Law { fits_full, fits_least, rate_per_s, step_per_s } = self.law;
        let fits = fits_full + (fits_least - fits_full) * self.log / LEAST.ln();
        let step = (rate_per_s * (fits - signals.load())).clamp(-step_per_s, step_per_s);
        self.log = (self.log + step * seconds.min(LONGEST_STEP_S)).clamp(LEAST.ln(), 0.0);
        (100.0 * self.log.exp()).round() as u32
    }
}

#[cfg(test)]
mod tests;
