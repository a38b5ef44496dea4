//! One run of load from many machines, over NATS.
//!
//! ```text
//!   coordinator --order, start--> JetStream KV --> agent 0: share 0 of n --load--> server
//!       |  ^                          |    \-----> agent 1: share 1 of n --load--> server
//!       |  +---- ready, parts --------+                |
//!       +------- beats, 4 a second -----------------> |    stops without a beat for 1.5 s
//!          <---- intervals, signs of life ------------+
//! ```
//!
//! An agent is one more part of a run (`load::run_agent`): all lanes of all agents are one arrival process, and the
//! coordinator adds up histograms and ledgers without loss. NATS carries membership, barrier, start time and results;
//! this crate elects nobody and queues nothing.
//!
//! Invariants:
//!
//! - An agent offers load only while beats arrive. A beat counts from the time it was sent, so a delayed one is old.
//! - An agent receives settings of a type, never a command line, and checks them again.
//! - A lost agent holds nobody up: the others go on, and the result names the loss.
//!
//! Leaves out the load itself and the terminal.
//!
//! The modules: `access` connects to NATS, and `messages` defines the messages and their keys. `agent` is one agent,
//! `coordinator` leads the run and gathers its result. `local` starts a fleet on this machine, and `error` defines the errors.
#![forbid(unsafe_code)]

mod access;
mod agent;
mod coordinator;
mod error;
mod local;
mod messages;

pub use access::Access;
pub use agent::{AgentSettings, Name, serve};
pub use coordinator::{START_LATE_MAX, run};
pub use error::FleetError;
pub use local::{ADDRESS_VARIABLE, LocalFleet};
