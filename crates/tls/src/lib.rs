//! The server's side of TLS 1.2 and 1.3, without I/O, and the key exchange of both sides.
//!
//! ```text
//!   files ── Material ──> Sessions ──> Session     one for each connection: bytes in, bytes out
//!     |      (checked)     | |  |
//!   Watch                  | |  └─ tickets         keys that all loops and processes share and rotate
//!   (changed?)             | └─ names              the certificate that a client's SNI asks for
//!                          └─ to_bytes             what worker processes are given
//! ```
//!
//! rustls speaks the protocol, with ring as its cryptography (docs/decisions/0023). This crate owns the server's
//! decisions. `material` holds the certificates, and `staple` checks an OCSP response for one. `names` chooses a
//! certificate, for the host that the server names. `key_exchange` has the groups, and `tickets` the keys that resume
//! sessions. `sessions` is the state that all connections share, and `session` is one connection. `watch` reports
//! changed files. This crate leaves out sockets, HTTP and the decision to read files again.
//!
//! Invariants: certificates are checked before they are in force, and those in force stay until others have been
//! checked. Between two calls a session holds no plain bytes, and at most the records of one [`Session::send`].
#![forbid(unsafe_code)]

mod key_exchange;
mod material;
mod names;
mod session;
mod sessions;
mod staple;
mod tickets;
mod watch;

pub use key_exchange::provider;
pub use material::{Files, Material, TlsError};
pub use names::{Asked, HostOf};
pub use session::{Event, Session, is_a_request};
pub use sessions::Sessions;
pub use watch::Watch;
