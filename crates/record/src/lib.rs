//! The versioned schema of results: each run writes records, and reports are made from them alone.
//!
//! A result is a file before it is a picture. A record is written to a temporary file and renamed, so a
//! reader never sees half of one. Field names carry their unit; a change that breaks a reader changes
//! the `schema` string.
//!
//! Owns the shapes and their files. Does not measure, analyse or draw.
//!
//! The modules: [`load`], [`capacity`], [`clean_rate`] and [`experiment`] are the kinds of results. `stage` describes
//! kernel and topology, and [`manifest`] the origin of a result. `file` writes a record whole or not at all.
#![forbid(unsafe_code)]

pub mod capacity;
pub mod clean_rate;
pub mod experiment;
pub mod file;
pub mod load;
pub mod manifest;
mod stage;

pub use capacity::{CapacityResult, CapacityVerdict, Step};
pub use clean_rate::CleanRate;
pub use load::{Distribution, Latency, LoadResult, Outcome, Outcomes, Point, Population, Statuses, Verdict};
pub use manifest::Manifest;
pub use stage::{InForce, KernelDrops, QueueDepth, Speed, Topology, TopologyKind};
