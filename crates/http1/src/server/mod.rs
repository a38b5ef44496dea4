//! The server's side of a connection.
//!
//! A driver receives into its own memory and hands the bytes to [`Connection::receive`]. It sends the bytes
//! of [`Connection::transmit`] and reports them with [`Connection::transmitted`]. Then it reads
//! [`Connection::wants`] and [`Connection::deadline`]:
//!
//! ```text
//! loop {
//!     match connection.wants() {
//!         Receive             => receive(bytes), or receive_end() at the peer's end
//!         Transmit            => send or sendfile what transmit() gives, then transmitted(count)
//!         ShutdownThenReceive => shutdown(WR), then shut_down()
//!         Resume              => wait for what the responder waits for, then resume()
//!         Pause               => send and receive nothing before deadline()
//!         Close               => close the socket; nothing is left in here
//!     }
//!     at deadline(): expire()          when the transport fails: abort()
//! }
//! ```
//!
//! Owns framing, order, persistence, limits, deadlines, their counters and their log. Knows neither sockets
//! nor clocks. The service answers; it never sees an ambiguous request.
//!
//! The modules: `connection` is the state machine. `inbox` holds received bytes, `incoming` a request with content,
//! `outbox` pending output.

mod connection;
mod inbox;
mod incoming;
mod outbox;

pub use connection::Connection;
pub use outbox::{COPIED_BODY_BYTES, Transmit};
