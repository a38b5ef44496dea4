//! The experiment file: servers, loads and axes to sweep, figures to draw, and claims to judge.
//!
//! Owns the TOML form of an experiment and its checks. An [`Experiment`] is whole once it is parsed: every name in it
//! exists, and every number is in its range. Parsing reports each mistake with its line or its place, and for an unknown
//! key proposes the nearest known one. Runs nothing, and reads no other file than that of `remarks`.
//!
//! A file has one *sweep*: every server under every load at every combination of the axes' values, each repeated.
//! The value of an axis replaces the axis's name in braces in a server's flags, a load or the network
//! (`"--fdm-live-counter", "{n}"`). An axis applies to a pair of server and load only if the server, the load or
//! the network mentions it.
//!
//! The modules: `server`, `load` and `axis` are the sweep, `figure` the charts, and `claim` the claims.
//! `derived_metric` is a metric computed from others. `template` fills values into texts and selects trials. `check`
//! finds contradictions, and `mistake` explains what is wrong. `remarks` is a file of its own, about
//! claims of runs that are over.
#![forbid(unsafe_code)]

mod axis;
mod check;
mod claim;
mod derived_metric;
mod figure;
mod load;
mod mistake;
mod remarks;
mod server;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use base::{Bytes, Nanos, Seed};
use record::experiment::{Form, Value};
use serde::Deserialize;

pub use axis::Axis;
pub use claim::{Best, Claim, Compared, Curve, Expected, Measure, Named, Single, Terms, Two};
pub use derived_metric::DerivedMetric;
pub use figure::{Figure, LogAxes, Published};
pub use load::{LoadSpec, Outage, Rate, Stack};
pub use remarks::{Remark, Remarks};
pub use server::{Package, Ready, ServerKind, ServerSpec};
pub use template::{CAPACITY, Matcher, Selection, fill, placeholders};

/// The mistakes in an experiment file, one sentence each; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Mistakes(pub Vec<String>);

/// A checked experiment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// The title, in a few words.
    pub title: String,
    /// The question, and hints for the reader: some sentences for the report.
    #[serde(default)]
    pub about: String,
    /// The differences from the paper's setting, and the doubt that they leave: some sentences for the report.
    #[serde(default)]
    pub differs: String,
    /// The paper and the figures that it repeats: `Brecht 2004, figures 2 and 3`; absent if it repeats none.
    pub paper: Option<String>,
    /// Repetitions, durations and order of the trials.
    #[serde(default)]
    pub plan: Plan,
    /// The differences of the reduced form.
    #[serde(default)]
    pub quick: Quick,
    /// The places of server and client.
    #[serde(default)]
    pub topology: TopologySpec,
    /// The path between server and client; absent if they are directly joined.
    pub network: Option<Network>,
    /// The files that the servers offer.
    #[serde(default)]
    pub files: Files,
    /// The settings of all servers.
    #[serde(default)]
    pub common: Common,
    /// The search for the capacity that rates are multiples of.
    #[serde(default)]
    pub capacity: CapacitySpec,
    /// The quantities that are swept besides servers and loads.
    #[serde(default, rename = "axis")]
    pub axes: Vec<Axis>,
    /// The servers, at least one.
    #[serde(rename = "server")]
    pub servers: Vec<ServerSpec>,
    /// The loads; none if every server is a herd.
    #[serde(default, rename = "load")]
    pub loads: Vec<LoadSpec>,
    /// The metrics computed from those of each trial.
    #[serde(default, rename = "metric")]
    pub metrics: Vec<DerivedMetric>,
    /// The figures.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    /// The claims.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// Repetitions, durations and order of the trials.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Repetitions of each point that a claim is about. By default twelve: a sign test of twelve pairs can decide a claim
    /// among two hundred.
    pub trials: u32,
    /// Repetitions of the other points, which only draw curves; as many as of the first if absent.
    pub curve_trials: Option<u32>,
    /// The seed of the order of trials, of the arrivals and of the contents of files.
    pub seed: Seed,
    /// Load before the measured time.
    pub warmup: Nanos,
    /// The measured time.
    pub duration: Nanos,
    /// The longest wait after a trial for its connections and TIME-WAITs to end.
    pub cooldown: Nanos,
    /// The most further attempts at a flawed trial.
    pub retries: u32,
    /// Starts a server for each trial. Otherwise a server is started again only if its flags differ.
    pub restart: bool,
    /// Cores that others may keep busy on the client's CPUs before a trial counts as noisy.
    pub noise: f64,
    /// The time for the whole run. To fit it, trials become shorter, down to a quarter. After it, no trial is run
    /// again.
    pub budget: Option<Nanos>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            trials: 12,
            curve_trials: None,
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

/// The differences of the reduced form. An absent setting is that of the full form. Each axis names the values that
/// it keeps.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quick {
    /// Repetitions of each point.
    pub trials: Option<u32>,
    /// Load before the measured time.
    pub warmup: Option<Nanos>,
    /// The measured time.
    pub duration: Option<Nanos>,
    /// The longest wait after a trial.
    pub cooldown: Option<Nanos>,
    /// The most further attempts at a trial.
    pub retries: Option<u32>,
    /// Time for the whole run.
    pub budget: Option<Nanos>,
    /// The servers that are kept, by name.
    pub servers: Option<Vec<String>>,
    /// The loads that are kept, by name.
    pub loads: Option<Vec<String>>,
}

/// The wanted topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyChoice {
    /// Two namespaces if the machine allows them, otherwise loopback with a warning.
    #[default]
    Best,
    /// The loopback interface.
    Loopback,
}

/// The places of server and client.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TopologySpec {
    /// The separation of server and client.
    pub kind: TopologyChoice,
    /// The server's CPUs; by default the first one.
    pub server_cpus: Option<Vec<usize>>,
    /// The client's CPUs; by default all others.
    pub client_cpus: Option<Vec<usize>>,
    /// Kernel settings inside the server's namespace and the client's: `"net.core.somaxconn" = 128`. A text may hold
    /// values of axes.
    pub sysctls: BTreeMap<String, Value>,
}

/// A slower, lossy path between client and server, made by `inrush wan`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Network {
    /// The delay each way; a round trip takes twice as long.
    pub delay: Option<String>,
    /// The variation of the delay.
    pub jitter: Option<String>,
    /// The share of packets that is lost each way: `1%`.
    pub loss: Option<String>,
    /// The highest rate each way: `100Mbit`.
    pub rate: Option<String>,
}

impl Network {
    /// Iterates over all its texts, which may hold values of axes.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let all = [&self.delay, &self.jitter, &self.loss, &self.rate];
        all.into_iter().flatten().map(String::as_str)
    }
}

/// The files that the servers offer. Both kinds may be in one folder.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Files {
    /// The size of `/index.html`.
    pub size: Bytes,
    /// Directories of a SPECweb99-like set beside it.
    pub specweb99: u32,
    /// The user's own folder instead.
    pub root: Option<std::path::PathBuf>,
}

impl Default for Files {
    fn default() -> Files {
        Files { size: Bytes(1024), specweb99: 0, root: None }
    }
}

/// The settings of all servers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Common {
    /// Length of the accept queue, unless a server has its own.
    pub backlog: u32,
    /// The most open connections.
    pub connections: u32,
    /// Flags of every `inrush` server, before its own.
    pub flags: Vec<String>,
    /// The share of one core that a server may use (cgroup); by default all of it.
    pub cpu_quota: Option<f64>,
    /// The memory of a server and all its processes, with the files that they read (cgroup); by default all of the
    /// machine's. A bound trial begins with none of the files in memory.
    pub memory: Option<Bytes>,
    /// The reads a second that a server gets from the disk with its files (cgroup), each of some 128 KiB at most; by
    /// default as many as the disk can.
    pub disk_reads: Option<NonZeroU32>,
    /// The most signals that wait for a server (RLIMIT_SIGPENDING); by default as many as this user may have.
    pub signal_queue: Option<NonZeroU32>,
    /// The worker processes that a server of ours must have started before its load begins; by default none. Under load
    /// the parent gets too little of the CPU to start the others.
    pub started_workers: Option<NonZeroU32>,
    /// Servers speak TLS, with a certificate of the lab's that has a key of this kind.
    pub tls: Option<TlsKey>,
}

/// The curve of a certificate's key (ECDSA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsKey {
    /// The key of most sites. A signature costs some 30 us.
    P256,
    /// A signature costs about ten times as much.
    P384,
}

impl Common {
    /// Tells whether the files must be on a disk, because it decides how fast a server is.
    pub fn needs_disk(&self) -> bool {
        self.memory.is_some() || self.disk_reads.is_some()
    }
}

impl Default for Common {
    fn default() -> Common {
        Common {
            backlog: 128,
            connections: 15_000,
            flags: Vec::new(),
            cpu_quota: None,
            memory: None,
            disk_reads: None,
            signal_queue: None,
            started_workers: None,
            tls: None,
        }
    }
}

/// The search for the capacity that rates are multiples of. The search uses the first value of every axis. A load
/// with another rate is offered at the rates of the search.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CapacitySpec {
    /// The server whose capacity counts for all; if absent, each server's own counts.
    pub of: Option<String>,
    /// The load under which it counts for all; if absent, the capacity under each load counts for that load.
    pub load: Option<String>,
    /// A first guess, in requests per second.
    pub guess: Option<f64>,
}

impl CapacitySpec {
    /// Returns the names of the server and the load whose capacity the rates of a relative load at a server multiply.
    pub fn reference<'a>(&'a self, server: &'a ServerSpec, load: &'a LoadSpec) -> (&'a str, &'a str) {
        let of = load.capacity_of.as_ref().or(self.of.as_ref()).unwrap_or(&server.name);
        (of, self.load.as_ref().unwrap_or(&load.name))
    }
}

impl Experiment {
    /// Reads an experiment file.
    ///
    /// # Errors
    /// [`Mistakes`]: the text is not TOML, or its parts contradict each other.
    pub fn parse(text: &str) -> Result<Experiment, Mistakes> {
        let experiment: Experiment =
            toml::from_str(text).map_err(|error| Mistakes(vec![mistake::explain(text, &error)]))?;
        let mistakes = check::mistakes(&experiment);
        if mistakes.is_empty() { Ok(experiment) } else { Err(Mistakes(mistakes)) }
    }

    /// Returns the experiment in a form. The reduced form has fewer trials, values, servers and loads, and is
    /// otherwise equal.
    pub fn in_form(&self, form: Form) -> Experiment {
        let mut reduced = self.clone();
        if form == Form::Full {
            return reduced;
        }
        let quick = &self.quick;
        let plan = &mut reduced.plan;
        plan.trials = quick.trials.unwrap_or(plan.trials);
        plan.curve_trials = None;
        plan.warmup = quick.warmup.unwrap_or(plan.warmup);
        plan.duration = quick.duration.unwrap_or(plan.duration);
        plan.cooldown = quick.cooldown.unwrap_or(plan.cooldown);
        plan.retries = quick.retries.unwrap_or(plan.retries);
        plan.budget = quick.budget.or(plan.budget);
        let kept = |names: &Option<Vec<String>>, name: &String| {
            names.as_ref().is_none_or(|names| names.contains(name))
        };
        let all: Vec<String> = reduced.servers.iter().map(|server| server.name.clone()).collect();
        for claim in &mut reduced.claims {
            // The best of all is not the best of those that are kept.
            if let Measure::Best(best) = &mut claim.measure
                && best.among.is_empty()
            {
                best.among.clone_from(&all);
            }
        }
        reduced.servers.retain(|server| kept(&quick.servers, &server.name));
        reduced.loads.retain(|load| kept(&quick.loads, &load.name));
        for axis in &mut reduced.axes {
            if let Some(values) = axis.quick.take() {
                axis.values = values;
            }
        }
        reduced
    }

    /// Returns the servers and loads whose capacities the rates of selected trials are multiples of.
    pub fn references(&self, selections: &[&Selection]) -> BTreeSet<(&str, &str)> {
        let selects = |what: &str, name: &str| {
            let mut matchers = selections.iter().filter_map(|selection| selection.0.get(what));
            matchers.all(|matcher| matcher.matches(&Value::Text(name.to_owned())))
        };
        let loads = self.loads.iter().filter(|load| load.is_relative() && selects("load", &load.name));
        let servers = || self.servers.iter().filter(|server| selects("server", &server.name));
        loads.flat_map(|load| servers().map(|server| self.capacity.reference(server, load))).collect()
    }

    /// Returns the derived metric of that name.
    pub fn metric(&self, name: &str) -> Option<&DerivedMetric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// Returns the point with every axis at its first value. Adds a point for each further value of an axis, with the
    /// other axes at their first values.
    pub fn sample_points(&self) -> Vec<BTreeMap<String, Value>> {
        let first =
            self.axes.iter().filter_map(|axis| Some((axis.name.clone(), axis.values.first()?.clone())));
        let first: BTreeMap<String, Value> = first.collect();
        let mut points = vec![first.clone()];
        for axis in &self.axes {
            points.extend(axis.values.iter().skip(1).map(|value| {
                let mut point = first.clone();
                point.insert(axis.name.clone(), value.clone());
                point
            }));
        }
        points
    }

    /// Iterates over the texts of the network and of kernel settings, which may hold values of axes.
    pub fn stage_texts(&self) -> impl Iterator<Item = &str> {
        let settings = self.topology.sysctls.values().filter_map(|value| match value {
            Value::Text(text) => Some(text.as_str()),
            Value::Number(_) => None,
        });
        self.network.iter().flat_map(Network::texts).chain(settings)
    }

    /// Tells whether a figure, a claim or a derived metric needs a metric.
    pub fn needs_metric(&self, name: &str) -> bool {
        let figures = self.figures.iter().flat_map(|figure| {
            figure.y.iter().chain([&figure.x]).chain(&figure.x_over).chain(&figure.y_over)
        });
        let terms = self.metrics.iter().flat_map(|metric| metric.sum.keys());
        let claims = self.claims.iter().map(|claim| claim.measure.terms());
        figures.chain(terms).any(|needed| needed == name)
            || claims.flat_map(|terms| [Some(terms.metric), terms.x]).flatten().any(|needed| needed == name)
    }

    /// Returns the axis of that name.
    pub fn axis(&self, name: &str) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.name == name)
    }
}

#[cfg(test)]
mod tests;
