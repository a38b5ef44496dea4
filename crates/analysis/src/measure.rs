//! The measurement of a claim: one number from each repetition, or the reason for its absence.
//!
//! The repetition is the unit of replication, because its trials share the state of the machine. A ratio is that of the
//! pairs at each point, on average over the points. A slope, knee, peak or crossing is read off the curve of the
//! repetition.

use experiment::{Best, Claim, Experiment, Measure, Selection, Two};
use record::experiment::TrialRecord;
use statistics::{Sample, complete, crossing, knee, log_slope_through, mean, median};

use super::select::{Group, chosen, key, names, ratios};

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The measurements of the number, in the order of their repetitions; may be empty.
    pub sample: Sample,
    /// The contests that decide about the best server: for each expected server, its ratio to each of the others. Other
    /// measurements have one contest, which is the sample.
    pub contests: Vec<Vec<Sample>>,
    /// Selected trials that have a flaw.
    pub left_out: usize,
    /// A further remark, a phrase; may be empty.
    pub note: String,
}

impl Found {
    fn of(sample: Sample, left_out: usize, otherwise: &str) -> Found {
        let lacks_a_number = sample.estimate().is_none();
        let note = if lacks_a_number { otherwise.to_owned() } else { String::new() };
        Found { contests: vec![vec![sample.clone()]], sample, left_out, note }
    }
}

/// Measures the quantity of a claim.
pub fn measure(experiment: &Experiment, claim: &Claim, trials: &[TrialRecord]) -> Found {
    let places = |of: &Selection, metric: &str, place: &dyn Fn(&[&TrialRecord]) -> Option<f64>, otherwise| {
        let group = chosen(trials, &[of], metric);
        Found::of(Sample::Places(of_each_repetition(&group, place)), group.left_out, otherwise)
    };
    match &claim.measure {
        Measure::Value(one) => {
            let middle = |trials: &[&TrialRecord]| Some(median(&values(trials, &one.metric)));
            places(&one.of, &one.metric, &middle, "")
        }
        Measure::Ratio(two) => ratio(two, trials),
        Measure::Slope(one) => {
            let group = chosen(trials, &[&one.of], &one.metric);
            let slope = |trials: &[&TrialRecord]| log_slope_through(&curve(trials, &one.x, &one.metric));
            let mut slopes = of_each_repetition(&group, &slope);
            let otherwise =
                if slopes.is_empty() { "" } else { "a value is not above 0, or all lie at one place" };
            slopes.retain(|slope| slope.is_finite());
            Found::of(Sample::Sums(slopes), group.left_out, otherwise)
        }
        Measure::Knee(one) => {
            let place = |trials: &[&TrialRecord]| knee(&curve(trials, &one.x, &one.metric));
            places(&one.of, &one.metric, &place, "the curve has no knee")
        }
        Measure::Peak(one) => {
            places(&one.of, &one.metric, &|trials| peak(&curve(trials, &one.x, &one.metric)), "")
        }
        Measure::Crossing(two) => {
            let sides = [&two.of, &two.over].map(|side| chosen(trials, &[side, &two.at], &two.metric));
            let left_out = sides.iter().map(|side| side.left_out).sum();
            let both = Group { valid: sides.into_iter().flat_map(|side| side.valid).collect(), left_out };
            let curve = |trials: &[&TrialRecord], side: &Selection| {
                let own: Vec<&TrialRecord> =
                    trials.iter().copied().filter(|trial| side.matches(trial)).collect();
                curve(&own, &two.x, &two.metric)
            };
            let place =
                |trials: &[&TrialRecord]| crossing(&curve(trials, &two.of), &curve(trials, &two.over));
            let sample = Sample::Places(of_each_repetition(&both, &place));
            let last = |side: &Selection| curve(&both.valid, side).last().map_or(f64::NAN, |(_, y)| *y);
            let side = if last(&two.of) > last(&two.over) { "above" } else { "below" };
            let mut found = Found::of(sample, left_out, "the curves do not cross");
            if found.note.is_empty() {
                found.note = format!("{side} it from there on");
            }
            found
        }
        Measure::Best(best) => is_best(experiment, best, trials),
    }
}

fn values(trials: &[&TrialRecord], metric: &str) -> Vec<f64> {
    trials.iter().filter_map(|trial| trial.quantity(metric)).collect()
}

/// Computes a number from the trials of each complete repetition; NaN where there is none.
fn of_each_repetition(group: &Group<'_>, number: &dyn Fn(&[&TrialRecord]) -> Option<f64>) -> Vec<f64> {
    let names = names(group.valid.iter().copied());
    let placed = group.valid.iter().map(|trial| {
        let (repeat, place) = key(trial, &names);
        (repeat, place, *trial)
    });
    complete(placed).iter().map(|trials| number(trials).unwrap_or(f64::NAN)).collect()
}

fn ratio(two: &Two, trials: &[TrialRecord]) -> Found {
    let of = chosen(trials, &[&two.of, &two.at], &two.metric);
    let over = chosen(trials, &[&two.over, &two.at], &two.metric);
    let is_one_side_empty = of.valid.is_empty() || over.valid.is_empty();
    let sample = paired((&of.valid, &over.valid), (&two.of, &two.over), &two.metric);
    let otherwise = if is_one_side_empty { "" } else { "no two trials can be paired" };
    Found::of(sample, of.left_out + over.left_out, otherwise)
}

/// The ratio in each complete repetition, on average over its points.
fn paired(
    groups: (&[&TrialRecord], &[&TrialRecord]),
    selections: (&Selection, &Selection),
    metric: &str,
) -> Sample {
    let average = |ratios: &Vec<f64>| mean(&ratios.iter().map(|ratio| ratio.ln()).collect::<Vec<_>>()).exp();
    Sample::Products(complete(ratios(groups, selections, metric)).iter().map(average).collect())
}

/// Returns the points of a metric over an axis or another metric, ascending in x. Trials at one x make one point.
fn curve(trials: &[&TrialRecord], x: &str, metric: &str) -> Vec<(f64, f64)> {
    let point = |trial: &&TrialRecord| Some((trial.quantity(x)?, trial.quantity(metric)?));
    let mut points: Vec<(f64, f64)> = trials.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let middle =
        |point: &[(f64, f64)]| (point[0].0, median(&point.iter().map(|(_, y)| *y).collect::<Vec<_>>()));
    points.chunk_by(|a, b| a.0 == b.0).map(middle).collect()
}

fn peak(points: &[(f64, f64)]) -> Option<f64> {
    points.iter().copied().reduce(|best, point| if point.1 > best.1 { point } else { best }).map(|(x, _)| x)
}

/// Pairs each expected server with each of the others: a ratio is above 1 if the expected one is better. The shown
/// ratio is that of the best by their medians.
fn is_best(experiment: &Experiment, best: &Best, trials: &[TrialRecord]) -> Found {
    let all = chosen(trials, &[&best.at], &best.metric);
    let group = |name: &str| -> Vec<&TrialRecord> {
        all.valid.iter().copied().filter(|trial| trial.server == name).collect()
    };
    let middle = |name: &&str| {
        let middle = median(&values(&group(name), &best.metric));
        if best.lowest { -middle } else { middle }
    };
    let side = |expected: bool| -> Vec<&str> {
        let names = experiment.servers.iter().map(|server| server.name.as_str());
        let mut names: Vec<&str> = names
            .filter(|name| best.among.is_empty() || best.among.iter().any(|one| one == name))
            .filter(|name| best.expected.iter().any(|one| one == name) == expected && !group(name).is_empty())
            .collect();
        names.sort_by(|a, b| middle(b).total_cmp(&middle(a)));
        names
    };
    let (own, rivals) = (side(true), side(false));
    let contest = |own: &str, rival: &str| {
        let (of, over) = if best.lowest { (rival, own) } else { (own, rival) };
        paired((&group(of), &group(over)), (&of_server(of), &of_server(over)), &best.metric)
    };
    let contests: Vec<Vec<Sample>> =
        own.iter().map(|own| rivals.iter().map(|rival| contest(own, rival)).collect()).collect();
    let Some(sample) = contests.first().and_then(|contests| contests.first()).cloned() else {
        let note = "there is no server to compare with";
        return Found::of(Sample::Products(Vec::new()), all.left_out, note);
    };
    Found { sample, contests, left_out: all.left_out, note: format!("{} against {}", own[0], rivals[0]) }
}

fn of_server(name: &str) -> Selection {
    use experiment::Matcher;
    use record::experiment::Value;
    let matcher = Matcher::AnyOf(vec![Value::Text(name.to_owned())]);
    Selection([("server".to_owned(), matcher)].into())
}
