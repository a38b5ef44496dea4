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
//! starts inherit it. Three modules: `account` has users and groups, `files` what may be opened, and `calls` what
//! may be called.
//!
//! The caller decides what its server needs.
#![forbid(unsafe_code)]

mod account;
mod calls;
mod files;

pub use account::{Account, AccountError, drop_capabilities, is_root};
pub use calls::Calls;
pub use files::{Files, Kept};

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

/// Tests this kernel's support for confining files (Landlock) and system calls (seccomp), in this order.
pub fn probe() -> [Facility; 2] {
    [files::probe(), calls::probe()]
}
