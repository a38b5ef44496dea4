//! What the records of an experiment say: points with intervals, and claims reproduced or refuted.
//!
//! Owns the way from trials to numbers. [`points`] groups trials into the points of a figure, [`claims`]
//! measures what a claim is about and judges it, [`compare`] sets two runs of one experiment side by side,
//! [`two_runs`] two runs of the load generator.
//! The estimates themselves are those of the `statistics` crate. Draws nothing, runs nothing.
//!
//! Invariants: a pure function of the records, whose randomness comes from the experiment's seed and the
//! name of what is estimated, so that a further claim does not move the others; trials with a flaw are shown but
//! never counted.

pub mod claims;
pub mod compare;
mod curves;
pub(crate) mod measure;
pub mod points;
mod quantity;
mod select;
pub mod two_runs;

pub use quantity::{Quantity, direction, quantity};
