//! What can go wrong with a network of one's own.

use std::io;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum WanError {
    /// The machine has no such networks for us.
    #[error("cannot make two networks ({0}): that takes root, and a kernel with namespaces and TUN")]
    NoNetwork(io::Error),
    /// The kernel, or the program that speaks for it, has no netem.
    #[error("netem cannot be used here: {0}; accepted is the engine router")]
    NoNetem(String),
    /// The processor is not ours.
    #[error("cannot tie the router to processor {cpu} ({source}); accepted are those that are online")]
    NoProcessor {
        /// As asked for.
        cpu: usize,
        /// Why not.
        source: io::Error,
    },
    /// There is no such program, or it may not be executed.
    #[error("cannot start {program}: {source}")]
    NoProgram {
        /// As given.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// The server was over before anything began.
    #[error("the server ended before it listened: {0}")]
    ServerEnded(String),
    /// The server did not listen.
    #[error("the server does not listen after {0}: no TCP listener and no UDP socket is on its side")]
    ServerSilent(base::Nanos),
    /// A signal came before the command was started.
    #[error("ended by a signal before the command was started")]
    Interrupted,
    /// The machine did not give what it takes.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// For `map_err`: what was tried.
pub(crate) fn system(doing: &'static str) -> impl Fn(io::Error) -> WanError {
    move |source| WanError::System { doing, source }
}
