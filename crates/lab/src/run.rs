//! A run of an experiment: its plan, carried out trial by trial, to records.
//!
//! Owns the order of a run. It writes the files to serve (`files`) and finds capacities (`capacities`). It runs
//! every trial of the [`schedule`] in random order, each on its own `test_bed` (`attempt`, [`metrics`],
//! [`command_lines`]). `store` writes each trial when it ends. `speed` calls trials of a slowed machine flawed. Flawed
//! trials run again at the end, up to the plan's `retries`.
//!
//! A run reports and records a server that does not start, a failed trial or a full disk. Then it goes on with the
//! plan. An interrupted run resumes at its first missing trial. [`judgeable`] says beforehand which claims the
//! plan can judge. Draws and judges nothing.

mod attempt;
mod capacities;
pub mod command_lines;
mod files;
pub mod judgeable;
pub mod metrics;
pub mod schedule;
mod speed;
mod store;
mod test_bed;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use base::{Clock, Nanos};
use experiment::{Experiment, Stack};
use record::experiment::{Flaw, Form, RUN_SCHEMA, RunRecord, ServerRecord, TrialRecord};
use record::{Manifest, TopologyKind};

use self::files::Served;
use self::schedule::{OVERHEAD, Planned};
use self::store::Store;
use self::test_bed::TestBed;
use crate::progress::Progress;
use crate::trial::RunTime;
use stage::server_under_test::Settings;
use stage::topology::{Topology, list};

/// The warning at the start of a run without namespaces.
const LOOPBACK: &str = "Over the loopback interface the client's CPU does the server's packet work, so a dropped \
                        connection costs the server nothing and it looks better past its capacity than it is.";
/// The warning for loads whose TCP should be in user space and cannot be.
const NO_USER_STACK: &str = "TCP in user space needs network namespaces and access to /dev/net/tun: the client uses \
                             kernel sockets, and is the limit from about twice a server's capacity.";
/// The warning for loads that should come over AF_XDP and cannot.
const NO_AF_XDP: &str = "TCP over AF_XDP needs root and network namespaces: trials of the loads that ask for it have a \
                         flaw, and no claim about them gets a verdict.";
/// The error of an interrupted run.
const INTERRUPTED: &str = "interrupted; run the same command again to continue";
/// Failed starts in a row after which the run leaves a server out.
const START_FAILURES: u32 = 3;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The experiment's name.
    pub name: String,
    /// Its file, word for word.
    pub text: String,
    /// The form to run.
    pub form: Form,
    /// Repetitions in place of the file's.
    pub trials: Option<u32>,
    /// The folder for its records.
    pub out: PathBuf,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Trials of the plan.
    pub planned: usize,
    /// Trials whose last attempt is valid.
    pub valid: usize,
    /// Trials that have a result, flawed or not.
    pub results: usize,
    /// Servers that were left out, with the reasons.
    pub excluded: Vec<(String, String)>,
    /// The folder of the records.
    pub out: PathBuf,
}

/// The environment that successive runs share.
pub struct Surroundings<'a> {
    /// Time.
    pub clock: &'a dyn Clock,
    /// The CPUs of this process before the first run moved it to the client's CPUs.
    pub cpus: &'a [usize],
    /// The display of progress.
    pub progress: &'a Progress,
    /// Returns true to stop the run. The run calls it several times a second.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// The experiment of some options, in its form and with their number of trials.
///
/// # Errors
/// The mistakes in the file.
pub fn experiment(options: &RunOptions) -> anyhow::Result<Experiment> {
    let whole = Experiment::parse(&options.text).with_context(|| options.name.clone())?;
    let mut experiment = whole.in_form(options.form);
    experiment.plan.trials = options.trials.unwrap_or(experiment.plan.trials);
    Ok(experiment)
}

/// Runs an experiment to its end. Blocks. Servers end with the calling thread, so the thread must stay. Block the
/// signals behind `interrupted` before you start other threads.
///
/// # Errors
/// The file has mistakes, no record can be written, or the run was interrupted. The records so far are
/// kept.
pub fn run(options: &RunOptions, surroundings: &Surroundings<'_>) -> anyhow::Result<RunSummary> {
    let experiment = experiment(options)?;
    let deadline = experiment.plan.budget.map(|budget| surroundings.clock.now() + budget);
    let served = Served::of(&experiment)?;
    let plan = schedule::schedule(&experiment);
    let topology = Topology::with(&test_bed::options(&experiment, None, surroundings.cpus))
        .context("cannot make the network")?;
    let run = run_record(options, &experiment, &topology, plan.len(), surroundings.clock)?;
    let store = Store::open(options.out.clone(), run)?;
    for warning in store.run.topology.warnings.iter().chain(&store.run.warnings) {
        surroundings.progress.say(&format!("warning: {warning}"));
    }
    // This process belongs to the client and must not take time from the server.
    sys::cpu::pin(&topology.client.cpus).context("cannot move to the client's CPUs")?;
    let mut cpus = [&*topology.server.cpus, &*topology.client.cpus].concat();
    cpus.sort_unstable();
    cpus.dedup();
    drop(topology);
    let settings = Settings {
        root: served.root.clone(),
        backlog: experiment.common.backlog,
        connections: experiment.common.connections,
        tls: served.tls.clone(),
        apps: Some(served.apps.path().to_owned()),
    };
    let mut running = Run {
        failed_starts: vec![0; experiment.servers.len()],
        experiment: &experiment,
        form: options.form,
        settings,
        store,
        surroundings,
        cpus,
        kept: None,
        spent: Spent::default(),
        deadline,
        plan: &plan,
    };
    let ended = running.carry_out();
    running.close();
    ended?;
    Ok(running.summary(options.out.clone()))
}

/// Returns the record of a new run.
fn run_record(
    options: &RunOptions,
    experiment: &Experiment,
    topology: &Topology,
    planned: usize,
    clock: &dyn Clock,
) -> anyhow::Result<RunRecord> {
    let mut record = topology.record();
    if topology.kind == TopologyKind::Loopback {
        record.warnings.push(LOOPBACK.to_owned());
    }
    for (asked, warning) in [(Stack::User, NO_USER_STACK), (Stack::AfXdp, NO_AF_XDP)] {
        let is_asked = experiment.loads.iter().any(|load| load.stack == asked);
        if is_asked && topology.stack(asked) != asked {
            record.warnings.push(warning.to_owned());
        }
    }
    let config = [
        ("server_cpus".to_owned(), list(&topology.server.cpus)),
        ("client_cpus".to_owned(), list(&topology.client.cpus)),
    ];
    let (wall, seed) = (clock.wall(), Some(experiment.plan.seed));
    let manifest =
        topology.server.enter(|| Ok(Manifest::of_this_machine(wall, BTreeMap::from(config), seed)));
    let server = |name: &String| ServerRecord { name: name.clone(), command: Vec::new(), excluded: None };
    Ok(RunRecord {
        schema: RUN_SCHEMA.to_owned(),
        name: options.name.clone(),
        text: options.text.clone(),
        form: options.form,
        trials: experiment.plan.trials,
        topology: record,
        servers: experiment.servers.iter().map(|spec| server(&spec.name)).collect(),
        capacities: Vec::new(),
        planned: planned as u32,
        finished: false,
        warnings: Vec::new(),
        manifest: manifest.context("cannot look at the server's side")?,
    })
}

/// The measured time of trials beside their load.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    trials: u64,
    overhead: Nanos,
}

impl Spent {
    /// Returns the mean time of a trial beside its load: first the planned time, later the measured time.
    fn overhead(self) -> Nanos {
        (self.overhead + OVERHEAD) / (self.trials + 1)
    }
}

/// A run in progress.
struct Run<'a> {
    experiment: &'a Experiment,
    form: Form,
    plan: &'a [Planned],
    settings: Settings,
    store: Store,
    surroundings: &'a Surroundings<'a>,
    /// The CPUs of both sides, without duplicates.
    cpus: Vec<usize>,
    /// Each server's failed starts in a row, in the order of the file.
    failed_starts: Vec<u32>,
    /// The test bed of the last trial with its server and axes, if the plan does not restart servers.
    kept: Option<(usize, command_lines::Axes, TestBed)>,
    spent: Spent,
    /// The end of the plan's budget, on the surroundings' clock.
    deadline: Option<Nanos>,
}

impl Run<'_> {
    fn carry_out(&mut self) -> anyhow::Result<()> {
        if self.store.run.finished {
            self.say("all trials have been run already");
            return Ok(());
        }
        self.find_capacities()?;
        for order in 0..self.plan.len() {
            if self.store.known(order as u32).attempts == 0 {
                self.run_trial(order)?;
            }
        }
        self.run_again()?;
        self.store.run.finished = true;
        Ok(())
    }

    /// Runs flawed trials again in further rounds. By then the disturbance may have passed.
    fn run_again(&mut self) -> anyhow::Result<()> {
        let most = self.plan.len().div_ceil(schedule::REPEATED_ONE_IN);
        for _ in 0..self.experiment.plan.retries {
            self.call_slowed()?;
            for order in 0..self.plan.len() {
                let known = self.store.known(order as u32);
                let wanted = !known.valid
                    && known.attempts <= self.experiment.plan.retries
                    && self.time_left() > schedule::trial_run(self.experiment).total();
                if wanted && self.store.repeated() < most && !self.is_excluded(order) {
                    self.run_trial(order)?;
                }
            }
        }
        self.call_slowed()
    }

    /// Flaws the trials of a slowed machine. Their medians are those of all trials so far.
    fn call_slowed(&mut self) -> anyhow::Result<()> {
        self.store.flaw(Flaw::MachineSlowed, speed::slowed).map(drop)
    }

    /// Returns the rest of the budget, or `Nanos::MAX` without a budget.
    fn time_left(&self) -> Nanos {
        let now = self.surroundings.clock.now();
        self.deadline.map_or(Nanos::MAX, |deadline| deadline.saturating_sub(now))
    }

    /// Returns the lengths of the next trial: the plan's, or shorter ones if the budget is short.
    fn trial_time(&self) -> RunTime {
        let whole = schedule::trial_run(self.experiment);
        schedule::shortened(whole, self.time_left(), self.untried(), self.spent.overhead())
    }

    /// Returns the number of trials without an attempt, at least one.
    fn untried(&self) -> usize {
        let is_untried =
            |order: &usize| self.store.known(*order as u32).attempts == 0 && !self.is_excluded(*order);
        (0..self.plan.len()).filter(is_untried).count().max(1)
    }

    fn is_excluded(&self, order: usize) -> bool {
        self.store.run.servers[self.plan[order].point.server].excluded.is_some()
    }

    fn run_trial(&mut self, order: usize) -> anyhow::Result<()> {
        if self.is_excluded(order) {
            return Ok(());
        }
        if (self.surroundings.interrupted)() {
            bail!("{INTERRUPTED}");
        }
        self.announce_trial(order);
        let (started, time) = (self.surroundings.clock.now(), self.trial_time());
        let trial = self.attempt(order, time)?;
        let took = self.surroundings.clock.now().saturating_sub(started);
        self.spent.trials += 1;
        self.spent.overhead += took.saturating_sub(time.total());
        self.write(trial);
        Ok(())
    }

    fn announce_trial(&self, order: usize) {
        let known = self.store.known(order as u32);
        let again = if known.attempts > 0 { ", once more" } else { "" };
        let planned = &self.plan[order];
        let point = &planned.point;
        let mut what = format!(
            "trial {} of {}{again}: {}",
            order + 1,
            self.plan.len(),
            self.experiment.servers[point.server].name
        );
        if let Some(load) = point.load.filter(|_| self.experiment.loads.len() > 1) {
            what.push_str(&format!(", {}", self.experiment.loads[load].name));
        }
        for (axis, value) in &point.axes {
            what.push_str(&format!(", {axis} {value}"));
        }
        let one = self.trial_time().total() + self.spent.overhead();
        let whole = one * self.plan.len() as u64;
        let left = one * self.untried() as u64;
        self.surroundings.progress.step(&format!("{}: {what}", self.store.run.name), left, whole);
    }

    /// Writes an attempt. An attempt that cannot be written is reported, kept, and written with a later one.
    fn write(&mut self, trial: TrialRecord) {
        if let Some(failure) = &trial.failure {
            self.say(&format!("{}: {failure}", trial.server));
        }
        if let Err(error) = self.store.add(trial) {
            self.say(&format!("{error}; the record stays in memory for another attempt"));
        }
    }

    fn say(&self, what: &str) {
        self.surroundings.progress.say(&format!("{}: {what}", self.store.run.name));
    }

    /// Leaves a server out for the rest of the run.
    fn exclude(&mut self, server: usize, reason: String) {
        self.say(&format!("{} is left out: {reason}", self.experiment.servers[server].name));
        self.store.run.servers[server].excluded = Some(reason);
        self.flush();
    }

    fn flush(&mut self) {
        if let Err(error) = self.store.flush() {
            self.say(&format!("{error}; the record stays in memory for another attempt"));
        }
    }

    /// Ends the kept server and writes the outstanding records.
    fn close(&mut self) {
        self.kept = None;
        self.flush();
    }

    fn summary(&self, out: PathBuf) -> RunSummary {
        let excluded = self.store.run.servers.iter().filter_map(|server| {
            server.excluded.as_ref().map(|reason| (server.name.clone(), reason.clone()))
        });
        RunSummary {
            planned: self.plan.len(),
            valid: self.store.valid(),
            results: self.store.results(),
            excluded: excluded.collect(),
            out,
        }
    }
}
