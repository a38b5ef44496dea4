//! Judged claims, with the numbers: reproduced, refuted, undecided or not tested.
//!
//! ```text
//!             at-least, less the tolerance    at-least
//!   refuted ──────────────┤                      ├────────────── reproduced
//!     the test excludes more    undecided    the test excludes less
//! ```
//!
//! One-sided tests decide, at 5 % for all claims of a document together (Holm, 1979). A claim with two bounds is
//! reproduced by two one-sided tests. A claim with too few valid measurements for any test is not tested, nor is one whose
//! set-up is declared unlike the paper's. Trials with a flaw do not count.

use std::collections::BTreeMap;

use experiment::{Claim, Experiment, Measure, Named, Selection, Terms};
use record::experiment::{Form, RunDirectory, ServerRecord, TrialRecord, Unit, Value};
use serde::{Deserialize, Serialize};
use statistics::{Bounds, ERROR_MAX, MaybeInfinite, Sample, corrected_for_many};

use super::measure::{Found, measure, uncertainty_of_capacities};
use super::quantity;
use super::select::coordinate;

/// A claim with fewer measurements than these is not tested.
pub const SAMPLES_MIN: usize = 3;

/// The judgement of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// The test excludes every value out of bounds.
    Reproduced,
    /// The test excludes every value within the bounds, widened by the tolerance.
    Refuted,
    /// The measurements allow neither.
    Undecided,
    /// There are too few valid measurements for a test, or the set-up cannot judge the claim.
    NotTested,
}

impl Judgement {
    /// Returns the word in records.
    pub fn word(self) -> &'static str {
        match self {
            Judgement::Reproduced => "reproduced",
            Judgement::Refuted => "refuted",
            Judgement::Undecided => "undecided",
            Judgement::NotTested => "not-tested",
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

/// The origin of a claim, which decides the words for its judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The claim quotes a paper.
    Paper,
    /// The claim is the experiment's own.
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
    /// The difference from the paper's setting that a reader of the verdict has to know, a phrase.
    #[serde(default)]
    pub differs: Option<String>,
    /// The bounds of the measured number.
    pub expected: Expectation,
    /// The number's kind.
    pub scale: Scale,
    /// The number; absent without a measurement. An infinite ratio is null in JSON, and has an interval.
    pub measured: Option<f64>,
    /// The interval of the number, with `confidence`. An infinite end is null in JSON.
    #[serde(default, deserialize_with = "statistics::read_ends")]
    pub interval: Option<[MaybeInfinite; 2]>,
    /// The greatest probability that the interval holds the truth, from 0 to 0.95.
    pub confidence: f64,
    /// Independent measurements behind the number.
    pub samples: usize,
    /// Trials that do not count, because they have a flaw or lack the metric.
    pub left_out: usize,
    /// The least number of measurements that can decide.
    pub needed: usize,
    /// The probability of such measurements if the quantity lies out of bounds.
    pub chance_within: f64,
    /// The probability of such measurements if it lies within the bounds, widened by the tolerance.
    pub chance_outside: f64,
    /// The lesser of both, corrected for the claims that are judged together.
    pub chance: f64,
    /// The number of tested claims of the document.
    pub together: usize,
    /// The judgement.
    pub judged: Judgement,
    /// The reason, a phrase.
    pub because: String,
    /// A further remark, a phrase; may be empty.
    pub note: String,
}

impl Judged {
    /// Tells who claims it.
    pub fn origin(&self) -> Origin {
        if self.paper.is_some() { Origin::Paper } else { Origin::Own }
    }
}

/// Judges every claim of an experiment from the records of a run of it, together.
pub fn judge_all(experiment: &Experiment, run: &RunDirectory) -> Vec<Judged> {
    let mut claims: Vec<Judged> =
        experiment.claims.iter().map(|claim| test(experiment, claim, run)).collect();
    judge_together(claims.iter_mut());
    claims
}

/// Judges claims that one document shows, from the tests of each.
pub fn judge_together<'a>(claims: impl Iterator<Item = &'a mut Judged>) {
    let mut tested: Vec<&mut Judged> = claims.filter(|claim| claim.judged != Judgement::NotTested).collect();
    let chances: Vec<f64> =
        tested.iter().map(|claim| claim.chance_within.min(claim.chance_outside)).collect();
    let together = tested.len();
    for (claim, chance) in tested.iter_mut().zip(corrected_for_many(&chances)) {
        (claim.chance, claim.together) = (chance, together);
        (claim.judged, claim.because) = decide(claim);
    }
}

fn test(experiment: &Experiment, claim: &Claim, run: &RunDirectory) -> Judged {
    let mut found = measure(experiment, claim, &run.trials);
    found.uncertainty = uncertainty_of_capacities(experiment, claim, &run.run.capacities);
    let best = match &claim.measure {
        Measure::Best(best) => best.expected.clone(),
        _ => Vec::new(),
    };
    let is_best = !best.is_empty();
    let bounds = if is_best {
        Bounds { at_least: 1.0, at_most: f64::INFINITY }
    } else {
        Bounds { at_least: claim.expected.at_least, at_most: claim.expected.at_most }
    };
    let unmeasured = why_untested(&found).map(|why| match found.sample.count() {
        0 => missing(claim, run).or_else(|| never_run(claim, run)).unwrap_or_else(|| {
            let flaw = usual_flaw(claim, run).map(|flaw| format!("; the usual flaw: {flaw}"));
            why + &flaw.unwrap_or_default()
        }),
        _ => why,
    });
    let untested = claim.not_tested.clone().or(unmeasured).or_else(|| never_run(claim, run));
    let estimate = found.sample.estimate();
    let finite = |bound: f64| (bound.is_finite() && !is_best).then_some(bound);
    let (chance_within, chance_outside) = chances(&found, bounds, claim.tolerance);
    Judged {
        experiment: run.run.name.clone(),
        claim: claim.text.clone(),
        paper: claim.paper.clone(),
        differs: claim.differs.clone(),
        expected: Expectation { at_least: finite(bounds.at_least), at_most: finite(bounds.at_most), best },
        scale: scale(experiment, &claim.measure),
        measured: estimate.map(|estimate| estimate.value),
        interval: estimate
            .map(|estimate| [estimate.ci95.low / found.uncertainty, estimate.ci95.high * found.uncertainty]),
        confidence: if found.sample.count() == 0 { 0.0 } else { found.sample.confidence() },
        samples: found.sample.count(),
        left_out: found.left_out,
        needed: found.sample.needed(1),
        chance_within,
        chance_outside,
        chance: 1.0,
        together: 0,
        judged: if untested.is_some() { Judgement::NotTested } else { Judgement::Undecided },
        because: untested.unwrap_or_default(),
        note: [found.note.clone(), drift(&found.sample, bounds).unwrap_or_default()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; "),
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

/// Returns the reason for the lack of a test, a phrase.
fn why_untested(found: &Found) -> Option<String> {
    match found.sample.count() {
        0 if !found.note.is_empty() => Some(found.note.clone()),
        0 if found.left_out > 0 => Some("no repetition has a valid trial at every point".to_owned()),
        0 => Some("no trial of it was run".to_owned()),
        count if count < SAMPLES_MIN => Some(format!("{count} of at least {SAMPLES_MIN} valid measurements")),
        _ => None,
    }
}

/// Tests both verdicts. One of the expected servers must beat all others, or one of the others all expected ones. The
/// choice of that one counts as a number of tests (Bonferroni). A number that capacities make uncertain must lie beyond a
/// bound by that factor.
fn chances(found: &Found, bounds: Bounds, tolerance: f64) -> (f64, f64) {
    let (narrow, wide) = (bounds.moved(found.uncertainty), bounds.moved(1.0 / found.uncertainty));
    let (own, rivals) = (found.contests.len(), found.contests[0].len());
    let beats_all =
        |contests: &Vec<Sample>| contests.iter().map(|one| narrow.chance_within(one)).fold(0.0, f64::max);
    let loses_to = |rival: usize| {
        let bounds = wide.widened(tolerance);
        found.contests.iter().map(|contests| bounds.chance_outside(&contests[rival])).fold(0.0, f64::max)
    };
    let within = found.contests.iter().map(beats_all).fold(1.0, f64::min) * own as f64;
    let outside = (0..rivals).map(loses_to).fold(1.0, f64::min) * rivals as f64;
    (within.min(1.0), outside.min(1.0))
}

/// Describes a drift of the measured number over the run that exceeds its distance from the nearest bound.
fn drift(sample: &Sample, bounds: Bounds) -> Option<String> {
    let (value, drift) = (sample.estimate()?.value, sample.drift()?);
    let (change, still) = match sample {
        Sample::Products(_) => (value * drift.value - value, 1.0),
        _ => (drift.value, 0.0),
    };
    let nearest = (value - bounds.at_least).abs().min((value - bounds.at_most).abs());
    let is_certain = drift.ci95.low > still || drift.ci95.high < still;
    (is_certain && change.abs() > nearest).then(|| format!("it drifted by {change:+.2} over the run"))
}

/// Decides, and gives the reason as a phrase.
fn decide(claim: &Judged) -> (Judgement, String) {
    let is_within = claim.chance_within <= claim.chance_outside;
    let alone = claim.chance_within.min(claim.chance_outside);
    let (judged, why) = match (claim.chance <= ERROR_MAX, is_within) {
        (true, true) => (Judgement::Reproduced, "within the bounds".to_owned()),
        (true, false) if claim.measured.is_none() => (Judgement::Refuted, "it does not exist".to_owned()),
        (true, false) => (Judgement::Refuted, "out of bounds".to_owned()),
        _ if claim.samples < claim.needed => {
            let Judged { samples, needed, .. } = claim;
            (Judgement::Undecided, format!("{samples} of at least {needed} measurements that can decide"))
        }
        _ if alone <= ERROR_MAX => {
            let why = format!("decided alone, but not among {} claims", claim.together);
            (Judgement::Undecided, why)
        }
        _ => (Judgement::Undecided, "the test excludes neither side of the bounds".to_owned()),
    };
    (judged, why)
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

/// Names a server or another value of a claim that no trial of the run has. A verdict would be about the others alone.
fn never_run(claim: &Claim, run: &RunDirectory) -> Option<String> {
    let is_untried = |named: &Named<'_>| {
        let has_it = |trial: &TrialRecord| coordinate(trial, &named.name).as_ref() == Some(&named.value);
        !run.trials.iter().any(|trial| has_it(trial) && named.among.iter().all(|one| one.matches(trial)))
    };
    let Named { name, value, .. } = claim.named().into_iter().find(is_untried)?;
    let is_it = |known: &&ServerRecord| name == "server" && Value::Text(known.name.clone()) == value;
    Some(match run.run.servers.iter().find(is_it).and_then(|server| server.excluded.as_ref()) {
        Some(reason) => format!("{value} was not measured: {reason}"),
        None if run.run.form == Form::Quick => format!("{name} {value} was not measured in the quick form"),
        None => format!("{name} {value} was not measured"),
    })
}

/// Names the flaw that most trials of a claim have.
fn usual_flaw(claim: &Claim, run: &RunDirectory) -> Option<&'static str> {
    let about = |trial: &&TrialRecord| claim.is_about(&trial.server, trial.load.as_deref(), &trial.axes);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for flaw in run.trials.iter().filter(about).flat_map(|trial| &trial.flaws) {
        *counts.entry(flaw.name()).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sample: Sample) -> Found {
        let contests = vec![vec![sample.clone()]];
        Found { contests, sample, left_out: 0, uncertainty: 1.0, note: String::new() }
    }

    #[test]
    fn uncertain_capacities_move_the_bounds_of_a_ratio() {
        let sample = Sample::Products([0.99, 1.0, 1.01].map(|noise| noise * 1.3).to_vec());
        let of = |uncertainty| chances(&Found { uncertainty, ..found(sample.clone()) }, AT_LEAST, 0.0);
        assert!(of(1.0).0 <= ERROR_MAX && of(1.2).0 > ERROR_MAX, "1.3 over 1.2 is at least 1.2 only by 1.08");
        let below = Sample::Products([0.99, 1.0, 1.01].map(|noise| noise * 1.1).to_vec());
        let of = |uncertainty| chances(&Found { uncertainty, ..found(below.clone()) }, AT_LEAST, 0.0);
        assert!(of(1.0).1 <= ERROR_MAX && of(1.2).1 > ERROR_MAX);
    }

    const AT_LEAST: Bounds = Bounds { at_least: 1.2, at_most: f64::INFINITY };

    #[test]
    fn a_test_decides_beyond_the_bound_and_the_tolerance() {
        let of = |middle: f64, tolerance| {
            let sample = Sample::Products([0.99, 1.0, 1.01].map(|noise| noise * middle).to_vec());
            let (within, outside) = chances(&found(sample), AT_LEAST, tolerance);
            (within <= ERROR_MAX, outside <= ERROR_MAX)
        };
        assert_eq!(of(1.3, 0.0), (true, false));
        assert_eq!(of(1.1, 0.0), (false, true));
        assert_eq!(of(1.2, 0.0), (false, false));
        assert_eq!(of(1.1, 0.1), (false, false), "within the tolerance");
    }

    #[test]
    fn best_arm_beats_all_others_at_the_cost_of_a_test() {
        let one = |ratio: f64| Sample::Products([0.98, 1.0, 1.03, 1.01].map(|noise| noise * ratio).to_vec());
        let of = |contests: Vec<Vec<Sample>>| {
            let sample = contests[0][0].clone();
            chances(&Found { contests, ..found(sample) }, Bounds { at_least: 1.0, ..AT_LEAST }, 0.0)
        };
        let alone = of(vec![vec![one(1.2)]]);
        assert!(alone.0 < 0.01 && alone.1 > 0.9);
        assert_eq!(of(vec![vec![one(1.2), one(1.3)]]).0, alone.0, "the nearer rival counts");
        assert_eq!(of(vec![vec![one(1.2)], vec![one(0.7)]]).0, 2.0 * alone.0);
        assert!(of(vec![vec![one(0.8)], vec![one(0.7)]]).1 < 0.02, "the rival beats both");
    }

    #[test]
    fn missing_crossing_is_out_of_bounds() {
        let nowhere = found(Sample::Places(vec![f64::NAN; 5]));
        assert_eq!(chances(&nowhere, AT_LEAST, 0.0), (1.0, 1.0 / 32.0));
        assert_eq!(why_untested(&nowhere), None);
        let unseen = Found { left_out: 4, ..found(Sample::Places(vec![])) };
        assert_eq!(why_untested(&unseen).unwrap(), "no repetition has a valid trial at every point");
    }

    #[test]
    fn a_drift_is_told_if_it_reaches_the_bound() {
        let falling = |by: f64| {
            let ratio =
                |n: i32| 1.3 * (1.0 - by * f64::from(n) / 9.0) * if n % 2 == 0 { 1.001 } else { 0.999 };
            drift(&Sample::Products((0..10).map(ratio).collect()), AT_LEAST)
        };
        assert_eq!(falling(0.02), None, "it leaves the bound far away");
        assert!(falling(0.15).unwrap().starts_with("it drifted by -0.1"), "{:?}", falling(0.15));
    }
}
