//! Independent arrivals: gaps drawn from the exponential distribution. The sum of independent Poisson
//! processes is a Poisson process, so each lane draws its own at its share of the rate.

use std::fmt;
use std::sync::Arc;

use base::{Nanos, PerSecond, Rng, Seed};
use rand::RngExt;
use rand_distr::Exp1;

use super::{ArrivalProcess, Arrivals, Kind, Lane, random_excess};
use crate::plan::terms::window::Window;

pub(super) const KIND: Kind = Kind {
    form: "poisson",
    help: "independent arrivals at --rate.",
    has_own_rate: false,
    reads_file: false,
    parse: |_| Ok(Arc::new(Poisson)),
};

/// The process; the rate is its only setting.
pub(super) struct Poisson;

impl ArrivalProcess for Poisson {
    fn arrivals(&self, rate: PerSecond, _run: Nanos, lane: Lane, seed: Seed) -> Arrivals {
        let draws = seed.child(&format!("arrivals/{}", lane.index)).rng();
        Box::new(Gaps { draws, mean_gap_ns: 1e9 * f64::from(lane.count) / rate.0, at_ns: 0.0 })
    }

    fn mean(&self, rate: PerSecond, _window: Window) -> PerSecond {
        rate
    }

    fn peak(&self, rate: PerSecond, _run: Nanos, _span: Nanos) -> PerSecond {
        rate
    }

    fn excess(&self, mean: f64) -> f64 {
        random_excess(mean)
    }

    fn remark(&self, _window: Window) -> Option<String> {
        None
    }

    fn hurst_in_theory(&self) -> Option<f64> {
        None
    }
}

impl fmt::Display for Poisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("poisson")
    }
}

/// The arrivals of one lane.
struct Gaps {
    draws: Rng,
    mean_gap_ns: f64,
    at_ns: f64,
}

impl Iterator for Gaps {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        let gap: f64 = self.draws.sample(Exp1);
        self.at_ns += gap * self.mean_gap_ns;
        Some(Nanos(self.at_ns as u64))
    }
}
