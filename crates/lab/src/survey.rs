//! The survey of a server: its capacity, its behaviour past the capacity, and its recovery.
//!
//! ```text
//!   probe -> search (doubling, narrowing) -> knee (loads around it, repeated, in random order)
//!         -> past (upwards, to the largest load) -> back (the same loads downwards) -> recovery
//! ```
//!
//! The search is that of [`crate::capacity`] with short runs, and only finds the region. Longer runs around it give
//! the estimate of the capacity. They are repeated in random order, so that a drift of the machine does not pass for
//! an effect of the load. A reply is good within the [`deadline`]; under an objective, a load is served if the
//! objective holds. Past the capacity the loads follow one another in one run, first up and then down: a difference
//! at equal load is the overload's after-effect. Banga 1997, section 5, goes past the capacity; this survey adds the
//! way back.
//!
//! Owns the order of the loads, and the record of a survey (`conclusion`). [`analysis::capacity`] makes the estimate
//! and the verdict, and [`report::capacity`] the sentences. A [`Target`] offers the load, so that the survey is
//! tested on simulated servers. After an overload the survey offers a trickle until the server answers it, so that no
//! run pays for the previous one.

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

/// Requests per second of the probe, which overloads no server.
pub const PROBE_PER_S: f64 = 10.0;
/// The first guess of the search: below the capacity of nearly every server, and a few doublings from it.
const FIRST_GUESS_PER_S: f64 = 200.0;
/// The runs around the knee give the estimate, so the search need not be exact.
const NARROWING_RUNS: usize = 3;
/// The factor by which the search's runs are shorter.
const COARSE: u64 = 4;
/// The divisor of a step's part that is not measured, while queues fill or empty.
const WARMUP_PART: u64 = 4;
/// The usual latencies of each request of a session that pass before replies come as fast as requests are offered. A
/// session offers all its requests when it begins. Twice the mean session is as long as the longest of most workloads.
const WARMUP_LATENCIES: u64 = 2;
/// The longest warm-up for the sake of the latency of one request of a session.
const WARMUP_MOST: Nanos = Nanos::from_secs(5);
/// The loads around the knee, as multiples of the search's result. They are near enough to tell 10 % apart, and wide
/// enough for the search's error of about as much. The search errs upwards, because a load counts as kept up with if
/// 95 % of it are answered.
const AROUND: [f64; 4] = [0.8, 0.9, 1.0, 1.12];
/// The ratio to a further load if all loads are on one side of the knee, and the most such loads.
const FURTHER: f64 = 1.2;
const FURTHER_MOST: usize = 5;
/// Loads past the capacity, in equal ratios.
const PAST_LOADS: usize = 4;
/// Without an objective that bounds latency, a reply within this time is good. A user's flow of thought stays
/// uninterrupted for about a second (Nielsen, Usability Engineering, 1993, section 5.5).
const IN_TIME: Nanos = Nanos::SECOND;
/// A server that is slow by nature gets this multiple of its idle latency.
const IN_TIME_LATENCIES: u64 = 2;
/// The load of the trickle between runs, as a share of the highest served load. The share is larger for a small
/// load, which would otherwise have too few requests.
const TRICKLE: f64 = 0.1;
/// The longest pause for a server to settle between runs.
const SETTLE_MOST: Nanos = Nanos::from_secs(5);

/// A part of the survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A few requests, to find out whether a server answers.
    Probe,
    /// The search for the capacity.
    Search,
    /// The loads around the capacity.
    Knee,
}

/// One load to be offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// The part of the survey.
    pub phase: Phase,
    /// Requests per second.
    pub per_s: f64,
    /// The time before the measured time.
    pub warmup: Nanos,
    /// The measured time.
    pub time: Nanos,
}

/// One of several loads in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Requests per second.
    pub per_s: f64,
    /// The duration of the load.
    pub time: Nanos,
}

/// A load generator with its server, or in a test a simulation of both.
pub trait Target {
    /// The reason for a missing result.
    type Error;

    /// Offers a load for a while.
    ///
    /// # Errors
    /// The generator's failure. The step holds the server's behaviour.
    fn offer(&mut self, offer: Offer) -> Result<Step, Self::Error>;

    /// Offers loads one after the other in one run, and returns its intervals, of a tenth of a second each. Ends when
    /// `enough` returns true for the intervals so far, or when the last load's time is over.
    ///
    /// # Errors
    /// The same.
    fn watch(
        &mut self,
        levels: &[Level],
        enough: &mut dyn FnMut(&[Point]) -> bool,
    ) -> Result<Vec<Point>, Self::Error>;

    /// Tells whether the objective held in a step that was cut out of the last watched run.
    fn slo_held(&self, step: &Step) -> bool;
}

/// The settings of a survey.
#[derive(Clone, Copy, Debug)]
pub struct Survey {
    /// Runs at each load around the knee, at least one.
    pub trials: usize,
    /// The length of a step, warm-up included.
    pub step: Nanos,
    /// The largest load, as a multiple of the capacity; above 1.
    pub past: f64,
    /// The deadline of good replies, as the target has it.
    pub deadline: Nanos,
    /// The mean number of requests of a session.
    pub session_length: f64,
    /// The mean of a session's think times together.
    pub thinking: Nanos,
    /// The seed of the random order and of the intervals.
    pub seed: Seed,
}

impl Survey {
    /// Returns the approximate time of the survey after a probe. It covers a usual number of runs in the search, one
    /// pause for every two runs, and a second of recovery.
    pub fn expected_time(&self, probe: &Step) -> Nanos {
        const SEARCH_RUNS: u64 = 15;
        const PAUSE: Nanos = Nanos::from_millis(300);
        let knee_runs = (AROUND.len() * self.trials) as u64;
        let steps = knee_runs + 2 * PAST_LOADS as u64 - 1;
        let extra = self.warmup_for_sessions(probe);
        let coarse = self.step / COARSE;
        let took = |step: Nanos| step - step / WARMUP_PART + (step / WARMUP_PART).max(extra);
        took(coarse) * SEARCH_RUNS
            + took(self.step) * steps
            + PAUSE * ((SEARCH_RUNS + knee_runs) / 2)
            + Nanos::SECOND
    }

    /// Returns the time that a session takes, with twice the longest latency of a few replies from an idle server.
    fn warmup_for_sessions(&self, probe: &Step) -> Nanos {
        let of_a_request = (Nanos(probe.latency_intended_ns.p99) * WARMUP_LATENCIES).min(WARMUP_MOST);
        self.thinking + Nanos::from_secs_f64(of_a_request.as_secs_f64() * self.session_length)
    }
}

/// The findings of a survey.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The deadline of good replies.
    pub deadline: Nanos,
    /// The search's runs.
    pub search: Vec<Step>,
    /// The runs around the knee, in their order.
    pub knee: Vec<Step>,
    /// The capacity and its interval.
    pub estimate: Estimate,
    /// True if the generator was the limit.
    pub lower_bound_only: bool,
    /// The way up; empty if the capacity is a lower bound, or 0.
    pub past: Vec<Step>,
    /// The way down.
    pub back: Vec<Step>,
    /// The time for which the overload was felt; `None` if it still was at the end, or was not tried.
    pub recovery_s: Option<f64>,
}

/// Offers a few requests before anything else, to learn the behaviour of an idle server. Takes a second, or
/// `patience` if a second brings no answer.
///
/// # Errors
/// The target's errors.
pub fn probe<T: Target>(target: &mut T, patience: Nanos) -> Result<Step, T::Error> {
    let offer = |time| Offer { phase: Phase::Probe, per_s: PROBE_PER_S, warmup: Nanos::ZERO, time };
    let step = target.offer(offer(Nanos::SECOND))?;
    if step.outcomes.get(Outcome::Ok) > 0 || step.in_flight_at_end == 0 {
        return Ok(step);
    }
    target.offer(offer(patience.max(Nanos::SECOND)))
}

/// Returns the time within which a reply is good: the objective's bound on latency, if it has one. Otherwise a
/// second, or twice the latency in the probe if that is longer.
pub fn deadline(probe: &Step, objective: Option<Nanos>) -> Nanos {
    objective.unwrap_or_else(|| IN_TIME.max(Nanos(probe.latency_intended_ns.p99) * IN_TIME_LATENCIES))
}

/// Runs the survey after an answered [`probe`]. Returns the findings, and the error that ended it early.
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
        extra_warmup: plan.warmup_for_sessions(probe),
        served_per_s: probe.goodput_per_s.max(1.0),
    };
    let ended = surveyor.whole(&mut findings);
    (findings, ended)
}

struct Surveyor<'a, T> {
    plan: &'a Survey,
    target: &'a mut T,
    extra_warmup: Nanos,
    /// The highest load served so far.
    served_per_s: f64,
}

impl<T: Target> Surveyor<'_, T> {
    fn offer(&mut self, phase: Phase, per_s: f64, step: Nanos) -> Result<Step, T::Error> {
        let warmup = step / WARMUP_PART;
        let time = step - warmup;
        self.target.offer(Offer { phase, per_s, warmup: warmup.max(self.extra_warmup), time })
    }

    /// Offers a load, and then pauses if the server could not keep up.
    fn offer_and_settle(&mut self, phase: Phase, per_s: f64, step: Nanos) -> Result<Step, T::Error> {
        let step = self.offer(phase, per_s, step)?;
        if offered_load(&step).is_clear() {
            self.served_per_s = self.served_per_s.max(per_s);
        } else {
            self.await_answer()?;
        }
        Ok(step)
    }

    /// Offers a trickle until it is answered.
    fn await_answer(&mut self) -> Result<(), T::Error> {
        let per_s = (self.served_per_s * TRICKLE).max(PROBE_PER_S.min(self.served_per_s) / 2.0);
        let trickle = Level { per_s, time: SETTLE_MOST };
        self.target.watch(&[trickle], &mut recovery::is_answered).map(drop)
    }

    /// Runs the whole survey. The findings before an error stay.
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
        // A server that a probe overloads would need long to clear more.
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

    /// Offers loads around the search's result, in random order; then further ones until the knee lies between them.
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

    /// Goes up, down, and until the server serves as before, in one run. Clients that hang up between steps would
    /// take the queue with them, which is the overload's after-effect.
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
