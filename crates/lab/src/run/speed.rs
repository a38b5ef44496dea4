//! The speed of the server's CPU around each trial, and the rule that calls a trial of a slowed machine flawed.
//!
//! A neighbour on the physical CPU slows a server for seconds and shows in no counter of this machine. Three things show it:
//! a fixed spin before and after each trial, time that the hypervisor reports as stolen, and the cost of a reply beside
//! the other trials of its point. The rule stands before the run and looks at no other result.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io;

use base::{Clock, Nanos, RealClock};
use record::experiment::{Flaw, TrialRecord};
use statistics::median;

/// The steps of a spin: each waits for the one before, so that its time is that of the CPU. Some 0.7 ms at 3 GHz.
const STEPS: u64 = 500_000;
/// The spins of which the median counts, so that one that was interrupted does not.
const SPINS: usize = 9;
/// The ratio to the median from which a spin or a reply counts as slow. Slowdowns beyond it turned verdicts.
const SLOW: f64 = 1.12;
/// The ratio from which a spin supports a slow reply.
const SUPPORTS: f64 = 1.04;
/// The most of the measured time that may be stolen.
const STEAL_MOST: f64 = 0.02;
/// The fewest trials of a point, or spins of a run, that have a median to compare with.
const COMPARED_LEAST: usize = 5;
/// The metric of the cost of a reply.
const COST: &str = "server_us_per_reply";

/// Spins on the first of these CPUs and returns the median time, in microseconds. Blocks for some ten milliseconds.
///
/// # Errors
/// The CPU is not ours.
pub fn spin_us(cpus: &[usize]) -> io::Result<f64> {
    let first = &cpus[..cpus.len().min(1)];
    std::thread::scope(|scope| {
        let spinning = scope.spawn(|| {
            sys::cpu::pin(first)?;
            Ok(median(&std::array::from_fn::<f64, SPINS, _>(|_| spin().as_secs_f64() * 1e6)))
        });
        spinning.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn spin() -> Nanos {
    let clock = RealClock::new();
    let started = clock.now();
    // Knuth's multiplier for 64 bits: the compiler cannot shorten the chain.
    let chain = (0..STEPS).fold(black_box(1_u64), |value, step| {
        value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step)
    });
    black_box(chain);
    clock.now() - started
}

/// The places in the plan's order of trials that a slowed machine spoiled, among the last attempts of a run:
///
/// - one of its spins took 1.12 times the median of the run's, or
/// - more than 2 % of its measured time were stolen, or
/// - a reply cost more than 1.12 times the median of its point, and so did one of a neighbour in the order, or a spin took
///   1.04 times the median. Alone, a dear reply may be the server's own.
pub fn slowed(trials: &[TrialRecord]) -> Vec<u32> {
    let spins: Vec<f64> = trials.iter().filter_map(slowest_spin).collect();
    let usual = (spins.len() >= COMPARED_LEAST).then(|| median(&spins));
    let spin = |trial: &TrialRecord| Some(slowest_spin(trial)? / usual?);
    let usual_costs = usual_costs(trials);
    let is_dear = |trial: &TrialRecord| {
        let cost = trial.metrics.get(COST).zip(usual_costs.get(&point(trial)));
        cost.is_some_and(|(cost, usual)| *cost > SLOW * usual)
    };
    let dear: BTreeMap<u32, bool> = trials.iter().map(|trial| (trial.order, is_dear(trial))).collect();
    let is_beside_dear = |order: u32| {
        [order.checked_sub(1), order.checked_add(1)]
            .iter()
            .flatten()
            .any(|near| dear.get(near) == Some(&true))
    };
    let is_slowed = |trial: &&TrialRecord| {
        let spin = spin(trial).unwrap_or(1.0);
        let stolen = trial.speed.is_some_and(|speed| speed.steal_share > STEAL_MOST);
        let supported = spin > SUPPORTS || is_beside_dear(trial.order);
        spin > SLOW || stolen || (dear[&trial.order] && supported)
    };
    trials.iter().filter(is_slowed).map(|trial| trial.order).collect()
}

fn slowest_spin(trial: &TrialRecord) -> Option<f64> {
    trial.speed.map(|speed| speed.spin_us_before.max(speed.spin_us_after))
}

/// A point in words: server, load and values of the axes.
fn point(trial: &TrialRecord) -> String {
    format!("{} {:?} {:?}", trial.server, trial.load, trial.axes)
}

/// The median cost of a reply at each point that has enough trials.
fn usual_costs(trials: &[TrialRecord]) -> BTreeMap<String, f64> {
    let mut costs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| !trial.flaws.contains(&Flaw::Failed)) {
        costs.entry(point(trial)).or_default().extend(trial.metrics.get(COST));
    }
    costs.retain(|_, costs| costs.len() >= COMPARED_LEAST);
    costs.into_iter().map(|(point, costs)| (point, median(&costs))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Speed;

    /// Trials of one server at two loads, all alike.
    fn trials() -> Vec<TrialRecord> {
        let trial = |order: u32| TrialRecord {
            server: "a".to_owned(),
            load: Some(["low", "high"][order as usize % 2].to_owned()),
            order,
            metrics: BTreeMap::from([(COST.to_owned(), [10.0, 30.0][order as usize % 2])]),
            speed: Some(Speed { spin_us_before: 500.0, spin_us_after: 500.0, steal_share: 0.0 }),
            ..TrialRecord::default()
        };
        (0..12).map(trial).collect()
    }

    const NONE: [u32; 0] = [];

    fn slowed_after(change: impl Fn(&mut Vec<TrialRecord>)) -> Vec<u32> {
        let mut trials = trials();
        change(&mut trials);
        slowed(&trials)
    }

    fn costs(trial: &mut TrialRecord, factor: f64) {
        trial.metrics.values_mut().for_each(|cost| *cost *= factor);
    }

    #[test]
    fn a_slow_spin_or_stolen_time_flaws_a_trial() {
        let spin = |trials: &mut Vec<TrialRecord>, us| trials[3].speed.as_mut().unwrap().spin_us_after = us;
        assert_eq!(slowed_after(|trials| spin(trials, 550.0)), NONE);
        assert_eq!(slowed_after(|trials| spin(trials, 570.0)), [3]);
        let stolen = |trials: &mut Vec<TrialRecord>| trials[4].speed.as_mut().unwrap().steal_share = 0.05;
        assert_eq!(slowed_after(stolen), [4]);
    }

    #[test]
    fn a_dear_reply_alone_is_the_servers_own() {
        assert_eq!(slowed_after(|trials| costs(&mut trials[5], 1.5)), NONE);
        let two =
            |trials: &mut Vec<TrialRecord>| [5, 6].into_iter().for_each(|at| costs(&mut trials[at], 1.2));
        assert_eq!(slowed_after(two), [5, 6], "neighbours at other points cost more too");
        let supported = |trials: &mut Vec<TrialRecord>| {
            costs(&mut trials[5], 1.2);
            trials[5].speed.as_mut().unwrap().spin_us_before = 525.0;
        };
        assert_eq!(slowed_after(supported), [5]);
    }

    #[test]
    fn few_trials_have_no_median() {
        let few = |trials: &mut Vec<TrialRecord>| {
            trials.truncate(3);
            trials[0].speed.as_mut().unwrap().spin_us_after = 900.0;
        };
        assert_eq!(slowed_after(few), NONE);
    }

    #[test]
    fn a_spin_takes_time_on_a_cpu_of_ours() {
        let cpus = sys::cpu::allowed().unwrap();
        assert!(spin_us(&cpus).unwrap() > 1.0);
        assert!(spin_us(&[]).is_err(), "no CPU");
    }
}
