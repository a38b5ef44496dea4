//! The selection of a claim's trials, and the pairing of two groups of them.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{TrialRecord, Value};

use experiment::Selection;

/// Returns the trials that match all selections, with a flaw or without.
pub fn chosen<'a>(trials: &'a [TrialRecord], selections: &[&Selection]) -> Vec<&'a TrialRecord> {
    trials.iter().filter(|trial| selections.iter().all(|selection| selection.matches(trial))).collect()
}

/// Returns the metric of a trial; `None` if the trial has a flaw or lacks the metric.
pub fn number(trial: &TrialRecord, metric: &str) -> Option<f64> {
    trial.quantity(metric).filter(|number| trial.is_valid() && number.is_finite())
}

/// Returns the place of a trial along `server`, `load` or an axis.
pub fn coordinate(trial: &TrialRecord, name: &str) -> Option<Value> {
    match name {
        "server" => Some(Value::Text(trial.server.clone())),
        "load" => trial.load.clone().map(Value::Text),
        axis => trial.axes.get(axis).cloned(),
    }
}

/// Returns all coordinates that tell trials apart, without the repetition.
pub fn names<'a>(trials: impl Iterator<Item = &'a TrialRecord>) -> Vec<String> {
    let axes = trials.flat_map(|trial| trial.axes.keys().cloned());
    let names: BTreeSet<String> = ["server", "load"].map(str::to_owned).into_iter().chain(axes).collect();
    names.into_iter().collect()
}

/// A trial's repetition and its place along some coordinates.
pub type Key = (u32, Vec<String>);

/// Returns the key of a trial; a missing coordinate is empty.
pub fn key(trial: &TrialRecord, names: &[String]) -> Key {
    let place =
        names.iter().map(|name| coordinate(trial, name).map_or(String::new(), |value| value.to_string()));
    (trial.repeat, place.collect())
}

/// Groups trials that have the same value of the axis `x`. If `x` is a metric, a group holds trials that differ only in
/// their repetition.
pub fn by_place<'a>(trials: &[&'a TrialRecord], x: &str) -> Vec<Vec<&'a TrialRecord>> {
    let is_axis = trials.iter().any(|trial| trial.axes.contains_key(x));
    let names = if is_axis { vec![x.to_owned()] } else { names(trials.iter().copied()) };
    let mut groups: BTreeMap<Vec<String>, Vec<&TrialRecord>> = BTreeMap::new();
    for trial in trials {
        groups.entry(key(trial, &names).1).or_default().push(trial);
    }
    groups.into_values().collect()
}

/// A measured number with its repetition and place; `None` where a trial has none.
pub type Placed = (u32, Vec<String>, Option<f64>);

/// Divides the metric of one group by that of the other, trial by trial, with the repetition and the place of the first.
/// If every ratio is infinite, or every one is 0, a rate of 0 counts as half an event in the measured time: the ratio is
/// then at least that, and has a spread to test it by.
/// Paired trials share the repetition and the place along everything that both groups have, except for the coordinates
/// that the selections set apart. If several trials of the other group fit, the median of their numbers counts. A pair
/// without two numbers, and a pair of zeros, have no ratio.
pub fn ratios(
    (of, over): (&[&TrialRecord], &[&TrialRecord]),
    (of_selection, over_selection): (&Selection, &Selection),
    metric: &str,
) -> Vec<Placed> {
    let has = |group: &[&TrialRecord], name: &str| group.iter().any(|one| coordinate(one, name).is_some());
    let shared = |name: &String| {
        of_selection.0.get(name) == over_selection.0.get(name) && has(of, name) && has(over, name)
    };
    let all = names(of.iter().chain(over).copied());
    let names: Vec<String> = all.iter().filter(|name| shared(name)).cloned().collect();
    let mut beside: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for trial in over {
        beside.entry(key(trial, &names)).or_default().extend(number(trial, metric));
    }
    let pairs = |least: &dyn Fn(&TrialRecord) -> Option<f64>| -> Vec<Placed> {
        let pair = |trial: &&TrialRecord| {
            let other = statistics::median(beside.get(&key(trial, &names))?);
            let (repeat, place) = key(trial, &all);
            let at_least = |rate: f64| least(trial).filter(|least| rate < *least).unwrap_or(rate);
            // Two servers that answer nobody are not equally good: nothing was measured.
            let ratio = |own: f64| {
                let pair = (at_least(own), at_least(other));
                statistics::ratio(pair.0, pair.1).filter(|_| pair != (0.0, 0.0))
            };
            Some((repeat, place, number(trial, metric).and_then(ratio)))
        };
        of.iter().filter_map(pair).collect()
    };
    let measured = pairs(&|_| None);
    let mut known = measured.iter().filter_map(|(_, _, ratio)| *ratio);
    let is_endless = |ratio: f64| ratio == 0.0 || ratio.is_infinite();
    match known.next().filter(|first| is_endless(*first) && known.all(|ratio| ratio == *first)) {
        Some(_) => pairs(&|trial| half_an_event(trial, metric)),
        None => measured,
    }
}

/// The rate of half an event in a trial's measured time; `None` for a metric that is no rate.
fn half_an_event(trial: &TrialRecord, metric: &str) -> Option<f64> {
    let time_s = trial.client.as_ref()?.duration_s;
    (metric.ends_with("_per_s") && time_s > 0.0).then(|| 0.5 / time_s)
}
