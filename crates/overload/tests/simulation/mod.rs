//! A server, its kernel and its clients, simulated on a clock that is handed in.
//!
//! ```text
//!   clients ──> ring of packets ──> SYN: hook, queue full? ──> ACK ──> accept queue ──> turn loop ──> books
//!      ^              | full             | dropped               | queue full
//!      └──────────────┴── retransmission after 1, 3, 7 s <───────┘
//! ```
//!
//! The network's work is done on the server's processor: before the server's own while that is idle, and at most as
//! much again as the server's own while it works, as ksoftirqd has it. Costs are those measured on the machines of
//! KERNEL.md's kind: about 28,000 connections a second with one small response each, 0.8 us for a SYN that a sink or
//! a full queue drops, 0.25 us for one that tc drops.
//!
//! Simplifications: one loop on one processor; all clients are equally far away; packets are lost only where the ring
//! or a queue is full.
#![allow(dead_code, reason = "the tests and the sweep use different parts of it")]

mod books;
mod clients;
mod kernel;
mod server;

use base::{Nanos, Seed};
use overload::law::{Constants, Settings};

pub use books::Books;
pub use clients::Bursts;
pub use server::run;

/// What refuses SYNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Nothing but the backlog.
    None,
    /// A full socket, for the share of SYNs that their identity selects.
    Sink,
    /// A full socket, for a random share of SYNs, drawn again at each retransmission.
    RandomSink,
    /// A token bucket in front of the network stack.
    Bucket,
    /// The share by identity, then the token bucket.
    ShareAndBucket,
}

/// What the server does about overload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Control {
    /// Nothing: a fixed backlog.
    Off,
    /// The law, with these constants.
    On(Constants),
}

/// What things cost the server's processor, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The kernel's work for a connection that is admitted.
    pub handshake: f64,
    /// Taking a connection from the queue.
    pub accept: f64,
    /// Reading a request and answering it.
    pub serve: f64,
    /// The part of serving that is exponentially distributed; the rest is constant.
    pub variation: f64,
}

impl Costs {
    /// A small file from memory: 28,000 connections a second.
    pub const FAST: Costs = Costs { handshake: 10e3, accept: 6e3, serve: 19.7e3, variation: 0.3 };
    /// 100 us of work for a request: 8,600 a second.
    pub const WORK: Costs = Costs { serve: 100e3, variation: 0.5, ..Costs::FAST };
    /// A TLS handshake with RSA and a response: 980 a second.
    pub const TLS: Costs = Costs { serve: 1e6, variation: 0.5, ..Costs::FAST };
}

/// What happens to the server's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disturbance {
    /// Nothing.
    None,
    /// Everything takes this many times as long in every other period.
    Slower {
        /// The length of a period.
        period: Nanos,
        /// How many times as long.
        times: f64,
    },
    /// The processor is away.
    Stalls {
        /// For how long.
        length: Nanos,
        /// The mean time between stalls.
        every: Nanos,
    },
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What is drawn.
    pub seed: Seed,
    /// The server's speed.
    pub costs: Costs,
    /// The offered load: until when, and how many times the capacity. Poisson arrivals.
    pub load: Vec<(Nanos, f64)>,
    /// Bursts on top of it.
    pub bursts: Option<Bursts>,
    /// Sessions of 5 to 15 requests on a connection, instead of one.
    pub sessions: bool,
    /// The round trip between clients and the server.
    pub round_trip: Nanos,
    /// How long a client tries to connect.
    pub patience: Nanos,
    /// What happens to the server's speed.
    pub disturbance: Disturbance,
    /// What refuses.
    pub hook: Hook,
    /// What the server does about overload.
    pub control: Control,
    /// Target delay and largest backlog.
    pub settings: Settings,
    /// A fixed accept-limit; adaptive where there is none.
    pub accept_limit: Option<u32>,
}

impl Scenario {
    /// Impatient clients nearby, one request each, a sink, and the law as it is.
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
            control: Control::On(Constants::CHOSEN),
            settings: Settings::default(),
            accept_limit: None,
        }
    }

    /// Connections that the server can serve in a second.
    pub fn capacity(&self) -> f64 {
        let requests = if self.sessions { 10.0 } else { 1.0 };
        1e9 / (self.costs.handshake + self.costs.accept + requests * self.costs.serve)
    }

    /// What can be served at best of this many times the capacity, as a part of the capacity: the rest costs the hook
    /// its share of the processor.
    pub fn best(&self, times: f64) -> f64 {
        let refusal = match self.hook {
            Hook::None | Hook::Sink | Hook::RandomSink => kernel::SINK_DROP,
            Hook::Bucket | Hook::ShareAndBucket => kernel::BUCKET_DROP,
        } as f64
            / 1e9;
        let capacity = self.capacity();
        let served = (1.0 - times * capacity * refusal) / (1.0 / capacity - refusal);
        (served / capacity).min(times)
    }

    /// When the load ends.
    pub fn end(&self) -> Nanos {
        self.load.last().map_or(Nanos::ZERO, |(end, _)| *end)
    }
}
