//! HTTP/1.1 (RFC 9110, RFC 9112) as a machine without I/O.
//!
//! [`server::Connection`] takes bytes and a time, and gives bytes to send, a file range to send, or a
//! deadline. Blocking threads, user-level threads and readiness loops drive this same machine. [`client`] is the other end: requests to write and a reader of responses.
//!
//! Owns framing, limits, deadlines, persistence and the order of responses. Does not know sockets,
//! files, clocks or what is served: a [`Service`] answers requests, the file handle is a type parameter.
//!
//! The modules: `scan` finds the end of a head, `head` parses it into a `request`, and `head_syntax` and `field_lines`
//! check it byte by byte. `target` has request targets, `chunked` and `chunk_extensions` the chunked coding.
//! `response` is a service's answer, `encode` renders it, `date` and `status` are two of its fields.
#![forbid(unsafe_code)]

mod chunk_extensions;
mod chunked;
pub mod client;
mod date;
mod encode;
mod field_lines;
mod head;
mod head_syntax;
mod request;
mod response;
mod scan;
pub mod server;
mod status;
mod target;

pub use date::HttpDate;
pub use httparse::Header;
pub use request::{Method, Request, Version};
pub use response::{Body, FileRange, Part, Response};
pub use status::Status;

/// Answers requests: a site, an admin interface, a test.
pub trait Service {
    /// The handle of an open file, cheap to clone (an `Arc` of a descriptor).
    type File: Clone;

    /// The answer to one complete request. Must not block for longer than the server may stand still.
    /// `now` is the loop's current time.
    fn respond(&mut self, request: &Request<'_>, now: base::Nanos) -> Response<Self::File>;

    /// The answer to a request with content that is refused whatever the content is; asked before the content is
    /// read, which is then dropped unseen. `None` reads the content and asks [`Service::respond`]. Never blocks.
    fn refuse_early(&self, _request: &Request<'_>) -> Option<Response<Self::File>> {
        None
    }
}
