//! The claims that the plan of an experiment can judge, found before anything is run.
//!
//! The plan's trials are made up: each is valid and has every metric. The analysis then counts the measurements that a
//! claim would rest on, by the same rules as after a run. A claim is judged together with the others of its document, which
//! multiplies the probabilities of its test. Does not know which servers are installed.

use analysis::measure::measure;
use experiment::{Claim, Experiment, Measure};
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

/// The claims that have too few measurements in the plan of an experiment, which is in its form already. A document judges
/// `together` claims. Claims that are declared untested do not count.
pub fn undecidable(experiment: &Experiment, together: usize) -> Vec<Undecidable> {
    let planned = schedule(experiment);
    let judged = experiment.claims.iter().filter(|claim| claim.not_tested.is_none());
    let found = judged.map(|claim| {
        let sample = measure(experiment, claim, &made_up(experiment, claim, &planned)).sample;
        let needed = sample.needed(together);
        Undecidable { claim: claim.text.clone(), measurements: sample.count(), needed }
    });
    found.filter(|claim| claim.measurements < claim.needed).collect()
}

/// Pairs of claims about one quantity, where a bound of the second lies inside the tolerance of the first: a number there
/// can neither refute the first nor tell the two apart.
pub fn bounds_within_tolerances(experiment: &Experiment) -> Vec<(String, String)> {
    let claims = &experiment.claims;
    let pairs = claims.iter().flat_map(|one| claims.iter().map(move |other| (one, other)));
    let found = pairs.filter(|(one, other)| {
        let is_same = !std::ptr::eq(*one, *other) && one.measure == other.measure;
        is_same && !matches!(one.measure, Measure::Best(_)) && has_bound_in_tolerance(one, other)
    });
    found.map(|(one, other)| (one.text.clone(), other.text.clone())).collect()
}

fn has_bound_in_tolerance(one: &Claim, other: &Claim) -> bool {
    let (least, most) = (one.expected.at_least, one.expected.at_most);
    let (low, high) = (least - least.abs() * one.tolerance, most + most.abs() * one.tolerance);
    let bounds =
        [other.expected.at_least, other.expected.at_most].into_iter().filter(|bound| bound.is_finite());
    bounds.into_iter().any(|bound| (low <= bound && bound < least) || (most < bound && bound <= high))
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
            let found = undecidable(&experiment(trials), 1);
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
    fn other_claims_of_the_document_count() {
        let needed = |trials, together| -> Vec<usize> {
            undecidable(&experiment(trials), together).iter().map(|claim| claim.needed).collect()
        };
        assert_eq!(needed(10, 7), [] as [usize; 0]);
        assert_eq!(needed(10, 86), [11; 4], "2^-10 times 86 is above 0.05");
        assert_eq!(needed(12, 86), [] as [usize; 0]);
    }

    #[test]
    fn claim_declared_untested_is_not_undecidable() {
        let mut experiment = experiment(2);
        experiment.claims[0].not_tested = Some("no server in the kernel".to_owned());
        assert_eq!(undecidable(&experiment, 7).len(), 6);
    }

    #[test]
    fn a_bound_inside_a_tolerance_is_found() {
        let of = |tolerance: f64| {
            let mut experiment = experiment(12);
            experiment.claims[0].tolerance = tolerance;
            experiment.claims[0].text = "first".to_owned();
            experiment.claims.push(experiment.claims[0].clone());
            let second = experiment.claims.last_mut().unwrap();
            (second.text, second.expected.at_least) = ("second".to_owned(), 0.9);
            bounds_within_tolerances(&experiment)
        };
        assert_eq!(of(0.2), [("first".to_owned(), "second".to_owned())]);
        assert_eq!(of(0.05), []);
    }

    #[test]
    fn shipped_full_forms_can_judge_all_claims() {
        for known in library::each() {
            let experiment = Experiment::parse(known.text).unwrap().in_form(Form::Full);
            let together = library::claims_together(known.name, &experiment);
            assert_eq!(undecidable(&experiment, together), [], "{}", known.name);
            assert_eq!(bounds_within_tolerances(&experiment), [], "{}", known.name);
        }
    }
}
