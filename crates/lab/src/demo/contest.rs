//! The servers of a demonstration against their loads: capacities first, then trials in random order.

use std::path::Path;

use anyhow::bail;
use base::{Limit, Nanos, Seed};
use record::trial::SCHEMA;
use record::{Manifest, ServerEntry, Study, Trial, Verdict};

use super::Pace;
use crate::capacity::{self, Capacity, Measured, Search};
use crate::plan::{self, Planned, RunTime};
use crate::progress::Progress;
use crate::server_under_test::{Kind, Running, Settings};
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
/// Cores that a client side may use beyond its generator. Packet work of the client's side that nobody is
/// charged for came to 0.1 to 0.2 cores on a quiet machine.
const FOREIGN: f64 = 0.4;

/// A server in the comparison, or the reason why it is not.
pub struct Contender {
    kind: Kind,
    entry: ServerEntry,
    running: Option<Running>,
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
    /// with the reason.
    ///
    /// # Errors
    /// When none is left, or on an interruption.
    pub fn find_capacities(&mut self) -> anyhow::Result<()> {
        let limits = ACCEPT_LIMITS.map(|accept_limit| Kind::Inrush { accept_limit, burn: BURN });
        let mut guess = FIRST_GUESS_PER_S;
        for kind in limits.into_iter().chain([Kind::Nginx]) {
            let name = kind.name();
            self.progress.step(&format!("capacity of {name}"), self.time_left(), self.pace.whole);
            let mut contender = Contender::new(kind);
            match self.measure_capacity(&mut contender, guess) {
                Ok(capacity) => {
                    guess = capacity.per_s * NEXT_GUESS;
                    self.progress.say(&describe(&name, capacity));
                    if capacity.lower_bound_only {
                        self.warnings.push(format!(
                            "The load generator gave out before {name} did: its capacity is at least the one given."
                        ));
                    }
                    contender.accept(capacity);
                }
                Err(Excluded::Interrupted) => bail!("interrupted"),
                Err(Excluded::Because(reason)) => {
                    self.progress.say(&format!("{name} is left out: {reason}"));
                    contender.entry.excluded = Some(reason);
                    contender.running = None;
                }
            }
            self.contenders.push(contender);
        }
        if self.contenders.iter().all(|contender| contender.running.is_none()) {
            bail!("no server could be measured; the reasons are above");
        }
        Ok(())
    }

    fn measure_capacity(&mut self, contender: &mut Contender, guess: f64) -> Result<Capacity, Excluded> {
        let started = contender.kind.start(self.conductor.topology, &self.settings, self.conductor.clock);
        let running =
            contender.running.insert(started.map_err(|error| Excluded::Because(error.to_string()))?);
        contender.entry.command.clone_from(&running.command);
        let plan = Search { first_guess_per_s: guess, narrowing_runs: self.pace.narrowing_runs };
        let seed = self.seed.child(&contender.entry.name);
        let mut runs = 0;
        let capacity = capacity::search(plan, |per_s| {
            runs += 1;
            let seed = seed.child(&format!("capacity run {runs}"));
            let seen = self.conductor.run(running, &self.workload, per_s, self.pace.capacity_run, seed)?;
            self.conductor.settle(running, self.pace.settle).map_err(LoadError::Io)?;
            Ok(Measured {
                offered_per_s: seen.load.offered_per_s,
                goodput_per_s: seen.load.goodput_per_s,
                generator_limited: seen.load.verdict == Verdict::GeneratorLimited,
            })
        });
        match capacity {
            Err(LoadError::Interrupted) => Err(Excluded::Interrupted),
            Err(error) => Err(Excluded::Because(error.to_string())),
            Ok(capacity) if capacity.per_s > 0.0 => Ok(capacity),
            Ok(_) => Err(Excluded::Because("it answered none of the requests correctly".to_owned())),
        }
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
                format!("trial {} of {}: {name} at {} x its capacity", order + 1, plan.len(), planned.factor);
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
                        .push(format!("One trial of {name} at {} x failed: {reason}.", planned.factor));
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
        let running = contender.revived(&self.settings, &self.conductor)?;
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
        topology.warnings.extend(disturbance(&trials));
        let servers = self.contenders.into_iter().map(|contender| contender.entry).collect();
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
        Contender { kind, entry, running: None }
    }

    fn accept(&mut self, capacity: Capacity) {
        self.entry.capacity_per_s = capacity.per_s;
        self.entry.capacity_interval_per_s = capacity.interval_per_s;
    }

    /// The running server; started again if an earlier trial was its end.
    fn revived(&mut self, settings: &Settings, conductor: &Conductor<'_>) -> Result<&mut Running, Excluded> {
        let alive = match &mut self.running {
            Some(running) => running.is_alive().map_err(LoadError::Io)?,
            None => false,
        };
        if !alive {
            let started = self.kind.start(conductor.topology, settings, conductor.clock);
            self.running = Some(started.map_err(|error| Excluded::Because(error.to_string()))?);
        }
        Ok(self.running.as_mut().expect("it was started above if it was not there"))
    }
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
