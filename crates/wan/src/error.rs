//! The errors of a network on one machine.

use std::io;

/// The reason why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum WanError {
    /// The machine refuses network namespaces or devices.
    #[error(
        "cannot make two networks ({0}): this requires root or user namespaces, and a kernel with namespaces and TUN"
    )]
    NoNetwork(io::Error),
    /// The kernel, or the program `tc`, has no netem.
    #[error("netem cannot be used here: {0}; use --engine router")]
    NoNetem(String),
    /// The processor is not online, or this process may not use it.
    #[error("cannot pin the router to processor {cpu} ({source}); expected an online CPU")]
    NoProcessor {
        /// The configured processor.
        cpu: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The program does not exist, or may not be executed.
    #[error("cannot start {program}: {source}")]
    NoProgram {
        /// The program's name as given.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The server ended before it listened.
    #[error("the server ended before it listened: {0}")]
    ServerEnded(String),
    /// The server did not listen.
    #[error("the server does not listen after {0}: its side has no TCP listener and no UDP socket")]
    ServerSilent(base::Nanos),
    /// A signal came before the command was started.
    #[error("ended by a signal before the command was started")]
    Interrupted,
    /// The kernel refused an operation.
    #[error("cannot {doing}: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Names the operation that failed, for `map_err`.
pub(crate) fn system(doing: &'static str) -> impl Fn(io::Error) -> WanError {
    move |source| WanError::System { doing, source }
}
