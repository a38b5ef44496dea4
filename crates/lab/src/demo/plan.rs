//! The trials of a demonstration, their order, and the time of each.
//!
//! The order is random, so that a drift of the machine (its temperature, its neighbours) affects all servers and loads
//! alike. It is seeded, so that it can be repeated. Within
//! a repetition every load of every server comes once.
//!
//! Owns arithmetic only: it reads no clock and runs nothing.

use base::{Nanos, Seed};
use rand::seq::SliceRandom;

use crate::trial::RunTime;

/// One trial to be run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// Which server, by its place in the list of servers.
    pub server: usize,
    /// The offered load over that server's capacity.
    pub factor: f64,
    /// Which repetition, from 0.
    pub repeat: u32,
}

/// Every load of every server, `repeats` times, shuffled within each repetition.
pub fn shuffled(servers: &[usize], factors: &[f64], repeats: u32, seed: Seed) -> Vec<Planned> {
    let mut rng = seed.child("order of trials").rng();
    let mut all = Vec::with_capacity(servers.len() * factors.len() * repeats as usize);
    for repeat in 0..repeats {
        let mut round: Vec<Planned> = servers
            .iter()
            .flat_map(|server| factors.iter().map(|factor| (*server, *factor)))
            .map(|(server, factor)| Planned { server, factor, repeat })
            .collect();
        round.shuffle(&mut rng);
        all.append(&mut round);
    }
    all
}

/// How runs share the time there is.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// What a run takes beside its load: starting the client, settling, writing the record.
    pub overhead: Nanos,
    /// A run is not made shorter than this, though the time be up: less would measure nothing.
    pub shortest: RunTime,
    /// Nor longer, though there be time.
    pub longest: RunTime,
}

impl Shares {
    /// An equal share of what remains for each of `runs`, a quarter of it for the warm-up.
    pub fn of(&self, remaining: Nanos, runs: usize) -> RunTime {
        let share = (remaining / runs.max(1) as u64).saturating_sub(self.overhead);
        let warmup = (share / 4).clamp(self.shortest.warmup, self.longest.warmup);
        let measured = share.saturating_sub(warmup);
        RunTime { warmup, measured: measured.clamp(self.shortest.measured, self.longest.measured) }
    }

    /// How long so many runs take at that length.
    pub fn estimate(&self, run: RunTime, runs: usize) -> Nanos {
        (run.total() + self.overhead) * runs as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: Shares = Shares {
        overhead: Nanos::from_millis(100),
        shortest: RunTime { warmup: Nanos::from_millis(50), measured: Nanos::from_millis(200) },
        longest: RunTime { warmup: Nanos::from_millis(300), measured: Nanos::from_millis(1000) },
    };

    #[test]
    fn every_load_comes_once_in_a_repetition() {
        let plan = shuffled(&[0, 2], &[0.5, 1.0, 3.0], 4, Seed(7));
        assert_eq!(plan.len(), 24);
        for (repeat, round) in plan.chunks(6).enumerate() {
            assert!(round.iter().all(|planned| planned.repeat == repeat as u32));
            for server in [0, 2] {
                for factor in [0.5, 1.0, 3.0] {
                    let times = round.iter().filter(|p| p.server == server && p.factor == factor).count();
                    assert_eq!(times, 1);
                }
            }
        }
    }

    #[test]
    fn the_order_is_the_seeds() {
        let order = |seed| shuffled(&[0, 1, 2], &[0.5, 1.0, 2.0], 2, seed);
        assert_eq!(order(Seed(1)), order(Seed(1)));
        assert_ne!(order(Seed(1)), order(Seed(2)));
        let first = order(Seed(1));
        assert_ne!(first[..9].iter().map(|p| (p.server, p.factor.to_bits())).collect::<Vec<_>>(), {
            first[9..].iter().map(|p| (p.server, p.factor.to_bits())).collect::<Vec<_>>()
        });
    }

    #[test]
    fn runs_share_the_time_that_remains() {
        let run = SHARES.of(Nanos::from_secs(9), 10);
        assert_eq!(run, RunTime { warmup: Nanos::from_millis(200), measured: Nanos::from_millis(600) });
        assert_eq!(SHARES.estimate(run, 10), Nanos::from_secs(9));
    }

    #[test]
    fn no_run_is_shorter_or_longer_than_is_useful() {
        assert_eq!(SHARES.of(Nanos::ZERO, 10), SHARES.shortest);
        assert_eq!(SHARES.of(Nanos::from_secs(1), 100), SHARES.shortest);
        assert_eq!(SHARES.of(Nanos::from_secs(1000), 10), SHARES.longest);
        assert_eq!(SHARES.of(Nanos::from_secs(1000), 0), SHARES.longest);
    }
}
