//! One connection's turn: receive, let the machine work, send, and see what it waits for next.

use std::os::fd::AsFd;

use base::{Key, Nanos};
use dispatch::{Interest, Mechanism, Token};
use http1::server::{Context, Wants};

use super::peer::Peer;
use super::{Arrivals, Discipline, ReadinessLoop, SocketService};
use crate::driver::machine::{Lent, Machine};
use crate::driver::transfer::{Moved, end, move_bytes, send, shut_down};

/// [`Machine::drain`] or [`Machine::give_way`].
type Tell<S> = fn(&mut Machine, &mut Lent<'_, S>);

impl<M: Mechanism, S: SocketService, D: Discipline, A: Arrivals> ReadinessLoop<M, S, D, A> {
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
        Some((
            peer,
            Lent { context, scratch: &mut self.scratch, counts: &mut self.counts, http2: &mut self.http2 },
        ))
    }

    /// Works on a connection that may be ready.
    pub(super) fn turn(&mut self, token: Token, readable: bool) {
        self.turns += 1;
        let Some((peer, mut lent)) = self.connection(token) else {
            self.counts.stale_events += 1;
            return;
        };
        let moved =
            move_bytes(peer.socket.as_fd(), &mut peer.machine, &mut lent, readable, M::CAPABILITIES.trigger);
        self.settle(token, moved);
    }

    /// Goes on with the connections for which something has come that they waited for.
    pub(super) fn resume_arrived(&mut self) {
        for token in std::mem::take(&mut self.arrived) {
            // One that has ended meanwhile is no longer waited for by anybody.
            let Some((peer, mut lent)) = self.connection(token) else { continue };
            peer.machine.resume(&mut lent);
            // Under edges what came meanwhile has been reported already.
            self.turn(token, Self::EDGE);
        }
    }

    /// A connection has failed: ends it, where it waits for something else than its peer. Without interest in a
    /// descriptor some mechanisms report its failure again and again.
    pub(super) fn waits_in_vain(&mut self, token: Token) -> bool {
        let waits = self.peers.get(Key::from(token)).is_some_and(|peer| peer.waits);
        if waits {
            self.counts.broken += 1;
            self.close(token);
        }
        waits
    }

    /// The connections whose last turn ended early, each once.
    pub(super) fn take_unfinished(&mut self) -> Vec<Token> {
        let unfinished = std::mem::take(&mut self.unfinished);
        for token in &unfinished {
            if let Some(peer) = self.peers.get_mut(Key::from(*token)) {
                peer.unfinished = false;
            }
        }
        unfinished
    }

    /// A timer entry has come up: acts if the deadline has really passed.
    pub(super) fn deadline(&mut self, token: Token) {
        // A connection that has ended leaves its entries behind; that is no stale event.
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
        if lent.context.now < peer.machine.deadline() {
            return self.settle(token, Moved::AsFarAsPossible);
        }
        peer.machine.expire(&mut lent);
        let moved = send(peer.socket.as_fd(), &mut peer.machine, &mut lent);
        self.settle(token, moved);
    }

    /// Tells a connection that it is to end, with what has arrived already answered.
    pub(super) fn end_one(&mut self, token: Token, tell: Tell<S>) {
        let Some((peer, mut lent)) = self.connection(token) else { return };
        let moved =
            move_bytes(peer.socket.as_fd(), &mut peer.machine, &mut lent, true, M::CAPABILITIES.trigger);
        tell(&mut peer.machine, &mut lent);
        // Under TLS it may have something to say at its end.
        let moved = match moved {
            Moved::AsFarAsPossible => send(peer.socket.as_fd(), &mut peer.machine, &mut lent),
            ended => ended,
        };
        self.settle(token, moved);
    }

    /// Registers what the machine waits for next, or closes.
    pub(super) fn settle(&mut self, token: Token, moved: Moved) {
        let nothing_to_send = self.parts.service.waits(token);
        let Some(peer) = self.peers.get_mut(Key::from(token)) else { return };
        let mut unfinished = matches!(moved, Moved::TurnOver | Moved::NoMemory);
        self.counts.limit_turn += u64::from(moved == Moved::TurnOver);
        self.counts.no_memory += u64::from(moved == Moved::NoMemory);
        let interest = match peer.machine.wants() {
            _ if matches!(moved, Moved::Broken) => {
                self.counts.broken += 1;
                return self.close(token);
            }
            Wants::Close => return self.close(token),
            Wants::Receive => Interest::Read,
            Wants::Transmit if nothing_to_send => Interest::None,
            Wants::Transmit => Interest::Write,
            Wants::Resume => Interest::None,
            Wants::ShutdownThenReceive => {
                shut_down(peer.socket.as_fd(), &mut peer.machine);
                // What the peer has sent and ended in the meantime has been reported already.
                unfinished = true;
                Interest::Read
            }
        };
        peer.waits = interest == Interest::None;
        if !Self::EDGE {
            self.dispatcher.modify(peer.socket.as_fd(), interest);
        }
        match peer.machine.idle_from() {
            Nanos::MAX => drop(self.idle.leave(Key::from(token))),
            idle_from => self.idle.enter(Key::from(token), idle_from, self.now),
        }
        let deadline = peer.machine.deadline();
        if deadline < peer.comes_up {
            peer.comes_up = self.timers.schedule(token, deadline);
        }
        // Once: an event in the same round gives it a second turn, which may end early as well.
        if Self::EDGE && unfinished && !std::mem::replace(&mut peer.unfinished, true) {
            self.unfinished.push(token);
        }
    }

    /// Closes the connection that has been idle longest. Returns whether there is one less.
    pub(super) fn reclaim(&mut self) -> bool {
        while let Some(key) = self.idle.longest(self.now) {
            // A request that has arrived is answered, and the next longest closed.
            self.end_one(Token::from(key), Machine::give_way);
            if self.peers.get(key).is_none() {
                self.counts.reclaimed += 1;
                return true;
            }
        }
        false
    }

    /// Ends a connection.
    pub(super) fn close(&mut self, token: Token) {
        let Some((peer, mut lent)) = self.connection(token) else { return };
        end(peer.socket.as_fd(), &mut peer.machine, &mut lent);
        let Some(peer) = self.peers.remove(Key::from(token)) else { return };
        self.idle.leave(Key::from(token));
        self.dispatcher.closing(peer.socket.as_fd());
        self.counts.closed += 1;
    }
}
