//! A foreign server, its kernel, its clients and a guard, simulated by events.
//!
//! ```text
//!   clients ──> SYN: hook, queue full? ──> accept queue ──> server ──> answer ──> next request of the connection
//!      ^              | dropped                 |             |
//!      └──────────────┘                         └── guard ────┘  every tick: readings ──> decision
//!      SYN again after 1, 2, 3, 4, 5, 7, 11 s
//! ```
//!
//! Simplifications: packets take no time of the server's processors. A handshake takes one round trip of 0.1 ms.
#![allow(dead_code, reason = "each test uses different parts of it")]

mod clients;
mod guard;
mod ledger;
mod run;
mod server;

use base::{Nanos, Seed};

pub use ledger::Ledger;
pub use run::run;
pub use server::{Accepting, Server};

/// The mechanism that refuses SYNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A full socket, for the share of SYNs that their identity selects.
    Sink,
    /// A token bucket, in which SYNs that it refused before come after new ones.
    Device,
}

/// The readings that a guard has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watches {
    /// The requests at the connections.
    Requests,
    /// The accept queue.
    Queue,
    /// Both.
    Both,
}

/// Clients beside the load whose answer does not wait for the server's work.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// The time at which the first connects, and the time within which all have.
    pub from: Nanos,
    pub within: Nanos,
    pub clients: u32,
    /// The time until the answer; `None` for half a request, which has none.
    pub answered_after: Option<Nanos>,
    /// True to ask again after each answer, as a long poll does.
    pub again: bool,
}

impl Beside {
    /// Clients that send half a request and stop.
    pub fn half_requests(from: Nanos, within: Nanos, clients: u32) -> Beside {
        Beside { from, within, clients, answered_after: None, again: false }
    }
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: Seed,
    pub server: Server,
    /// The offered load: steps with their end, in multiples of the capacity. Poisson arrivals.
    pub load: Vec<(Nanos, f64)>,
    pub beside: Vec<Beside>,
    /// The requests of a connection.
    pub requests: u16,
    /// The time for which a client waits for a connection, and for each answer.
    pub patience: Nanos,
    pub hook: Hook,
    /// The guard's readings; `None` without a guard.
    pub guard: Option<Watches>,
    pub target: Nanos,
}

impl Scenario {
    /// Clients of one request that wait 2 s, and a guard with both signals and a token bucket.
    pub fn new(server: Server, load: &[(Nanos, f64)]) -> Scenario {
        Scenario {
            seed: Seed(1),
            server,
            load: load.to_vec(),
            beside: Vec::new(),
            requests: 1,
            patience: Nanos::from_secs(2),
            hook: Hook::Device,
            guard: Some(Watches::Both),
            target: Nanos::from_millis(20),
        }
    }

    /// Connections that the server can serve per second.
    pub fn capacity(&self) -> f64 {
        self.server.capacity(self.requests)
    }

    /// The end of the load.
    pub fn end(&self) -> Nanos {
        self.load.last().map_or(Nanos::ZERO, |(end, _)| *end)
    }
}
