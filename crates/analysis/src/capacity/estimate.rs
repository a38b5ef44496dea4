//! A capacity with its interval, from runs around the knee.
//!
//! Each load has two figures: the median share of answered requests over its trials, and the share of trials in
//! which the objective held. The knee lies between the highest load that the server kept up with and the next one.
//! If the server answered only a part of the next load, that part is the capacity: past its capacity a server
//! answers about as much as it can. It is at least the load before. If the objective did not hold, linear
//! interpolation finds the load at which half of the trials would have held it. If both apply, the lower counts.
//! Medians are used because another process on the processor spoils one trial and not the server.
//!
//! The interval is a percentile bootstrap over the trials of each load (Efron and Tibshirani, 1993, chapter 13). It
//! is widened to hold both loads around the knee, because three trials that agree do not refine the grid.

use base::Seed;
use record::Step;
use statistics::{Spread, interval, mean, resample};

use super::step::{KEEPS_UP, answered_share, by_load};

/// The share of trials in which the objective must hold for a load.
const HOLDS: f64 = 0.5;

/// A capacity, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The capacity.
    pub per_s: f64,
    /// Lower and upper bound of the capacity.
    pub interval_per_s: [f64; 2],
    /// True if the server did not keep up with at least one load.
    pub enclosed: bool,
}

/// One trial of a load, or the summary of all.
#[derive(Clone, Copy)]
struct Load {
    per_s: f64,
    answered: f64,
    /// The share of trials in which the objective held.
    held: f64,
}

impl Load {
    fn of(trials: &[Load]) -> Load {
        Load {
            per_s: median(trials.iter().map(|trial| trial.per_s)),
            answered: median(trials.iter().map(|trial| trial.answered)),
            held: mean(&trials.iter().map(|trial| trial.held).collect::<Vec<_>>()),
        }
    }

    fn is_kept_up_with(&self) -> bool {
        self.answered >= KEEPS_UP && self.held >= HOLDS
    }

    fn goodput_per_s(&self) -> f64 {
        self.per_s * self.answered
    }
}

/// Returns the median; 0 without values.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}

/// Estimates the capacity from the steps.
pub fn capacity(steps: &[Step], seed: Seed) -> Estimate {
    let groups = trials(steps);
    let loads: Vec<Load> = groups.iter().map(|trials| Load::of(trials)).collect();
    let per_s = capacity_of(&loads);
    let drawn = interval(&mut seed.rng(), |rng| {
        let loads = groups.iter().map(|trials| Load::of(&resample(trials, rng)));
        capacity_of(&loads.collect::<Vec<_>>())
    });
    let (mut low, mut high) = (drawn.low.min(per_s), drawn.high.max(per_s));
    let first_lost = loads.iter().position(|load| !load.is_kept_up_with());
    if let Some(lost) = first_lost {
        let kept = lost.checked_sub(1).map_or(0.0, |kept| loads[kept].goodput_per_s());
        (low, high) = (low.min(kept), high.max(loads[lost].per_s));
    }
    Estimate { per_s, interval_per_s: [low, high], enclosed: first_lost.is_some() }
}

/// Returns the load to offer next if all loads lie on one side of the knee, and `None` otherwise.
pub fn further_load(steps: &[Step], factor: f64) -> Option<f64> {
    let asked = by_load(steps);
    let (first, last) = (asked.first()?, asked.last()?);
    let kept_up: Vec<bool> = trials(steps).iter().map(|trials| Load::of(trials).is_kept_up_with()).collect();
    let generator_gave_out = last.iter().any(|step| step.generator_limited);
    if !kept_up[0] {
        Some(first[0].asked_per_s / factor)
    } else if kept_up.iter().all(|kept| *kept) && !generator_gave_out {
        Some(last[0].asked_per_s * factor)
    } else {
        None
    }
}

fn trials(steps: &[Step]) -> Vec<Vec<Load>> {
    let trial = |step: &&Step| Load {
        per_s: step.offered_per_s * step.sent_share(),
        answered: answered_share(step),
        held: f64::from(step.slo_held || step.generator_limited),
    };
    by_load(steps).iter().map(|group| group.iter().map(trial).collect()).collect()
}

/// Returns the goodput at the knee. If no load was too much: the highest goodput of all loads. If the lowest load was
/// too much: its goodput, or 0 if the objective did not hold.
fn capacity_of(loads: &[Load]) -> f64 {
    let Some(lost) = loads.iter().position(|load| !load.is_kept_up_with()) else {
        return loads.last().map_or(0.0, Load::goodput_per_s);
    };
    let beyond = loads[lost];
    let Some(kept) = lost.checked_sub(1).map(|kept| loads[kept]) else {
        return if beyond.held >= HOLDS { beyond.goodput_per_s() } else { 0.0 };
    };
    // A collapse soon after does not reduce the load that was answered in full.
    let answered = if beyond.answered < KEEPS_UP {
        beyond.goodput_per_s().max(kept.goodput_per_s())
    } else {
        f64::INFINITY
    };
    let held = if beyond.held < HOLDS {
        let part = (kept.held - HOLDS) / (kept.held - beyond.held);
        kept.goodput_per_s() + part * (beyond.per_s - kept.per_s)
    } else {
        f64::INFINITY
    };
    answered.min(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(per_s: f64, answered: f64, held: f64) -> Load {
        Load { per_s, answered, held }
    }

    #[test]
    fn the_knee_lies_between_the_loads_where_it_shows() {
        let holds = [load(900.0, 1.0, 1.0), load(1100.0, 1000.0 / 1100.0, 1.0)];
        assert_eq!(capacity_of(&holds).round(), 1000.0);
        let collapses = [load(900.0, 1.0, 1.0), load(1100.0, 0.2, 1.0)];
        assert_eq!(capacity_of(&collapses), 900.0);
        let late = [load(900.0, 1.0, 1.0), load(1100.0, 1.0, 0.0)];
        assert_eq!(capacity_of(&late), 1000.0);
    }

    #[test]
    fn estimate_at_the_end_loads_is_a_bound_or_none() {
        assert_eq!(capacity_of(&[load(900.0, 1.0, 1.0)]), 900.0);
        assert_eq!(capacity_of(&[load(900.0, 0.5, 1.0)]), 450.0);
        assert_eq!(capacity_of(&[load(900.0, 1.0, 0.0)]), 0.0);
        assert_eq!(capacity_of(&[]), 0.0);
    }

    #[test]
    fn medians_of_even_numbers_lie_between() {
        assert_eq!(median([3.0, 1.0].into_iter()), 2.0);
        assert_eq!(median([3.0, 1.0, 9.0].into_iter()), 3.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
