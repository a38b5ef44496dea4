//! A TCP client in user space: many connections to one server, at a fraction of what kernel sockets cost.
//!
//! ```text
//!   application ──connect, send, close──> stack <──────events, bytes────── application
//!                                           │
//!                  table ── places ── endpoint (one connection's state machine, no I/O)
//!                                           │
//!                                   frame (bytes of packets)
//!                                           │
//!                                   link: TUN or AF_XDP ─────────> the server's kernel
//! ```
//!
//! A [`Stack`] is for one thread and one server, and stands where an engine would otherwise have kernel
//! sockets and an interest set. Threads have stacks of their own, with a link and a share of the source net
//! each: no lock, and no packet for another thread. (A TUN device with several queues steers by a table of
//! 4096 flows at most, so with more connections replies come to the wrong thread.)
//!
//! The interface is made to be one of two that a load generator's engine is generic over:
//!
//! | the engine's wish | this crate | kernel sockets |
//! |---|---|---|
//! | begin a connection | [`Stack::connect`] | socket, connect, register |
//! | send | [`Stack::send`] | send |
//! | learn what happened | [`Stack::next`], then [`Stack::bytes`] | an event, then recv into a scratch buffer |
//! | slow reading | [`Window::Granted`], [`Stack::grant`] | a small receive buffer, few reads |
//! | end | [`Stack::close`], [`Stack::finish`], [`Stack::abort`] | close, shutdown, close with SO_LINGER 0 |
//! | a request that nobody takes | [`Stack::is_acknowledged`] | TCP_INFO |
//! | send what has gathered, sleep | [`Stack::flush`], [`Stack::wait`] | nothing, epoll_wait |
//!
//! Both report the application's token, neither calls back, and received bytes are borrowed until the next
//! event is asked for. So an engine needs no second copy of its own state machine and no dynamic dispatch.
//!
//! Clock and randomness are handed in; the crate has no unsafe code.
#![forbid(unsafe_code)]

pub mod counts;
pub mod endpoint;
pub mod frame;
mod isn;
pub mod link;
pub mod net;
mod stack;
pub mod table;
pub mod wrapping;

pub use counts::Counts;
pub use endpoint::{Failure, Window};
pub use link::{Link, LinkError};
pub use net::{NotANet, SourceNet};
pub use stack::{Config, Event, Kind, PACKETS_PER_TURN, Stack};
