//! The server's side of a connection.
//!
//! A driver receives into memory of its own and hands the bytes to [`Connection::receive`]; sends what
//! [`Connection::transmit`] gives and reports with [`Connection::transmitted`]; then looks at
//! [`Connection::wants`] and [`Connection::deadline`]:
//!
//! ```text
//! loop {
//!     match connection.wants() {
//!         Receive             => receive(bytes), or receive_end() at the peer's end
//!         Transmit            => send or sendfile what transmit() gives, then transmitted(count)
//!         ShutdownThenReceive => shutdown(WR), then shut_down()
//!         Close               => close the socket; nothing is left in here
//!     }
//!     at deadline(): expire()          when the transport fails: abort()
//! }
//! ```
//!
//! Owns framing, order, persistence, limits, deadlines and what is counted and logged about them. Knows
//! neither sockets nor clocks. The service answers; it is never shown an ambiguous request.

mod buffers;
mod connection;
mod counts;
mod inbox;
mod incoming;
mod log;
mod outbox;
mod settings;

use base::Nanos;

use crate::Service;
use crate::date::HttpDate;

pub use buffers::Buffers;
pub use connection::{Connection, Wants};
pub use counts::Counts;
pub use log::{Entry, Log};
pub use outbox::{COPIED_BODY_BYTES, Transmit};
pub use settings::{Limits, MOST_FIELDS, Settings, Timeouts};

/// What the connections of one loop share, lent for a call.
pub struct Context<'a, S: Service> {
    /// Answers the requests.
    pub service: &'a mut S,
    /// Limits and time-outs.
    pub settings: &'a Settings,
    /// Memory for those that need some.
    pub buffers: &'a mut Buffers,
    /// The current second.
    pub date: &'a HttpDate,
    /// What happened.
    pub counts: &'a mut Counts,
    /// The access log. Either always or never there: a response queued without it is not logged.
    pub log: Option<&'a mut dyn Log>,
    /// The loop's current time.
    pub now: Nanos,
}
