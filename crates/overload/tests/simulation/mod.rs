//! A server, its kernel and its clients, simulated on a clock that the caller passes in.
//!
//! ```text
//!   clients ──> ring of packets ──> SYN: hook, queue full? ──> ACK ──> accept queue ──> turn loop ──> ledger
//!      ^              | full             | dropped              | queue full
//!      ├──────────────┴──────────────────┘ SYN again            |
//!      |                                   after 1, 3, 7 s      |
//!      └── request again after 0.2, 0.6, 1.4 s <────────────────┘
//! ```
//!
//! The network's work runs on the server's processor, before the server's own work. While the server works, it takes
//! at most nine times as much: at the beginning of a rush a turn of 3 ms was seen to last 40 to 50 ms. Costs were
//! measured on a virtual machine with two CPUs. The server handles about 28,000 connections per second with one small
//! response each. Dropping a SYN costs 0.8 us in a sink or at a full queue, and 0.25 us in tc.
//!
//! Simplifications: one loop on one processor. All clients are equally far away. Packets are lost only at a
//! full ring or a full queue.
#![allow(dead_code, reason = "the tests and the sweep use different parts of it")]

mod clients;
mod kernel;
mod ledger;
mod server;

use base::{Nanos, Seed};
use overload::law::{Constants, Settings};

pub use clients::Bursts;
pub use ledger::Ledger;
pub use server::run;

/// The mechanism that refuses SYNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// The backlog alone.
    None,
    /// A full socket, for the share of SYNs that their identity selects.
    Sink,
    /// A full socket, for a random share of SYNs, drawn anew for each retransmission.
    RandomSink,
    /// A token bucket in front of the network stack.
    Bucket,
    /// The token bucket, in which SYNs that it refused before come after new ones.
    Device,
}

/// The costs of operations on the server's processor, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The kernel's work for a connection that is admitted.
    pub handshake: f64,
    /// Taking a connection from the queue.
    pub accept: f64,
    /// Reading a request and answering it.
    pub serve: f64,
    /// The exponentially distributed fraction of the serving cost; the rest is constant.
    pub variation: f64,
}

impl Costs {
    /// A small file from memory: 28,000 connections a second.
    pub const FAST: Costs = Costs { handshake: 10e3, accept: 6e3, serve: 19.7e3, variation: 0.3 };
    /// 100 us of work for a request: 8,600 per second.
    pub const WORK: Costs = Costs { serve: 100e3, variation: 0.5, ..Costs::FAST };
    /// A TLS handshake with RSA and a response: 980 per second.
    pub const TLS: Costs = Costs { serve: 1e6, variation: 0.5, ..Costs::FAST };
    /// A request as long as the usual target delay: 50 per second.
    pub const LONG: Costs = Costs { serve: 20e6, variation: 0.0, ..Costs::FAST };
}

/// A disturbance of the server's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disturbance {
    /// No disturbance.
    None,
    /// A slowdown of all work in every other period.
    Slower {
        /// The length of a period.
        period: Nanos,
        /// The factor of the slowdown.
        times: f64,
    },
    /// Stalls of the processor.
    Stalls {
        /// The length of a stall.
        length: Nanos,
        /// The mean time between stalls.
        every: Nanos,
    },
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of all draws.
    pub seed: Seed,
    /// The server's speed.
    pub costs: Costs,
    /// The offered load: steps with their end, in multiples of the capacity. Poisson arrivals.
    pub load: Vec<(Nanos, f64)>,
    /// Bursts in addition to the load.
    pub bursts: Option<Bursts>,
    /// True for sessions of 5 to 15 requests on a connection, instead of one.
    pub sessions: bool,
    /// The round trip between clients and the server.
    pub round_trip: Nanos,
    /// The time for which a client tries to connect.
    pub patience: Nanos,
    /// The disturbance of the server's speed.
    pub disturbance: Disturbance,
    /// The mechanism that refuses SYNs.
    pub hook: Hook,
    /// The constants of the server's overload control; `None` for a fixed backlog.
    pub control: Option<Constants>,
    /// Target delay and largest backlog.
    pub settings: Settings,
    /// A fixed accept-limit; `None` selects the adaptive one.
    pub accept_limit: Option<u32>,
}

impl Scenario {
    /// Impatient clients nearby, one request each, a sink, and the law with the chosen constants.
    pub fn new(costs: Costs, load: &[(Nanos, f64)]) -> Scenario {
        Scenario {
            seed: Seed(1),
            costs,
            load: load.to_vec(),
            bursts: None,
            sessions: false,
            round_trip: Nanos::from_micros(100),
            patience: Nanos::from_millis(500),
            disturbance: Disturbance::None,
            hook: Hook::Sink,
            control: Some(Constants::CHOSEN),
            settings: Settings::default(),
            accept_limit: None,
        }
    }

    /// Connections that the server can serve per second.
    pub fn capacity(&self) -> f64 {
        let requests = if self.sessions { 10.0 } else { 1.0 };
        1e9 / (self.costs.handshake + self.costs.accept + requests * self.costs.serve)
    }

    /// The largest possible goodput at a load of `times` the capacity, as a fraction of the capacity.
    /// Refusing the rest takes its share of the processor.
    pub fn best(&self, times: f64) -> f64 {
        let refusal = match self.hook {
            Hook::None | Hook::Sink | Hook::RandomSink => kernel::SINK_DROP,
            Hook::Bucket | Hook::Device => kernel::BUCKET_DROP,
        } as f64
            / 1e9;
        let capacity = self.capacity();
        let served = (1.0 - times * capacity * refusal) / (1.0 / capacity - refusal);
        (served / capacity).min(times)
    }

    /// The end of the load.
    pub fn end(&self) -> Nanos {
        self.load.last().map_or(Nanos::ZERO, |(end, _)| *end)
    }
}
