//! Observing a run in progress.

use base::Nanos;
use hdrhistogram::Histogram;
use record::{Outcomes, Point};

/// The state of a run after an interval.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Time since the start, warm-up included.
    pub elapsed: Nanos,
    /// The planned length of the whole run.
    pub total: Nanos,
    /// True for an interval that began in the warm-up.
    pub warming_up: bool,
    /// The interval that just ended, all threads together.
    pub point: &'a Point,
    /// The point's latencies from the intended time, in nanoseconds, to two digits.
    pub latency_intended: &'a Histogram<u32>,
    /// The point's lateness, in the same unit.
    pub lateness: &'a Histogram<u32>,
    /// Outcomes since the start, warm-up included.
    pub outcomes: &'a Outcomes,
    /// Connections established since the start, warm-up included.
    pub established: u64,
    /// The state of each population, in the order of the configuration.
    pub populations: &'a [Standing],
}

/// The state of a population.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The text of its setting.
    pub name: String,
    /// Open sockets at the end of its last interval.
    pub sockets: u64,
    /// Complete replies since the start.
    pub replies: u64,
    /// Outcomes of its requests since the start.
    pub outcomes: Outcomes,
}

/// The state of an agent of a fleet, after its last interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentStanding {
    /// The agent's name.
    pub name: String,
    /// Its part in the run.
    pub phase: AgentPhase,
    /// Requests offered per second.
    pub offered_per_s: f64,
    /// Complete replies per second.
    pub replies_per_s: f64,
    /// Requests without a correct reply since the start.
    pub errors: u64,
    /// The 99th percentile of the lateness, of its latest thread.
    pub lateness_p99: Nanos,
}

/// An agent's part in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentPhase {
    /// It has told of no interval yet.
    #[default]
    Ready,
    /// It offers load.
    Running,
    /// It has delivered its part.
    Done,
    /// It is lost.
    Lost,
}

/// Receives every interval. The thread that called [`crate::run`] calls it, never an engine, so a slow
/// terminal slows nothing down.
pub trait Observer {
    /// Handles an interval that has ended.
    fn interval(&mut self, snapshot: &Snapshot<'_>);

    /// Handles a change of a fleet's agents, in the order of their shares.
    fn agents(&mut self, _agents: &[AgentStanding]) {}
}

impl<F: FnMut(&Snapshot<'_>)> Observer for F {
    fn interval(&mut self, snapshot: &Snapshot<'_>) {
        self(snapshot);
    }
}
