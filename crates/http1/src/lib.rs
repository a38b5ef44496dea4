//! HTTP/1.1 (RFC 9110, RFC 9112) as a state machine without I/O.
//!
//! [`server::Connection`] takes bytes and a time, and returns bytes to send, a file range to send, or a
//! deadline. Blocking threads, user-level threads and readiness loops drive this same machine. [`client`] is
//! the other end: it writes requests and reads responses.
//!
//! Owns framing, limits, deadlines, persistence and the order of responses. Does not know sockets, files,
//! clocks or the served content: a [`Service`] answers requests, and the file handle is a type parameter.
//!
//! The modules: `scan` finds the end of a head, `head` parses it into a `request`, and `head_syntax` and
//! `field_lines` check it byte by byte, within the `limits`. `target` has request targets; `chunked` and `chunk_extensions` have
//! the chunked coding. `response` is a service's answer and its pace, and `encode` renders it; `date` and
//! `status` are two of its fields.
#![forbid(unsafe_code)]

mod chunk_extensions;
mod chunked;
pub mod client;
mod date;
mod encode;
mod field_lines;
mod head;
mod head_syntax;
mod limits;
mod request;
mod response;
mod scan;
pub mod server;
mod status;
mod target;

pub use date::HttpDate;
pub use encode::{Multipart, decimal};
pub use field_lines::{is_text_byte, is_token_byte};
pub use head::number;
pub use httparse::Header;
pub use request::{Method, Request, Sni, Transport, Version};
pub use response::{Body, Budget, FileRange, Pace, Part, Response};
pub use status::Status;
pub use target::{is_authority, origin_form};

/// Answers requests: a site, an admin interface, a test.
pub trait Service {
    /// The handle of an open file, cheap to clone (an `Arc` of a descriptor).
    type File: Clone;

    /// Answers one complete request at the loop's current time `now`. A call must not block for longer than
    /// the server may stand still.
    fn respond(&mut self, request: &Request<'_>, now: base::Nanos) -> Response<Self::File>;

    /// Refuses a request with content, before the content is read, if no content could change the refusal.
    /// The content is then dropped. `None` lets the server read the content and call [`Service::respond`].
    /// Never blocks.
    fn refuse_early(&self, _request: &Request<'_>) -> Option<Response<Self::File>> {
        None
    }
}
