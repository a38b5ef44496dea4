//! The experiment file: servers, loads and axes to sweep, figures to draw, and claims to judge.
//!
//! Owns the TOML form of an experiment and its checks. An [`Experiment`] is whole once it is parsed: every name in it
//! exists, and every number is in its range. Parsing reports each mistake with its line or its place, and for an unknown
//! key proposes the nearest known one. Runs nothing and reads nothing but the text.
//!
//! A file has one *sweep*: every server under every load at every combination of the axes' values, each repeated. The
//! value of an axis replaces the axis's name in braces in a server's flags, a load or the network
//! (`"--fdm-live-counter", "{n}"`). If neither server, load nor network mention an axis, the pair is not swept along it
//! and has one point without a value for it.
//!
//! The modules: `server`, `load` and `axis` are what is swept, `figure` is what is drawn, `claim` is what is claimed.
//! `derived_metric` is a metric computed from others. `template` fills values into texts and selects trials, `check` finds contradictions, and `nearest` proposes the
//! name that a wrong one is nearest to.

mod axis;
mod check;
mod claim;
mod derived_metric;
mod figure;
mod load;
mod nearest;
mod server;
mod template;

use std::collections::BTreeMap;

use base::{Bytes, Nanos, Seed};
use record::experiment::Form;
use serde::Deserialize;

pub use axis::Axis;
pub use claim::{Best, Claim, Compared, Curve, Expected, Measure, Single, Two};
pub use derived_metric::DerivedMetric;
pub use figure::{Figure, LogAxes, Published};
pub use load::{LoadSpec, Rate, Stack};
pub use nearest::nearest;
pub use server::{Ready, ServerKind, ServerSpec};
pub use template::{Matcher, Selection, fill, placeholders};

/// What is wrong with an experiment file, one sentence each; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Mistakes(pub Vec<String>);

/// A checked experiment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// What it is called, in a few words.
    pub title: String,
    /// What is asked, and what to look for: some sentences for the report.
    #[serde(default)]
    pub about: String,
    /// Which paper and figures it repeats: `Brecht 2004, figures 2 and 3`; absent for one of our own.
    pub paper: Option<String>,
    /// How often, how long, in which order.
    #[serde(default)]
    pub plan: Plan,
    /// What is different in the reduced form.
    #[serde(default)]
    pub quick: Quick,
    /// Where server and client run.
    #[serde(default)]
    pub topology: TopologySpec,
    /// What lies between them; directly joined where absent.
    pub network: Option<Network>,
    /// What is served.
    #[serde(default)]
    pub files: Files,
    /// What all servers have in common.
    #[serde(default)]
    pub common: Common,
    /// How the capacity that rates are multiples of is found.
    #[serde(default)]
    pub capacity: CapacitySpec,
    /// What is swept beside servers and loads.
    #[serde(default, rename = "axis")]
    pub axes: Vec<Axis>,
    /// The servers, at least one.
    #[serde(rename = "server")]
    pub servers: Vec<ServerSpec>,
    /// The loads; none where every server is a herd.
    #[serde(default, rename = "load")]
    pub loads: Vec<LoadSpec>,
    /// What is computed from the metrics of each trial.
    #[serde(default, rename = "metric")]
    pub metrics: Vec<DerivedMetric>,
    /// What is drawn.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    /// What is claimed.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// How often, how long, in which order.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Repetitions of each point.
    pub trials: u32,
    /// Decides the order of trials, the arrivals and the contents of files.
    pub seed: Seed,
    /// Load before the measured time.
    pub warmup: Nanos,
    /// The measured time.
    pub duration: Nanos,
    /// The longest wait after a trial for its connections and TIME-WAITs to end.
    pub cooldown: Nanos,
    /// How often a trial that is not to be believed is run again.
    pub retries: u32,
    /// Whether each trial has a server of its own; else one is started again only where its flags differ.
    pub restart: bool,
    /// Cores that others may keep busy on the client's CPUs before a trial counts as noisy.
    pub noise: f64,
    /// Time for the whole run. Trials become shorter to fit, down to a quarter; none is run again after it.
    pub budget: Option<Nanos>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            trials: 5,
            seed: Seed(1),
            warmup: Nanos::SECOND,
            duration: Nanos::from_secs(3),
            cooldown: Nanos::from_secs(1),
            retries: 2,
            restart: true,
            noise: 0.5,
            budget: None,
        }
    }
}

/// What is different in the reduced form; whatever is absent is as in the full one. Axes say for
/// themselves which values they keep.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quick {
    /// Repetitions.
    pub trials: Option<u32>,
    /// Load before the measured time.
    pub warmup: Option<Nanos>,
    /// The measured time.
    pub duration: Option<Nanos>,
    /// The longest wait after a trial.
    pub cooldown: Option<Nanos>,
    /// How often a trial is run again.
    pub retries: Option<u32>,
    /// Time for the whole run.
    pub budget: Option<Nanos>,
    /// The servers that are kept, by name.
    pub servers: Option<Vec<String>>,
    /// The loads that are kept, by name.
    pub loads: Option<Vec<String>>,
}

/// Which topology is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyChoice {
    /// Two namespaces where the machine allows it, else loopback with a warning.
    #[default]
    Best,
    /// The loopback interface.
    Loopback,
}

/// Where server and client run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TopologySpec {
    /// How they are kept apart.
    pub kind: TopologyChoice,
    /// The server's CPUs; the first one where absent.
    pub server_cpus: Option<Vec<usize>>,
    /// The client's CPUs; all others where absent.
    pub client_cpus: Option<Vec<usize>>,
    /// Kernel settings inside the server's namespace and the client's: `"net.core.somaxconn" = 128`.
    pub sysctls: BTreeMap<String, record::experiment::Value>,
}

/// A slower, lossy way between client and server, made by `inrush wan`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Network {
    /// Each way: a round trip takes twice as long.
    pub delay: Option<String>,
    /// How much the delay varies.
    pub jitter: Option<String>,
    /// Of the packets, the share that is lost each way: `1%`.
    pub loss: Option<String>,
    /// The most that passes each way: `100Mbit`.
    pub rate: Option<String>,
}

impl Network {
    /// All its texts, in which values of axes may stand.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let all = [&self.delay, &self.jitter, &self.loss, &self.rate];
        all.into_iter().flatten().map(String::as_str)
    }
}

/// What is served. Both kinds may be in one folder.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Files {
    /// The size of `/index.html`.
    pub size: Bytes,
    /// Directories of a SPECweb99-like set beside it.
    pub specweb99: u32,
    /// A folder of one's own instead.
    pub root: Option<std::path::PathBuf>,
}

impl Default for Files {
    fn default() -> Files {
        Files { size: Bytes(1024), specweb99: 0, root: None }
    }
}

/// What all servers have in common.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Common {
    /// Length of the accept queue, of a server that names none.
    pub backlog: u32,
    /// The most connections at once.
    pub connections: u32,
    /// Flags of every server of ours, before its own.
    pub flags: Vec<String>,
    /// Of one core, the share that a server may use (cgroup); all of it where absent.
    pub cpu_quota: Option<f64>,
}

impl Default for Common {
    fn default() -> Common {
        Common { backlog: 128, connections: 15_000, flags: Vec::new(), cpu_quota: None }
    }
}

/// How the capacity that rates are multiples of is found. It is searched for with every axis at its first
/// value, and a load that has another rate is offered at the rates of the search.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CapacitySpec {
    /// The server whose capacity counts for all; each its own where absent.
    pub of: Option<String>,
    /// A first guess, requests a second.
    pub guess: Option<f64>,
}

impl Experiment {
    /// Reads an experiment file.
    ///
    /// # Errors
    /// [`Mistakes`]: text that is no TOML, or everything in it that does not fit together.
    pub fn parse(text: &str) -> Result<Experiment, Mistakes> {
        let experiment: Experiment =
            toml::from_str(text).map_err(|error| Mistakes(vec![nearest::explain(text, &error)]))?;
        let mistakes = check::mistakes(&experiment);
        if mistakes.is_empty() { Ok(experiment) } else { Err(Mistakes(mistakes)) }
    }

    /// The experiment as it is run in a form: the reduced one has fewer trials, values, servers and loads, and
    /// everything else alike.
    pub fn in_form(&self, form: Form) -> Experiment {
        let mut reduced = self.clone();
        if form == Form::Full {
            return reduced;
        }
        let quick = &self.quick;
        let plan = &mut reduced.plan;
        plan.trials = quick.trials.unwrap_or(plan.trials);
        plan.warmup = quick.warmup.unwrap_or(plan.warmup);
        plan.duration = quick.duration.unwrap_or(plan.duration);
        plan.cooldown = quick.cooldown.unwrap_or(plan.cooldown);
        plan.retries = quick.retries.unwrap_or(plan.retries);
        plan.budget = quick.budget.or(plan.budget);
        let kept = |names: &Option<Vec<String>>, name: &String| {
            names.as_ref().is_none_or(|names| names.contains(name))
        };
        reduced.servers.retain(|server| kept(&quick.servers, &server.name));
        reduced.loads.retain(|load| kept(&quick.loads, &load.name));
        for axis in &mut reduced.axes {
            if let Some(values) = axis.quick.take() {
                axis.values = values;
            }
        }
        reduced
    }

    /// The derived metric of that name.
    pub fn metric(&self, name: &str) -> Option<&DerivedMetric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// The axis of that name.
    pub fn axis(&self, name: &str) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.name == name)
    }
}

#[cfg(test)]
mod tests;
