//! The test bed of one trial: a network, a server in it, and an observer of both sides.
//!
//! A trial with a server of its own gets namespaces of its own, too. The queues, TIME-WAITs and cached peers of an
//! earlier trial vanish with its namespaces, at once instead of after a minute.

use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::{Clock, Nanos, Seed};
use experiment::{Common, Experiment, ServerSpec, TopologyChoice, placeholders};
use record::{InForce, TopologyKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::command_lines::{self, Axes};
use super::metrics::{OF_FINAL_ACKS, SYNS_ARRIVED};
use crate::trial::{Conductor, LoadError, LoadRun, Seen};
use stage::cgroup::{Bound, Cgroup};
use stage::fileset;
use stage::kernel::Observer;
use stage::server_under_test::read_back::{differences, in_force};
use stage::server_under_test::{self, RunningServer, Settings, StartError, recipe};
use stage::topology::{Topology, TopologyOptions};

/// The time in which a server that is ready has all its processes.
const IN_FORCE_WITHIN: Nanos = Nanos::from_secs(2);
/// The time between two looks at them.
const LOOK_EVERY: Nanos = Nanos::from_millis(20);

/// A topology with a server that runs in it.
pub struct TestBed {
    /// The server. It is the first field because it must end before its namespaces.
    pub running: RunningServer,
    observer: Observer,
    /// The conditions in force after the server's start.
    pub in_force: InForce,
    /// Those that differ from the experiment's, a phrase each.
    pub differences: Vec<String>,
    /// The network with both sides.
    pub topology: Topology,
}

/// A test bed that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TestBedError {
    /// The server does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The network cannot be made.
    #[error("cannot make the network: {0}")]
    Network(io::Error),
    /// The server's bounds cannot be made.
    #[error("cannot bound its CPU time, memory or disk, which needs root: {0}")]
    Bound(io::Error),
    /// The conditions in force cannot be read.
    #[error("cannot read back what is in force: {0}")]
    ReadBack(io::Error),
    /// Drops cannot be counted by kind.
    #[error(transparent)]
    Watch(#[from] bpf::BpfError),
    /// The files cannot be taken out of memory.
    #[error("cannot take the files out of memory: {0}")]
    Files(io::Error),
}

/// A point of an experiment in one repetition.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The values of the axes.
    pub axes: &'a Axes,
    /// The seed of the repetition, for the path between the two sides.
    pub seed: Seed,
}

/// Returns the options of an experiment's topology at a place. Without a place they have no path, and no kernel
/// settings that depend on one.
pub fn options(experiment: &Experiment, place: Option<Place<'_>>, cpus: &[usize]) -> TopologyOptions {
    let spec = &experiment.topology;
    let network = place.and_then(|place| Some((place, experiment.network.as_ref()?)));
    let sysctls = spec.sysctls.iter().filter_map(|(name, value)| {
        let text = value.to_string();
        let is_whole = placeholders(&text).next().is_none();
        let text = place.map(|place| command_lines::filled(&text, place.axes)).or(is_whole.then_some(text))?;
        Some((name.clone(), text))
    });
    TopologyOptions {
        cpus: Some(cpus.to_vec()),
        loopback: spec.kind == TopologyChoice::Loopback,
        server_cpus: spec.server_cpus.clone(),
        client_cpus: spec.client_cpus.clone(),
        sysctls: sysctls.collect(),
        path: network.map(|(place, network)| command_lines::path(network, place.axes, place.seed)),
    }
}

/// Makes the control groups that bound a server whose files are in `root`.
fn cgroups(common: &Common, quota: Option<f64>, root: &Path) -> io::Result<Vec<Cgroup>> {
    let mut bounds = Vec::from_iter(quota.map(Bound::Cores));
    bounds.extend(common.memory.map(Bound::Memory));
    if let Some(per_s) = common.disk_reads {
        let device = std::fs::metadata(root)?.dev();
        let disk = (rustix::fs::major(device), rustix::fs::minor(device));
        bounds.push(Bound::DiskReads { disk, per_s: per_s.get() });
    }
    Cgroup::with(&bounds)
}

/// Starts a process that inherits a queue of at most so many signals.
fn with_signal_queue<T>(signals: Option<NonZeroU32>, start: impl FnOnce() -> T) -> io::Result<T> {
    let Some(signals) = signals else { return Ok(start()) };
    let own = getrlimit(Resource::Sigpending);
    let current = Some(u64::from(signals.get()).min(own.maximum.unwrap_or(u64::MAX)));
    setrlimit(Resource::Sigpending, Rlimit { current, ..own })?;
    let started = start();
    setrlimit(Resource::Sigpending, own)?;
    Ok(started)
}

/// Reads the conditions in force back, again while they differ: a pool may still be starting.
fn read_back(
    topology: &Topology,
    running: &mut RunningServer,
    observer: &mut Observer,
    sysctls: &[(String, String)],
    clock: &dyn Clock,
) -> io::Result<(InForce, Vec<String>)> {
    let deadline = clock.now() + IN_FORCE_WITHIN;
    loop {
        let found = in_force(topology, running, observer, sysctls)?;
        // Over loopback the machine's settings stay, which the topology warns of.
        let asked = if topology.kind == TopologyKind::Loopback { &[] } else { sysctls };
        let differences = differences(running.asked(), asked, &found);
        if differences.is_empty() || clock.now() >= deadline {
            return Ok((found, differences));
        }
        running.linger(LOOK_EVERY)?;
    }
}

impl TestBed {
    /// Makes the network and starts the server. Blocks until it is ready.
    ///
    /// # Errors
    /// [`TestBedError`], with the reason why there is no trial.
    pub fn prepare(
        experiment: &Experiment,
        server: &ServerSpec,
        place: Place<'_>,
        settings: &Settings,
        cpus: &[usize],
        clock: &dyn Clock,
    ) -> Result<TestBed, TestBedError> {
        let axes = place.axes;
        let topology =
            Topology::with(&options(experiment, Some(place), cpus)).map_err(TestBedError::Network)?;
        let own = Settings { backlog: server.backlog.unwrap_or(settings.backlog), ..settings.clone() };
        let start = |recipe, quota: Option<f64>| -> Result<RunningServer, TestBedError> {
            let cgroups = cgroups(&experiment.common, quota, &settings.root).map_err(TestBedError::Bound)?;
            let start = || server_under_test::start(&topology, recipe, cgroups, clock);
            Ok(with_signal_queue(experiment.common.signal_queue, start).map_err(TestBedError::Bound)??)
        };
        if experiment.common.needs_disk() {
            fileset::forget(&settings.root).map_err(TestBedError::Files)?;
        }
        let (mut behind, mut names) = (Vec::new(), Vec::new());
        for (quota, number) in server.behind.iter().zip(1..) {
            let port = || topology.server.free_port().map_err(TestBedError::Network);
            // Its ports are chosen here, because it may have to be started again.
            let (address, admin, agent) = (port()?, port()?, port()?);
            let mut flags = command_lines::flags(experiment, server, axes);
            flags.extend(
                [("listen", address), ("admin", admin), ("agent-check", agent)]
                    .map(|(flag, address)| format!("--{flag}={address}")),
            );
            let running = start(recipe::inrush(&topology, &own, &flags)?, Some(*quota))?;
            names.push((format!("behind{number}"), running.address.to_string()));
            names.push((format!("agent{number}"), agent.port().to_string()));
            behind.push(running);
        }
        let recipe = command_lines::recipe(experiment, server, axes, &topology, &own, &names)?;
        let mut running = start(recipe, server.cpu_quota.or(experiment.common.cpu_quota))?;
        if let Some(workers) = server.started_workers.or(experiment.common.started_workers) {
            running.await_workers(&topology, workers.get().into(), clock)?;
        }
        running.behind = behind;
        if let Some(flags) = command_lines::guard(server, axes) {
            let recipe = recipe::guard(running.address, &flags)?;
            running.guard = Some(Box::new(start(recipe, None)?));
        }
        running.live_accept_limit = server.live_accept_limit;
        let mut observer = Observer::of(&topology).map_err(TestBedError::Network)?;
        if OF_FINAL_ACKS.iter().any(|metric| experiment.needs_metric(metric)) {
            observer.watch_final_acks()?;
        }
        if experiment.needs_metric(SYNS_ARRIVED) {
            observer.watch_syns(&topology).map_err(TestBedError::Network)??;
        }
        let sysctls = options(experiment, Some(place), cpus).sysctls;
        let mut read = || read_back(&topology, &mut running, &mut observer, &sysctls, clock);
        let (in_force, differences) = read().map_err(TestBedError::ReadBack)?;
        Ok(TestBed { running, observer, in_force, differences, topology })
    }

    /// Offers load and observes both sides. Then waits until the server has no connection left, for at most
    /// `cooldown`.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn offer(
        &mut self,
        run: LoadRun,
        cooldown: Nanos,
        clock: &dyn Clock,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Seen, LoadError> {
        let (topology, observer) = (&self.topology, &mut self.observer);
        let mut conductor = Conductor { topology, observer, clock, interrupted };
        let seen = conductor.offer(&mut self.running, run);
        if seen.is_ok() && cooldown > Nanos::ZERO {
            conductor.await_quiet(&mut self.running, cooldown)?;
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_started_process_inherits_the_bounded_queue() {
        let limit = || getrlimit(Resource::Sigpending).current;
        let before = limit();
        assert_eq!(with_signal_queue(NonZeroU32::new(64), limit).unwrap(), Some(64));
        assert_eq!(limit(), before);
        assert_eq!(with_signal_queue(None, limit).unwrap(), before);
    }
}
