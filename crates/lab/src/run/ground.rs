//! What one trial stands on: a network of its own, a server in it, and an observer beside them.
//!
//! A trial that has a server of its own gets namespaces of its own, too: whatever an earlier one left in
//! queues, in TIME-WAIT and in the kernel's memory of peers is gone with its namespaces, at once and not after a
//! minute.

use base::{Clock, Nanos};

use super::words::{self, Axes};
use crate::cgroup::Cgroup;
use crate::experiment::{Experiment, ServerSpec, TopologyChoice};
use crate::kernel::Observer;
use crate::plan::RunTime;
use crate::server_under_test::{self, Running, Settings, StartError};
use crate::topology::{Topology, TopologyOptions};
use crate::trial::{Conductor, LoadError, Seen};

/// A topology, and who runs in it.
pub struct Ground {
    /// The server; ended before its namespaces, so it stands before them.
    pub running: Running,
    observer: Option<Observer>,
    /// Where both sides are.
    pub topology: Topology,
}

/// Why there is no ground for a trial.
#[derive(Debug, thiserror::Error)]
pub enum GroundError {
    /// The server does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The network cannot be made.
    #[error("cannot make the network: {0}")]
    Network(std::io::Error),
    /// The server's bound on CPU time cannot be made.
    #[error("cannot bound its CPU time, which needs root: {0}")]
    Quota(std::io::Error),
}

/// What a topology of an experiment is asked for, at a point; without one, whatever lies between the two sides.
pub fn options(experiment: &Experiment, axes: Option<&Axes>, cpus: &[usize]) -> TopologyOptions {
    let spec = &experiment.topology;
    let network = axes.and_then(|axes| Some((axes, experiment.network.as_ref()?)));
    let sysctls = spec.sysctls.iter().map(|(name, value)| (name.clone(), value.to_string()));
    TopologyOptions {
        cpus: Some(cpus.to_vec()),
        loopback: spec.kind == TopologyChoice::Loopback,
        server_cpus: spec.server_cpus.clone(),
        client_cpus: spec.client_cpus.clone(),
        sysctls: sysctls.collect(),
        path: network.map(|(axes, network)| words::path(network, axes)),
    }
}

impl Ground {
    /// Makes the network and starts the server. Blocks until it is ready.
    ///
    /// # Errors
    /// [`GroundError`], whose text says why there is no trial.
    pub fn prepare(
        experiment: &Experiment,
        server: &ServerSpec,
        axes: &Axes,
        settings: &Settings,
        cpus: &[usize],
        clock: &dyn Clock,
    ) -> Result<Ground, GroundError> {
        let topology =
            Topology::with(&options(experiment, Some(axes), cpus)).map_err(GroundError::Network)?;
        let recipe = words::recipe(experiment, server, axes, &topology, settings)?;
        let quota = server.cpu_quota.or(experiment.common.cpu_quota);
        let cgroup = quota.map(Cgroup::with_quota).transpose().map_err(GroundError::Quota)?;
        let running = server_under_test::start(&topology, recipe, cgroup, clock)?;
        let observer = Observer::of(&topology).map_err(GroundError::Network)?;
        Ok(Ground { running, observer: Some(observer), topology })
    }

    /// Offers load and watches, and waits afterwards until the server has no connection left, at most
    /// `cooldown`.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn offer(
        &mut self,
        arguments: Vec<String>,
        time: RunTime,
        cooldown: Nanos,
        clock: &dyn Clock,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Seen, LoadError> {
        let observer = match self.observer.take() {
            Some(observer) => observer,
            None => Observer::of(&self.topology)?,
        };
        let mut conductor = Conductor { topology: &self.topology, observer, clock, interrupted };
        let seen = conductor.offer(&self.running, arguments, time);
        let settled = match (&seen, cooldown) {
            (Ok(_), Nanos(1..)) => conductor.settle(&mut self.running, cooldown),
            _ => Ok(()),
        };
        self.observer = Some(conductor.observer);
        settled?;
        seen
    }
}
