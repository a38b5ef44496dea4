//! Controlled experiments: servers under load, side by side, on this machine.
//!
//! Owns the way from an experiment file to its records:
//!
//! - [`trial`] is one run of load against a server, observed from both sides.
//! - [`run`] carries out an experiment; [`library`] holds the experiments that come with the program.
//! - [`capacity`] searches for a server's capacity, [`survey`] goes past it and back.
//! - [`progress`] shows how far a run is, [`facilities`] examines the machine.
//!
//! Leaves the file form to `experiment`, the place of servers and the kernel's counters to `stage`, estimates and
//! judgements to `analysis`, pages to `report`.
//!
//! Invariants: servers and clients are processes; this crate links neither. A result is a file before it is a picture:
//! every trial is written when it ends.
#![forbid(unsafe_code)]

pub mod capacity;
pub mod facilities;
pub mod library;
pub mod progress;
pub mod run;
pub mod survey;
pub mod trial;
