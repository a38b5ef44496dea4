//! The messages of a fleet, their keys in the bucket of runs, and their subjects.
//!
//! Times are nanoseconds of the coordinator's monotonic clock.

use base::Nanos;
use load::{Reports, ThreadInterval};
use record::load::AgentPart;
use serde::{Deserialize, Serialize};

/// The version of the messages; agents refuse orders of another one.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/1");

/// An agent's entry in the bucket of agents.
#[derive(Serialize, Deserialize)]
pub(crate) struct Presence {
    /// [`VERSION`] of the agent.
    pub version: String,
    /// True while the agent carries out an order.
    pub busy: bool,
    /// A random number for each start of an agent.
    pub id: u64,
}

/// The order to carry out a share of a run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub version: String,
    /// The share's number, from 0, of `agents` shares.
    pub index: u32,
    pub agents: u32,
    /// A `load::Config`, decoded only if the version is right.
    pub settings: serde_json::Value,
}

/// An agent's answer to its order.
#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    Ready(ClockReading),
    Refused(String),
}

/// The relation of an agent's clock to the coordinator's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockReading {
    /// The agent's clock minus the coordinator's.
    pub offset_ns: i64,
    /// The round trip of the exchange.
    pub round_trip_ns: u64,
}

/// The coordinator's sign of life, and its wishes.
#[derive(Serialize, Deserialize)]
pub(crate) struct Beat {
    /// The time of sending.
    pub sent_ns: u64,
    /// The rate as a multiple of the configured rate.
    pub rate_share: f64,
    /// True if the load shall end now.
    pub ends: bool,
    /// The shares that the coordinator still counts on.
    pub members: Vec<u32>,
}

/// A message of an agent during a run.
#[derive(Serialize, Deserialize)]
pub(crate) enum FromAgent {
    /// A sign of life.
    Alive,
    /// An interval of one thread.
    Told(Box<ThreadInterval>),
    /// The agent could not carry out its share.
    Failed(String),
}

/// An agent's part of the result.
#[derive(Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// The number of intervals that the agent has told.
    pub told: u64,
    pub part: AgentPart,
    pub reports: Reports,
}

/// Keys and subjects of one run.
#[derive(Clone, Debug)]
pub(crate) struct Run(pub String);

impl Run {
    /// The key of an agent's order.
    pub fn order(&self, name: &str) -> String {
        format!("{}.order.{name}", self.0)
    }

    /// The key of an agent's answer.
    pub fn answer(&self, name: &str) -> String {
        format!("{}.answer.{name}", self.0)
    }

    /// The key of the start's time, in nanoseconds.
    pub fn start(&self) -> String {
        format!("{}.start", self.0)
    }

    /// The key of a piece of an agent's delivery.
    pub fn piece(&self, name: &str, number: usize) -> String {
        format!("{}.piece.{name}.{number}", self.0)
    }

    /// The key of the number of pieces, written when all pieces are there.
    pub fn delivered(&self, name: &str) -> String {
        format!("{}.delivered.{name}", self.0)
    }

    /// The subject of beats.
    pub fn beats(&self) -> String {
        format!("inrush.fleet.{}.beat", self.0)
    }

    /// The subject of clock requests.
    pub fn clock(&self) -> String {
        format!("inrush.fleet.{}.clock", self.0)
    }

    /// The subject of an agent's messages; `*` names all agents.
    pub fn messages_of(&self, name: &str) -> String {
        format!("inrush.fleet.{}.from.{name}", self.0)
    }
}

/// The time of an agent's clock for a time of the coordinator's clock.
pub(crate) fn on_agents_clock(time: Nanos, offset_ns: i64) -> Nanos {
    Nanos(time.0.saturating_add_signed(offset_ns))
}
