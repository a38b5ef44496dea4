//! HTTP/2 (RFC 9113) as a state machine without I/O, with HPACK (RFC 7541) and priorities (RFC 9218).
//!
//! [`Connection`] is the server's side. It takes bytes and a time, and returns bytes to send, a part of a file to read, or
//! a deadline. It answers through the same [`Responder`](http_semantics::Responder), settings, log and counters as HTTP/1.1.
//! [`client`] is the other side: requests go out, and replies come back.
//!
//! ```
//! use base::{Nanos, WallTime};
//! use http_semantics::server::{Buffers, Counts, Settings};
//! use http_semantics::{HttpDate, Request, Response, Service, Status, Transport};
//! use http2::{Connection, PREFACE, Transmit};
//!
//! struct NothingHere;
//!
//! impl Service for NothingHere {
//!     type File = ();
//!     fn respond(&mut self, _: &Request<'_>, _now: Nanos) -> Response<()> {
//!         Response::error(Status::NOT_FOUND)
//!     }
//! }
//!
//! let settings = Settings::default();
//! let mut http = http_semantics::server::Context {
//!     service: &mut NothingHere,
//!     settings: &settings,
//!     buffers: &mut Buffers::default(),
//!     date: &HttpDate::new(WallTime { seconds: 784_111_777 }),
//!     counts: &mut Counts::default(),
//!     log: None,
//!     client: None,
//!     now: Nanos::ZERO,
//! };
//! let mut cx = http2::Context { http: &mut http, counts: &mut http2::Counts::default() };
//! let mut connection = Connection::new(Transport::default(), &mut cx);
//! connection.receive(PREFACE, &mut cx);
//! // The server's side begins with a SETTINGS frame: three bytes of length, type 4, no flags, stream 0.
//! let Transmit::Bytes(bytes) = connection.transmit() else { panic!("settings are due") };
//! assert_eq!(bytes[3..9], [4, 0, 0, 0, 0, 0]);
//! ```
//!
//! Owns framing, streams, flow control, header compression, the order of output, and limits on floods. Does not know
//! sockets, files, clocks or the served content. Does not push, and does not use the dynamic table for its own fields.
//!
//! The modules: `frame` reads and writes frames, `hpack` the header blocks. `head` turns a header list into a request,
//! `stream` is one request and its response, `priority` their order. `block` collects a header list of several frames.
//! `floods` bounds cheap frames, `hold` measures how long a window is closed, `limits` has every other limit, `counts` the counters. `connection` is the server's state
//! machine, `client` the client's.
#![forbid(unsafe_code)]

mod block;
pub mod client;
mod connection;
mod counts;
mod floods;
mod frame;
mod head;
mod hold;
mod hpack;
pub mod limits;
mod priority;
mod stream;

pub use connection::{Connection, Context, Transmit};
pub use counts::Counts;
pub use frame::PREFACE;
