//! One accepted connection: its protocols, and the bytes between them and its socket.
//!
//! ```text
//!   socket <── transfer ──> machine ──> service
//!                             │  a proxy's header, a refusal, TLS, HTTP/1.1 or HTTP/2
//!   a client's limits, live settings, whose the listeners are
//! ```
//!
//! - `machine` has the protocols in their order; [`transfer`] moves bytes between it and a socket without blocking;
//! - `socket_service` is the contract of a service whose files can be sent;
//! - [`clients`] has the limits of each client, and [`proxy_protocol`] the address of a client behind a load balancer;
//! - `settings` are the limits that may change meanwhile, `custody` decides how connections end after an upgrade, and
//!   [`refusal`] has the answers without a service;
//! - `counts` has the totals of what peers did;
//! - `simulation` has the bytes of a client, for tests.
//!
//! Owns a connection from its accept to its close. Leaves out accepting, waiting and threads: a server's drivers wait, and
//! call.
#![forbid(unsafe_code)]

pub mod clients;
mod counts;
mod custody;
mod machine;
pub mod proxy_protocol;
pub mod refusal;
mod settings;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod socket_service;
pub mod transfer;

pub use counts::PeerCounts;
pub use custody::Custody;
pub use machine::{Lent, Machine};
pub use settings::{LiveSettings, PlainAddresses};
pub use socket_service::SocketService;
