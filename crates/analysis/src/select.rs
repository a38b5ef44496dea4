//! The selection of a claim's trials, and the pairing of two groups of them.

use std::collections::BTreeMap;

use record::experiment::{TrialRecord, Value};

use experiment::Selection;

/// The trials that some selections mean, which all must.
pub struct Group<'a> {
    /// Those whose figures are to be believed and that have the metric.
    pub valid: Vec<&'a TrialRecord>,
    /// How many others were meant.
    pub left_out: usize,
}

/// The trials that are meant by all selections, parted by whether they can be counted.
pub fn chosen<'a>(trials: &'a [TrialRecord], selections: &[&Selection], metric: &str) -> Group<'a> {
    let meant = trials.iter().filter(|trial| selections.iter().all(|selection| selection.matches(trial)));
    let can_be_counted =
        |trial: &&TrialRecord| trial.is_valid() && trial.quantity(metric).is_some_and(f64::is_finite);
    let (valid, others): (Vec<&TrialRecord>, Vec<&TrialRecord>) = meant.partition(can_be_counted);
    Group { valid, left_out: others.len() }
}

/// Where a trial stands along `server`, `load` or an axis.
pub fn coordinate(trial: &TrialRecord, name: &str) -> Option<Value> {
    match name {
        "server" => Some(Value::Text(trial.server.clone())),
        "load" => trial.load.clone().map(Value::Text),
        axis => trial.axes.get(axis).cloned(),
    }
}

/// Everything a trial can be told apart by, but its repetition.
pub fn names<'a>(trials: impl Iterator<Item = &'a TrialRecord>) -> Vec<String> {
    let mut names = vec!["server".to_owned(), "load".to_owned()];
    names.extend(trials.flat_map(|trial| trial.axes.keys().cloned()));
    names.sort_unstable();
    names.dedup();
    names
}

/// A trial's repetition and its place along some coordinates.
pub type Key = (u32, Vec<String>);

/// The key of a trial; a coordinate that it does not have is empty.
pub fn key(trial: &TrialRecord, names: &[String]) -> Key {
    let place =
        names.iter().map(|name| coordinate(trial, name).map_or(String::new(), |value| value.to_string()));
    (trial.repeat, place.collect())
}

/// The metric of one group beside that of the other, trial by trial: of the same repetition, and at the same
/// place along everything that both groups have and that the two selections do not set apart. Where several
/// trials of the other group fit, their median counts.
pub fn pairs(
    (of, over): (&Group<'_>, &Group<'_>),
    (of_selection, over_selection): (&Selection, &Selection),
    metric: &str,
) -> Vec<(f64, f64)> {
    let both = || of.valid.iter().chain(&over.valid).copied();
    let shared = |name: &String| {
        of_selection.0.get(name) == over_selection.0.get(name)
            && both().all(|trial| coordinate(trial, name).is_some())
    };
    let names: Vec<String> = names(both()).into_iter().filter(shared).collect();
    let mut beside: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for trial in &over.valid {
        beside.entry(key(trial, &names)).or_default().extend(trial.quantity(metric));
    }
    let pair = |trial: &&TrialRecord| {
        Some((trial.quantity(metric)?, statistics::median(beside.get(&key(trial, &names))?)))
    };
    of.valid.iter().filter_map(pair).collect()
}
