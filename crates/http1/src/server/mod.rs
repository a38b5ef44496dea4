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
//!         Resume              => wait for what the responder waits for, then resume()
//!         Close               => close the socket; nothing is left in here
//!     }
//!     at deadline(): expire()          when the transport fails: abort()
//! }
//! ```
//!
//! Owns framing, order, persistence, limits, deadlines and what is counted and logged about them. Knows
//! neither sockets nor clocks. The service answers; it is never shown an ambiguous request.

mod awaiting;
mod buffers;
mod connection;
mod counts;
mod inbox;
mod incoming;
mod log;
mod outbox;
mod settings;

use base::Nanos;

use crate::date::HttpDate;
use crate::{Request, Response, Service};

pub use buffers::Buffers;
pub use connection::{Connection, Wants};
pub use counts::Counts;
pub use log::{Entry, Log};
pub use outbox::{COPIED_BODY_BYTES, Transmit};
pub use settings::{Limits, MOST_FIELDS, Settings, Timeouts};

/// Who answers a connection's requests: a [`Service`], which can at once, or whoever may have to wait for
/// something first, such as a file that has to be read from a disk.
pub trait Responder {
    /// The handle of an open file, cheap to clone.
    type File: Clone;

    /// The answer to one complete request, or nothing where it has to be waited for. The connection then
    /// keeps the request, takes no other, and asks again at [`Connection::resume`].
    fn respond_or_wait(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<Self::File>>;

    /// As [`Service::refuse_early`].
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

/// What the connections of one loop share, lent for a call.
pub struct Context<'a, S: Responder> {
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
