//! What the user chooses, a module for each: its values, their text, and the checks that need nothing else.
//!
//! Leaves out checks between choices, which are the preflight's.
//!
//! - `arrivals`: when sessions are due.
//! - `workload`: the requests of a session. `expected`: which replies are correct.
//! - `population`: clients beside the measured ones.
//! - `retry`: what follows a failure.
//! - `source_addresses` and `tls`: how connections are made.
//! - `tempo`: open or closed, and how fast.

pub(crate) mod arrivals;
pub(crate) mod expected;
pub(crate) mod population;
pub(crate) mod retry;
pub(crate) mod source_addresses;
pub(crate) mod tempo;
pub(crate) mod tls;
pub mod workload;
