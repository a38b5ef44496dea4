//! The measurement of a claim: one number from each repetition, or the reason for its absence.
//!
//! The repetition is the unit of replication, because its trials share the state of the machine. A ratio is that of the
//! pairs at each point, on average over the points. A slope, knee, peak or crossing is read off the curve of the
//! repetition.

use experiment::{Best, Claim, Curve, Experiment, Measure, Selection, Two};
use record::experiment::{CapacityRecord, TrialRecord, Value};
use statistics::{Sample, complete, crossing, knee, log_slope_through, mean, median};

use super::select::{Placed, chosen, key, names, number, ratios};

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The measurements of the number, in the order of their repetitions; may be empty.
    pub sample: Sample,
    /// The contests that decide about the best server: for each expected server, its ratio to each of the others. Other
    /// measurements have one contest, which is the sample.
    pub contests: Vec<Vec<Sample>>,
    /// Selected trials that have a flaw, or lack the metric.
    pub left_out: usize,
    /// The factor by which the number may be wrong because capacities are not known better, at least 1. No repetition
    /// shows it: all have the same capacities.
    pub uncertainty: f64,
    /// A further remark, a phrase; may be empty.
    pub note: String,
}

impl Found {
    fn of(sample: Sample, left_out: usize, note: &str) -> Found {
        let contests = vec![vec![sample.clone()]];
        Found { contests, sample, left_out, uncertainty: 1.0, note: note.to_owned() }
    }
}

/// Returns the factor by which a ratio of two servers' shares may be wrong, 1 for other claims. Each is offered
/// multiples of a capacity, and one that is a tenth too high makes its load a tenth too great. Multiples of one server's
/// capacity are wrong alike.
pub fn uncertainty_of_capacities(experiment: &Experiment, claim: &Claim, known: &[CapacityRecord]) -> f64 {
    let two = match &claim.measure {
        Measure::Ratio(two) if two.metric == "good_share" => two,
        _ => return 1.0,
    };
    let references = [&two.of, &two.over].map(|side| experiment.references(&[side, &two.at]));
    let half_width = |known: &CapacityRecord| {
        let [low, high] = known.interval_per_s;
        if low > 0.0 && high >= low { (high / low).sqrt() } else { 1.0 }
    };
    let widest = |own: usize| {
        let is_shared = |name: &str| references[1 - own].iter().any(|(server, _)| *server == name);
        let is_own = |known: &&CapacityRecord| references[own].contains(&(&known.server, &known.load));
        let own = known.iter().filter(is_own).filter(|known| !is_shared(&known.server));
        own.map(half_width).fold(1.0, f64::max)
    };
    widest(0) * widest(1)
}

/// Measures the quantity of a claim.
pub fn measure(experiment: &Experiment, claim: &Claim, trials: &[TrialRecord]) -> Found {
    let on = |one: &Curve| along(&one.x, chosen(trials, &[&one.of]));
    match &claim.measure {
        Measure::Value(one) => {
            let middle = |trials: &[&TrialRecord]| Some(median(&values(trials, &one.metric)));
            places(&chosen(trials, &[&one.of]), &one.metric, &middle, "")
        }
        Measure::Ratio(two) => ratio(two, trials),
        Measure::Slope(one) => slope(one, &on(one)),
        Measure::Knee(one) => {
            let knee = |trials: &[&TrialRecord]| knee(&curve(trials, &one.x, &one.metric));
            places(&on(one), &one.metric, &knee, "the curve has no knee")
        }
        Measure::Peak(one) => {
            places(&on(one), &one.metric, &|trials| peak(&curve(trials, &one.x, &one.metric)), "")
        }
        Measure::Crossing(two) => {
            let sides = [&two.of, &two.over].map(|side| along(&two.x, chosen(trials, &[side, &two.at])));
            // Without trials of one side, nothing says that the curves do not cross.
            let both = if sides.iter().any(Vec::is_empty) { Vec::new() } else { sides.concat() };
            let curve = |trials: &[&TrialRecord], side: &Selection| {
                let own: Vec<&TrialRecord> =
                    trials.iter().copied().filter(|trial| side.matches(trial)).collect();
                curve(&own, &two.x, &two.metric)
            };
            let place =
                |trials: &[&TrialRecord]| crossing(&curve(trials, &two.of), &curve(trials, &two.over));
            places(&both, &two.metric, &place, "the curves do not cross so")
        }
        Measure::Best(best) => is_best(experiment, best, trials),
    }
}

/// Keeps the trials on a curve along `x`: those that depend on the axis, or all if `x` is a metric.
fn along<'a>(x: &str, trials: Vec<&'a TrialRecord>) -> Vec<&'a TrialRecord> {
    let is_axis = trials.iter().any(|trial| trial.axes.contains_key(x));
    trials.into_iter().filter(|trial| !is_axis || trial.axes.contains_key(x)).collect()
}

/// The measurements of complete repetitions, and the remark if nothing is there in any of them.
fn places(
    group: &[&TrialRecord],
    metric: &str,
    find: &dyn Fn(&[&TrialRecord]) -> Option<f64>,
    nowhere: &str,
) -> Found {
    let places = of_each_repetition(group, metric, find);
    let is_nowhere = !places.is_empty() && places.iter().all(|place| place.is_nan());
    Found::of(Sample::Places(places), left_out(group, metric), if is_nowhere { nowhere } else { "" })
}

fn slope(one: &Curve, group: &[&TrialRecord]) -> Found {
    let slope = |trials: &[&TrialRecord]| log_slope_through(&curve(trials, &one.x, &one.metric));
    let slopes = of_each_repetition(group, &one.metric, &slope);
    // Without the repetitions that collapse, the slope would be that of the others.
    let (slopes, note) = match slopes.iter().all(|slope| slope.is_finite()) {
        true => (slopes, ""),
        false => (Vec::new(), "a value is not above 0, or all lie at one place"),
    };
    Found::of(Sample::Sums(slopes), left_out(group, &one.metric), note)
}

fn values(trials: &[&TrialRecord], metric: &str) -> Vec<f64> {
    trials.iter().filter_map(|trial| number(trial, metric)).collect()
}

fn left_out(trials: &[&TrialRecord], metric: &str) -> usize {
    trials.iter().filter(|trial| number(trial, metric).is_none()).count()
}

/// Computes a number from the trials of each complete repetition; NaN where there is none.
fn of_each_repetition(
    trials: &[&TrialRecord],
    metric: &str,
    compute: &dyn Fn(&[&TrialRecord]) -> Option<f64>,
) -> Vec<f64> {
    let names = names(trials.iter().copied());
    let placed = trials.iter().map(|trial| {
        let (repeat, place) = key(trial, &names);
        (repeat, place, number(trial, metric).map(|_| *trial))
    });
    complete(placed).iter().map(|trials| compute(trials).unwrap_or(f64::NAN)).collect()
}

fn ratio(two: &Two, trials: &[TrialRecord]) -> Found {
    let of = chosen(trials, &[&two.of, &two.at]);
    let over = chosen(trials, &[&two.over, &two.at]);
    let ratios = ratios((&of, &over), (&two.of, &two.over), &two.metric);
    let is_unpaired = ratios.is_empty() && !of.is_empty() && !over.is_empty();
    let left_out = left_out(&of, &two.metric) + left_out(&over, &two.metric);
    Found::of(averages(ratios), left_out, if is_unpaired { "no two trials can be paired" } else { "" })
}

/// The ratio in each complete repetition, on average over its points.
pub fn averages(ratios: impl IntoIterator<Item = Placed>) -> Sample {
    let average = |ratios: &Vec<f64>| mean(&ratios.iter().map(|ratio| ratio.ln()).collect::<Vec<_>>()).exp();
    Sample::Products(complete(ratios).iter().map(average).collect())
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
    let names: Vec<&str> = match best.among.is_empty() {
        true => experiment.servers.iter().map(|server| server.name.as_str()).collect(),
        false => best.among.iter().map(String::as_str).collect(),
    };
    let mut all = chosen(trials, &[&best.at]);
    all.retain(|trial| names.contains(&trial.server.as_str()));
    let left_out = left_out(&all, &best.metric);
    let group = |name: &str| -> Vec<&TrialRecord> {
        all.iter().copied().filter(|trial| trial.server == name).collect()
    };
    let middle = |name: &&str| {
        let middle = median(&values(&group(name), &best.metric));
        if best.lowest { -middle } else { middle }
    };
    let (mut own, mut rivals): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| best.expected.iter().any(|one| one == name));
    for side in [&mut own, &mut rivals] {
        side.sort_by(|a, b| middle(b).total_cmp(&middle(a)));
    }
    let unmeasured = own.iter().chain(&rivals).find(|name| values(&group(name), &best.metric).is_empty());
    let why = unmeasured.map(|name| format!("{name} has no valid trial"));
    let contest = |own: &str, rival: &str| {
        let (of, over) = if best.lowest { (rival, own) } else { (own, rival) };
        let selections = (&of_server(of), &of_server(over));
        averages(ratios((&group(of), &group(over)), selections, &best.metric))
    };
    let contests: Vec<Vec<Sample>> =
        own.iter().map(|own| rivals.iter().map(|rival| contest(own, rival)).collect()).collect();
    let Some(sample) = contests.iter().flatten().next().filter(|_| why.is_none()).cloned() else {
        let note = why.as_deref().unwrap_or("there is no server to compare with");
        return Found::of(Sample::Products(Vec::new()), left_out, note);
    };
    Found { sample, contests, left_out, uncertainty: 1.0, note: format!("{} against {}", own[0], rivals[0]) }
}

fn of_server(name: &str) -> Selection {
    use experiment::Matcher;
    let matcher = Matcher::AnyOf(vec![Value::Text(name.to_owned())]);
    Selection([("server".to_owned(), matcher)].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_uncertain_under_their_own_load() {
        let of = |load: &str, capacity_of: &str| {
            let text = format!(
                "title = 't'\nserver = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
                 load = [{{ name = 'x', rate = '2 x capacity' }}, \
                 {{ name = 'y', rate = '2 x capacity'{capacity_of} }}, {{ name = 'z', rate = '9' }}]\n\
                 claim = [{{ text = 'c', at-least = 1, ratio = {{ metric = 'good_share', \
                 of = {{ server = 'a' }}, over = {{ server = 'b' }}, at = {{ load = '{load}' }} }} }}]"
            );
            let experiment = Experiment::parse(&text).unwrap();
            let known = |server: &str, load: &str, high: f64| CapacityRecord {
                server: server.to_owned(),
                load: load.to_owned(),
                per_s: 150.0,
                interval_per_s: [100.0, high],
                lower_bound_only: false,
            };
            let capacities = [
                known("a", "x", 100.0),
                known("b", "x", 100.0),
                known("a", "y", 144.0),
                known("b", "y", 121.0),
            ];
            uncertainty_of_capacities(&experiment, &experiment.claims[0], &capacities)
        };
        assert_eq!(of("x", ""), 1.0);
        assert!((of("y", "") - 1.2 * 1.1).abs() < 1e-9, "{}", of("y", ""));
        assert_eq!(of("y", ", capacity-of = 'a'"), 1.0, "both are offered the same");
        assert_eq!(of("z", ""), 1.0, "its rate is no multiple");
    }
}
