//! The semantics of HTTP (RFC 9110): what messages mean, whatever the version that carries them.
//!
//! A [`Service`] answers a [`Request`] with a [`Response`]. The protocol machines of `http1` and `http2` stand
//! between a service and bytes. Each machine turns the bytes of its version into requests, and responses into bytes. A
//! service need not know the version.
//!
//! ```text
//!   service: a site, the admin interface          driver: sockets, files, clock
//!       ^  Request, Response                          ^  server::{Context, Wants}
//!       └────────── protocol machine: http1, http2 ───┘
//! ```
//!
//! Owns the parts of messages, the contract of a service, and what the server's sides of all versions share: limits, timeouts,
//! counters, buffers, and the entries of the access log.
//! Leaves out framing, connections and their states, which differ in each version. Does no I/O and reads no clock.
//!
//! Invariants: no item has the framing of one version. A request's fields are borrowed from the received head. They are the
//! [`Header`]s of HTTP/1's tokenizer, so that no version copies them. A response's fields and its date are whole lines,
//! rendered once for all versions.
//!
//! The modules: `request` and `response` are the messages, `status` and `date` two of their parts. `syntax` and `target`
//! check bytes of fields and targets. `service` answers requests, and `reply` is what became of one at its client. `server`
//! has what the server's sides share.
#![forbid(unsafe_code)]

mod date;
mod reply;
mod request;
mod response;
pub mod server;
mod service;
mod status;
mod syntax;
mod target;

pub use date::HttpDate;
pub use httparse::Header;
pub use reply::Reply;
pub use request::{Method, Request, Sni, Transport, Version};
pub use response::{Body, Budget, FileRange, Multipart, Pace, Part, Response};
pub use service::{Responder, Service};
pub use status::Status;
pub use syntax::{decimal, has_token, is_text_byte, is_token_byte, number};
pub use target::{is_authority, origin_form, uri_text};
