//! The records of an experiment: one file for the run, and one for each attempt at a trial.
//!
//! ```text
//! DIR/experiment.json     a RunRecord: the experiment's own text, the topology, each server's capacity
//! DIR/trials/0007-1.json  a TrialRecord: place 7 in the plan's order, first attempt
//! ```
//!
//! Owns the shapes, the names of metrics and the rule that the last attempt speaks for a trial. A report is a
//! function of these files and of nothing else. Does not measure or judge.

mod directory;
mod metric;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::load::LoadResult;
use crate::manifest::Manifest;
use crate::stage::{InForce, KernelDrops, QueueDepth, Speed, Topology};

pub use directory::{Directory, RunDirectory};
pub use metric::{FAMILIES, METRICS, Metric, Unit, metric};

/// The schema of a [`RunRecord`] that this version writes.
pub const RUN_SCHEMA: &str = "inrush.experiment/1";
/// The schema of a [`TrialRecord`] that this version writes.
pub const TRIAL_SCHEMA: &str = "inrush.experiment-trial/1";

/// A value of an axis: a number, which a figure can draw, or a word.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word.
    Text(String),
}

impl Value {
    /// Returns the number, or `None` for a word.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// A form of an experiment: complete or reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The complete experiment.
    Full,
    /// The reduced one, for a quick look.
    Quick,
}

/// One run of an experiment: everything but its trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// The experiment's name: that of its file, without `.toml`.
    pub name: String,
    /// The experiment file, word for word.
    pub text: String,
    /// The form that was run.
    pub form: Form,
    /// Repetitions of each point that a claim is about, as asked for on the command line or in the file.
    pub trials: u32,
    /// The places of server and client, with the limits of this machine.
    pub topology: Topology,
    /// The servers, in the order of the file.
    pub servers: Vec<ServerRecord>,
    /// The servers' capacities, if loads are multiples of them.
    pub capacities: Vec<CapacityRecord>,
    /// Trials in the plan.
    pub planned: u32,
    /// True if all trials of the plan were run.
    pub finished: bool,
    /// Warnings for the reader, one sentence each.
    pub warnings: Vec<String>,
    /// The conditions of the run: enough to repeat it.
    pub manifest: Manifest,
}

/// A server of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Unique in the experiment.
    pub name: String,
    /// Its command line when it was last started, word by word; empty before the first start.
    pub command: Vec<String>,
    /// The reason for having no trials, such as `h2o is not installed`; absent if it has trials.
    pub excluded: Option<String>,
}

/// A server's capacity for one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityRecord {
    /// The server's name.
    pub server: String,
    /// The load's name.
    pub load: String,
    /// The highest rate that the server answers in full, in requests per second.
    pub per_s: f64,
    /// Lower and upper bound of that rate.
    pub interval_per_s: [f64; 2],
    /// True if the generator was the limit: the capacity is then at least `per_s`.
    pub lower_bound_only: bool,
}

/// A defect that makes a trial's figures unreliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flaw {
    /// The generator could not offer the scheduled load.
    GeneratorLimited,
    /// Other work ran on the client's CPUs.
    Noisy,
    /// Clients that hold their connections were missing when the measured time began.
    ClientsMissing,
    /// The server ended while it was under load.
    ServerDied,
    /// A setting that was read back differs from the one of the file; `failure` names it.
    SettingsDiffer,
    /// The server's CPU was slower than in the other trials of the run.
    MachineSlowed,
    /// The server ended sessions because others waited, where the repeated paper's server does not.
    SessionsCut,
    /// There is no result; `failure` holds the reason.
    Failed,
}

impl Flaw {
    /// The name that reports show.
    pub fn name(self) -> &'static str {
        match self {
            Flaw::GeneratorLimited => "generator-limited",
            Flaw::Noisy => "noisy machine",
            Flaw::ClientsMissing => "clients missing",
            Flaw::ServerDied => "server died",
            Flaw::SettingsDiffer => "settings differ",
            Flaw::MachineSlowed => "machine slowed",
            Flaw::SessionsCut => "sessions cut",
            Flaw::Failed => "failed",
        }
    }
}

/// One attempt at a trial, which is one repetition of one point of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// [`TRIAL_SCHEMA`].
    pub schema: String,
    /// The server's name.
    pub server: String,
    /// The load's name; absent if the experiment offers none, as a herd does.
    pub load: Option<String>,
    /// The values of the axes that this trial depends on. An axis is absent if neither server, load nor network
    /// mentions it.
    pub axes: BTreeMap<String, Value>,
    /// The repetition, from 0. Each repetition runs every point once, so that trials can be paired by it.
    pub repeat: u32,
    /// The trial's place in the random order of the plan, from 0.
    pub order: u32,
    /// The attempt at the trial, from 1. The last attempt speaks for the trial.
    pub attempt: u32,
    /// The defects of the attempt; empty for a valid one.
    pub flaws: Vec<Flaw>,
    /// The reason for a missing result, or another error, in words.
    pub failure: Option<String>,
    /// The capacity that the offered rate is a multiple of, in requests per second.
    pub capacity_per_s: Option<f64>,
    /// The measured numbers by name: see [`METRICS`]. A number that could not be measured is absent.
    pub metrics: BTreeMap<String, f64>,
    /// The client's result.
    pub client: Option<LoadResult>,
    /// The points of `inrush herd`, if the trial ran it.
    pub herd: Option<serde_json::Value>,
    /// The connections that the server's kernel dropped during the trial.
    pub kernel: Option<KernelDrops>,
    /// The accept queue during the trial.
    pub queue: Option<QueueDepth>,
    /// The share of the measured time that each CPU was busy, from 0 to 1, by the CPU's number.
    pub cpu_busy: BTreeMap<usize, f64>,
    /// The conditions that were read back after the server's start.
    pub in_force: Option<InForce>,
    /// The speed of the server's CPU around the trial.
    pub speed: Option<Speed>,
    /// The server's status. Its counters are differences over the run.
    pub server_status: Option<serde_json::Value>,
    /// Start of the attempt, in seconds since 1970-01-01.
    pub started_unix_s: u64,
}

impl TrialRecord {
    /// Tells whether the attempt has no flaw.
    pub fn is_valid(&self) -> bool {
        self.flaws.is_empty()
    }

    /// The connections that one of our servers closed during the trial because others waited, by its own count.
    pub fn sessions_cut(&self) -> u64 {
        let counters = self.server_status.as_ref().and_then(|status| status.get("counters"));
        counters.and_then(|counters| counters.get("reclaimed")?.as_u64()).unwrap_or(0)
    }

    /// Returns the value of an axis or the number of a metric. The axes of a figure name either.
    pub fn quantity(&self, name: &str) -> Option<f64> {
        match self.axes.get(name) {
            Some(value) => value.number(),
            None => self.metrics.get(name).copied(),
        }
    }
}
