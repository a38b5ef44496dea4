//! The errors of an experiment.

use std::io;

use crate::wait::Wait;

/// The reason why an experiment ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum HerdError {
    /// The kernel refused an operation that the experiment needs.
    #[error("cannot {doing}: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// More descriptors than the hard limit allows.
    #[error(
        "the experiment needs {needed} descriptors and the hard limit is {allowed}: use fewer waiters or raise ulimit -Hn"
    )]
    Descriptors {
        /// Descriptors for the largest point.
        needed: u64,
        /// The hard limit.
        allowed: u64,
    },
    /// The configuration selects trace points, and this process cannot use them.
    #[error("trace points cannot be used: {0}")]
    NoTracePoints(String),
    /// The herd did not do in 30 s what takes milliseconds.
    #[error("{wait} with {waiters} waiters: {what}")]
    Stuck {
        /// The way to wait.
        wait: Wait,
        /// The number of waiters.
        waiters: usize,
        /// The event that did not happen.
        what: String,
    },
}

/// Names the operation that failed, for `map_err`.
pub(crate) fn system(doing: &'static str) -> impl Fn(io::Error) -> HerdError {
    move |source| HerdError::System { doing, source }
}
