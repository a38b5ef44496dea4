//! The servers that a demonstration compares.

use base::{Clock, Limit, Nanos};

use crate::stage::server_under_test::{RunningServer, Settings, StartError, recipe, start};
use crate::stage::topology::Topology;

/// Which server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `inrush serve` with one process and one thread.
    Inrush {
        /// How many connections it accepts each time the listener is ready.
        accept_limit: Limit,
        /// CPU time it spends on each request beside serving it.
        burn: Nanos,
    },
    /// nginx as it is installed here.
    Nginx,
}

impl Kind {
    /// Short, for a legend.
    pub fn name(&self) -> String {
        match self {
            Kind::Inrush { accept_limit, .. } => format!("accept-limit {accept_limit}"),
            Kind::Nginx => "nginx".to_owned(),
        }
    }

    /// One sentence on what it is.
    pub fn description(&self) -> String {
        match self {
            Kind::Inrush { accept_limit, burn } => {
                let accepts = match accept_limit {
                    Limit::AtMost(1) => "one connection".to_owned(),
                    Limit::AtMost(most) => format!("at most {most} connections"),
                    Limit::Infinite => "every waiting connection".to_owned(),
                };
                let burnt = match *burn {
                    Nanos::ZERO => String::new(),
                    burn => format!(", with {burn} of CPU time added to each request"),
                };
                format!("inrush serve, one event loop that accepts {accepts} each time round{burnt}.")
            }
            Kind::Nginx => {
                "nginx with one event loop, sendfile and open_file_cache, nothing added to its requests."
                    .to_owned()
            }
        }
    }

    /// Starts it on the server's side and waits until it is ready. To be called on a thread that stays:
    /// the server ends with it.
    ///
    /// # Errors
    /// [`StartError`], whose text says why this server is not in the comparison.
    pub fn start(
        &self,
        topology: &Topology,
        settings: &Settings,
        clock: &dyn Clock,
    ) -> Result<RunningServer, StartError> {
        let recipe = match self {
            Kind::Inrush { accept_limit, burn } => {
                recipe::inrush(topology, settings, &recipe::one_loop(*accept_limit, *burn))?
            }
            Kind::Nginx => recipe::nginx(topology, settings)?,
        };
        start(topology, recipe, None, clock)
    }
}
