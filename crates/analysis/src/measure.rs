//! The measurement of a claim: a number with an interval, or the reason for its absence.
//!
//! Ratios are paired by repetition and point, because the trials of a repetition share the drift of the machine. A
//! knee, a peak or a crossing is read off the curve of medians. Its interval comes from drawing whole repetitions
//! again.

use base::{Rng, Seed};
use experiment::{Best, Claim, Compared, Curve, Experiment, Measure, Selection, Single, Two};
use record::experiment::TrialRecord;
use statistics::{
    Estimate, Interval, confidence_of_median, crossing, knee, log_slope_through, median,
    median_with_interval, paired_ratio, resampled,
};

use super::curves::Curves;
use super::select::{chosen, pairs};

/// Points of a slope for each trial that another measure needs.
const SLOPE_POINTS: usize = 2;

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The number; absent for the reason in `note`.
    pub estimate: Option<Estimate>,
    /// The greatest confidence of the interval, from 0 to 0.95.
    pub confidence: f64,
    /// Independent measurements behind the number.
    pub samples: usize,
    /// Selected trials that have a flaw.
    pub left_out: usize,
    /// True if the place does not exist, as for curves that do not cross.
    pub is_nowhere: bool,
    /// A further remark, a phrase; may be empty.
    pub note: String,
}

impl Found {
    fn nothing(left_out: usize, note: impl Into<String>) -> Found {
        Found { estimate: None, confidence: 0.0, samples: 0, left_out, is_nowhere: false, note: note.into() }
    }

    fn number(estimate: Estimate, samples: usize, left_out: usize) -> Found {
        Found {
            estimate: Some(estimate),
            confidence: confidence_of_median(samples),
            samples,
            ..Found::nothing(left_out, "")
        }
    }
}

/// Measures the quantity of a claim.
pub fn measure(experiment: &Experiment, claim: &Claim, trials: &[TrialRecord]) -> Found {
    let mut rng = seed_of(experiment, claim).rng();
    match &claim.measure {
        Measure::Value(Single { metric, of }) => {
            let group = chosen(trials, &[of], metric);
            let values = values(&group.valid, metric);
            if values.is_empty() {
                return Found::nothing(group.left_out, "");
            }
            Found::number(median_with_interval(&values, &mut rng), values.len(), group.left_out)
        }
        Measure::Ratio(two) => ratio(two, trials, &mut rng),
        Measure::Slope(curve) => slope(curve, trials, &mut rng),
        Measure::Knee(curve) => on_a_curve(curve, trials, &mut rng, knee, "the curve has no knee"),
        Measure::Peak(curve) => on_a_curve(curve, trials, &mut rng, peak, ""),
        Measure::Crossing(compared) => crosses(compared, trials, &mut rng),
        Measure::Best(best) => is_best(experiment, best, trials, &mut rng),
    }
}

fn seed_of(experiment: &Experiment, claim: &Claim) -> Seed {
    experiment.plan.seed.child(&claim.text)
}

fn values(trials: &[&TrialRecord], metric: &str) -> Vec<f64> {
    trials.iter().filter_map(|trial| trial.quantity(metric)).collect()
}

fn ratio(two: &Two, trials: &[TrialRecord], rng: &mut Rng) -> Found {
    let of = chosen(trials, &[&two.of, &two.at], &two.metric);
    let over = chosen(trials, &[&two.over, &two.at], &two.metric);
    let left_out = of.left_out + over.left_out;
    if of.valid.is_empty() || over.valid.is_empty() {
        return Found::nothing(left_out, "");
    }
    of_pairs(&pairs((&of.valid, &over.valid), (&two.of, &two.over), &two.metric), left_out, rng)
}

fn of_pairs(pairs: &[(f64, f64)], left_out: usize, rng: &mut Rng) -> Found {
    match paired_ratio(pairs, rng) {
        Some(ratio) => Found::number(ratio.ratio, ratio.pairs, left_out),
        None => Found::nothing(left_out, "no two trials can be paired"),
    }
}

fn slope(curve: &Curve, trials: &[TrialRecord], rng: &mut Rng) -> Found {
    let group = chosen(trials, &[&curve.of], &curve.metric);
    let point = |trial: &&TrialRecord| Some((trial.quantity(&curve.x)?, trial.quantity(&curve.metric)?));
    let points: Vec<(f64, f64)> = group.valid.iter().filter_map(point).collect();
    if points.is_empty() {
        return Found::nothing(group.left_out, "");
    }
    match log_slope_through(&points, rng) {
        Some(slope) => Found::number(slope, points.len() / SLOPE_POINTS, group.left_out),
        None => Found::nothing(group.left_out, "a value is not above 0, or all lie at one place"),
    }
}

fn on_a_curve(
    curve: &Curve,
    trials: &[TrialRecord],
    rng: &mut Rng,
    place: fn(&[(f64, f64)]) -> Option<f64>,
    otherwise: &str,
) -> Found {
    let (curves, left_out) = curves(trials, &[&curve.of], &curve.x, &curve.metric);
    from_repeats(&curves.repeats(), left_out, rng, otherwise, |repeats| place(&curves.of(repeats)))
}

/// Returns the curve of the selected trials, and the number of trials that were left out.
fn curves(trials: &[TrialRecord], selections: &[&Selection], x: &str, metric: &str) -> (Curves, usize) {
    let group = chosen(trials, selections, metric);
    (Curves::new(&group.valid, x, metric), group.left_out)
}

fn peak(points: &[(f64, f64)]) -> Option<f64> {
    points.iter().copied().reduce(|best, point| if point.1 > best.1 { point } else { best }).map(|(x, _)| x)
}

fn crosses(compared: &Compared, trials: &[TrialRecord], rng: &mut Rng) -> Found {
    let side = |of: &Selection| curves(trials, &[of, &compared.at], &compared.x, &compared.metric);
    let ((of, of_left_out), (over, over_left_out)) = (side(&compared.of), side(&compared.over));
    let mut repeats = of.repeats();
    repeats.retain(|repeat| over.repeats().contains(repeat));
    let place = |repeats: &[u32]| crossing(&of.of(repeats), &over.of(repeats));
    let mut found =
        from_repeats(&repeats, of_left_out + over_left_out, rng, "the curves do not cross", place);
    if found.estimate.is_some() {
        // Both curves have a point there, or they could not cross.
        let last = |curves: &Curves| curves.of(&repeats).last().map_or(f64::NAN, |(_, y)| *y);
        let side = if last(&of) > last(&over) { "above" } else { "below" };
        found.note = format!("{side} it from there on");
    }
    found
}

/// Finds the place on the curve of all repetitions, with an interval from drawing repetitions again.
fn from_repeats(
    repeats: &[u32],
    left_out: usize,
    rng: &mut Rng,
    otherwise: &str,
    place: impl Fn(&[u32]) -> Option<f64>,
) -> Found {
    if repeats.is_empty() {
        return Found::nothing(left_out, "");
    }
    let drawn = resampled(repeats, rng, &place);
    let samples = repeats.len();
    match (place(repeats), drawn.ci95) {
        (Some(value), Some(ci95)) => {
            let ci95 = Interval { low: ci95.low.min(value), high: ci95.high.max(value) };
            let absent = || format!("in {:.0} % of the draws {otherwise}", drawn.absent * 100.0);
            let note = if drawn.absent > 0.05 { absent() } else { String::new() };
            Found { note, ..Found::number(Estimate { value, ci95 }, samples, left_out) }
        }
        _ => Found {
            samples,
            confidence: confidence_of_median(samples),
            is_nowhere: drawn.absent > 0.95,
            ..Found::nothing(left_out, otherwise)
        },
    }
}

/// Pairs the best of the expected servers with the best of the others: the ratio is above 1 if the expected one is
/// better. Both are chosen by their medians first, so that a side with more servers has no more luck.
fn is_best(experiment: &Experiment, best: &Best, trials: &[TrialRecord], rng: &mut Rng) -> Found {
    let all = chosen(trials, &[&best.at], &best.metric);
    let is_compared = |name: &str| best.among.is_empty() || best.among.iter().any(|one| one == name);
    let names = experiment.servers.iter().map(|server| server.name.as_str()).filter(|name| is_compared(name));
    let names: Vec<&str> = names.collect();
    let middle = |group: &[&TrialRecord]| median(&values(group, &best.metric));
    let champion = |expected: bool| {
        let side = names.iter().filter(|name| best.expected.iter().any(|one| one == **name) == expected);
        let group = |name: &&str| all.valid.iter().copied().filter(|trial| trial.server == *name).collect();
        let groups =
            side.map(|name| (*name, group(name))).filter(|(_, group): &(&str, Vec<_>)| !group.is_empty());
        groups.reduce(|best_so_far, other| {
            let is_more = middle(&other.1) > middle(&best_so_far.1);
            if is_more != best.lowest { other } else { best_so_far }
        })
    };
    let (Some((own, of)), Some((rival, over))) = (champion(true), champion(false)) else {
        return Found::nothing(all.left_out, "there is no server to compare with");
    };
    let mut pairs = pairs((&of, &over), (&of_server(own), &of_server(rival)), &best.metric);
    if best.lowest {
        pairs.iter_mut().for_each(|pair| *pair = (pair.1, pair.0));
    }
    let mut found = of_pairs(&pairs, all.left_out, rng);
    if found.estimate.is_some() {
        found.note = format!("{own} against {rival}");
    }
    found
}

fn of_server(name: &str) -> Selection {
    use experiment::Matcher;
    use record::experiment::Value;
    let matcher = Matcher::AnyOf(vec![Value::Text(name.to_owned())]);
    Selection([("server".to_owned(), matcher)].into())
}
