//! The analysis of records: points with intervals, judged claims, a server's capacity, and two runs compared.
//!
//! Owns the way from records to numbers and judgements:
//!
//! - [`Analysed`] (`analysed`) is a whole run of an experiment.
//! - [`points`] groups trials into the points of a figure. [`claims`] judges claims by the measurements of
//!   [`measure`]. `select` chooses and pairs trials, and `quantity` has the meaning of a metric's name.
//! - [`capacity`] estimates a server's capacity from a survey and judges its behaviour past it.
//! - [`experiment_runs`] compares two runs of one experiment, [`load_runs`] two runs of the load generator, and
//!   [`load_gates`] several of each.
//!
//! The estimates are those of the `statistics` crate. Draws nothing, runs nothing.
//!
//! Invariants: every result is a pure function of the records. Resampling draws from the experiment's seed and the name
//! of the estimate, so a further estimate does not move the others. Trials with a flaw are shown but never counted.
#![forbid(unsafe_code)]

mod analysed;
pub mod capacity;
pub mod claims;
pub mod experiment_runs;
pub mod load_gates;
pub mod load_runs;
pub mod measure;
pub mod points;
mod quantity;
mod select;

pub use analysed::Analysed;
pub use quantity::{Quantity, direction, quantity};
