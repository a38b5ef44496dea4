//! A wide-area network on one machine: two network namespaces, and between them a path with delay,
//! jitter, loss, a rate, and reordering, different each way if need be.
//!
//! Banga and Druschel (1997, section 6) ask for a router between clients and server that delays and drops
//! packets, because a server's behaviour depends on how long its clients take, and did not measure it.
//!
//! Owns the two networks, the user-space router and what it does to packets, the kernel's netem in its
//! place where there is one, and running a command over the path. Leaves out what is measured over it:
//! that is any program's affair, `inrush load` among them.
//!
//! The modules: `conditions` are what a path is asked for, in the `units` of networks; `network` is the two networks,
//! `path` is one with its conditions, `session` runs a command over it. `router` moves packets, `impairment` decides
//! about each of them, `netem` has the kernel do it. `check` measures a path, `report` tells what it did, and `error`
//! what went wrong.
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
pub use report::{Direction, Lateness, Report};
pub use session::{SessionConfig, run};
pub use units::{BitRate, Share, UnitError};
