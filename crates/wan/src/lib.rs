//! A wide-area network on one machine: two network namespaces and a path between them. The path has delay,
//! jitter, loss, a rate, and reordering, and may differ by direction.
//!
//! Banga and Druschel (1997, section 4.1) propose a router between clients and server that delays
//! packets, because the delays of clients influence a server. They did not measure it. Loss is ours.
//!
//! Owns the two networks, the user-space router and its treatment of packets, the kernel's netem as an
//! alternative, and running a command over the path. Leaves out the measurement: `inrush load` or any other
//! program does that.
//!
//! The modules: `conditions` holds the properties of a path, in the `units` of networks. `network` is the two
//! networks, `path` adds the conditions, and `session` runs a command over the path. `router` moves packets,
//! `impairment` decides about each of them, and `netem` lets the kernel do it. `check` measures a path,
//! `report` shows its counters, and `error` defines the errors.
#![forbid(unsafe_code)]

pub mod check;
mod conditions;
mod error;
mod impairment;
mod netem;
mod network;
mod path;
mod report;
mod router;
mod session;
mod units;

pub use conditions::{Changes, Conditions, ConditionsError, MTU};
pub use error::WanError;
pub use impairment::{Counts, Due, Impairment, MOST_ON_THEIR_WAY};
pub use network::{CLIENT_ADDRESS, CLIENT_ADDRESSES, LINK, Network, SERVER_ADDRESS, Side};
pub use path::{Engine, Path, PathConfig};
pub use report::{Direction, FATES, Lateness, Report};
pub use session::{SessionConfig, run};
pub use units::{BitRate, Share, UnitError};
