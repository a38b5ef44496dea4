//! The survey of a server: its capacity, its behaviour past the capacity, and its recovery.
//!
//! ```text
//!   probe -> search (doubling, narrowing) -> knee (loads around it, repeated, in random order)
//!         -> past (upwards, to the largest load) -> back (the same loads downwards) -> recovery
//! ```
//!
//! The search is that of [`crate::capacity`] with short runs; it only says where to look. The capacity itself is
//! estimated from longer runs around there. They are repeated in random order, so that a drift of the machine does not
//! pass for an effect of the load. A reply is good within the [`deadline`]; under an objective, a load is served if the
//! objective holds. Past the capacity the loads follow one another in one run, first up and then down: a difference at
//! equal load is the overload's after-effect. Banga 1997, section 4, goes past the capacity; going back is ours.
//!
//! Owns the order of the loads, and the record of a survey (`conclusion`). The estimate and the verdict are those of
//! [`analysis::capacity`], the sentences those of [`report::capacity`]. A [`Target`] offers the load, so the survey is
//! tested on simulated servers. After an overload the survey offers a trickle until the server answers it: no run pays
//! for the previous one.

mod conclusion;

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

pub use conclusion::{conclude, interrupted, unreachable};

use analysis::capacity::estimate::{self, Estimate};
use analysis::capacity::{KEEPS_UP, RECOVERY_LOAD, RECOVERY_MOST, offered_load, recovery, steps};
use base::{Nanos, Seed};
use rand::seq::SliceRandom;
use record::{Outcome, Point, Step};

use crate::capacity::{self, Bracket, Search};

/// Requests a second of the probe: no server is overloaded by them.
pub const PROBE_PER_S: f64 = 10.0;
/// Of the search; below the capacity of nearly every server, a few doublings from the others'.
const FIRST_GUESS_PER_S: f64 = 200.0;
/// The runs around the knee are what counts: the search need not be exact.
const NARROWING_RUNS: usize = 3;
/// The search's runs are shorter by this.
const COARSE: u64 = 4;
/// Of a step, the part that is not measured: queues fill or empty meanwhile.
const WARMUP_PART: u64 = 4;
/// So many of the usual latencies pass before replies come as fast as requests go out.
const WARMUP_LATENCIES: u64 = 2;
/// What the warm-up for latency's sake takes at most.
const WARMUP_MOST: Nanos = Nanos::from_secs(5);
/// Of what the search found, the loads that are offered again and again: near enough to one another to
/// tell 10 % apart, and wide enough for the search's error of about as much, which is upwards: a load of
/// which 95 % are answered counts as kept up with.
const AROUND: [f64; 4] = [0.8, 0.9, 1.0, 1.12];
/// The step to a further load where all of them are on one side of the knee, and how many there may be.
const FURTHER: f64 = 1.2;
const FURTHER_MOST: usize = 5;
/// Loads past the capacity, in equal ratios.
const PAST_LOADS: usize = 4;
/// Without an objective that bounds latency, a reply within this time is good: a user's flow of thought stays
/// uninterrupted for about a second (Nielsen, Usability Engineering, 1993, section 5.5).
const IN_TIME: Nanos = Nanos::SECOND;
/// A server that is slow by nature gets this multiple of its latency when it has nothing else to do.
const IN_TIME_LATENCIES: u64 = 2;
/// Of the highest load that was served, the trickle between runs; more of a small one, or it would tell nothing.
const TRICKLE: f64 = 0.1;
/// How long a server may take to come to itself between runs.
const SETTLE_MOST: Nanos = Nanos::from_secs(5);

/// Which part of the survey a run belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A few requests: is anybody there?
    Probe,
    /// Where to look.
    Search,
    /// Around the capacity.
    Knee,
}

/// One load to be offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// What for.
    pub phase: Phase,
    /// Requests a second.
    pub per_s: f64,
    /// What goes before and is not measured.
    pub warmup: Nanos,
    /// The measured time.
    pub time: Nanos,
}

/// One of several loads in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Requests a second.
    pub per_s: f64,
    /// For how long.
    pub time: Nanos,
}

/// What offers load to a server: the generator, or in a test a simulation of both.
pub trait Target {
    /// Why there is no result.
    type Error;

    /// Offers a load for a while.
    ///
    /// # Errors
    /// What keeps the generator from it; what the server does is in the step.
    fn offer(&mut self, offer: Offer) -> Result<Step, Self::Error>;

    /// Offers loads one after the other in one run, until `enough` says so of the intervals so far, of a tenth
    /// of a second each, or until the last load's time is over; gives the intervals.
    ///
    /// # Errors
    /// As above.
    fn watch(
        &mut self,
        levels: &[Level],
        enough: &mut dyn FnMut(&[Point]) -> bool,
    ) -> Result<Vec<Point>, Self::Error>;

    /// Whether the objective held in a step that was cut out of the last run that was watched.
    fn slo_held(&self, step: &Step) -> bool;
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Survey {
    /// Runs at each load around the knee, at least one.
    pub trials: usize,
    /// How long a step is, warm-up included.
    pub step: Nanos,
    /// The largest load, as a multiple of the capacity; above 1.
    pub past: f64,
    /// A later reply is no goodput; what the target was told.
    pub deadline: Nanos,
    /// Where the random order and the intervals come from.
    pub seed: Seed,
}

impl Survey {
    /// About how long the survey takes after a probe: a usual number of runs in the search, one pause for
    /// every two runs, and a second of recovery.
    pub fn expected_time(&self, probe: &Step) -> Nanos {
        const SEARCH_RUNS: u64 = 14;
        const PAUSE: Nanos = Nanos::from_millis(300);
        let knee_runs = (AROUND.len() * self.trials) as u64;
        let steps = knee_runs + 2 * PAST_LOADS as u64 - 1;
        let extra = warmup_for_latency(probe);
        let coarse = self.step / COARSE;
        let took = |step: Nanos| step - step / WARMUP_PART + (step / WARMUP_PART).max(extra);
        took(coarse) * SEARCH_RUNS
            + took(self.step) * steps
            + PAUSE * ((SEARCH_RUNS + knee_runs) / 2)
            + Nanos::SECOND
    }
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub struct Findings {
    /// A later reply was no goodput.
    pub deadline: Nanos,
    /// The search's runs.
    pub search: Vec<Step>,
    /// The runs around the knee, in the order they were made in.
    pub knee: Vec<Step>,
    /// The capacity and its interval.
    pub estimate: Estimate,
    /// Whether the generator gave out before the server.
    pub lower_bound_only: bool,
    /// Upwards; empty where the capacity is a lower bound, or 0.
    pub past: Vec<Step>,
    /// Downwards.
    pub back: Vec<Step>,
    /// How long the overload was felt; nothing where it still was at the end, or was not tried.
    pub recovery_s: Option<f64>,
}

/// A few requests, before anything else: what the server does when it has nothing to do. A second of
/// them, or as long as `patience` where a second brings no answer at all.
///
/// # Errors
/// The target's.
pub fn probe<T: Target>(target: &mut T, patience: Nanos) -> Result<Step, T::Error> {
    let offer = |time| Offer { phase: Phase::Probe, per_s: PROBE_PER_S, warmup: Nanos::ZERO, time };
    let step = target.offer(offer(Nanos::SECOND))?;
    if step.outcomes.get(Outcome::Ok) > 0 || step.in_flight_at_end == 0 {
        return Ok(step);
    }
    target.offer(offer(patience.max(Nanos::SECOND)))
}

/// The time within which a reply is good: the objective's bound on latency if it has one, else a second, or
/// twice the latency in the probe if that is longer.
pub fn deadline(probe: &Step, objective: Option<Nanos>) -> Nanos {
    objective.unwrap_or_else(|| IN_TIME.max(Nanos(probe.latency_intended_ns.p99) * IN_TIME_LATENCIES))
}

/// The survey, after a [`probe`] that was answered: what was found, and whether it came to its end.
pub fn carry_out<T: Target>(plan: &Survey, probe: &Step, target: &mut T) -> (Findings, Result<(), T::Error>) {
    let mut findings = Findings {
        deadline: plan.deadline,
        search: Vec::new(),
        knee: Vec::new(),
        estimate: Estimate { per_s: 0.0, interval_per_s: [0.0; 2], enclosed: false },
        lower_bound_only: false,
        past: Vec::new(),
        back: Vec::new(),
        recovery_s: None,
    };
    let mut surveyor = Surveyor {
        plan,
        target,
        extra_warmup: warmup_for_latency(probe),
        served_per_s: probe.goodput_per_s.max(1.0),
    };
    let ended = surveyor.whole(&mut findings);
    (findings, ended)
}

/// Twice what the slowest of a few replies took when nothing else was to do.
fn warmup_for_latency(probe: &Step) -> Nanos {
    (Nanos(probe.latency_intended_ns.p99) * WARMUP_LATENCIES).min(WARMUP_MOST)
}

struct Surveyor<'a, T> {
    plan: &'a Survey,
    target: &'a mut T,
    extra_warmup: Nanos,
    /// The highest load that was served so far.
    served_per_s: f64,
}

impl<T: Target> Surveyor<'_, T> {
    fn offer(&mut self, phase: Phase, per_s: f64, step: Nanos) -> Result<Step, T::Error> {
        let warmup = step / WARMUP_PART;
        let time = step - warmup;
        self.target.offer(Offer { phase, per_s, warmup: warmup.max(self.extra_warmup), time })
    }

    /// The same, and then a pause where the server could not keep up.
    fn offer_and_settle(&mut self, phase: Phase, per_s: f64, step: Nanos) -> Result<Step, T::Error> {
        let step = self.offer(phase, per_s, step)?;
        if offered_load(&step).is_clear() {
            self.served_per_s = self.served_per_s.max(per_s);
        } else {
            self.settle()?;
        }
        Ok(step)
    }

    /// A trickle until it is answered.
    fn settle(&mut self) -> Result<(), T::Error> {
        let per_s = (self.served_per_s * TRICKLE).max(PROBE_PER_S.min(self.served_per_s) / 2.0);
        let trickle = Level { per_s, time: SETTLE_MOST };
        self.target.watch(&[trickle], &mut recovery::is_answered).map(drop)
    }

    /// All of it. What was found before an error stays in the findings.
    fn whole(&mut self, findings: &mut Findings) -> Result<(), T::Error> {
        let bracket = self.search(&mut findings.search)?;
        let ended = self.knee(&bracket, &mut findings.knee);
        findings.estimate = estimate::capacity(&findings.knee, self.plan.seed.child("bootstrap"));
        ended?;
        let generator_gave_out = findings.knee.iter().any(|step| step.generator_limited);
        findings.lower_bound_only = bracket.limited || (!findings.estimate.enclosed && generator_gave_out);
        if findings.lower_bound_only || findings.estimate.per_s <= 0.0 {
            return Ok(());
        }
        self.excursion(findings)
    }

    fn search(&mut self, steps: &mut Vec<Step>) -> Result<Bracket, T::Error> {
        // A server that a probe is too much for would need long to get rid of more.
        let overloaded_by_probe = self.served_per_s < PROBE_PER_S * KEEPS_UP;
        let first_guess_per_s = if overloaded_by_probe { self.served_per_s } else { FIRST_GUESS_PER_S };
        let plan = Search { first_guess_per_s, narrowing_runs: NARROWING_RUNS };
        let coarse = self.plan.step / COARSE;
        capacity::enclose(plan, &mut |per_s| {
            let step = self.offer_and_settle(Phase::Search, per_s, coarse)?;
            let load = offered_load(&step);
            steps.push(step);
            Ok(load)
        })
    }

    /// Loads around what the search found, in random order; then further ones while the knee is not
    /// between them.
    fn knee(&mut self, bracket: &Bracket, steps: &mut Vec<Step>) -> Result<(), T::Error> {
        let trials = self.plan.trials;
        let mut loads: Vec<f64> = match (bracket.limited, bracket.high.is_finite()) {
            (true, _) | (_, false) => vec![bracket.low],
            _ => AROUND.map(|factor| factor * (bracket.low.max(1.0) * bracket.high).sqrt()).to_vec(),
        };
        loads = loads.repeat(trials);
        loads.shuffle(&mut self.plan.seed.child("order of loads").rng());
        for per_s in loads {
            steps.push(self.offer_and_settle(Phase::Knee, per_s, self.plan.step)?);
        }
        for _ in 0..FURTHER_MOST {
            let Some(per_s) = estimate::further_load(steps, FURTHER).filter(|_| !bracket.limited) else {
                break;
            };
            for _ in 0..trials {
                steps.push(self.offer_and_settle(Phase::Knee, per_s, self.plan.step)?);
            }
        }
        Ok(())
    }

    /// Up, down, and until the server serves as before, in one run: clients that hang up between steps would
    /// take the queue with them, which is what the overload leaves behind.
    fn excursion(&mut self, findings: &mut Findings) -> Result<(), T::Error> {
        let capacity_per_s = findings.estimate.per_s;
        let ratio = self.plan.past.powf(1.0 / PAST_LOADS as f64);
        let up: Vec<f64> = (1..=PAST_LOADS as i32).map(|power| capacity_per_s * ratio.powi(power)).collect();
        let warmup = (self.plan.step / WARMUP_PART).max(self.extra_warmup);
        let time = warmup + (self.plan.step - self.plan.step / WARMUP_PART);
        let loads = up.iter().chain(up.iter().rev().skip(1));
        let mut levels: Vec<Level> = loads.map(|per_s| Level { per_s: *per_s, time }).collect();
        let overload_s = (time * levels.len() as u64).as_secs_f64();
        levels.push(Level { per_s: capacity_per_s * RECOVERY_LOAD, time: RECOVERY_MOST });
        let usual_p99_ns = recovery::usual_p99_ns(&findings.knee);
        let recovered = |points: &[Point]| {
            let after = points.partition_point(|point| steps::begin_s(point) < overload_s);
            recovery::time_s(&points[after..], usual_p99_ns).map(|at_s| at_s - overload_s)
        };
        let mut points = Vec::new();
        let watched = self.target.watch(&levels, &mut |so_far| {
            points.extend_from_slice(&so_far[points.len()..]);
            recovered(so_far).is_some()
        });
        findings.recovery_s = recovered(&points);
        let mut cut_out = Vec::new();
        for (number, level) in levels[..levels.len() - 1].iter().enumerate() {
            let from = time * number as u64;
            if watched.is_err() && !steps::reach(&points, from + time) {
                break;
            }
            let mut step = steps::step(&points, level.per_s, from + warmup, from + time);
            step.slo_held = self.target.slo_held(&step);
            cut_out.push(step);
        }
        findings.back = cut_out.split_off(up.len().min(cut_out.len()));
        findings.past = cut_out;
        watched.map(drop)
    }
}
