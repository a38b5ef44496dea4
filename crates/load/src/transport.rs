//! The client's TCP, as the engines see it: connections to one target, and news of them.
//!
//! ```text
//!   engine, holders ── wire (TLS or not) ── Transport ┬─ KernelSockets: sockets, two interest sets
//!                                                     └─ UserTcp: usertcp's stack over a link
//! ```
//!
//! An engine is generic over the transport, so both run the same S-client, the same closed clients and the same
//! populations. A turn of its loop is: begin connections, [`look`](Transport::look), handle events,
//! [`wait`](Transport::wait), handle events.
//!
//! A connection is reported by the key of its owner's slab. The owner holds a [`Transport::Socket`] for it and
//! gives that back with [`close`](Transport::close). Events of past keys find nothing in the slab.
//!
//! Received bytes are borrowed, from the caller's scratch buffer or from the packet they came in. Over [`UserTcp`]
//! they have to be taken while their event is handled, unless its clients read slowly; over kernel sockets they
//! stay in the kernel.

mod kernel;
mod links;
mod user;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use base::{Key, Nanos};
use dispatch::Interest;

pub(crate) use kernel::KernelSockets;
pub(crate) use links::{AnyLink, Links};
pub(crate) use user::UserTcp;

/// News of a connection, or of the other half of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// From the set of connecting sockets: no news if the connection is established.
    Connect(Key),
    /// The connection is established, has bytes or room for some, has ended or failed.
    Ready(Key),
    /// The descriptor that [`Transport::watch_half`] names is ready.
    OtherHalf,
}

/// Connections to one target. Nothing blocks but [`wait`](Self::wait).
pub(crate) trait Transport {
    /// A connection, or an attempt at one.
    type Socket;

    /// Begins a connect, whose events will have `key`.
    ///
    /// # Errors
    /// A shortage of descriptors, memory or ports; a refusal that is known at once.
    fn connect(&mut self, key: Key) -> io::Result<Self::Socket>;

    /// Abandons a pending connect without a segment, and begins another in its place.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    fn connect_again(&mut self, socket: &mut Self::Socket, key: Key) -> io::Result<()>;

    /// Returns an error unless the connection is established. Small segments are not held back from here on.
    ///
    /// # Errors
    /// `WouldBlock` while it is connecting; how the connect failed.
    fn established(&mut self, socket: &Self::Socket) -> io::Result<()>;

    /// Takes bytes to be sent, at least one, and returns how many.
    ///
    /// # Errors
    /// `WouldBlock` while it is connecting or has no room; how the connection failed.
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Received bytes; none at the end of the server's direction. For a client that reads slowly, at most as many
    /// as `scratch` holds.
    ///
    /// # Errors
    /// `WouldBlock` where there is nothing; how the connection failed.
    fn receive<'b>(&'b mut self, socket: &Self::Socket, scratch: &'b mut [u8]) -> io::Result<&'b [u8]>;

    /// Reports an established connection from here on when it can be read, and when it has room to send if
    /// `is_sending`.
    fn watch(&mut self, socket: &Self::Socket, key: Key, is_sending: bool);

    /// Need not report an open connection any more until it is watched again.
    fn unwatch(&mut self, socket: &Self::Socket);

    /// Returns true if the server has acknowledged data of this connection, or if that is not known.
    fn is_acknowledged(&mut self, socket: &Self::Socket) -> bool;

    /// Closes a connection, as the configuration says, or abandons its connect.
    fn close(&mut self, socket: Self::Socket);

    /// Sends what has gathered and collects news of connects, without waiting. Returns true if there may be
    /// events and if it is to be called again after them.
    ///
    /// # Errors
    /// None that a peer can cause.
    fn look(&mut self, now: Nanos) -> io::Result<bool>;

    /// Waits for events, or until the time is over.
    ///
    /// # Errors
    /// None that a peer can cause.
    fn wait(&mut self, now: Nanos, timeout: Nanos) -> io::Result<()>;

    /// The next event of this turn.
    ///
    /// # Errors
    /// None that a peer can cause.
    fn next(&mut self, now: Nanos) -> io::Result<Option<Event>>;

    /// The next time at which the transport itself has something to do.
    fn next_due(&self) -> Option<Nanos> {
        None
    }

    /// Ends what closed connections still exchange with the server, when all are closed.
    ///
    /// # Errors
    /// None that a peer can cause.
    fn finish(&mut self, _now: &dyn Fn() -> Nanos) -> io::Result<()> {
        Ok(())
    }

    /// The descriptor of a connection, which another process may take over; `None` where it has none. This and
    /// the methods below are for the halves of a pair, which only kernel sockets have.
    fn descriptor(_socket: &Self::Socket) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes over an established connection of another process; `None` where that is impossible.
    fn adopt(&mut self, _descriptor: OwnedFd) -> Option<Self::Socket> {
        None
    }

    /// Forgets a connection that another process has now. Its descriptor is closed after the next
    /// [`look`](Self::look): the set of connecting sockets would go on reporting it.
    fn give_away(&mut self, _socket: Self::Socket) {}

    /// Reports [`Event::OtherHalf`] when that descriptor is ready.
    fn watch_half(&mut self, _half: BorrowedFd<'_>, _interest: Interest) {}

    /// Stops reporting it.
    fn unwatch_half(&mut self, _half: BorrowedFd<'_>) {}
}
