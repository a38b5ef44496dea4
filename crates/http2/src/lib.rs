//! HTTP/2 (RFC 9113) as a state machine without I/O, with HPACK (RFC 7541) and priorities (RFC 9218).
//!
//! [`Connection`] is the server's side. It takes bytes and a time, and returns bytes to send, a part of a file to read, or
//! a deadline. It answers through the same [`Responder`](http_semantics::Responder), settings, log and counters as HTTP/1.1.
//! [`client`] is the other side: requests go out, and replies come back.
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
