//! One connection's turn: receive, let the machine work, send, and see what it waits for next.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use base::{Key, Nanos};
use dispatch::{Interest, Mechanism, Token, Trigger};
use http1::server::{Context, Transmit, Wants};
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use sys::errno::{Failure, classify};

use super::peer::Peer;
use super::{Discipline, ReadinessLoop, SocketService};

/// Bytes sent to one connection a turn: with more, a few large files would keep everybody waiting.
const TURN_BYTES: u64 = 512 * 1024;
/// Requests of one connection answered a turn before its answers wait for the next: a thousand pipelined ones
/// would keep everybody waiting too.
const REQUESTS_PER_TURN: u64 = 64;
/// Reads from one connection a turn, where the mechanism wants it drained.
const RECEIVES_PER_TURN: usize = 4;

/// How moving bytes ended.
enum Moved {
    /// The socket would block, or there is nothing more to move.
    AsFarAsPossible,
    /// The turn's allowance is used up.
    TurnOver,
    /// The connection is gone.
    Broken,
}

impl<M: Mechanism, S: SocketService, D: Discipline> ReadinessLoop<M, S, D> {
    /// Splits the loop into one connection and the context its machine works in.
    fn connection(&mut self, token: Token) -> Option<(&mut Peer, Context<'_, S>, &mut [u8])> {
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
        Some((peer, context, &mut self.scratch))
    }

    /// Works on a connection that may be ready.
    pub(super) fn turn(&mut self, token: Token, readable: bool) {
        let Some((peer, mut context, scratch)) = self.connection(token) else {
            self.counts.stale_events += 1;
            return;
        };
        let moved = move_bytes(peer, &mut context, scratch, readable, M::CAPABILITIES.trigger);
        self.settle(token, moved);
    }

    /// A timer entry has come up: acts if the deadline has really passed.
    pub(super) fn deadline(&mut self, token: Token) {
        // A connection that has ended leaves its entries behind; that is no stale event.
        let Some((peer, mut context, _)) = self.connection(token) else { return };
        if context.now < peer.comes_up {
            return;
        }
        peer.comes_up = Nanos::MAX;
        if context.now < peer.http.deadline() {
            return self.settle(token, Moved::AsFarAsPossible);
        }
        peer.http.expire(&mut context);
        let moved = send(peer, &mut context);
        self.settle(token, moved);
    }

    /// Tells a connection that the server is going down.
    pub(super) fn drain_one(&mut self, token: Token) {
        let Some((peer, mut context, scratch)) = self.connection(token) else { return };
        // What has arrived already is answered.
        let moved = move_bytes(peer, &mut context, scratch, true, M::CAPABILITIES.trigger);
        peer.http.drain(&mut context);
        self.settle(token, moved);
    }

    /// Registers what the machine waits for next, or closes.
    fn settle(&mut self, token: Token, moved: Moved) {
        let Some(peer) = self.peers.get_mut(Key::from(token)) else { return };
        let interest = match peer.http.wants() {
            _ if matches!(moved, Moved::Broken) => {
                self.counts.broken += 1;
                return self.close(token);
            }
            Wants::Close => return self.close(token),
            Wants::Receive => Interest::Read,
            Wants::Transmit => Interest::Write,
            Wants::ShutdownThenReceive => {
                // The peer may have gone: then the next read says so.
                let _ = rustix::net::shutdown(&peer.socket, Shutdown::Write);
                peer.http.shut_down();
                if Self::EDGE {
                    // What the peer has sent and ended in the meantime has been reported already.
                    self.unfinished.push(token);
                }
                Interest::Read
            }
        };
        if !Self::EDGE {
            self.dispatcher.modify(peer.socket.as_fd(), interest);
        }
        let deadline = peer.http.deadline();
        if deadline < peer.comes_up {
            peer.comes_up = self.timers.schedule(token, deadline);
        }
        if matches!(moved, Moved::TurnOver) {
            self.counts.limit_turn += 1;
            if Self::EDGE {
                self.unfinished.push(token);
            }
        }
    }

    /// Ends a connection and makes room for another.
    pub(super) fn close(&mut self, token: Token) {
        let Some((peer, mut context, _)) = self.connection(token) else { return };
        peer.http.abort(&mut context);
        let Some(peer) = self.peers.remove(Key::from(token)) else { return };
        self.dispatcher.closing(peer.socket.as_fd());
        self.counts.closed += 1;
        if self.full {
            self.full = false;
            self.watch_listeners();
        }
    }
}

/// Sends what waits, receives what has come, and sends the answers.
fn move_bytes<S: SocketService>(
    peer: &mut Peer,
    context: &mut Context<'_, S>,
    scratch: &mut [u8],
    readable: bool,
    trigger: Trigger,
) -> Moved {
    let mut moved = send(peer, context);
    if !readable || !matches!(moved, Moved::AsFarAsPossible) {
        return moved;
    }
    for _ in 0..RECEIVES_PER_TURN {
        if !matches!(peer.http.wants(), Wants::Receive) {
            return moved;
        }
        let received = match receive(peer.socket.as_fd(), scratch) {
            Ok(Some(0)) => {
                peer.http.receive_end(context);
                return send(peer, context);
            }
            Ok(Some(count)) => count,
            Ok(None) => return moved,
            Err(_) => return Moved::Broken,
        };
        peer.http.receive(&scratch[..received], context);
        moved = send(peer, context);
        // Under level triggering what is left will be reported again. Under edges only a read that would
        // block shows that nothing is left: the end of the stream may have come in the same event.
        if !matches!(moved, Moved::AsFarAsPossible) || trigger == Trigger::Level {
            return moved;
        }
    }
    Moved::TurnOver
}

/// `None` where it would block.
fn receive(socket: BorrowedFd<'_>, scratch: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(socket, &mut *scratch, RecvFlags::empty()) {
            Ok((_, count)) => return Ok(Some(count)),
            Err(errno) => match classify(&errno.into()) {
                Failure::Retry => {}
                // The kernel is short of memory for a moment; the data is not lost.
                Failure::WouldBlock | Failure::NoMemory => return Ok(None),
                _ => return Err(errno.into()),
            },
        }
    }
}

/// Sends until the machine has nothing more, the socket takes no more, or the turn is over.
fn send<S: SocketService>(peer: &mut Peer, context: &mut Context<'_, S>) -> Moved {
    let mut left = TURN_BYTES;
    let requests = context.counts.requests;
    loop {
        let sent = match peer.http.transmit() {
            Transmit::Nothing => return Moved::AsFarAsPossible,
            _ if left == 0 || context.counts.requests - requests >= REQUESTS_PER_TURN => {
                return Moved::TurnOver;
            }
            Transmit::Bytes { bytes, more } => {
                let more = if more { SendFlags::MORE } else { SendFlags::empty() };
                rustix::net::send(&peer.socket, bytes, SendFlags::NOSIGNAL | more)
            }
            Transmit::File { range, .. } => {
                let mut offset = range.offset;
                let count = range.length.min(left) as usize;
                match rustix::fs::sendfile(&peer.socket, &*range.file, Some(&mut offset), count) {
                    Ok(0) => {
                        peer.http.truncated(context);
                        return Moved::AsFarAsPossible;
                    }
                    result => result,
                }
            }
        };
        match sent {
            Ok(count) => {
                left = left.saturating_sub(count as u64);
                peer.http.transmitted(count as u64, context);
            }
            Err(errno) => match classify(&errno.into()) {
                Failure::Retry => {}
                Failure::WouldBlock | Failure::NoMemory => return Moved::AsFarAsPossible,
                _ => return Moved::Broken,
            },
        }
    }
}
