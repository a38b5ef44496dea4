//! The weight that a server reports to a load balancer.
//!
//! ```text
//!   signals ──> load, 0 to 1.5 ──> smoothed over 6 s ──> wanted weight ──> at most x 1.5 a second ──> 1 to 100 %
//!
//!   100 % ┤─────────┐
//!         │          ╲   a tenth for each half of load
//!    10 % ┤           ╲
//!     1 % ┤            ╲──
//!         └────┬────┬────┬── load
//!             0.5   1   1.5
//! ```
//!
//! The load is the larger of the used parts of the processors and of the connection limit, plus half of the accept
//! queue's signal: its wait, or the refused part of connections. Servers behind weighted round-robin shift load to
//! each other until their weights fit. A server cannot see the others, so its weight must fall as its load rises: a
//! weight that rose with throughput would attract the load that raises it.
//!
//! The curve is exponential, so the same change of load changes every weight by the same factor. The loop through the
//! load balancer has a gain of 4.6 x load at most. With one report in two seconds or more often, the smoothing keeps it
//! stable; the tests show it beside a law without smoothing, which oscillates.
//!
//! A weight begins at 1 %, so a server that joins a loaded fleet is not flooded.
//!
//! No clock, no I/O: times are passed in. Reports may come at any interval and from several load balancers, because
//! smoothing and steps are measured in time.
//!
//! Invariant: the weight is a whole number from 1 to 100, and a second changes it by a factor of 1.5 at most, apart
//! from rounding.

use base::Nanos;

/// The constants of the law.
#[derive(Clone, Copy, Debug)]
struct Law {
    /// The load up to which the weight is 100 %. Below it the share matters little to a server.
    full_until: f64,
    /// The fall of the weight's logarithm for each unit of load: to a tenth at load 1.
    slope: f64,
    /// The time constant of the smoothing, in seconds: three of HAProxy's default intervals.
    memory_s: f64,
    /// The most that the weight's logarithm changes in a second: a factor of 1.5.
    step_per_s: f64,
}

const CHOSEN: Law = Law { full_until: 0.5, slope: 4.6, memory_s: 6.0, step_per_s: 0.405 };

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
    /// The smoothed load.
    load: f64,
    /// The weight's natural logarithm.
    log: f64,
    at: Nanos,
}

impl Weight {
    /// Makes a weight of 1 %.
    pub fn new(now: Nanos) -> Weight {
        Weight { law: CHOSEN, load: 0.0, log: LEAST.ln(), at: now }
    }

    /// Returns the weight in percent, from the load since the last report.
    pub fn report(&mut self, now: Nanos, signals: &Signals) -> u32 {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        self.at = now;
        let law = self.law;
        self.load += (1.0 - (-seconds / law.memory_s).exp()) * (signals.load() - self.load);
        let wanted = (law.slope * (law.full_until - self.load)).clamp(LEAST.ln(), 0.0);
        let step = law.step_per_s * seconds.min(LONGEST_STEP_S);
        self.log += (wanted - self.log).clamp(-step, step);
        // The clamp keeps it within 1 and 100.
        (100.0 * self.log.exp()).round().clamp(1.0, 100.0) as u32
    }
}

#[cfg(test)]
mod tests;
