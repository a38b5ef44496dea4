//! The servers of a demonstration against their loads: capacities first, then trials in random order.

use analysis::capacity::OfferedLoad;
use std::path::Path;

use anyhow::bail;
use base::{Limit, Nanos, Seed};
use record::trial::SCHEMA;
use record::{Manifest, ServerEntry, Study, Trial, Verdict};

use super::Pace;
use super::kind::Kind;
use super::plan::{self, Planned};
use crate::capacity::{self, Capacity, Search};
use crate::progress::Progress;
use crate::stage::server_under_test::{RunningServer, Settings};
use crate::trial::RunTime;
use crate::trial::{Conductor, LoadError, Seen, Workload};

/// Of its own capacity, what each server is offered: below, at, and past it (Brecht 2004, section 6).
const FACTORS: [f64; 6] = [0.5, 0.8, 1.0, 1.5, 2.0, 3.0];
/// The accept limits of Brecht 2004, figure 2.
const ACCEPT_LIMITS: [Limit; 3] = [Limit::AtMost(1), Limit::AtMost(10), Limit::Infinite];
/// CPU time added to each of our requests: some 15,000 requests a second to a CPU, of which a client
/// CPU can offer three times as many with room to spare.
pub const BURN: Nanos = Nanos::from_micros(50);
/// A load that any server takes, for the first run against the first one.
const FIRST_GUESS_PER_S: f64 = 4_000.0;
/// The next server is first offered this share of the capacity of the one before it.
const NEXT_GUESS: f64 = 0.6;
/// Of its capacity, what a server is offered when it is checked, and how much of its capacity it answers
/// then if that capacity is to be doubted: more than the 8 % of the search and the noise of one run.
const CHECK: f64 = 1.5;
const DOUBTFUL: f64 = 1.2;
/// A search takes this long at the quick pace on a busy machine.
const SPARE: Nanos = Nanos::from_secs(3);
/// Cores that a client side may use beyond its generator. Packet work of the client's side that nobody is
/// charged for came to 0.1 to 0.2 cores on a quiet machine.
const FOREIGN: f64 = 0.4;

/// A server in the comparison, or the reason why it is not.
pub struct Contender {
    kind: Kind,
    entry: ServerEntry,
    /// Whether the generator gave out before it did.
    lower_bound_only: bool,
    running: Option<RunningServer>,
}

/// The comparison under way.
pub struct Contest<'a> {
    pub settings: Settings,
    pub workload: Workload,
    pub conductor: Conductor<'a>,
    pub progress: &'a Progress,
    pub pace: &'a Pace,
    /// When all of it is to be over, on the conductor's clock.
    pub deadline: Nanos,
    pub seed: Seed,
    /// In the order they are shown; empty at first.
    pub contenders: Vec<Contender>,
    /// What a reader of the report must know, one sentence each.
    pub warnings: Vec<String>,
}

impl Contest<'_> {
    /// Starts every server and finds its capacity. One that does not start or never answers is left out,
    /// with the reason. When all are done each is tried once more past its capacity: a machine that was
    /// busy with something else for some seconds shows itself there, and that search is repeated.
    ///
    /// # Errors
    /// When none is left, or on an interruption.
    pub fn find_capacities(&mut self) -> anyhow::Result<()> {
        let limits = ACCEPT_LIMITS.map(|accept_limit| Kind::Inrush { accept_limit, burn: BURN });
        let mut guess = FIRST_GUESS_PER_S;
        for kind in limits.into_iter().chain([Kind::Nginx]) {
            let mut contender = Contender::new(kind);
            match self.start_and_measure(&mut contender, guess) {
                Ok(()) => guess = contender.entry.capacity_per_s * NEXT_GUESS,
                Err(Excluded::Interrupted) => bail!("interrupted"),
                Err(Excluded::Because(reason)) => {
                    self.progress.say(&format!("{} is left out: {reason}", contender.entry.name));
                    contender.entry.excluded = Some(reason);
                    contender.running = None;
                }
            }
            self.contenders.push(contender);
        }
        let mut contenders = std::mem::take(&mut self.contenders);
        for contender in &mut contenders {
            // Whatever goes wrong here leaves the capacity that was found; the trials will tell.
            if let Err(Excluded::Interrupted) = self.check_capacity(contender) {
                bail!("interrupted");
            }
        }
        self.contenders = contenders;
        if self.contenders.iter().all(|contender| contender.running.is_none()) {
            bail!("no server could be measured; the reasons are above");
        }
        Ok(())
    }

    fn start_and_measure(&mut self, contender: &mut Contender, guess: f64) -> Result<(), Excluded> {
        let started = contender.kind.start(self.conductor.topology, &self.settings, self.conductor.clock);
        let running = started.map_err(|error| Excluded::Because(error.to_string()))?;
        contender.entry.command.clone_from(&running.command);
        contender.running = Some(running);
        self.measure_capacity(contender, guess)
    }

    /// Searches again where the server answers more past its capacity than that capacity, if that leaves
    /// time for the trials.
    fn check_capacity(&mut self, contender: &mut Contender) -> Result<(), Excluded> {
        let runs = FACTORS.len() * (ACCEPT_LIMITS.len() + 1) * self.pace.repeats as usize;
        let trials = self.pace.shares.estimate(self.pace.shares.shortest, runs);
        let Some(running) = contender.running.as_mut().filter(|_| self.time_left() > trials + SPARE) else {
            return Ok(());
        };
        let found = contender.entry.capacity_per_s;
        let seed = self.seed.child("check of the capacity");
        let seen =
            run_for_capacity(&mut self.conductor, running, self.pace, &self.workload, CHECK * found, seed)?;
        if seen.goodput_per_s < DOUBTFUL * found {
            return Ok(());
        }
        let name = &contender.entry.name;
        self.progress
            .say(&format!("{name} answered {:.0} a second since: searching again", seen.goodput_per_s));
        self.measure_capacity(contender, seen.goodput_per_s * NEXT_GUESS)
    }

    fn measure_capacity(&mut self, contender: &mut Contender, guess: f64) -> Result<(), Excluded> {
        let name = contender.entry.name.clone();
        self.progress.step(&format!("capacity of {name}"), self.time_left(), self.pace.whole);
        let Some(running) = &mut contender.running else { return Ok(()) };
        let plan = Search { first_guess_per_s: guess, narrowing_runs: self.pace.narrowing_runs };
        let seed = self.seed.child(&name);
        let mut runs = 0;
        let capacity = capacity::search(plan, |per_s| {
            runs += 1;
            let seed = seed.child(&format!("capacity run {runs}"));
            run_for_capacity(&mut self.conductor, running, self.pace, &self.workload, per_s, seed)
        })?;
        if capacity.per_s <= 0.0 {
            return Err(Excluded::Because("it answered none of the requests correctly".to_owned()));
        }
        self.progress.say(&describe(&name, capacity));
        contender.entry.capacity_per_s = capacity.per_s;
        contender.entry.capacity_interval_per_s = capacity.interval_per_s;
        contender.lower_bound_only = capacity.lower_bound_only;
        Ok(())
    }

    /// Runs every trial of the plan and writes its record when it ends. A trial that fails is left out,
    /// with a warning.
    ///
    /// # Errors
    /// When a record cannot be written, or on an interruption.
    pub fn run_trials(&mut self, records: &Path) -> anyhow::Result<Vec<Trial>> {
        let servers: Vec<usize> =
            (0..self.contenders.len()).filter(|server| self.contenders[*server].running.is_some()).collect();
        let plan = plan::shuffled(&servers, &FACTORS, self.pace.repeats, self.seed);
        let mut trials = Vec::with_capacity(plan.len());
        for (order, planned) in plan.iter().enumerate() {
            let time = self.pace.shares.of(self.time_left(), plan.len() - order);
            let name = self.contenders[planned.server].entry.name.clone();
            let what =
                format!("trial {} of {}: {name} at {}× its capacity", order + 1, plan.len(), planned.factor);
            let left = self.pace.shares.estimate(time, plan.len() - order);
            self.progress.step(&what, left, self.pace.whole);
            let trial = match self.run_trial(planned, time, order as u32) {
                Ok(trial) => trial,
                Err(Excluded::Interrupted) => {
                    bail!("interrupted; the records of {} trials are in {}", trials.len(), records.display())
                }
                Err(Excluded::Because(reason)) => {
                    self.progress.say(&format!("{what}: {reason}"));
                    self.warnings
                        .push(format!("One trial of {name} at {}× failed: {reason}.", planned.factor));
                    continue;
                }
            };
            record::file::write(&records.join(file_name(order, &trial)), &trial)?;
            trials.push(trial);
        }
        Ok(trials)
    }

    fn run_trial(&mut self, planned: &Planned, time: RunTime, order: u32) -> Result<Trial, Excluded> {
        let contender = &mut self.contenders[planned.server];
        let per_s = contender.entry.capacity_per_s * planned.factor;
        let running = contender.revived(&self.settings, &self.conductor, &mut self.warnings)?;
        let seed = self.seed.child(&format!("{} {}", planned.factor, planned.repeat));
        let seen = self.conductor.run(running, &self.workload, per_s, time, seed)?;
        self.conductor.settle(running, self.pace.settle).map_err(LoadError::Io)?;
        let Seen { load, elapsed, queue, status } = seen;
        Ok(Trial {
            server: contender.entry.name.clone(),
            factor: planned.factor,
            repeat: planned.repeat,
            order,
            load,
            kernel: elapsed.drops,
            queue,
            server_cpu: elapsed.server_cpu,
            client_cpu: elapsed.client_cpu,
            server_status: status,
        })
    }

    fn time_left(&self) -> Nanos {
        self.deadline.saturating_sub(self.conductor.clock.now())
    }

    /// Everything that was found out. Stops the servers.
    pub fn into_study(self, title: String, trials: Vec<Trial>, manifest: Manifest) -> Study {
        let mut topology = self.conductor.topology.record();
        topology.warnings = self.warnings;
        let limited = self.contenders.iter().filter(|contender| contender.lower_bound_only);
        topology.warnings.extend(limited.map(|contender| {
            format!(
                "The load generator gave out before {} did: its capacity is at least the one given.",
                contender.entry.name
            )
        }));
        topology.warnings.extend(disturbance(&trials));
        let stopped = |contender: Contender| {
            // A server that cannot be stopped in order is killed.
            let _ = contender.running.map(RunningServer::stop);
            contender.entry
        };
        let servers = self.contenders.into_iter().map(stopped).collect();
        Study { schema: SCHEMA.to_owned(), title, topology, servers, trials, manifest }
    }
}

/// Why a server or a trial is left out.
enum Excluded {
    Because(String),
    Interrupted,
}

impl From<LoadError> for Excluded {
    fn from(error: LoadError) -> Excluded {
        match error {
            LoadError::Interrupted => Excluded::Interrupted,
            other => Excluded::Because(other.to_string()),
        }
    }
}

impl Contender {
    fn new(kind: Kind) -> Contender {
        let entry = ServerEntry {
            name: kind.name(),
            description: kind.description(),
            command: Vec::new(),
            capacity_per_s: 0.0,
            capacity_interval_per_s: [0.0, 0.0],
            excluded: None,
        };
        Contender { kind, entry, lower_bound_only: false, running: None }
    }

    /// The running server; started again if an earlier trial was its end, with a warning then.
    fn revived(
        &mut self,
        settings: &Settings,
        conductor: &Conductor<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<&mut RunningServer, Excluded> {
        if let Some(running) = &mut self.running
            && let Some(end) = running.end().map_err(LoadError::Io)?
        {
            warnings.push(format!("{} ended during a trial and was started again ({end}).", self.entry.name));
            self.running = None;
        }
        if self.running.is_none() {
            let started = self.kind.start(conductor.topology, settings, conductor.clock);
            self.running = Some(started.map_err(|error| Excluded::Because(error.to_string()))?);
        }
        Ok(self.running.as_mut().expect("it was started above if it was not there"))
    }
}

/// One run of the search, and the quiet after it.
fn run_for_capacity(
    conductor: &mut Conductor<'_>,
    running: &mut RunningServer,
    pace: &Pace,
    workload: &Workload,
    requests_per_s: f64,
    seed: Seed,
) -> Result<OfferedLoad, LoadError> {
    let seen = conductor.run(running, workload, requests_per_s, pace.capacity_run, seed)?;
    conductor.settle(running, pace.settle)?;
    Ok(OfferedLoad {
        offered_per_s: seen.load.offered_per_s,
        goodput_per_s: seen.load.goodput_per_s,
        generator_limited: seen.load.verdict == Verdict::GeneratorLimited,
    })
}

/// Says so where something else was busy on the client's CPUs: what they did beyond the generator is
/// packet work, of which there is less than [`FOREIGN`].
fn disturbance(trials: &[Trial]) -> Option<String> {
    let disturbed = |trial: &&Trial| trial.client_cpu - trial.load.generator_cpu > FOREIGN;
    let count = trials.iter().filter(disturbed).count();
    (count > 0).then(|| {
        format!(
            "In {count} of {} trials something else was busy on the client's CPUs, and so perhaps on the \
             server's: run it again on a quiet machine before believing a small difference.",
            trials.len()
        )
    })
}

fn describe(name: &str, capacity: Capacity) -> String {
    let [low, high] = capacity.interval_per_s;
    let least = if capacity.lower_bound_only { "at least " } else { "" };
    format!("{name}: capacity {least}{:.0} requests/s ({low:.0} to {high:.0})", capacity.per_s)
}

/// `017-accept-limit-10-x1.5-0.json`: sorts in the order of the trials.
fn file_name(order: usize, trial: &Trial) -> String {
    format!("{order:03}-{}-x{}-{}.json", trial.server.replace(' ', "-"), trial.factor, trial.repeat)
}
