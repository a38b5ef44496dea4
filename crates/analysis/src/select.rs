//! The selection of a claim's trials, and the pairing of two groups of them.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{TrialRecord, Value};

use experiment::Selection;

/// The trials that match all selections of a group.
pub struct Group<'a> {
    /// The valid trials that have the metric.
    pub valid: Vec<&'a TrialRecord>,
    /// The number of other matching trials.
    pub left_out: usize,
}

/// Selects the trials that match all selections, and separates valid ones from others.
pub fn chosen<'a>(trials: &'a [TrialRecord], selections: &[&Selection], metric: &str) -> Group<'a> {
    let meant = trials.iter().filter(|trial| selections.iter().all(|selection| selection.matches(trial)));
    let can_be_counted =
        |trial: &&TrialRecord| trial.is_valid() && trial.quantity(metric).is_some_and(f64::is_finite);
    let (valid, others): (Vec<&TrialRecord>, Vec<&TrialRecord>) = meant.partition(can_be_counted);
    Group { valid, left_out: others.len() }
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

/// Divides the metric of one group by that of the other, trial by trial, with the repetition and the place of the first.
/// Paired trials share the repetition and the place along everything that both groups have, except for the coordinates
/// that the selections set apart. If several trials of the other group fit, their median counts. Ratios that are not
/// finite and above 0 are left out.
pub fn ratios(
    (of, over): (&[&TrialRecord], &[&TrialRecord]),
    (of_selection, over_selection): (&Selection, &Selection),
    metric: &str,
) -> Vec<(u32, Vec<String>, f64)> {
    let both = || of.iter().chain(over).copied();
    let shared = |name: &String| {
        of_selection.0.get(name) == over_selection.0.get(name)
            && both().all(|trial| coordinate(trial, name).is_some())
    };
    let all = names(both());
    let names: Vec<String> = all.iter().filter(|name| shared(name)).cloned().collect();
    let mut beside: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for trial in over {
        beside.entry(key(trial, &names)).or_default().extend(trial.quantity(metric));
    }
    let ratio = |trial: &&TrialRecord| {
        let other = statistics::median(beside.get(&key(trial, &names))?);
        let (repeat, place) = key(trial, &all);
        let ratio = trial.quantity(metric)? / other;
        (ratio.is_finite() && ratio > 0.0).then_some((repeat, place, ratio))
    };
    of.iter().filter_map(ratio).collect()
}
