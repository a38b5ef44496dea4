//! One connection's turn: receive, let the machine work, send, and see what it waits for next.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use base::{Key, Nanos};
use dispatch::{Interest, Mechanism, Token};
use http1::server::{Connection, Context, Wants};
use rustix::net::Shutdown;

use super::peer::Peer;
use super::{Arrivals, Discipline, ReadinessLoop, SocketService};
use crate::driver::transfer::{Moved, move_bytes, send};

/// [`Connection::drain`] or [`Connection::give_way`].
type Tell<S> = fn(&mut Connection<Arc<OwnedFd>>, &mut Context<'_, S>);

impl<M: Mechanism, S: SocketService, D: Discipline, A: Arrivals> ReadinessLoop<M, S, D, A> {
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
        self.turns += 1;
        let Some((peer, mut context, scratch)) = self.connection(token) else {
            self.counts.stale_events += 1;
            return;
        };
        let moved = move_bytes(
            peer.socket.as_fd(),
            &mut peer.http,
            &mut context,
            scratch,
            readable,
            M::CAPABILITIES.trigger,
        );
        self.settle(token, moved);
    }

    /// Goes on with the connections for which something has come that they waited for.
    pub(super) fn resume_arrived(&mut self) {
        for token in std::mem::take(&mut self.arrived) {
            // One that has ended meanwhile is no longer waited for by anybody.
            let Some((peer, mut context, _)) = self.connection(token) else { continue };
            peer.http.resume(&mut context);
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
        let Some((peer, mut context, _)) = self.connection(token) else { return };
        if context.now < peer.comes_up {
            return;
        }
        peer.comes_up = Nanos::MAX;
        if peer.http.awaits_request()
            && context.now >= peer.http.deadline()
            && let Some(idle) = context.service.idle_for(peer.socket.as_fd())
        {
            peer.http.answered_elsewhere(context.now.saturating_sub(idle), context.settings);
        }
        if context.now < peer.http.deadline() {
            return self.settle(token, Moved::AsFarAsPossible);
        }
        peer.http.expire(&mut context);
        let moved = send(peer.socket.as_fd(), &mut peer.http, &mut context);
        self.settle(token, moved);
    }

    /// Tells a connection that it is to end, with what has arrived already answered.
    pub(super) fn end_one(&mut self, token: Token, tell: Tell<S>) {
        let Some((peer, mut context, scratch)) = self.connection(token) else { return };
        let moved = move_bytes(
            peer.socket.as_fd(),
            &mut peer.http,
            &mut context,
            scratch,
            true,
            M::CAPABILITIES.trigger,
        );
        tell(&mut peer.http, &mut context);
        self.settle(token, moved);
    }

    /// Registers what the machine waits for next, or closes.
    pub(super) fn settle(&mut self, token: Token, moved: Moved) {
        let nothing_to_send = self.parts.service.waits(token);
        let Some(peer) = self.peers.get_mut(Key::from(token)) else { return };
        let mut unfinished = matches!(moved, Moved::TurnOver | Moved::NoMemory);
        self.counts.limit_turn += u64::from(moved == Moved::TurnOver);
        self.counts.no_memory += u64::from(moved == Moved::NoMemory);
        let interest = match peer.http.wants() {
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
                // The peer may have gone: then the next read says so.
                let _ = rustix::net::shutdown(&peer.socket, Shutdown::Write);
                peer.http.shut_down();
                // What the peer has sent and ended in the meantime has been reported already.
                unfinished = true;
                Interest::Read
            }
        };
        peer.waits = interest == Interest::None;
        if !Self::EDGE {
            self.dispatcher.modify(peer.socket.as_fd(), interest);
        }
        match peer.http.idle_from() {
            Nanos::MAX => drop(self.idle.leave(Key::from(token))),
            idle_from => self.idle.enter(Key::from(token), idle_from, self.now),
        }
        let deadline = peer.http.deadline();
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
            self.end_one(Token::from(key), Connection::give_way);
            if self.peers.get(key).is_none() {
                self.counts.reclaimed += 1;
                return true;
            }
        }
        false
    }

    /// Ends a connection.
    pub(super) fn close(&mut self, token: Token) {
        let Some((peer, mut context, _)) = self.connection(token) else { return };
        peer.http.abort(&mut context);
        let Some(peer) = self.peers.remove(Key::from(token)) else { return };
        self.idle.leave(Key::from(token));
        self.dispatcher.closing(peer.socket.as_fd());
        self.counts.closed += 1;
    }
}
