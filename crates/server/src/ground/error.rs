//! Errors that keep a server from starting, or that end it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use side_servers::ListenError;

/// A reason why a server could not start, or why it ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A setting that the server cannot accept, alone or beside another one.
    #[error("{setting} {given}: {accepted}")]
    Setting {
        /// The flag.
        setting: &'static str,
        /// Its value.
        given: String,
        /// The accepted values, with the reason.
        accepted: String,
    },
    /// The directory of a host cannot be served.
    #[error("{host}: {cause}")]
    Root {
        /// The host, in the words of [`HostConfig::title`](crate::HostConfig::title).
        host: String,
        /// The reason.
        cause: site::RootError,
    },
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The server cannot listen on the address of a side server, such as the admin interface.
    #[error(transparent)]
    ListenAside(#[from] ListenError),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The access log cannot be opened.
    #[error("--access-log {path}: cannot open it for appending: {cause}")]
    Log {
        /// The path of the log.
        path: PathBuf,
        /// The file system's error.
        cause: io::Error,
    },
    /// An operation of the system failed, which is rare.
    #[error("cannot {what}: {cause}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// Only the program can start worker processes, but another program asked for them.
    #[error("{architecture} has worker processes, which only the program inrush can start")]
    Processes {
        /// The architecture.
        architecture: &'static str,
    },
    /// A worker process without a parent.
    #[error("a worker process is started by inrush serve, and not by hand")]
    NoParent,
    /// A thread ended by itself.
    #[error("thread {name} failed: {cause}")]
    Thread {
        /// The thread's name.
        name: String,
        /// The cause.
        cause: String,
    },
}

/// Makes an error that names the failed operation.
pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |cause| ServeError::System { what, cause }
}
