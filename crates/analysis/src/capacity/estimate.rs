//! From runs around the knee to a capacity with an interval.
//!
//! At each load the median over its trials is taken of the share of requests that were answered, and the
//! share of trials in which the objective held. The knee lies between the highest load that was kept up
//! with and the next one. Where that one was answered in part, what was answered of it is the capacity, for a
//! server past its capacity answers about as much as it can, but no less than of the load before; where the
//! objective did not hold, the capacity lies where half of the trials would have held it, by linear
//! interpolation; where both, the lower counts. Medians, because another process that takes the processor
//! for a moment spoils one trial and not the server.
//!
//! The interval is a percentile bootstrap over the trials of each load (Efron and Tibshirani, 1993, chapter
//! 13), made wide enough to hold both loads that the knee was seen between: three trials that agree
//! do not make a grid finer than it is.

use base::{Rng, Seed};
use rand::RngExt;
use record::Step;
use statistics::Spread;

use super::step::{KEEPS_UP, answered_share, by_load};

/// Enough for the ends of a 95 % interval to be stable.
const RESAMPLES: usize = 1_000;
/// What is left out at each end.
const TAIL: f64 = 0.025;
/// The objective holds at a load where it holds in so many of the trials.
const HOLDS: f64 = 0.5;

/// A capacity, in requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The capacity.
    pub per_s: f64,
    /// Between which rates it lies.
    pub interval_per_s: [f64; 2],
    /// Whether a load was offered that the server did not keep up with.
    pub enclosed: bool,
}

/// One trial.
#[derive(Clone, Copy)]
struct Trial {
    per_s: f64,
    answered: f64,
    held: bool,
}

/// All trials of one load, summed up.
#[derive(Clone, Copy)]
struct Load {
    per_s: f64,
    answered: f64,
    held: f64,
}

impl Load {
    fn of(trials: &[Trial]) -> Load {
        let share = |count: usize| count as f64 / trials.len() as f64;
        Load {
            per_s: median(trials.iter().map(|trial| trial.per_s)),
            answered: median(trials.iter().map(|trial| trial.answered)),
            held: share(trials.iter().filter(|trial| trial.held).count()),
        }
    }

    fn is_kept_up_with(&self) -> bool {
        self.answered >= KEEPS_UP && self.held >= HOLDS
    }

    fn goodput_per_s(&self) -> f64 {
        self.per_s * self.answered
    }
}

/// The median; 0 of nothing.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}

/// The capacity that the steps show.
pub fn capacity(steps: &[Step], seed: Seed) -> Estimate {
    let groups = trials(steps);
    let loads: Vec<Load> = groups.iter().map(|trials| Load::of(trials)).collect();
    let per_s = capacity_of(&loads);
    let mut rng = seed.rng();
    let mut resampled: Vec<f64> = (0..RESAMPLES).map(|_| capacity_of(&resample(&groups, &mut rng))).collect();
    resampled.sort_by(f64::total_cmp);
    let at = |share: f64| resampled[((RESAMPLES as f64 * share) as usize).min(RESAMPLES - 1)];
    let (mut low, mut high) = (at(TAIL).min(per_s), at(1.0 - TAIL).max(per_s));
    let first_lost = loads.iter().position(|load| !load.is_kept_up_with());
    if let Some(lost) = first_lost {
        let kept = lost.checked_sub(1).map_or(0.0, |kept| loads[kept].goodput_per_s());
        (low, high) = (low.min(kept), high.max(loads[lost].per_s));
    }
    Estimate { per_s, interval_per_s: [low, high], enclosed: first_lost.is_some() }
}

/// The load to offer next where all of them lie on one side of the knee: nothing where they do not.
pub fn further_load(steps: &[Step], factor: f64) -> Option<f64> {
    let groups = trials(steps);
    let loads: Vec<Load> = groups.iter().map(|trials| Load::of(trials)).collect();
    let asked = by_load(steps);
    let (first, last) = (loads.first()?, loads.last()?);
    let generator_gave_out = asked.last()?.iter().any(|step| step.generator_limited);
    if !first.is_kept_up_with() {
        Some(asked.first()?[0].asked_per_s / factor)
    } else if last.is_kept_up_with() && loads.iter().all(Load::is_kept_up_with) && !generator_gave_out {
        Some(asked.last()?[0].asked_per_s * factor)
    } else {
        None
    }
}

fn trials(steps: &[Step]) -> Vec<Vec<Trial>> {
    let trial = |step: &&Step| Trial {
        per_s: step.offered_per_s * step.sent_share(),
        answered: answered_share(step),
        held: step.slo_held || step.generator_limited,
    };
    by_load(steps).iter().map(|group| group.iter().map(trial).collect()).collect()
}

fn resample(groups: &[Vec<Trial>], rng: &mut Rng) -> Vec<Load> {
    let draw = |trials: &Vec<Trial>| {
        let drawn: Vec<Trial> = trials.iter().map(|_| trials[rng.random_range(0..trials.len())]).collect();
        Load::of(&drawn)
    };
    groups.iter().map(draw).collect()
}

/// What is answered at the knee; of all loads the highest where none was too much. Where the lowest was,
/// what was answered of it, but nothing where it was the objective that did not hold.
fn capacity_of(loads: &[Load]) -> f64 {
    let Some(lost) = loads.iter().position(|load| !load.is_kept_up_with()) else {
        return loads.last().map_or(0.0, Load::goodput_per_s);
    };
    let beyond = loads[lost];
    let Some(kept) = lost.checked_sub(1).map(|kept| loads[kept]) else {
        return if beyond.held >= HOLDS { beyond.goodput_per_s() } else { 0.0 };
    };
    // What was answered in full is no less than that because it went wrong soon after.
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
    fn at_the_ends_of_the_loads_there_is_a_bound_or_nothing() {
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
