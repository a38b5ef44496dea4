//! One connection's turn: receives, lets the machine work, sends, and registers the next wait.

use std::os::fd::AsFd;

use connection::transfer::{Moved, move_bytes, shut_down};
use connection::{Lent, SocketService};
use dispatch::{Interest, Mechanism, Token};
use http_semantics::server::Wants;

use super::{Discipline, Notes, ReadinessLoop};
use crate::driver::event_loop::{Arrivals, EventLoop, Peer};

impl<M: Mechanism, S: SocketService, D: Discipline, A: Arrivals> ReadinessLoop<M, S, D, A> {
    /// Works on a connection that may be ready.
    pub(super) fn turn_of(&mut self, token: Token, readable: bool) {
        self.state.turns += 1;
        self.state.before_turn(token, readable);
        let Some((peer, mut lent)) = self.state.connection(token) else {
            self.state.lender.counts.stale_events += 1;
            return;
        };
        let moved = Self::move_bytes(peer, &mut lent, readable);
        self.register_or_close(token, moved);
    }

    pub(super) fn move_bytes(peer: &mut Peer<Notes>, lent: &mut Lent<'_, S>, readable: bool) -> Moved {
        move_bytes(peer.socket.as_fd(), &mut peer.machine, lent, readable, M::CAPABILITIES.trigger)
    }

    /// Continues the connections whose wait for the service is over.
    pub(super) fn resume_arrived(&mut self) {
        for token in std::mem::take(&mut self.arrived) {
            self.state.before_turn(token, false);
            // The connection may have ended before this turn.
            let Some((peer, mut lent)) = self.state.connection(token) else { continue };
            peer.machine.resume(&mut lent);
            // Under edges the mechanism has reported the bytes that came since.
            self.turn_of(token, Self::EDGE);
        }
    }

    /// Works on the connections that this get-events reported, and on those whose last turn ended early.
    pub(super) fn work_on_reported(&mut self) {
        for token in self.take_unfinished() {
            self.turn_of(token, true);
        }
        for index in 0..self.events.len() {
            let event = self.events[index];
            if !(event.failed && self.ends_in_vain(event.token)) {
                self.turn_of(event.token, event.readable);
            }
        }
    }

    /// Closes a connection that failed while it waited for the service or the time. Some mechanisms would otherwise report the failure
    /// on every wait.
    fn ends_in_vain(&mut self, token: Token) -> bool {
        let waits = self.state.peers.get_mut(token).is_some_and(|peer| peer.own.waits);
        if waits {
            self.broken(token);
        }
        waits
    }

    /// Takes the connections whose last turn ended early, each once.
    pub(super) fn take_unfinished(&mut self) -> Vec<Token> {
        let unfinished = std::mem::take(&mut self.unfinished);
        for token in &unfinished {
            if let Some(peer) = self.state.peers.get_mut(*token) {
                peer.own.is_unfinished = false;
            }
        }
        unfinished
    }

    /// Registers what the machine waits for next, or closes.
    pub(super) fn register_or_close(&mut self, token: Token, moved: Moved) {
        let nothing_to_send = self.state.lender.service.waits(token);
        let Some(peer) = self.state.peers.get_mut(token) else { return };
        let mut unfinished = matches!(moved, Moved::TurnOver | Moved::NoMemory);
        let counts = &mut self.state.lender.counts;
        counts.limit_turn += u64::from(moved == Moved::TurnOver);
        counts.peers.no_memory += u64::from(moved == Moved::NoMemory);
        let interest = match peer.machine.wants() {
            _ if matches!(moved, Moved::Broken) => return self.broken(token),
            Wants::Close => return self.close(token),
            Wants::Receive => Interest::Read,
            Wants::Transmit if nothing_to_send && !peer.machine.has_bytes() => Interest::None,
            Wants::Transmit => Interest::Write,
            Wants::Resume | Wants::Pause => Interest::None,
            Wants::ShutdownThenReceive => {
                shut_down(peer.socket.as_fd(), &mut peer.machine);
                // The peer's bytes and its end may have been reported already.
                unfinished = true;
                Interest::Read
            }
        };
        peer.own.waits = interest == Interest::None;
        if !Self::EDGE {
            self.dispatcher.modify(peer.socket.as_fd(), interest);
        }
        // Only once a round: an event in the same round gives the connection a second turn, which may end early too.
        if Self::EDGE && unfinished && !std::mem::replace(&mut peer.own.is_unfinished, true) {
            self.unfinished.push(token);
        }
        self.state.enter(token);
    }
}
