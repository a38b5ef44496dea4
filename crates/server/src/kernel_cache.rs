//! The server's side of the kernel cache ([`bpf::kernel_cache`]): chooses hot requests, renders their responses, and
//! keeps these valid.
//!
//! ```text
//!   loop: Sites ─> response ─> Observer: the same request 8 times? ──> queue of candidates
//!                                                                      │ every 50 ms
//!   kernel: tc <── objects, requests, date <── keeper thread: Sites + http1 ┘ asks again every 400 ms
//! ```
//!
//! Owns the keeper thread and the observers of the loops. The keeper renders each response with its own sites and
//! protocol machine, so the kernel sends the bytes that a loop would send. They are those of the right host, because
//! the program compares whole requests, with their `Host`.
//!
//! Leaves out the program and its maps (`bpf`), and the list of architectures with a kernel cache
//! ([`Choice::KernelCache`](crate::ground::choices::Choice)).
//!
//! Invariants: an object is valid for a second after the last check of its file, so a keeper that hangs cannot keep
//! an old file alive. Loops never wait for the keeper. Without the program the server serves as if the cache were
//! off.
//!
//! This file is the only way in. A build without the feature `kernel-cache` has `absent` behind it in place of `present`, and no program.

#[cfg(not(feature = "kernel-cache"))]
mod absent;
#[cfg(feature = "kernel-cache")]
mod present;

use connection::LiveSettings;
use site::Hosts;

use crate::observation::access_log::LogSender;

#[cfg(not(feature = "kernel-cache"))]
pub use absent::{Observer, SharedCache};
#[cfg(feature = "kernel-cache")]
pub use present::{Observer, SharedCache};

/// True if this build has a kernel cache.
pub const IS_BUILT: bool = cfg!(feature = "kernel-cache");

/// The hosts and settings that the keeper renders responses with, and its log.
pub struct Materials {
    /// The access log, if there is one.
    pub log: Option<LogSender>,
    /// The hosts.
    pub hosts: Hosts,
    /// Limits and timeouts of the protocol.
    pub settings: LiveSettings,
}
