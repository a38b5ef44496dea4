//! One connection's part of a turn: its completion, the machine's work, and the next operations.
//!
//! ```text
//!   bytes ──> machine ── Receive ──> a receive in flight
//!     ^          │ Transmit
//!     │          ├── small and plain ──> a send in flight ──────┐ completed: the rest, or what comes next
//!     └─ early ──┼── file, records ──> sent now; a wait for room ┘
//!                │ Pause
//!                └── no operation: `go_on` continues at the deadline
//! ```
//!
//! Bytes that come while output waits are kept ([`EARLY_BYTES`]) until the machine wants them.
//!
//! Invariant: a connection has at most one receive and one output operation in flight.

use std::os::fd::AsFd;

use base::{Clock, Key};
use connection::transfer::{Moved, plain_output, send, sent, shut_down};
use connection::{Lent, SocketService};
use dispatch::Token;
use http_semantics::server::Wants;
use rustix::io::Errno;
use sys::completion::{Kernel, Received};
use sys::errno::{Failure, classify};
use sys::readiness::poll::bits;

use super::{CompletionLoop, End, Flights};
use crate::driver::event_loop::{Arrivals, EventLoop, Peer};

/// The number of kept bytes at which a connection's receive is cancelled while output waits.
const EARLY_BYTES: usize = 16 * 1024;

impl<S: SocketService, A: Arrivals, K: Kernel, C: Clock> CompletionLoop<S, A, K, C> {
    /// A receive has brought bytes, the end of the stream, or an error.
    pub(super) fn received(
        &mut self,
        token: Token,
        operation: Key,
        more: bool,
        result: Result<Option<Received>, Errno>,
    ) {
        let Some(peer) = self.state.peers.get_mut(token) else {
            self.state.lender.counts.stale_events += 1;
            if let Ok(Some(received)) = result {
                self.ring.recycle(received);
            }
            return;
        };
        if !more && peer.own.receiving == Some(operation) {
            peer.own.receiving = None;
        }
        match result {
            Ok(None) => peer.own.end = End::Early,
            Ok(Some(received)) => self.take_bytes(token, received),
            Err(Errno::NOBUFS) => self.state.lender.counts.no_receive_buffer += 1,
            Err(Errno::CANCELED) => {}
            Err(errno) => match classify(&errno.into()) {
                Failure::Retry | Failure::WouldBlock | Failure::NoMemory => {
                    self.state.lender.counts.peers.no_memory += 1
                }
                _ => return self.broken(token),
            },
        }
        self.advance(token);
    }

    /// Hands received bytes to the machine, or keeps them while output waits.
    fn take_bytes(&mut self, token: Token, received: Received) {
        let bytes = self.ring.bytes(&received);
        let length = bytes.len();
        self.state.lender.scratch[..length].copy_from_slice(bytes);
        self.ring.recycle(received);
        self.state.before_turn(token, true);
        let Some((peer, mut lent)) = self.state.connection(token) else { return };
        peer.own.has_spoken = true;
        let receives = peer.own.early.is_none() && peer.machine.may_receive(lent.context.settings);
        let (mut http, scratch, counts) = lent.parts();
        if receives {
            return peer.machine.receive(&scratch[..length], &mut http, counts);
        }
        let early = peer.own.early.get_or_insert_default();
        early.extend_from_slice(&scratch[..length]);
        if early.len() >= EARLY_BYTES
            && let Some(receive) = peer.own.receiving
            && !std::mem::replace(&mut peer.own.is_held, true)
        {
            self.ring.cancel(receive);
        }
    }

    /// A send has completed, or a socket has room.
    pub(super) fn output_completed(&mut self, token: Token, result: Result<usize, Errno>) {
        self.state.before_turn(token, false);
        let Some((peer, mut lent)) = self.state.connection(token) else {
            self.state.lender.counts.stale_events += 1;
            return;
        };
        peer.own.is_sending = false;
        match result {
            Ok(count) => sent(&mut peer.machine, count as u64, &mut lent),
            Err(errno) => match classify(&errno.into()) {
                Failure::Retry | Failure::WouldBlock => {}
                Failure::NoMemory => lent.counts.no_memory += 1,
                _ => return self.broken(token),
            },
        }
        self.advance(token);
    }

    /// Lets the machine work on the available bytes, and begins the operations that it wants.
    pub(super) fn advance(&mut self, token: Token) {
        loop {
            let Some((peer, mut lent)) = self.state.connection(token) else { return };
            match peer.machine.wants() {
                Wants::Close => return self.close(token),
                Wants::Resume | Wants::Pause => break,
                Wants::ShutdownThenReceive => shut_down(peer.socket.as_fd(), &mut peer.machine),
                _ if receive_early(peer, &mut lent) => {}
                Wants::Receive => break,
                Wants::Transmit if peer.own.is_sending => break,
                Wants::Transmit => {
                    if !self.transmit(token) {
                        break;
                    }
                }
            }
        }
        self.begin_waiting(token);
    }

    /// Begins to send. Returns true if all output has been sent already.
    fn transmit(&mut self, token: Token) -> bool {
        let Some((peer, mut lent)) = self.state.connection(token) else { return false };
        if let Some(bytes) = plain_output(&mut peer.machine, &mut lent) {
            let mut memory = self.spare.pop().unwrap_or_default();
            memory.clear();
            memory.extend_from_slice(bytes);
            peer.own.is_sending = true;
            let socket = self.state.peers.get_mut(token).expect("found above").socket.as_fd();
            self.ring.send(socket, memory, token.0);
            return false;
        }
        let moved = send(peer.socket.as_fd(), &mut peer.machine, &mut lent);
        if moved == Moved::AsFarAsPossible && peer.machine.wants() != Wants::Transmit {
            return true;
        }
        peer.own.is_sending = true;
        self.state.lender.counts.limit_turn += u64::from(moved == Moved::TurnOver);
        self.state.lender.counts.peers.no_memory += u64::from(moved == Moved::NoMemory);
        if moved == Moved::Broken {
            self.broken(token);
            return false;
        }
        let socket = self.state.peers.get_mut(token).expect("found above").socket.as_fd();
        self.ring.poll(socket, bits::OUT, token.0);
        false
    }

    /// Begins a receive, and enters the connection among the idle ones and under its deadline.
    fn begin_waiting(&mut self, token: Token) {
        let Some(peer) = self.state.peers.get_mut(token) else { return };
        if peer.own.receiving.is_none()
            && peer.own.end == End::NotYet
            && peer.machine.may_receive(&self.state.lender.settings)
        {
            peer.own.is_held = false;
            // The first receive brings bytes only once, so that a connection with one request has none in flight at its
            // end.
            peer.own.receiving = Some(self.ring.receive(peer.socket.as_fd(), peer.own.has_spoken, token.0));
        }
        self.state.enter(token);
    }
}

/// Hands the machine the bytes that came while output waited, if it can receive now. Returns true if there were any.
fn receive_early<S: SocketService>(peer: &mut Peer<Flights>, lent: &mut Lent<'_, S>) -> bool {
    if !peer.machine.may_receive(lent.context.settings) {
        return false;
    }
    let early = peer.own.early.take();
    let (mut http, _, counts) = lent.parts();
    if let Some(early) = early {
        peer.machine.receive(&early, &mut http, counts);
        return true;
    }
    let has_come = peer.own.end == End::Early;
    if has_come {
        peer.own.end = End::Told;
        peer.machine.receive_end(&mut http, counts);
    }
    has_come
}
