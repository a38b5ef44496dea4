//! The time of an engine: the run's clock, when sessions are due, and when waits end.
//!
//! `run_clock` tells the time since the run's start, `schedule` when sessions are due, `deadlines` when waits with one common
//! timeout end, and `rests` when a real-time thread sleeps.
//!
//! Leaves out the retries, which `state` keeps with their due times, and the engine's decision how long to sleep. All
//! times are since the run's start.

pub(super) mod deadlines;
pub(super) mod rests;
pub(super) mod run_clock;
pub(crate) mod schedule;
