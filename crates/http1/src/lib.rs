//! HTTP/1.1 (RFC 9112) as a state machine without I/O.
//!
//! [`server::Connection`] takes bytes and a time, and returns bytes to send, a file range to send, or a
//! deadline. Blocking threads, user-level threads and readiness loops drive this same machine. [`client`] is
//! the other end: it writes requests and reads responses.
//!
//! ```
//! use base::{Nanos, WallTime};
//! use http_semantics::server::{Buffers, Context, Counts, Settings};
//! use http_semantics::{HttpDate, Request, Response, Service, Status};
//! use http1::server::{Connection, Transmit};
//!
//! struct NothingHere;
//!
//! impl Service for NothingHere {
//!     type File = ();
//!     fn respond(&mut self, request: &Request<'_>, _now: Nanos) -> Response<()> {
//!         Response::error(if request.path() == "/" { Status::OK } else { Status::NOT_FOUND })
//!     }
//! }
//!
//! let settings = Settings::default();
//! let mut connection = Connection::new(Nanos::ZERO, &settings);
//! let mut cx = Context {
//!     service: &mut NothingHere,
//!     settings: &settings,
//!     buffers: &mut Buffers::default(),
//!     date: &HttpDate::new(WallTime { seconds: 784_111_777 }),
//!     counts: &mut Counts::default(),
//!     log: None,
//!     client: None,
//!     now: Nanos::ZERO,
//! };
//! // What a driver has received, and what it sends then.
//! connection.receive(b"GET /a HTTP/1.1\r\nHost: example.org\r\n\r\n", &mut cx);
//! let Transmit::Bytes { bytes, .. } = connection.transmit() else { panic!("an answer is due") };
//! assert!(bytes.starts_with(b"HTTP/1.1 404 Not Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
//! ```
//!
//! Owns framing, syntax, deadlines, persistence and the order of responses. Does not know sockets, files,
//! clocks or the served content. [`http_semantics`] has the parts of messages and the contract of a service.
//!
//! The modules: `scan` finds the end of a head, `head` parses it into a request, and `head_syntax` and
//! `field_lines` check it byte by byte. `target` has request targets; `chunked` and `chunk_extensions` have
//! the chunked coding. `encode` renders the head of a response.
#![forbid(unsafe_code)]

mod chunk_extensions;
mod chunked;
pub mod client;
mod encode;
mod field_lines;
mod head;
mod head_syntax;
mod scan;
pub mod server;
mod target;
