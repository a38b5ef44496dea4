//! The claims that the plan of an experiment can judge, found before anything is run.
//!
//! The plan's trials are made up: each is valid and has every metric. The analysis then counts the measurements that a
//! claim would rest on, by the same rules as after a run. Does not know which servers are installed.

use analysis::measure::measure;
use experiment::{Claim, Experiment};
use record::experiment::{TRIAL_SCHEMA, TrialRecord};

use super::schedule::{Planned, schedule};

/// A claim that stays undecided, however the run goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecidable {
    /// The claim.
    pub claim: String,
    /// The independent measurements that the plan gives it.
    pub measurements: usize,
    /// The least number of them that can decide.
    pub needed: usize,
}

/// The claims that have too few measurements in the plan of an experiment, which is in its form already.
pub fn undecidable(experiment: &Experiment) -> Vec<Undecidable> {
    let planned = schedule(experiment);
    let found = experiment.claims.iter().map(|claim| {
        let sample = measure(experiment, claim, &made_up(experiment, claim, &planned)).sample;
        Undecidable { claim: claim.text.clone(), measurements: sample.count(), needed: sample.needed() }
    });
    found.filter(|claim| claim.measurements < claim.needed).collect()
}

/// A valid record of every planned trial, with values for the quantities of a claim that are no axes.
fn made_up(experiment: &Experiment, claim: &Claim, planned: &[Planned]) -> Vec<TrialRecord> {
    let terms = claim.measure.terms();
    let record = |(order, planned): (usize, &Planned)| TrialRecord {
        schema: TRIAL_SCHEMA.to_owned(),
        server: experiment.servers[planned.point.server].name.clone(),
        load: planned.point.load.map(|load| experiment.loads[load].name.clone()),
        axes: planned.point.axes.clone(),
        repeat: planned.repeat,
        order: order as u32,
        attempt: 1,
        // Above 0 and apart, so that a slope runs through them.
        metrics: [terms.metric]
            .into_iter()
            .chain(terms.x)
            .map(|name| (name.to_owned(), order as f64 + 1.0))
            .collect(),
        ..TrialRecord::default()
    };
    planned.iter().enumerate().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library;
    use record::experiment::Form;

    fn experiment(trials: u32) -> Experiment {
        Experiment::parse(&format!(
            r#"
title = "t"
plan = {{ trials = {trials}, warmup = "1s", duration = "2s" }}
axis = [{{ name = "x", values = [0.5, 1, 2] }}]
server = [{{ name = "one" }}, {{ name = "all" }}]
load = [{{ name = "l", rate = "{{x}} x capacity" }}]
claim = [
  {{ text = "a value", value = {{ metric = "goodput_per_s", of = {{ server = "one", x = 2 }} }}, at-least = 1 }},
  {{ text = "all values", value = {{ metric = "goodput_per_s" }}, at-least = 1 }},
  {{ text = "a ratio", ratio = {{ metric = "goodput_per_s", of = {{ server = "one" }}, over = {{ server = "all" }}, at = {{ x = 2 }} }}, at-least = 1 }},
  {{ text = "a slope", slope = {{ metric = "goodput_per_s", x = "x", of = {{ server = "one" }} }}, at-least = 1 }},
  {{ text = "a knee", knee = {{ metric = "goodput_per_s", x = "x", of = {{ server = "one" }} }}, at-least = 1 }},
  {{ text = "a crossing", crossing = {{ metric = "goodput_per_s", x = "x", of = {{ server = "one" }}, over = {{ server = "all" }} }}, at-least = 1 }},
  {{ text = "the best", best = {{ metric = "goodput_per_s", at = {{ x = 2 }}, expected = ["one"] }} }},
]
"#
        ))
        .unwrap()
    }

    #[test]
    fn claim_with_few_measurements_is_named_with_count() {
        let of = |trials: u32| -> Vec<(String, usize, usize)> {
            let found = undecidable(&experiment(trials));
            found.into_iter().map(|claim| (claim.claim, claim.measurements, claim.needed)).collect()
        };
        // A repetition is one measurement, at however many places. Student's test takes three, the sign test five.
        let by_student = ["a ratio", "a slope", "the best"];
        for (trials, claims) in [(2, 7), (3, 4), (4, 4), (5, 0)] {
            let found = of(trials);
            assert_eq!(found.len(), claims, "{found:?}");
            for (claim, measurements, needed) in found {
                let least = if by_student.contains(&claim.as_str()) { 3 } else { 5 };
                assert_eq!((measurements, needed), (trials as usize, least), "{claim}");
            }
        }
    }

    #[test]
    fn shipped_full_forms_can_judge_all_claims() {
        for known in library::each() {
            let experiment = Experiment::parse(known.text).unwrap().in_form(Form::Full);
            assert_eq!(undecidable(&experiment), [], "{}", known.name);
        }
    }
}
