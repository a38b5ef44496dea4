//! The trials of an experiment, their order, and the time they take.
//!
//! The order is random in blocks, and every second repetition reverses the one before (A B B A), so that a drift of the
//! machine affects all points alike. It is seeded, so that it can be repeated and an interrupted run finds its place
//! again. Within a repetition a point comes once. Late repetitions may have only the points that claims are about.
//!
//! Owns arithmetic only: it reads no clock and runs nothing.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use experiment::{Experiment, LoadSpec, ServerSpec, placeholders};
use record::experiment::{Form, Value};
use statistics::mirrored;

use crate::trial::RunTime;

/// The time of a trial beside its load: the network, starting and ending the server and the client, the record.
/// Measured on two cores; a run corrects it by its own measurements.
pub const OVERHEAD: Nanos = Nanos::from_millis(450);
/// The time that a worker process takes to start. Measured with a thousand on one core.
const START_OF_A_WORKER: Nanos = Nanos::from_millis(4);
/// The mean number of runs in the search for a capacity.
const SEARCH_RUNS: u64 = 15;
/// The time of such a run beside its load, which is the client's alone.
const SEARCH_OVERHEAD: Nanos = Nanos::from_millis(150);
/// The divisor of a trial's length that gives its least length under a budget. Shorter trials would measure
/// nothing.
const SHORTEST: u64 = 4;
/// The divisor of the plan's trials that gives the most repeated ones.
pub const REPEATED_ONE_IN: usize = 8;

/// One point: a server, under a load, with values for the axes that the two depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanPoint {
    /// Its place among the experiment's servers.
    pub server: usize,
    /// Its place among the loads; absent for a herd.
    pub load: Option<usize>,
    /// The values.
    pub axes: BTreeMap<String, Value>,
}

/// One planned trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The point.
    pub point: PlanPoint,
    /// The repetition, from 0.
    pub repeat: u32,
}

/// Returns every server under every load at every combination of values.
pub fn points(experiment: &Experiment) -> Vec<PlanPoint> {
    let mut points = Vec::new();
    for (server, spec) in experiment.servers.iter().enumerate() {
        let loads: Vec<Option<usize>> = match spec.kind.serves() {
            true => (0..experiment.loads.len()).map(Some).collect(),
            false => vec![None],
        };
        for load in loads {
            let names = depends_on(spec, load.map(|at| &experiment.loads[at]), experiment);
            let swept = experiment.axes.iter().filter(|axis| names.contains(axis.name.as_str()));
            let mut combinations = vec![BTreeMap::new()];
            for axis in swept {
                let with = |values: &BTreeMap<String, Value>, value: &Value| {
                    let mut values = values.clone();
                    values.insert(axis.name.clone(), value.clone());
                    values
                };
                combinations = combinations
                    .iter()
                    .flat_map(|values| axis.values.iter().map(move |value| with(values, value)))
                    .collect();
            }
            points.extend(combinations.into_iter().map(|axes| PlanPoint { server, load, axes }));
        }
    }
    points
}

/// Returns the axes that a server and a load depend on.
fn depends_on<'a>(
    server: &'a ServerSpec,
    load: Option<&'a LoadSpec>,
    experiment: &'a Experiment,
) -> BTreeSet<&'a str> {
    let texts = server.texts().chain(load.into_iter().flat_map(LoadSpec::texts));
    texts.chain(experiment.stage_texts()).flat_map(placeholders).collect()
}

/// Returns all trials in the order of the run. Servers at the same load and values are neighbours.
pub fn schedule(experiment: &Experiment) -> Vec<Planned> {
    let mut groups: Vec<Vec<PlanPoint>> = Vec::new();
    for point in points(experiment) {
        let is_beside =
            |group: &&mut Vec<PlanPoint>| group[0].load == point.load && group[0].axes == point.axes;
        match groups.iter_mut().find(is_beside) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    let mut rng = experiment.plan.seed.child("order of trials").rng();
    let order = mirrored(&groups, experiment.plan.trials, &mut rng).into_iter();
    let planned = order.map(|(repeat, point)| Planned { point, repeat });
    planned.filter(|planned| planned.repeat < repetitions(experiment, &planned.point)).collect()
}

/// A claim needs more repetitions of its points than a curve.
fn repetitions(experiment: &Experiment, point: &PlanPoint) -> u32 {
    let load = point.load.map(|load| experiment.loads[load].name.as_str());
    let server = &experiment.servers[point.server].name;
    let is_judged = experiment.claims.iter().any(|claim| claim.is_about(server, load, &point.axes));
    if is_judged { experiment.plan.trials } else { experiment.plan.curve_trials.unwrap_or(u32::MAX) }
}

/// Returns the pairs of server and load, by their places, that need a capacity: those that a relative rate refers to.
pub fn searches(experiment: &Experiment) -> Vec<(usize, usize)> {
    let Experiment { servers, loads, capacity, .. } = experiment;
    let serving = || servers.iter().filter(|server| server.kind.serves());
    let relative = loads.iter().filter(|load| load.is_relative());
    let references = relative.flat_map(|load| serving().map(|server| capacity.reference(server, load)));
    let places = references.filter_map(|(of, under)| {
        let server = servers.iter().position(|server| server.kind.serves() && server.name == of)?;
        Some((server, loads.iter().position(|load| load.name == under)?))
    });
    places.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the times of one run of a capacity search, and the number of runs that narrow the capacity down. A full run
/// outlasts the queues several times: 4096 connections are 200 ms of work for a server of 20,000/s.
pub fn search_run(form: Form) -> (RunTime, usize) {
    match form {
        Form::Full => (RunTime { warmup: Nanos::from_millis(400), measured: Nanos::SECOND }, 5),
        Form::Quick => (RunTime { warmup: Nanos::from_millis(60), measured: Nanos::from_millis(140) }, 3),
    }
}

/// Returns the duration of a search.
pub fn search_time(form: Form) -> Nanos {
    (search_run(form).0.total() + SEARCH_OVERHEAD) * SEARCH_RUNS
}

/// Returns the times of one trial's load.
pub fn trial_run(experiment: &Experiment) -> RunTime {
    RunTime { warmup: experiment.plan.warmup, measured: experiment.plan.duration }
}

/// Divides the time `left` equally among `trials`. Each gets at most the run's own length, and at least a quarter
/// of it.
pub fn shortened(run: RunTime, left: Nanos, trials: usize, overhead: Nanos) -> RunTime {
    let whole = run.total();
    let share = (left / trials.max(1) as u64).saturating_sub(overhead).clamp(whole / SHORTEST, whole);
    let part = share.as_secs_f64() / whole.as_secs_f64();
    let of = |time: Nanos| Nanos((time.0 as f64 * part) as u64);
    RunTime { warmup: of(run.warmup), measured: of(run.measured) }
}

/// The size of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Trials.
    pub trials: usize,
    /// Searches for a capacity.
    pub searches: usize,
    /// Duration without repeated trials, within the plan's budget.
    pub time: Nanos,
    /// Duration with the most repeated trials. Exceeds a budget that is too small for the shortest trials.
    pub at_most: Nanos,
}

/// Estimates an experiment that is in that form already.
pub fn estimate(experiment: &Experiment, form: Form) -> Estimate {
    let planned = schedule(experiment);
    let trials = planned.len();
    let searches = searches(experiment).len();
    let load = trial_run(experiment).total();
    let workers_of = |planned: &Planned| {
        let own = experiment.servers[planned.point.server].started_workers;
        own.or(experiment.common.started_workers)
    };
    let workers: u64 = planned.iter().filter_map(workers_of).map(|workers| u64::from(workers.get())).sum();
    let overhead = OVERHEAD + START_OF_A_WORKER * workers / (trials as u64).max(1);
    let searching = search_time(form) * searches as u64;
    let time_of = |trials: usize, load: Nanos| searching + (load + overhead) * trials as u64;
    let again = if experiment.plan.retries > 0 { trials.div_ceil(REPEATED_ONE_IN) } else { 0 };
    let within = |time: Nanos| match experiment.plan.budget {
        Some(budget) => time.min(budget.max(time_of(trials, load / SHORTEST))),
        None => time,
    };
    let (time, at_most) = (within(time_of(trials, load)), within(time_of(trials + again, load)));
    Estimate { trials, searches, time, at_most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn experiment(seed: u64, trials: u32, values: usize) -> Experiment {
        let values: Vec<String> = (1..=values).map(|value| value.to_string()).collect();
        Experiment::parse(&format!(
            r#"
title = "t"
plan = {{ seed = {seed}, trials = {trials}, warmup = "1s", duration = "2s" }}
axis = [{{ name = "n", values = [{values}] }}, {{ name = "x", values = [0.5, 2] }}]
server = [{{ name = "fdm", flags = ["--fdm-live-counter", "{{n}}"] }}, {{ name = "epoll" }}]
load = [{{ name = "l", rate = "{{x}} x capacity" }}, {{ name = "fixed", rate = "100" }}]
"#,
            values = values.join(", ")
        ))
        .unwrap()
    }

    #[test]
    fn an_axis_is_swept_for_those_that_mention_it() {
        let points = points(&experiment(1, 1, 3));
        let count = |server, load| {
            points.iter().filter(|point| point.server == server && point.load == Some(load)).count()
        };
        assert_eq!((count(0, 0), count(0, 1), count(1, 0), count(1, 1)), (6, 3, 2, 1));
        assert!(points.iter().all(|point| point.server == 0 || !point.axes.contains_key("n")));
    }

    #[test]
    fn capacity_is_searched_where_a_rate_multiplies_it() {
        let mut experiment = experiment(1, 1, 3);
        assert_eq!(searches(&experiment), [(0, 0), (1, 0)]);
        experiment.capacity.of = Some("epoll".to_owned());
        assert_eq!(searches(&experiment), [(1, 0)]);
        let mut bursts = experiment.loads[0].clone();
        bursts.name = "bursts".to_owned();
        experiment.loads.push(bursts);
        assert_eq!(searches(&experiment).len(), 2);
        experiment.capacity.load = Some("bursts".to_owned());
        assert_eq!(searches(&experiment), [(1, 2)]);
        experiment.loads.truncate(2);
        experiment.capacity.load = None;
        experiment.capacity.of = None;
        experiment.loads[0].capacity_of = Some("fdm".to_owned());
        assert_eq!(searches(&experiment), [(0, 0)], "the others are offered multiples of its capacity");
        experiment.capacity.of = Some("epoll".to_owned());
        assert_eq!(searches(&experiment), [(0, 0)], "a load's own reference counts before that of all");
        experiment.loads[0].capacity_of = None;
        experiment.capacity.of = Some("epoll".to_owned());
        let estimate = estimate(&experiment, Form::Quick);
        assert_eq!((estimate.trials, estimate.searches), (12, 1));
        let trial = Nanos::from_secs(3) + OVERHEAD;
        assert_eq!(estimate.time, search_time(Form::Quick) + trial * 12);
        assert_eq!(estimate.at_most, estimate.time + trial * 2);
    }

    #[test]
    fn points_without_claims_repeat_as_a_curve_needs() {
        let mut experiment = experiment(1, 10, 3);
        experiment.plan.curve_trials = Some(3);
        assert_eq!(schedule(&experiment).len(), 12 * 3, "there is no claim");
        let claim = "text = 't'\nat-least = 1\nratio = { metric = 'replies_per_s', of = { server = 'fdm', n = 1 }, \
                     over = { server = 'epoll' }, at = { load = 'l', x = 2 } }";
        experiment.claims.push(toml::from_str(claim).unwrap());
        let order = schedule(&experiment);
        assert_eq!(order.len(), 12 * 3 + 2 * 7);
        assert!(order.iter().filter(|planned| planned.repeat >= 3).all(|planned| {
            let PlanPoint { load, axes, .. } = &planned.point;
            *load == Some(0) && axes["x"] == Value::Number(2.0)
        }));
        assert_eq!(estimate(&experiment, Form::Full).trials, order.len());
    }

    #[test]
    fn another_seed_gives_another_order() {
        let [one, other] = [1, 2].map(|seed| schedule(&experiment(seed, 2, 3)));
        assert_eq!(one.len(), other.len());
        assert_ne!(one, other);
    }

    #[test]
    fn a_budget_makes_trials_shorter_but_not_too_short() {
        let run = RunTime { warmup: Nanos::SECOND, measured: Nanos::from_secs(3) };
        let of = |left, trials| shortened(run, Nanos::from_secs(left), trials, Nanos::SECOND).total();
        assert_eq!(of(100, 10), Nanos::from_secs(4));
        assert_eq!(of(30, 10), Nanos::from_secs(2));
        assert_eq!(of(0, 10), Nanos::SECOND);
        let shorter = shortened(run, Nanos::from_secs(30), 10, Nanos::SECOND);
        assert_eq!(shorter.warmup, Nanos::from_millis(500), "both parts shrink alike");
        let mut experiment = experiment(1, 1, 3);
        let unbounded = estimate(&experiment, Form::Quick);
        experiment.plan.budget = Some(unbounded.time - Nanos::SECOND);
        let bounded = estimate(&experiment, Form::Quick);
        assert_eq!((bounded.time, bounded.at_most), (unbounded.time - Nanos::SECOND, bounded.time));
        experiment.plan.budget = Some(Nanos::SECOND);
        assert!(
            estimate(&experiment, Form::Quick).time > unbounded.time / 4,
            "the shortest trials take longer"
        );
    }

    proptest! {
        #[test]
        fn repetition_has_each_point_once_in_seed_order(
            seed in 0..1000_u64, trials in 1..5_u32, values in 1..5_usize,
        ) {
            let experiment = experiment(seed, trials, values);
            let (points, order) = (points(&experiment), schedule(&experiment));
            prop_assert_eq!(order.len(), points.len() * trials as usize);
            for (repeat, round) in order.chunks(points.len()).enumerate() {
                prop_assert!(round.iter().all(|planned| planned.repeat == repeat as u32));
                for point in &points {
                    prop_assert_eq!(round.iter().filter(|planned| planned.point == *point).count(), 1);
                }
            }
            prop_assert_eq!(order, schedule(&experiment));
        }
    }
}
