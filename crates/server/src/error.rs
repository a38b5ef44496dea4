//! Why a server could not start, or ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::aside::AdminAddress;

/// Why a server could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Settings that make no sense together.
    #[error("{setting} {given}: {accepted}")]
    Setting {
        /// The flag.
        setting: &'static str,
        /// What it was given.
        given: String,
        /// What it accepts, and why.
        accepted: String,
    },
    /// The directory cannot be served.
    #[error(transparent)]
    Root(#[from] site::RootError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The same for the admin interface or a page.
    #[error("cannot listen on {address}: {cause}")]
    ListenAside {
        /// The address.
        address: AdminAddress,
        /// What the kernel said.
        cause: io::Error,
    },
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The access log cannot be opened.
    #[error("--access-log {path}: cannot open it for appending: {cause}")]
    Log {
        /// Where it was to be.
        path: PathBuf,
        /// What the file system said.
        cause: io::Error,
    },
    /// A call that hardly ever fails has failed.
    #[error("cannot {what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// Worker processes were asked of something other than the program.
    #[error("{architecture} has worker processes, which only the program inrush can start")]
    Processes {
        /// The architecture.
        architecture: &'static str,
    },
    /// A worker process without a parent.
    #[error("a worker process is started by inrush serve, and not by hand")]
    NoParent,
    /// A loop ended by itself.
    #[error("event loop {index} failed: {cause}")]
    Loop {
        /// Which one.
        index: usize,
        /// Why.
        cause: String,
    },
}

/// Names what failed.
pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |cause| ServeError::System { what, cause }
}
