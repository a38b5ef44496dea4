//! Two runs of one experiment side by side: two builds of a server, two kernels, two machines.
//!
//! The analysis pairs trials for each server, load and metric. The trials of a pair are those of both runs at the
//! same point and repetition. A repetition gives one ratio, on average over its points, because its trials share the
//! state of the machine. A row holds the ratio over all repetitions with its interval. It also holds the probability that
//! chance alone puts the ratio as far from 1, corrected for the number of rows (Holm, 1979).
//!
//! Deviation from a test of two independent samples: both trials of a pair share the point, the seed of the arrivals
//! and the plan's order. They do not share the moment, so a drift of the machine between the runs is part of the
//! difference.

use std::collections::{BTreeMap, BTreeSet};

use experiment::Experiment;
use record::experiment::{RunDirectory, TrialRecord};
use serde::Serialize;
use statistics::{MaybeInfinite, Sample, corrected_for_many, median, ratio};

use super::direction;
use super::measure::averages;
use super::select::{Key, key, names, number};

/// The probability above which a difference counts as chance.
const CHANCE_MAX: f64 = 0.05;

/// The result of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The second run is better.
    Better,
    /// The second run is worse.
    Worse,
    /// The runs differ in a metric that is neither good nor bad by itself.
    Different,
    /// No difference that is both significant and large enough to matter.
    Same,
}

/// One metric of one server under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The server.
    pub server: String,
    /// The load; absent in an experiment without loads.
    pub load: Option<String>,
    /// The metric.
    pub metric: String,
    /// The first run's median over all trials that have a partner.
    pub first: f64,
    /// The second run's median over their partners.
    pub second: f64,
    /// Second over first: 1 if both are 0; in JSON, null if it is infinite.
    pub ratio: MaybeInfinite,
    /// Its 95 % interval; an infinite end is null in JSON.
    pub interval: [MaybeInfinite; 2],
    /// The probability that chance alone causes the difference, corrected for the number of rows.
    pub chance: f64,
    /// The number of repetitions in which every point has a partner.
    pub repetitions: usize,
    /// The point at which the ratio is farthest from 1, and the ratio there; in JSON, null if it is infinite.
    pub most_at: Option<(String, MaybeInfinite)>,
    /// The result of the comparison.
    pub change: Change,
}

/// The points of a server under a load that the second run has lost: only the first has a valid trial there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// The server.
    pub server: String,
    /// The load; absent in an experiment without loads.
    pub load: Option<String>,
    /// The number of lost points.
    pub points: usize,
    /// The number of points with a valid trial in the first run.
    pub of: usize,
}

/// Two runs compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The experiment.
    pub experiment: String,
    /// The share below which a change does not matter.
    pub matters: f64,
    /// Every metric of every server under every load, as the experiment has them.
    pub rows: Vec<Row>,
    /// What the second run has lost.
    pub lost: Vec<Lost>,
    /// Warnings for the reader, one sentence each.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// Iterates over the metrics that got worse.
    pub fn worse(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.change == Change::Worse)
    }
}

/// Compares a second run with a first one. Changes below the share `matters` count as none.
pub fn compare(
    experiment: &Experiment,
    (first, second): (&RunDirectory, &RunDirectory),
    matters: f64,
) -> Comparison {
    let (mut rows, mut left_out) = (Vec::new(), false);
    for (server, load) in groups(first) {
        for metric in metrics(experiment) {
            let pairs = pairs((&server, &load), &metric, (first, second));
            let fullest = fullest(&pairs);
            left_out |= fullest.len() < pairs.len();
            rows.extend(row((&server, &load), &metric, &fullest));
        }
    }
    let chances: Vec<f64> = rows.iter().map(|row| row.chance).collect();
    for (row, chance) in rows.iter_mut().zip(corrected_for_many(&chances)) {
        row.chance = chance;
        row.change = change(row, matters);
    }
    let lost = groups(first).into_iter().filter_map(|group| lost(group, first, second)).collect();
    let warnings = warnings(first, second, left_out);
    Comparison { experiment: first.run.name.clone(), matters, rows, lost, warnings }
}

fn lost(
    (server, load): (String, Option<String>),
    first: &RunDirectory,
    second: &RunDirectory,
) -> Option<Lost> {
    let points = |run: &RunDirectory, counts: fn(&TrialRecord) -> bool| -> BTreeSet<String> {
        let meant = |trial: &&TrialRecord| trial.server == server && trial.load == load && counts(trial);
        run.trials.iter().filter(meant).map(point).collect()
    };
    let (before, after) = (points(first, TrialRecord::is_valid), points(second, TrialRecord::is_valid));
    let tried = points(second, |_| true);
    // The quick form does without most points. What it tries, or leaves its server out for, it has lost.
    let is_excluded = second.run.servers.iter().any(|known| known.name == server && known.excluded.is_some());
    let is_whole = is_excluded || first.run.form == second.run.form;
    let points = before.difference(&after).filter(|point| is_whole || tried.contains(*point)).count();
    (points > 0).then_some(Lost { of: before.len(), points, server, load })
}

/// The servers of a run in the order of the file, each with its loads by name.
fn groups(run: &RunDirectory) -> Vec<(String, Option<String>)> {
    let place = |name: &str| run.run.servers.iter().position(|server| server.name == name);
    let mut groups: Vec<(String, Option<String>)> =
        run.trials.iter().map(|trial| (trial.server.clone(), trial.load.clone())).collect();
    groups.sort_by_key(|(server, load)| (place(server), load.clone()));
    groups.dedup();
    groups
}

/// Returns the metrics of the experiment's figures and claims.
fn metrics(experiment: &Experiment) -> Vec<String> {
    let drawn = experiment.figures.iter().flat_map(|figure| figure.y.iter().map(String::as_str));
    let claimed = experiment.claims.iter().map(|claim| claim.measure.terms().metric);
    let mut seen = BTreeSet::new();
    drawn.chain(claimed).filter(|metric| seen.insert(*metric)).map(str::to_owned).collect()
}

/// The same measurement in both runs: its repetition and point, the point in words, and the two values.
type Pair = (Key, String, f64, f64);

fn pairs(
    (server, load): (&str, &Option<String>),
    metric: &str,
    (first, second): (&RunDirectory, &RunDirectory),
) -> Vec<Pair> {
    let of = |run: &RunDirectory| -> BTreeMap<Key, (String, f64)> {
        let meant = |trial: &&TrialRecord| trial.server == server && trial.load == *load;
        let names = names(run.trials.iter());
        let value = |trial: &TrialRecord| Some((key(trial, &names), (point(trial), number(trial, metric)?)));
        run.trials.iter().filter(meant).filter_map(value).collect()
    };
    let after = of(second);
    let pairs = of(first).into_iter();
    pairs.filter_map(|(key, (point, a))| after.get(&key).map(|(_, b)| (key, point, a, *b))).collect()
}

fn row((server, load): (&str, &Option<String>), metric: &str, pairs: &[Pair]) -> Option<Row> {
    // A point without a ratio in any repetition is no part of the comparison.
    let ratios = pairs.iter().map(|((repeat, place), _, a, b)| (*repeat, place.clone(), ratio(*b, *a)));
    let sample = averages(ratios.filter(|(_, _, ratio)| ratio.is_some()));
    let estimate = sample.estimate()?;
    let middle = |of: fn(&Pair) -> f64| median(&pairs.iter().map(of).collect::<Vec<_>>());
    Some(Row {
        server: server.to_owned(),
        load: load.clone(),
        metric: metric.to_owned(),
        first: middle(|(_, _, a, _)| *a),
        second: middle(|(_, _, _, b)| *b),
        ratio: estimate.value,
        interval: [estimate.ci95.low, estimate.ci95.high],
        chance: chance_of(&sample),
        repetitions: sample.count(),
        most_at: farthest(pairs),
        change: Change::Same,
    })
}

/// The measurements of points with more than half as many repetitions as the fullest. A repetition counts only with all
/// points, so a curve's few repetitions would leave out most of a claim's.
fn fullest(pairs: &[Pair]) -> Vec<Pair> {
    let mut repetitions: BTreeMap<&str, usize> = BTreeMap::new();
    pairs.iter().for_each(|(_, point, ..)| *repetitions.entry(point).or_default() += 1);
    let most = repetitions.values().copied().max().unwrap_or(0);
    pairs.iter().filter(|(_, point, ..)| 2 * repetitions[point.as_str()] > most).cloned().collect()
}

/// The probability that chance alone puts the ratio as far from 1, on either side.
fn chance_of(sample: &Sample) -> f64 {
    let above = sample.chance_above(1.0_f64.next_up());
    let below = sample.chance_below(1.0_f64.next_down());
    (2.0 * above.min(below)).min(1.0)
}

/// Describes a trial's axes in words.
fn point(trial: &TrialRecord) -> String {
    trial.axes.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// Returns the point whose median ratio is farthest from 1, if there is more than one point.
fn farthest(pairs: &[Pair]) -> Option<(String, f64)> {
    let mut points: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (point, ratio) in pairs.iter().filter_map(|(_, point, a, b)| Some((point, ratio(*b, *a)?))) {
        points.entry(point).or_default().push(ratio);
    }
    if points.len() < 2 {
        return None;
    }
    let ratios = points.into_iter().map(|(point, ratios)| (point.to_owned(), median(&ratios)));
    ratios.max_by(|a, b| a.1.ln().abs().total_cmp(&b.1.ln().abs()))
}

fn change(row: &Row, matters: f64) -> Change {
    let excludes_one = row.interval[0] > 1.0 || row.interval[1] < 1.0;
    if row.chance > CHANCE_MAX || !excludes_one || (row.ratio - 1.0).abs() < matters {
        return Change::Same;
    }
    match direction(&row.metric) {
        None => Change::Different,
        Some(more_is_better) if more_is_better == (row.ratio > 1.0) => Change::Better,
        Some(_) => Change::Worse,
    }
}

fn warnings(first: &RunDirectory, second: &RunDirectory, left_out: bool) -> Vec<String> {
    let (one, other) = (&first.run.manifest, &second.run.manifest);
    let machines =
        format!("The machines differ: {} on {}, {} on {}.", one.kernel, one.cpu, other.kernel, other.cpu);
    let warnings = [
        (first.run.text != second.run.text, "The two runs are not of the same experiment file."),
        (first.run.form != second.run.form, "One run is of the full form, the other of the quick one."),
        ((&one.kernel, &one.cpu) != (&other.kernel, &other.cpu), &machines),
        (
            first.run.topology.kind != second.run.topology.kind,
            "One run was in namespaces, the other on loopback.",
        ),
        (!first.run.finished, "The first run was broken off."),
        (!second.run.finished, "The second run was broken off."),
        (left_out, "Points with few repetitions, such as those of a curve, are left out."),
    ];
    warnings.iter().filter(|(applies, _)| *applies).map(|(_, text)| (*text).to_owned()).collect()
}
