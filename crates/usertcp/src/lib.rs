//! A TCP client in user space: many connections to one server, at a fraction of the cost of kernel sockets.
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
//! A [`Stack`] serves one thread and one server. It replaces the kernel sockets and the interest set of an
//! engine. Each thread has its own stack, with its own link and share of the source net. There is no lock,
//! and no packet for another thread. (A TUN device with several queues steers by a table of at most 4096
//! flows. With more connections, replies would come to the wrong thread.)
//!
//! The interface is one of two that a load generator's engine is generic over:
//!
//! | the engine | this crate | kernel sockets |
//! |---|---|---|
//! | begins a connection | [`Stack::connect`] | socket, connect, register |
//! | sends | [`Stack::send`] | send |
//! | learns what happened | [`Stack::next`], then [`Stack::bytes`] | an event, then recv into a scratch buffer |
//! | reads slowly | [`Window::Granted`], [`Stack::grant`] | a small receive buffer, few reads |
//! | ends a connection | [`Stack::close`], [`Stack::finish`], [`Stack::abort`] | close, shutdown, close with SO_LINGER 0 |
//! | recognises an unacknowledged request | [`Stack::is_acknowledged`] | TCP_INFO |
//! | sends gathered packets, sleeps | [`Stack::flush`], [`Stack::wait`] | nothing, epoll_wait |
//!
//! Both interfaces report the application's token, and neither calls back. Received bytes are borrowed until
//! the next call for an event. An engine therefore needs no second copy of its state machine and no dynamic
//! dispatch.
//!
//! Clock and randomness are passed in; the crate has no unsafe code.
//!
//! A packet, as the stack writes and reads it:
//!
//! ```
//! use usertcp::frame::{self, Arriving, Flags, Flow, Leaving, Segment};
//! use usertcp::wrapping::Seq;
//!
//! let flow = Flow { local: "10.94.0.5:4000".parse()?, remote: "10.0.0.1:80".parse()? };
//! let syn = Segment { seq: Seq(7), flags: Flags::SYN, ..Segment::default() };
//! let mut packet = vec![0; frame::length(&flow, &syn, 0)];
//! frame::write(&mut packet, &flow, &syn, b"", Leaving::Whole);
//! let received = frame::read(&packet, Arriving::Whole).expect("checksums and lengths are right");
//! assert_eq!((received.segment.seq, received.segment.flags), (Seq(7), Flags::SYN));
//! # Ok::<_, std::net::AddrParseError>(())
//! ```
//!
//! The modules: `stack` is the application's side, `table` finds the connection of a segment, and `endpoint`
//! is one connection. `frame` reads and writes packets, `link` carries them, and `net` is the source net.
//! `ticks` has the timers, `isn` draws initial sequence numbers, `wrapping` compares numbers that wrap, and `counts`
//! holds totals and shared limits.
#![forbid(unsafe_code)]

pub mod counts;
pub mod endpoint;
pub mod frame;
mod isn;
pub mod link;
pub mod net;
mod stack;
pub mod table;
mod ticks;
pub mod wrapping;

pub use counts::Counts;
pub use endpoint::{Failure, Window};
pub use link::{Link, LinkError};
pub use net::{NotANet, SourceNet};
pub use stack::{Config, Event, Kind, PACKETS_PER_TURN, Stack};
