//! The server's side of TLS 1.2 and 1.3, without I/O.
//!
//! ```text
//!   files ── Material ──> Sessions ──> Session     one for each connection: bytes in, bytes out
//!     |      (checked)     | |  |
//!   Watch                  | |  └─ tickets         keys that all loops and processes share and rotate
//!   (changed?)             | └─ names              the certificate that a client's SNI asks for
//!                          └─ to_bytes             what worker processes are given
//! ```
//!
//! rustls speaks the protocol, with ring as its cryptography (docs/decisions/0023). This crate owns what a server decides:
//! certificates (`material`) and their `names`, `tickets` and their keys, what all `sessions` share, what one `session` tells
//! its driver, and the `watch` over the files. It leaves out sockets, HTTP and the decision when files are read again.
//!
//! Invariants: certificates are checked before they are in force, and those in force stay until others have been checked;
//! a session holds no plain bytes between two calls, and at most what [`Session::send`] was given as records.
#![forbid(unsafe_code)]

mod material;
mod names;
mod session;
mod sessions;
mod tickets;
mod watch;

pub use material::{Files, Material, TlsError};
pub use session::{Event, Session, is_a_request};
pub use sessions::Sessions;
pub use watch::Watch;
