//! HTTP/1.1 (RFC 9112) as a state machine without I/O.
//!
//! [`server::Connection`] takes bytes and a time, and returns bytes to send, a file range to send, or a
//! deadline. Blocking threads, user-level threads and readiness loops drive this same machine. [`client`] is
//! the other end: it writes requests and reads responses.
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
