//! The client's TCP as the engines see it: connections to one target, and their events.
//!
//! ```text
//!   engine, holders ── wire (TLS or not) ── Transport ┬─ KernelSockets: sockets, two interest sets
//!                                                     └─ UserTcp: usertcp's stack over a link
//! ```
//!
//! Engines are generic over the transport, so both transports run the same S-client, closed clients and
//! populations. A turn of an engine's loop is: begin connections, [`poll_connects`](Transport::poll_connects), handle
//! events, [`wait`](Transport::wait), handle events.
//!
//! An event names a connection by its key in the owner's slab. The owner holds a [`Transport::Socket`] for it
//! and returns that with [`close`](Transport::close). Events of past keys find nothing in the slab.
//!
//! Received bytes are borrowed from the caller's scratch buffer or from their packet. Over [`UserTcp`] the
//! owner must take them while it handles their event, unless its clients read slowly. Over kernel sockets
//! they stay in the kernel.
//!
//! The modules: `kernel` and `user` are the transports, `links` opens the links of TCP in user space,
//! `sources` the kernel's sockets.

mod kernel;
mod links;
pub(crate) mod sources;
mod user;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use base::{Key, Nanos};
use dispatch::Interest;

pub(crate) use kernel::KernelSockets;
pub(crate) use links::{AnyLink, Links};
pub(crate) use user::UserTcp;

/// An event of a connection, or of the other half of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An event of the set of connecting sockets; to be ignored for a connection that is established.
    Connect(Key),
    /// The connection is established, has bytes or room to send, has ended or has failed.
    Ready(Key),
    /// The descriptor that [`Transport::watch_half`] names is ready.
    OtherHalf,
}

/// Connections to one target. Only [`wait`](Self::wait) blocks.
pub(crate) trait Transport {
    /// A connection, or an attempt at one.
    type Socket;

    /// Begins a connect; its events will carry `key`.
    ///
    /// # Errors
    /// A shortage of descriptors, memory or ports; a refusal known at once.
    fn connect(&mut self, key: Key) -> io::Result<Self::Socket>;

    /// Abandons a pending connect without a segment, and begins another in its place.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    fn connect_again(&mut self, socket: &mut Self::Socket, key: Key) -> io::Result<()>;

    /// Returns an error unless the connection is established. From here on small segments are sent without
    /// delay.
    ///
    /// # Errors
    /// `WouldBlock` while the connection is connecting; the error of the connect.
    fn established(&mut self, socket: &Self::Socket) -> io::Result<()>;

    /// Sends at least one byte of `bytes` and returns the number of bytes taken.
    ///
    /// # Errors
    /// `WouldBlock` while the connection is connecting or has no room; the error of the connection.
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Received bytes; empty at the end of the server's direction. A client that reads slowly gets at most
    /// `scratch.len()` bytes.
    ///
    /// # Errors
    /// `WouldBlock` without received bytes; the error of the connection.
    fn receive<'b>(&'b mut self, socket: &Self::Socket, scratch: &'b mut [u8]) -> io::Result<&'b [u8]>;

    /// Reports from here on when an established connection has bytes to read, and, if `is_sending`, when it
    /// has room to send.
    fn watch(&mut self, socket: &Self::Socket, key: Key, is_sending: bool);

    /// Stops reporting an open connection until it is watched again; a late event is possible.
    fn unwatch(&mut self, socket: &Self::Socket);

    /// Returns true if the server has acknowledged data of this connection, or if the transport cannot know.
    fn is_acknowledged(&mut self, socket: &Self::Socket) -> bool;

    /// Closes a connection in the configured way, or abandons its connect.
    fn close(&mut self, socket: Self::Socket);

    /// Sends gathered packets and collects events of connects, without blocking. Returns true if there may be
    /// events and the caller should call it again after them.
    ///
    /// # Errors
    /// Errors that no peer can cause.
    fn poll_connects(&mut self, now: Nanos) -> io::Result<bool>;

    /// Blocks until there are events, or for `timeout`.
    ///
    /// # Errors
    /// Errors that no peer can cause.
    fn wait(&mut self, now: Nanos, timeout: Nanos) -> io::Result<()>;

    /// The next event of this turn.
    ///
    /// # Errors
    /// Errors that no peer can cause.
    fn next(&mut self, now: Nanos) -> io::Result<Option<Event>>;

    /// The next time at which the transport itself needs a turn.
    fn next_due(&self) -> Option<Nanos> {
        None
    }

    /// Packets lost so far because there was no room for them on the way to the server, as far as the transport
    /// knows.
    fn unsent_packets(&self) -> u64 {
        0
    }

    /// Completes what closed connections still exchange with the server; call it when all are closed.
    ///
    /// # Errors
    /// Errors that no peer can cause.
    fn finish(&mut self, _now: &dyn Fn() -> Nanos) -> io::Result<()> {
        Ok(())
    }

    /// The descriptor of a connection, for another process to take over; `None` for a connection without one.
    /// This method and the methods below serve the halves of a pair; only kernel sockets implement them.
    fn descriptor(_socket: &Self::Socket) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes over an established connection of another process; `None` if the transport cannot.
    fn adopt(&mut self, _descriptor: OwnedFd) -> Option<Self::Socket> {
        None
    }

    /// Forgets a connection that another process has taken over. Its descriptor is closed after the next
    /// [`poll_connects`](Self::poll_connects), because until then the set of connecting sockets would still report it.
    fn give_away(&mut self, _socket: Self::Socket) {}

    /// Reports [`Event::OtherHalf`] when this descriptor is ready.
    fn watch_half(&mut self, _half: BorrowedFd<'_>, _interest: Interest) {}

    /// Stops reporting this descriptor.
    fn unwatch_half(&mut self, _half: BorrowedFd<'_>) {}
}
