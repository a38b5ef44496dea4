//! The tables of an experiment: every attempt, the capacities, and the servers' command lines.

use analysis::Analysed;
use analysis::claims::Scale;
use record::experiment::{METRICS, RunRecord, TrialRecord};
use serde::Serialize;

use super::claims::show;
use crate::format::{rate, without_unit_of_time};
use crate::page::table::{Table, command_line};

/// Every attempt, each with a link to its record.
#[derive(Clone, Debug, Serialize)]
pub struct TrialTable {
    /// The columns' names, without that of the record.
    pub head: Vec<String>,
    /// The attempts, in the order they were made.
    pub rows: Vec<TrialRow>,
}

/// One attempt.
#[derive(Clone, Debug, Serialize)]
pub struct TrialRow {
    /// Its place in the plan and the attempt.
    pub name: String,
    /// Its record, seen from the page.
    pub record: String,
    /// True if it counts.
    pub valid: bool,
    /// Its numbers.
    pub cells: Vec<String>,
}

/// Returns the path from the run's folder to an attempt's record.
pub fn record_file(order: u32, attempt: u32) -> String {
    format!("trials/{order:04}-{attempt}.json")
}

/// Returns every attempt with all its numbers.
pub fn trials(analysed: &Analysed, base: &str) -> TrialTable {
    let mut all: Vec<&TrialRecord> = analysed.run.trials.iter().chain(&analysed.run.superseded).collect();
    all.sort_by_key(|trial| (trial.order, trial.attempt));
    let axes: Vec<&str> = analysed.experiment.axes.iter().map(|axis| axis.name.as_str()).collect();
    let metrics: Vec<_> = METRICS
        .iter()
        .filter(|metric| all.iter().any(|trial| trial.metrics.contains_key(metric.name)))
        .collect();
    let head = ["server", "load"].into_iter().chain(axes.iter().copied());
    let head = head
        .chain(["repetition", "attempt", "flaws"])
        .chain(metrics.iter().map(|metric| without_unit_of_time(metric.title)));
    let row = |trial: &&TrialRecord| {
        let value = |axis: &&str| trial.axes.get(*axis).map_or("–".to_owned(), ToString::to_string);
        let flaws: Vec<&str> = trial.flaws.iter().map(|flaw| flaw.name()).collect();
        let flaws = match &trial.failure {
            Some(failure) => format!("{}: {failure}", flaws.join(", ")),
            None => flaws.join(", "),
        };
        let mut cells = vec![trial.server.clone(), trial.load.clone().unwrap_or_default()];
        cells.extend(axes.iter().map(value));
        cells.extend([(u64::from(trial.repeat) + 1).to_string(), trial.attempt.to_string(), flaws]);
        cells.extend(metrics.iter().map(|metric| {
            trial
                .metrics
                .get(metric.name)
                .map_or("–".to_owned(), |value| show(Scale::of(Some(metric.unit)), *value))
        }));
        let record = format!("{base}{}", record_file(trial.order, trial.attempt));
        let name = format!("{:04}-{}", trial.order, trial.attempt);
        TrialRow { name, record, valid: trial.is_valid(), cells }
    };
    TrialTable { head: head.map(str::to_owned).collect(), rows: all.iter().map(row).collect() }
}

/// Returns the servers' capacities.
pub fn capacities(run: &RunRecord) -> Table {
    let row = |capacity: &record::experiment::CapacityRecord| {
        let [low, high] = capacity.interval_per_s;
        let at_least = if capacity.lower_bound_only { "at least " } else { "" };
        vec![
            capacity.server.clone(),
            capacity.load.clone(),
            format!("{at_least}{}", rate(capacity.per_s)),
            format!("{} to {}", rate(low), rate(high)),
        ]
    };
    Table::new(&["server", "load", "capacity", "between"], run.capacities.iter().map(row).collect())
}

/// The servers' command lines.
pub fn servers(run: &RunRecord) -> Table {
    let row = |server: &record::experiment::ServerRecord| {
        let command = match &server.excluded {
            Some(reason) => format!("not measured: {reason}"),
            None => command_line(&server.command),
        };
        vec![server.name.clone(), command]
    };
    Table::new(&["server", "command line"], run.servers.iter().map(row).collect())
}
