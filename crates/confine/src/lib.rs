//! Gives up the rights that a server does not need once it runs: the superuser, capabilities, files, system calls.
//!
//! ```text
//!   Files::restrict     at the start, before any thread: threads and processes inherit it    (Landlock)
//!     the server opens sockets, logs, keys and programs in the kernel
//!   Account::become_it  for all threads                                            (setgroups, setgid, setuid)
//!   Calls::restrict     for all threads                                            (seccomp)
//! ```
//!
//! Everything here is for good and for the whole process: none of it can be taken back, and the programs that it
//! starts inherit it. The modules: `account` has users and groups, `files` what may be opened, `calls` what may be
//! called, and `rights` what the kernel says is left.
//!
//! The caller decides what its server needs.
#![forbid(unsafe_code)]

use std::io;

mod account;
mod calls;
mod files;
mod rights;

pub use account::{Account, AccountError, drop_capabilities, is_root, keep_capabilities};
pub use calls::Calls;
pub use files::{Files, Kept};
pub use rights::{OwnRights, Rights};
pub use rustix::thread::CapabilitySet;

/// A facility of the kernel that confines processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facility {
    /// In full.
    Here,
    /// An older version of it, which leaves out newer rights.
    Partly,
    /// The kernel was built or started without it.
    Missing,
}

/// Says in words what a restriction of files has come to.
pub fn files_in_words(restricted: &io::Result<Facility>) -> String {
    match restricted {
        Ok(Facility::Here) => "files by Landlock".to_owned(),
        Ok(Facility::Partly) => "files by an older Landlock".to_owned(),
        Ok(Facility::Missing) => "all files, because this kernel has no Landlock".to_owned(),
        Err(error) => format!("all files, because Landlock failed: {error}"),
    }
}

/// Says in words what a restriction of system calls has come to.
pub fn calls_in_words(restricted: &io::Result<()>) -> String {
    match restricted {
        Ok(()) => "system calls by seccomp".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            "all system calls, because this kernel has no seccomp filters".to_owned()
        }
        Err(error) => format!("all system calls, because seccomp failed: {error}"),
    }
}

/// Tests this kernel's support for confining files (Landlock) and system calls (seccomp), in this order.
pub fn probe() -> [Facility; 2] {
    [files::probe(), calls::probe()]
}
