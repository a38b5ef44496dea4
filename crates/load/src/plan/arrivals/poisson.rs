//! Independent arrivals: gaps drawn from the exponential distribution. The sum of independent Poisson
//! processes is a Poisson process, so each lane draws its own at its share of the rate.

use base::{Nanos, PerSecond, Rng, Seed};
use rand::RngExt;
use rand_distr::Exp1;

use super::Lane;

pub(super) struct Poisson {
    draws: Rng,
    mean_gap_ns: f64,
    at_ns: f64,
}

impl Poisson {
    pub(super) fn new(rate: PerSecond, lane: Lane, seed: Seed) -> Poisson {
        let draws = seed.child(&format!("arrivals/{}", lane.index)).rng();
        Poisson { draws, mean_gap_ns: 1e9 * f64::from(lane.count) / rate.0, at_ns: 0.0 }
    }
}

impl Iterator for Poisson {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        let gap: f64 = self.draws.sample(Exp1);
        self.at_ns += gap * self.mean_gap_ns;
        Some(Nanos(self.at_ns as u64))
    }
}
