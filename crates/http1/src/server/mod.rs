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
//! The modules: `connection` is the state machine and `awaiting` the event that bounds its wait. `inbox`
//! holds received bytes, `incoming` a request with content, `outbox` pending output. `buffers` lends memory,
//! `settings` has the limits, `counts` and `log` report the results.

mod awaiting;
mod buffers;
mod connection;
mod counts;
mod inbox;
mod incoming;
mod log;
mod outbox;
mod settings;

use std::net::IpAddr;

use base::Nanos;

use crate::date::HttpDate;
pub use crate::limits::{LEAST_PROGRESS_BYTES, Limits, MOST_FIELDS};
use crate::{Request, Response, Service};

pub use awaiting::Awaiting;
pub use buffers::Buffers;
pub use connection::{Connection, Wants};
pub use counts::Counts;
pub use log::{Entry, Log, Record, Unsent};
pub use outbox::{COPIED_BODY_BYTES, Transmit};
pub use settings::{Settings, Timeouts};

/// Answers a connection's requests, at once as a [`Service`] does, or after a wait, such as for a file that
/// must be read from a disk.
pub trait Responder {
    /// The handle of an open file, cheap to clone.
    type File: Clone;

    /// Answers one complete request, or returns `None` if the answer must wait. The connection then keeps the
    /// request, takes no other, and asks again in [`Connection::resume`].
    fn respond_or_wait(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<Self::File>>;

    /// Refuses a request before its content arrives, as [`Service::refuse_early`] does.
    fn refuse_early(&self, _request: &Request<'_>) -> Option<Response<Self::File>> {
        None
    }
}

impl<S: Service> Responder for S {
    type File = S::File;

    fn respond_or_wait(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<S::File>> {
        Some(self.respond(request, now))
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<S::File>> {
        Service::refuse_early(self, request)
    }
}

/// The state that the connections of a loop share, lent for one call.
pub struct Context<'a, S: Responder> {
    /// Answers the requests.
    pub service: &'a mut S,
    /// Limits and timeouts.
    pub settings: &'a Settings,
    /// Memory for connections that need it.
    pub buffers: &'a mut Buffers,
    /// The current second.
    pub date: &'a HttpDate,
    /// Counters of the loop's connections.
    pub counts: &'a mut Counts,
    /// The access log. A response queued without a log is not logged later, so the log is present in all
    /// calls or in none.
    pub log: Option<&'a mut dyn Log>,
    /// The client's address, if known.
    pub client: Option<IpAddr>,
    /// The loop's current time.
    pub now: Nanos,
}
