//! What a run of an experiment leaves behind: one file for the run, one for each attempt at a trial.
//!
//! ```text
//! DIR/experiment.json     a RunRecord: the experiment's own text, where it ran, what each server could take
//! DIR/trials/0007-1.json  a TrialRecord: place 7 in the plan's order, first attempt
//! ```
//!
//! Owns the shapes, the names of metrics and the rule which attempt speaks for a trial. A report is a
//! function of these files and of nothing else. Does not measure or judge.

mod directory;
mod metric;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::load::LoadResult;
use crate::manifest::Manifest;
use crate::stage::{KernelDrops, QueueDepth, Topology};

pub use directory::{Directory, RunDirectory};
pub use metric::{FAMILIES, METRICS, Metric, Unit, metric};

/// The schema of a [`RunRecord`] that this version writes.
pub const RUN_SCHEMA: &str = "inrush.experiment/1";
/// The schema of a [`TrialRecord`] that this version writes.
pub const TRIAL_SCHEMA: &str = "inrush.experiment-trial/1";

/// A value of an axis: a number that can be drawn, or a word.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Anything else.
    Text(String),
}

impl Value {
    /// The number, if it is one.
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

/// Which form of an experiment was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// All of it.
    Full,
    /// The reduced one.
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
    /// Which form of it was run.
    pub form: Form,
    /// Repetitions of each point, as asked for on the command line or in the file.
    pub trials: u32,
    /// Where server and client ran, with what this machine could not do.
    pub topology: Topology,
    /// The servers, in the order of the file.
    pub servers: Vec<ServerRecord>,
    /// What servers could take, where loads are multiples of that.
    pub capacities: Vec<CapacityRecord>,
    /// How many trials the plan has.
    pub planned: u32,
    /// Whether the plan was carried out to its end.
    pub finished: bool,
    /// What a reader must know, one sentence each.
    pub warnings: Vec<String>,
    /// What was run, where, and how to run it again.
    pub manifest: Manifest,
}

/// A server of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Unique in the experiment.
    pub name: String,
    /// Its command line as it was started last, word by word; empty before.
    pub command: Vec<String>,
    /// Why there are no trials of it, where there are none: `h2o is not installed`.
    pub excluded: Option<String>,
}

/// What a server can take of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityRecord {
    /// The server's name.
    pub server: String,
    /// The load's name.
    pub load: String,
    /// The highest rate it answers in full, requests a second.
    pub per_s: f64,
    /// Between which rates that lies.
    pub interval_per_s: [f64; 2],
    /// Whether the generator gave out first: then it is at least this.
    pub lower_bound_only: bool,
}

/// Why a trial's figures are not to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flaw {
    /// The generator could not offer what it was asked to.
    GeneratorLimited,
    /// Something else was busy on the CPUs of server or client.
    Noisy,
    /// The server ended while it was under load.
    ServerDied,
    /// There is no result: `failure` says why.
    Failed,
}

impl Flaw {
    /// The name that a reader sees.
    pub fn name(self) -> &'static str {
        match self {
            Flaw::GeneratorLimited => "generator-limited",
            Flaw::Noisy => "noisy machine",
            Flaw::ServerDied => "server died",
            Flaw::Failed => "failed",
        }
    }
}

/// One attempt at a trial: one point of the plan, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// [`TRIAL_SCHEMA`].
    pub schema: String,
    /// The server's name.
    pub server: String,
    /// The load's name; absent where the experiment offers none (a herd).
    pub load: Option<String>,
    /// The values of the axes that this trial depends on. An axis that neither server, load nor network
    /// mention is not swept for them and is absent.
    pub axes: BTreeMap<String, Value>,
    /// Which repetition, from 0. Within one, every point comes once: pair by this.
    pub repeat: u32,
    /// Its place in the random order of the plan, from 0.
    pub order: u32,
    /// Which attempt at it, from 1. The last one speaks for the trial.
    pub attempt: u32,
    /// What is wrong with it; empty for a valid one.
    pub flaws: Vec<Flaw>,
    /// Why there is no result, or what else went wrong, in words.
    pub failure: Option<String>,
    /// The capacity that the offered rate is a multiple of, requests a second.
    pub capacity_per_s: Option<f64>,
    /// Everything that was measured, by name: see [`METRICS`]. What could not be measured is absent.
    pub metrics: BTreeMap<String, f64>,
    /// What the client saw.
    pub client: Option<LoadResult>,
    /// The points of `inrush herd`, where that was the trial.
    pub herd: Option<serde_json::Value>,
    /// What the server's kernel threw away meanwhile.
    pub kernel: Option<KernelDrops>,
    /// The accept queue meanwhile.
    pub queue: Option<QueueDepth>,
    /// How busy each CPU was over the measured time, from 0 to 1, by its number.
    pub cpu_busy: BTreeMap<usize, f64>,
    /// What the server said about itself, counters as differences over the run.
    pub server_status: Option<serde_json::Value>,
    /// Seconds since 1970-01-01 at its start.
    pub started_unix_s: u64,
}

impl TrialRecord {
    /// Whether its figures are to be believed.
    pub fn is_valid(&self) -> bool {
        self.flaws.is_empty()
    }

    /// The value of an axis or the number of a metric, which is what a figure's axes name.
    pub fn quantity(&self, name: &str) -> Option<f64> {
        match self.axes.get(name) {
            Some(value) => value.number(),
            None => self.metrics.get(name).copied(),
        }
    }
}
