//! One connection's part of a turn: a completion, the machine's work, and the operations that follow.
//!
//! ```text
//!   bytes ──> machine ── Receive ──> a receive in flight
//!     ^          │ Transmit
//!     │          ├── small and plain ──> a send in flight ──────┐ completed: the rest, or what comes next
//!     └─ early ──┴── file, records ──> sent now; a wait for room ┘
//! ```
//!
//! Bytes that come while output waits are kept ([`EARLY_BYTES`]) until the machine wants them.
//!
//! Invariant: a connection has one receive and one operation of output in flight at most.

use std::os::fd::AsFd;

use base::{Clock, Key, Nanos};
use dispatch::Token;
use http1::server::{Context, Wants};
use rustix::io::Errno;
use rustix::net::Shutdown;
use sys::completion::{Kernel, Received};
use sys::errno::{Failure, classify};
use sys::poll::bits;

use super::peer::Peer;
use super::{Arrivals, CompletionLoop, SocketService};
use crate::driver::machine::{Lent, Machine};
use crate::driver::transfer::{Moved, end, plain_output, receive, send, sent, shut_down};

/// The most bytes that a connection's receive may bring while output waits, before it is ended.
const EARLY_BYTES: usize = 16 * 1024;

/// [`Machine::drain`] or [`Machine::give_way`].
type Tell<S> = fn(&mut Machine, &mut Lent<'_, S>);

impl<S: SocketService, A: Arrivals, K: Kernel, C: Clock> CompletionLoop<S, A, K, C> {
    /// Splits the loop into one connection and the context its machine works in.
    fn connection(&mut self, token: Token) -> Option<(&mut Peer, Lent<'_, S>)> {
        let peer = self.peers.get_mut(Key::from(token))?;
        let log = self.parts.log.as_mut().map(|log| {
            log.peer = peer.address;
            log as &mut dyn http1::server::Log
        });
        let context = Context {
            service: &mut self.parts.service,
            settings: &self.parts.settings,
            buffers: &mut self.buffers,
            date: &self.date,
            counts: &mut self.http,
            log,
            now: self.now,
        };
        let http2 = &mut self.http2;
        Some((peer, Lent { context, scratch: &mut self.scratch, counts: &mut self.counts, http2 }))
    }

    /// A receive has brought bytes, the end of the stream, or an error.
    pub(super) fn received(
        &mut self,
        token: Token,
        operation: Key,
        more: bool,
        result: Result<Option<Received>, Errno>,
    ) {
        let Some(peer) = self.peers.get_mut(Key::from(token)) else {
            self.counts.stale_events += 1;
            if let Ok(Some(received)) = result {
                self.ring.recycle(received);
            }
            return;
        };
        if !more && peer.receiving == Some(operation) {
            peer.receiving = None;
        }
        match result {
            Ok(None) => peer.ended_early = true,
            Ok(Some(received)) => self.take_bytes(token, received),
            Err(Errno::NOBUFS) => self.counts.no_receive_buffer += 1,
            Err(Errno::CANCELED) => {}
            Err(errno) => match classify(&errno.into()) {
                Failure::Retry | Failure::WouldBlock | Failure::NoMemory => self.counts.no_memory += 1,
                _ => return self.broken(token),
            },
        }
        self.advance(token);
    }

    /// Hands received bytes to the machine, or keeps them while output waits.
    fn take_bytes(&mut self, token: Token, received: Received) {
        let bytes = self.ring.bytes(&received);
        let length = bytes.len();
        self.scratch[..length].copy_from_slice(bytes);
        self.ring.recycle(received);
        let Some((peer, mut lent)) = self.connection(token) else { return };
        peer.has_spoken = true;
        let receives = peer.early.is_empty() && peer.machine.may_receive(lent.context.settings);
        let (mut http, scratch, counts) = lent.parts();
        if receives {
            return peer.machine.receive(&scratch[..length], &mut http, counts);
        }
        peer.early.extend_from_slice(&scratch[..length]);
        if peer.early.len() >= EARLY_BYTES
            && let Some(receive) = peer.receiving
            && !std::mem::replace(&mut peer.is_held, true)
        {
            self.ring.cancel(receive);
        }
    }

    /// A send has completed, or a socket has room.
    pub(super) fn output_completed(&mut self, token: Token, result: Result<usize, Errno>) {
        let Some((peer, mut lent)) = self.connection(token) else {
            self.counts.stale_events += 1;
            return;
        };
        peer.sending = false;
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

    /// Has the machine work on what is there, and begins the operations that it wants.
    pub(super) fn advance(&mut self, token: Token) {
        loop {
            let Some((peer, mut lent)) = self.connection(token) else { return };
            match peer.machine.wants() {
                Wants::Close => return self.close(token),
                Wants::Resume => break,
                Wants::ShutdownThenReceive => shut_down(peer.socket.as_fd(), &mut peer.machine),
                _ if receive_early(peer, &mut lent) => {}
                Wants::Receive => break,
                Wants::Transmit if peer.sending => break,
                Wants::Transmit => {
                    if !self.transmit(token) {
                        break;
                    }
                }
            }
        }
        self.settle(token);
    }

    /// Begins to send. Returns whether everything has been sent already.
    fn transmit(&mut self, token: Token) -> bool {
        let mut memory = self.spare.pop().unwrap_or_default();
        let Some((peer, mut lent)) = self.connection(token) else { return false };
        if let Some(bytes) = plain_output(&mut peer.machine, &mut lent) {
            memory.clear();
            memory.extend_from_slice(bytes);
            peer.sending = true;
            let socket = self.peers.get(Key::from(token)).expect("found above").socket.as_fd();
            self.ring.send(socket, memory, token.0);
            return false;
        }
        let moved = send(peer.socket.as_fd(), &mut peer.machine, &mut lent);
        if moved == Moved::AsFarAsPossible && peer.machine.wants() != Wants::Transmit {
            return true;
        }
        peer.sending = true;
        self.counts.limit_turn += u64::from(moved == Moved::TurnOver);
        self.counts.no_memory += u64::from(moved == Moved::NoMemory);
        if moved == Moved::Broken {
            self.broken(token);
            return false;
        }
        let socket = self.peers.get(Key::from(token)).expect("found above").socket.as_fd();
        self.ring.poll(socket, bits::OUT, token.0);
        false
    }

    /// Begins a receive, and enters what the connection waits for.
    fn settle(&mut self, token: Token) {
        let key = Key::from(token);
        let Some(peer) = self.peers.get_mut(key) else { return };
        if peer.receiving.is_none() && !peer.ended_early && peer.machine.may_receive(&self.parts.settings) {
            peer.is_held = false;
            // The first receive is a single one, so that a connection with one request has none in flight at its end.
            peer.receiving = Some(self.ring.receive(peer.socket.as_fd(), peer.has_spoken, token.0));
        }
        match peer.machine.idle_from() {
            Nanos::MAX => drop(self.idle.leave(key)),
            idle_from => self.idle.enter(key, idle_from, self.now),
        }
        let deadline = peer.machine.deadline();
        if deadline < peer.comes_up {
            peer.comes_up = self.timers.schedule(token, deadline);
        }
    }

    /// A timer entry has come up: acts if the deadline has really passed.
    pub(super) fn deadline(&mut self, token: Token) {
        let Some((peer, mut lent)) = self.connection(token) else { return };
        if lent.context.now < peer.comes_up {
            return;
        }
        peer.comes_up = Nanos::MAX;
        if peer.machine.awaits_request()
            && lent.context.now >= peer.machine.deadline()
            && let Some(idle) = lent.context.service.idle_for(peer.socket.as_fd())
        {
            peer.machine.answered_elsewhere(lent.context.now.saturating_sub(idle), lent.context.settings);
        }
        if lent.context.now >= peer.machine.deadline() {
            peer.machine.expire(&mut lent);
        }
        self.advance(token);
    }

    /// Tells a connection that it is to end, with what has arrived already answered. Nothing of its that has completed
    /// is left in the loop, so that the next bytes are in the socket.
    pub(super) fn end_one(&mut self, token: Token, tell: Tell<S>) {
        let Some((peer, mut lent)) = self.connection(token) else { return };
        if !peer.sending && peer.machine.wants() == Wants::Receive {
            match receive(peer.socket.as_fd(), lent.scratch) {
                Ok(0) => peer.ended_early = true,
                Ok(count) => {
                    peer.has_spoken = true;
                    let (mut http, scratch, counts) = lent.parts();
                    peer.machine.receive(&scratch[..count], &mut http, counts);
                }
                Err(Moved::Broken) => return self.broken(token),
                Err(_) => {}
            }
        }
        tell(&mut peer.machine, &mut lent);
        self.advance(token);
    }

    /// Closes the connection that has been idle longest. Returns whether there is one less.
    pub(super) fn reclaim(&mut self) -> bool {
        while let Some(key) = self.idle.longest(self.now) {
            self.end_one(Token::from(key), Machine::give_way);
            if self.peers.get(key).is_none() {
                self.counts.reclaimed += 1;
                return true;
            }
        }
        false
    }

    fn broken(&mut self, token: Token) {
        self.counts.broken += 1;
        self.close(token);
    }

    /// Ends a connection, and with it the operations in flight.
    pub(super) fn close(&mut self, token: Token) {
        let Some((peer, mut lent)) = self.connection(token) else { return };
        end(peer.socket.as_fd(), &mut peer.machine, &mut lent);
        let Some(peer) = self.peers.remove(Key::from(token)) else { return };
        self.idle.leave(Key::from(token));
        if peer.receiving.is_some() || peer.sending {
            // The peer may have gone: then its end needs no telling.
            let _ = rustix::net::shutdown(&peer.socket, Shutdown::Both);
        }
        self.ring.close(peer.socket);
        self.counts.closed += 1;
    }
}

/// Hands the machine what came while output waited, if it receives now. Returns whether there was anything.
fn receive_early<S: SocketService>(peer: &mut Peer, lent: &mut Lent<'_, S>) -> bool {
    if !peer.machine.may_receive(lent.context.settings) {
        return false;
    }
    let early = std::mem::take(&mut peer.early);
    let (mut http, _, counts) = lent.parts();
    if !early.is_empty() {
        peer.machine.receive(&early, &mut http, counts);
        return true;
    }
    let ended = std::mem::take(&mut peer.ended_early);
    if ended {
        peer.machine.receive_end(&mut http, counts);
    }
    ended
}
