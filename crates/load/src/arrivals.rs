//! Arrival processes: *when* sessions are meant to begin, before anything is known about the server.
//!
//! A process is an endless, never decreasing sequence of times since the run's start, drawn from a
//! seed: the same seed gives the same schedule whatever the server does (SYSTEMS.md, section 4). With
//! several threads each thread is a *lane*, and the lanes' sequences together are the process.
//!
//! To add one: a file here, a variant of [`Process`] and a line in each `match` on it.

mod constant;
mod poisson;

use std::fmt;
use std::str::FromStr;

use base::{Nanos, PerSecond, Seed};

/// Intended times since the start of the run; endless and never decreasing.
pub type Arrivals = Box<dyn Iterator<Item = Nanos> + Send>;

/// An arrival process, without its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Process {
    /// Evenly spaced.
    #[default]
    Constant,
    /// Independent: exponentially distributed gaps.
    Poisson,
}

/// One thread's part of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Which: from 0.
    pub index: u32,
    /// Of how many: 1 or more.
    pub count: u32,
}

impl Process {
    /// The lane's arrivals, where all lanes together have the given rate.
    pub fn arrivals(self, rate: PerSecond, lane: Lane, seed: Seed) -> Arrivals {
        match self {
            Process::Constant => Box::new(constant::Constant::new(rate, lane)),
            Process::Poisson => Box::new(poisson::Poisson::new(rate, lane, seed)),
        }
    }

    /// How far the number of arrivals in a span may stray above its mean, at five standard
    /// deviations: once in millions of such spans.
    pub fn excess(self, mean: f64) -> f64 {
        match self {
            Process::Constant => 0.0,
            Process::Poisson => 5.0 * mean.sqrt(),
        }
    }
}

/// Not an arrival process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an arrival process: constant or poisson")]
pub struct NotAProcess(String);

impl FromStr for Process {
    type Err = NotAProcess;
    fn from_str(text: &str) -> Result<Process, NotAProcess> {
        match text {
            "constant" => Ok(Process::Constant),
            "poisson" => Ok(Process::Poisson),
            other => Err(NotAProcess(other.to_owned())),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Process::Constant => "constant",
            Process::Poisson => "poisson",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All lanes' arrivals before `end`, in order.
    fn all(process: Process, rate: f64, lanes: u32, seed: u64, end: Nanos) -> Vec<Nanos> {
        let mut times: Vec<Nanos> = (0..lanes)
            .flat_map(|index| {
                let lane = Lane { index, count: lanes };
                process.arrivals(PerSecond(rate), lane, Seed(seed)).take_while(move |at| *at < end)
            })
            .collect();
        times.sort();
        times
    }

    /// The variance of the counts in equal windows over their mean: 0 for a clock, 1 for Poisson.
    fn dispersion(times: &[Nanos], window: Nanos, windows: usize) -> f64 {
        let mut counts = vec![0.0; windows];
        for at in times {
            counts[(at.0 / window.0) as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / windows as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (windows - 1) as f64;
        variance / mean
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn times_never_decrease_and_a_seed_repeats_them(
            poisson: bool, rate in 0.1f64..2e6, lanes in 1u32..8, seed: u64,
        ) {
            let process = if poisson { Process::Poisson } else { Process::Constant };
            let lane = Lane { index: lanes - 1, count: lanes };
            let draw = || process.arrivals(PerSecond(rate), lane, Seed(seed)).take(500).collect::<Vec<_>>();
            let times = draw();
            prop_assert!(times.is_sorted());
            prop_assert_eq!(times, draw());
        }

        /// rate x time arrivals to within one, evenly spread, whatever the number of lanes.
        #[test]
        fn constant_is_exact(rate in 1f64..20_000.0, lanes in 1u32..8) {
            let times = all(Process::Constant, rate, lanes, 0, Nanos::SECOND);
            prop_assert!((times.len() as f64 - rate).abs() <= 1.0, "{} of {rate}", times.len());
            for pair in times.windows(2) {
                prop_assert!(((pair[1] - pair[0]).0 as f64 - 1e9 / rate).abs() <= 2.0);
            }
        }

        /// Mean and index of dispersion of 20,000 expected arrivals in 1000 windows, within five standard errors.
        #[test]
        fn poisson_has_its_mean_and_dispersion(lanes in 1u32..5, seed: u64) {
            let times = all(Process::Poisson, 20_000.0, lanes, seed, Nanos::SECOND);
            prop_assert!((times.len() as f64 - 20_000.0).abs() < 5.0 * 20_000f64.sqrt());
            let index = dispersion(&times, Nanos::MILLISECOND, 1000);
            prop_assert!((index - 1.0).abs() < 5.0 * (2.0f64 / 999.0).sqrt(), "dispersion {index}");
        }
    }

    #[test]
    fn constant_has_no_dispersion() {
        let times = all(Process::Constant, 20_000.0, 3, 0, Nanos::SECOND);
        assert!(dispersion(&times, Nanos::MILLISECOND, 1000) < 0.01);
    }

    #[test]
    fn names_parse_back() {
        for process in [Process::Constant, Process::Poisson] {
            assert_eq!(process.to_string().parse(), Ok(process));
        }
        assert!("bursty".parse::<Process>().is_err());
    }
}
