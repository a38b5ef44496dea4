//! Judged claims: reproduced, refuted or undecided, with the numbers.
//!
//! ```text
//!             at-least, less the tolerance    at-least
//!   refuted ──────────────┤                      ├────────────── reproduced
//!        whole interval here    undecided     whole interval here
//! ```
//!
//! Too few measurements decide nothing, even with a narrow interval: three agree by chance with a probability of 1 in
//! 4. Trials with a flaw do not count.

use experiment::{Claim, Expected, Experiment, Measure, Selection, Terms};
use record::experiment::{Form, RunDirectory, Unit, Value};
use serde::{Deserialize, Serialize};
use statistics::Estimate;

use super::measure::{Found, measure};
use super::quantity;

/// Fewer independent measurements than these leave a claim undecided.
pub const SAMPLES_MIN: usize = 3;

/// The judgement of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Judgement {
    /// The whole interval lies within the bounds.
    Reproduced,
    /// The whole interval lies outside them, by more than the tolerance.
    Refuted,
    /// The interval allows neither.
    Undecided,
}

impl Judgement {
    /// Returns the word in records.
    pub fn word(self) -> &'static str {
        match self {
            Judgement::Reproduced => "reproduced",
            Judgement::Refuted => "refuted",
            Judgement::Undecided => "undecided",
        }
    }
}

/// The kind of a measured number, which decides its notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// One group over another.
    Ratio,
    /// An exponent.
    Slope,
    /// A number without a unit, or a value of an axis.
    Number,
    /// A number per second.
    PerSecond,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// From 0 to 1.
    Share,
}

impl Scale {
    /// Returns the scale of numbers in a unit.
    pub fn of(unit: Option<Unit>) -> Scale {
        match unit {
            Some(Unit::PerSecond) => Scale::PerSecond,
            Some(Unit::Milliseconds) => Scale::Milliseconds,
            Some(Unit::Microseconds) => Scale::Microseconds,
            Some(Unit::Share) => Scale::Share,
            Some(Unit::Count | Unit::Cores) | None => Scale::Number,
        }
    }
}

/// The origin of an experiment's claims, which decides the words for a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The experiment repeats a paper's.
    Paper,
    /// The claims are the user's own.
    Own,
}

/// The bounds of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Expectation {
    /// The lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// The upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The best servers. The measured number is the best of these over the best of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub best: Vec<String>,
}

/// A claim with its measurement: an entry of `claims` in `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The experiment's name.
    pub experiment: String,
    /// The statement.
    pub claim: String,
    /// The paper's finding.
    pub paper: Option<String>,
    /// The bounds of the measured number.
    pub expected: Expectation,
    /// The number's kind.
    pub scale: Scale,
    /// The number; absent without a measurement.
    pub measured: Option<f64>,
    /// The interval of the number, with `confidence`.
    pub interval: Option<[f64; 2]>,
    /// The greatest probability that the interval holds the truth, from 0 to 0.95.
    pub confidence: f64,
    /// Independent measurements behind the number.
    pub samples: usize,
    /// Trials that were left out because of a flaw.
    pub left_out: usize,
    /// The judgement.
    pub judged: Judgement,
    /// The reason, a phrase.
    pub because: String,
}

/// Judges every claim of an experiment from the records of a run of it.
pub fn judge_all(experiment: &Experiment, run: &RunDirectory) -> Vec<Judged> {
    experiment.claims.iter().map(|claim| judge(experiment, claim, run)).collect()
}

fn judge(experiment: &Experiment, claim: &Claim, run: &RunDirectory) -> Judged {
    let found = measure(experiment, claim, &run.trials);
    let best = match &claim.measure {
        Measure::Best(best) => best.expected.clone(),
        _ => Vec::new(),
    };
    let is_best = !best.is_empty();
    let bounds = if is_best { Expected { at_least: 1.0, at_most: f64::INFINITY } } else { claim.expected };
    let (judged, why) = decide(&found, bounds, claim.tolerance);
    let because = match (&found.estimate, missing(claim, run)) {
        (None, Some(missing)) => missing,
        _ => why,
    };
    let finite = |bound: f64| (bound.is_finite() && !is_best).then_some(bound);
    Judged {
        experiment: run.run.name.clone(),
        claim: claim.text.clone(),
        paper: claim.paper.clone(),
        expected: Expectation { at_least: finite(bounds.at_least), at_most: finite(bounds.at_most), best },
        scale: scale(experiment, &claim.measure),
        measured: found.estimate.map(|estimate| estimate.value),
        interval: found.estimate.map(|estimate| [estimate.ci95.low, estimate.ci95.high]),
        confidence: found.confidence,
        samples: found.samples,
        left_out: found.left_out,
        judged,
        because,
    }
}

fn scale(experiment: &Experiment, measure: &Measure) -> Scale {
    let of = |name: &str| Scale::of(quantity(experiment, name).unit);
    match measure {
        Measure::Value(single) => of(&single.metric),
        Measure::Ratio(_) | Measure::Best(_) => Scale::Ratio,
        Measure::Slope(_) => Scale::Slope,
        Measure::Knee(curve) | Measure::Peak(curve) => of(&curve.x),
        Measure::Crossing(compared) => of(&compared.x),
    }
}

/// Decides, and gives the reason as a phrase.
fn decide(found: &Found, bounds: Expected, tolerance: f64) -> (Judgement, String) {
    let Some(Estimate { ci95, .. }) = found.estimate else {
        return nothing_measured(found);
    };
    let wider = Expected {
        at_least: bounds.at_least - bounds.at_least.abs() * tolerance,
        at_most: bounds.at_most + bounds.at_most.abs() * tolerance,
    };
    let (judged, why) = if found.samples < SAMPLES_MIN {
        (Judgement::Undecided, format!("{} of at least {SAMPLES_MIN} valid measurements", found.samples))
    } else if ci95.low >= bounds.at_least && ci95.high <= bounds.at_most {
        (Judgement::Reproduced, "the whole interval is as expected".to_owned())
    } else if ci95.high < wider.at_least || ci95.low > wider.at_most {
        (Judgement::Refuted, "the whole interval is elsewhere".to_owned())
    } else {
        (Judgement::Undecided, "the interval reaches over the bound".to_owned())
    };
    (judged, if found.note.is_empty() { why } else { format!("{why}; {}", found.note) })
}

fn nothing_measured(found: &Found) -> (Judgement, String) {
    if found.is_nowhere && found.samples >= SAMPLES_MIN {
        return (Judgement::Refuted, found.note.clone());
    }
    let why = if !found.note.is_empty() {
        found.note.clone()
    } else if found.left_out > 0 {
        format!("none of its {} trials is valid", found.left_out)
    } else {
        "no trial of it was run".to_owned()
    };
    (Judgement::Undecided, why)
}

/// Names the reason for a missing number if the run has one: a server that was left out, or a form without it.
fn missing(claim: &Claim, run: &RunDirectory) -> Option<String> {
    let Terms { groups, at, .. } = claim.measure.terms();
    let excluded = run.run.servers.iter().find_map(|server| {
        let reason = server.excluded.as_ref()?;
        let value = Value::Text(server.name.clone());
        let is_named =
            |selection: &Selection| selection.0.get("server").is_some_and(|matcher| matcher.matches(&value));
        groups
            .iter()
            .copied()
            .chain(at)
            .any(is_named)
            .then(|| format!("{} was not measured: {reason}", server.name))
    });
    if excluded.is_some() {
        return excluded;
    }
    let was_tried = |group: &&Selection| {
        run.trials.iter().any(|trial| [Some(*group), at].iter().flatten().all(|one| one.matches(trial)))
    };
    if groups.iter().all(was_tried) {
        return None;
    }
    Some(if !run.run.finished {
        "the run was broken off before it".to_owned()
    } else if run.run.form == Form::Quick {
        "not measured in the quick form".to_owned()
    } else {
        "no trial of it was run".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use statistics::Interval;

    fn found(value: f64, low: f64, high: f64, samples: usize) -> Found {
        let estimate = Some(Estimate { value, ci95: Interval { low, high } });
        Found { estimate, confidence: 0.95, samples, left_out: 0, is_nowhere: false, note: String::new() }
    }

    #[test]
    fn only_an_interval_on_one_side_of_the_bound_decides() {
        let at_least = |low, high, tolerance| {
            let bounds = Expected { at_least: 1.2, at_most: f64::INFINITY };
            decide(&found(1.0, low, high, 5), bounds, tolerance).0
        };
        assert_eq!(at_least(1.2, 1.6, 0.0), Judgement::Reproduced);
        assert_eq!(at_least(1.1, 1.19, 0.0), Judgement::Refuted);
        assert_eq!(at_least(1.1, 1.3, 0.0), Judgement::Undecided);
        assert_eq!(at_least(1.1, 1.19, 0.1), Judgement::Undecided);
        assert_eq!(at_least(1.0, 1.07, 0.1), Judgement::Refuted);
        let between =
            |low, high| decide(&found(0.0, low, high, 5), Expected { at_least: -0.1, at_most: 0.1 }, 0.0).0;
        assert_eq!(between(-0.05, 0.1), Judgement::Reproduced);
        assert_eq!(between(0.11, 0.2), Judgement::Refuted);
        assert_eq!(between(-0.2, 0.2), Judgement::Undecided);
    }

    #[test]
    fn too_few_measurements_decide_nothing() {
        let bounds = Expected { at_least: 1.0, at_most: f64::INFINITY };
        let (judged, because) = decide(&found(9.0, 9.0, 9.0, 2), bounds, 0.0);
        assert_eq!((judged, because.as_str()), (Judgement::Undecided, "2 of at least 3 valid measurements"));
    }

    #[test]
    fn what_was_looked_for_and_is_not_there_is_refuted() {
        let nowhere = Found { estimate: None, is_nowhere: true, ..found(0.0, 0.0, 0.0, 5) };
        let bounds = Expected { at_least: 2000.0, at_most: 4000.0 };
        assert_eq!(decide(&nowhere, bounds, 0.0).0, Judgement::Refuted);
        let unseen = Found { samples: 0, left_out: 4, is_nowhere: false, ..nowhere };
        let (judged, because) = decide(&unseen, bounds, 0.0);
        assert_eq!((judged, because.as_str()), (Judgement::Undecided, "none of its 4 trials is valid"));
    }
}
