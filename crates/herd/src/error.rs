//! What can go wrong in an experiment.

use std::io;

use crate::wait::Wait;

/// Why an experiment ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum HerdError {
    /// The machine did not give what the experiment needs.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// More descriptors than the hard limit allows.
    #[error("{needed} descriptors are needed and {allowed} allowed: use fewer waiters or raise ulimit -Hn")]
    Descriptors {
        /// For the largest point.
        needed: u64,
        /// The hard limit.
        allowed: u64,
    },
    /// Trace points were asked for and cannot be had.
    #[error("trace points cannot be used: {0}")]
    NoTracePoints(String),
    /// The herd did not do within half a minute what it should do in milliseconds.
    #[error("{wait} with {waiters} waiters: {what}")]
    Stuck {
        /// How they waited.
        wait: Wait,
        /// How many.
        waiters: usize,
        /// What did not happen.
        what: String,
    },
}

/// For `map_err`: what was tried.
pub(crate) fn system(doing: &'static str) -> impl Fn(io::Error) -> HerdError {
    move |source| HerdError::System { doing, source }
}
