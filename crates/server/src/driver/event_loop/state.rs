//! The state of every loop, in three parts, and the time of its phases.

use std::os::fd::AsFd;

use base::{Clock, Nanos, RealClock};
use connection::{Lent, SocketService};
use dispatch::Token;
use overload::law::Sessions;
use sys::thread::stop::Stop;

use super::{Arrivals, Listeners, News, Parts, Peer, Peers};
use crate::connections::accept::{Arrived, Ready};
use crate::driver::lender::Lender;
use crate::ground::counters::{Board, Counters};

/// The stages of a loop's life, drawn in the header of [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It accepts and serves.
    Serving,
    /// No more connections come into the accept queues; accepts in flight are being cancelled.
    Sealing,
    /// It serves the connections that it has.
    Draining,
}

/// The sources of connections, and the state of accepting from them.
pub struct Accepting<A = Listeners> {
    pub arrivals: A,
    /// The sources that are ready. Under edges a source stays until it has been emptied.
    pub ready: Ready,
    /// The end of a pause, in which no connections are taken.
    pub paused_until: Option<Nanos>,
}

/// The state of a loop that keeps notes of type `W` on each connection.
pub struct LoopState<S, A, W, C = RealClock> {
    /// The resources that machines borrow.
    pub lender: Lender<S, C>,
    /// The connections.
    pub peers: Peers<W>,
    /// The sources of connections.
    pub accepting: Accepting<A>,
    pub life: Life,
    pub stop: Stop,
    /// The instructions of overload control for open connections.
    pub sessions: Sessions,
    /// The turns of connections so far.
    pub turns: u64,
    /// The start of the phase under way.
    phase_from: Nanos,
    /// The connections that had closed at the end of the last work phase.
    closed_by_then: u64,
    /// The time at which a loop that was told to stop ends in any case.
    ends_at: Option<Nanos>,
    drain_timeout: Nanos,
    board: Board,
}

impl<S: SocketService, A: Arrivals, W: Default, C: Clock> LoopState<S, A, W, C> {
    pub fn new(parts: Parts<S, A>, clock: C) -> Self {
        let mut lender = Lender::new(parts.service, parts.settings, parts.log, clock, usize::MAX);
        // The first totals tell that the loop is there.
        lender.counting();
        let now = lender.now();
        LoopState {
            lender,
            peers: Peers::new(now),
            accepting: Accepting { arrivals: parts.arrivals, ready: Ready::default(), paused_until: None },
            life: Life::Serving,
            stop: parts.stop,
            sessions: Sessions::default(),
            turns: 0,
            phase_from: now,
            closed_by_then: 0,
            ends_at: None,
            drain_timeout: parts.drain_timeout,
            board: parts.board,
        }
    }

    /// Splits the state into one connection and what its machine borrows.
    pub fn connection(&mut self, token: Token) -> Option<(&mut Peer<W>, Lent<'_, S>)> {
        let peer = self.peers.get_mut(token)?;
        let lent = self.lender.lend(peer.machine.client());
        Some((peer, lent))
    }

    /// Obeys overload control before a connection's turn. If the turn brings bytes that have waited for too long in the accept
    /// queue and the socket, their requests are refused.
    pub fn before_turn(&mut self, token: Token, brings_bytes: bool) {
        let sessions = if brings_bytes { self.sessions } else { Sessions::default() };
        if let Some(peer) = self.peers.get_mut(token) {
            self.lender.obey(sessions, peer.socket.as_fd(), &mut peer.machine);
        }
    }

    /// Gives a connection a place.
    pub fn insert(&mut self, arrived: Arrived) -> Token {
        self.peers.insert(arrived, &self.lender.settings)
    }

    /// Enters what a connection waits for now.
    pub fn enter(&mut self, token: Token) {
        self.peers.enter(token);
    }

    /// Takes a connection out of the table, to be closed.
    pub fn remove(&mut self, token: Token) -> Option<Peer<W>> {
        let peer = self.peers.remove(token)?;
        self.lender.counts.closed += 1;
        Some(peer)
    }

    /// Begins a turn, when a wait has ended.
    pub fn begin_turn(&mut self) {
        self.lender.begin_turn();
        self.phase_from = self.lender.now();
    }

    /// Tells overload control that a turn has ended.
    pub fn end_turn(&mut self) {
        let took = self.turn_so_far();
        self.accepting.arrivals.control().into_iter().for_each(|control| control.turned(took));
    }

    /// Returns the time from the beginning of the turn to the last lap.
    fn turn_so_far(&self) -> Nanos {
        self.phase_from.saturating_sub(self.lender.now())
    }

    /// Returns the time since the last lap of this turn.
    pub fn lap(&mut self) -> Nanos {
        let now = self.lender.clock.now();
        now.saturating_sub(std::mem::replace(&mut self.phase_from, now))
    }

    /// Returns the number of connections that have closed since the last call.
    pub fn newly_closed(&mut self) -> u64 {
        let closed = self.lender.counts.closed;
        closed - std::mem::replace(&mut self.closed_by_then, closed)
    }

    /// Returns the time until the loop has something to do although no event comes; `None` without an end. Tells the
    /// sources of connections how the loop is doing.
    pub fn time_left(&mut self) -> Option<Nanos> {
        let now = self.lender.now();
        let news = News {
            replies: self.lender.http.responses(),
            closed: self.lender.counts.closed,
            idle_from: self.peers.idle_from(),
            turn: self.turn_so_far(),
        };
        let heard = self.accepting.arrivals.take_news(news, now);
        let service = self.lender.service.due_in().map(|left| now.saturating_add(left));
        let publish = self.lender.publish_due();
        let accepting = self.accepting.paused_until;
        [self.peers.next_deadline(), accepting, publish, self.ends_at, heard, service]
            .into_iter()
            .flatten()
            .min()
            .map(|next| next.saturating_sub(now))
    }

    /// Ends a pause whose time is over. Returns true if it has just ended.
    pub fn resume_accepting(&mut self) -> bool {
        let is_over = self.accepting.paused_until.is_some_and(|until| until <= self.lender.now());
        if is_over {
            self.accepting.paused_until = None;
            // The acceptor may hold a connection, which no event reports.
            self.accepting.ready.report_all(self.accepting.arrivals.sources().len());
        }
        is_over
    }

    /// Lets no more connections into the accept queues.
    pub fn seal(&mut self) {
        self.life = Life::Sealing;
        self.ends_at = Some(self.lender.now().saturating_add(self.drain_timeout));
        self.accepting.arrivals.seal();
    }

    /// Forgets the sources of connections, which are closed.
    pub fn begin_to_drain(&mut self) {
        self.life = Life::Draining;
        self.accepting.ready.clear();
        self.accepting.paused_until = None;
    }

    /// True once the loop has nothing left to do.
    pub fn has_ended(&self) -> bool {
        (self.life == Life::Draining && self.peers.is_empty())
            || self.ends_at.is_some_and(|at| self.lender.now() >= at)
    }

    /// Publishes the totals.
    pub fn publish(&mut self) {
        let (connections, queue) = (self.peers.len() as u64, self.accepting.arrivals.queue());
        self.board.publish(Counters { connections, queue, ..self.lender.publish() });
    }
}
