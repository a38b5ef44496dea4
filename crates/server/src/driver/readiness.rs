//! The readiness loop: the userver of Brecht 2004 (section 4.1), on any mechanism.
//!
//! Its phases are those of [`EventLoop`]. Connections accepted in a turn wait for the next get-events, unless
//! `read_after_accept` is set. That is the loop under [`ByPhases`]; TUX's [`UntilEmpty`] has the same phases, but accepts
//! only when nothing is pending (see `discipline`).
//!
//! The mechanism is chosen at compile time. The loop depends on one of its properties: level or edge triggering. Under
//! edges no event reports the work that a turn or an accept phase left at its limit. The loop continues that work by
//! itself.
//!
//! Invariant: a connection does a bounded amount of work a turn (bytes sent, requests answered, reads: see `transfer`).

mod discipline;
mod turn;

use std::io;
use std::os::fd::AsFd;

use base::{Key, Nanos, RealClock};
use connection::SocketService;
use connection::transfer::{Moved, end, send};
use dispatch::{Dispatcher, Event, Interest, Mechanism, Token, Trigger, Waited};

use super::event_loop::{Arrivals, EventLoop, Life, Listeners, LoopState, Parts, STOP, Tell, listener_token};
use crate::connections::accept::Arrived;
pub use discipline::{ByPhases, Discipline, UntilEmpty};

/// The token of [`SocketService::notices`].
const NOTICES: Token = Token(u32::MAX as u64 - 1);

/// The loop's notes on a connection.
#[derive(Default)]
pub(super) struct Notes {
    /// The connection is in the work-pending list.
    is_pending: bool,
    /// The connection waits for something else than its peer: the service, or the end of a pause.
    waits: bool,
    /// The connection is in [`ReadinessLoop::unfinished`].
    is_unfinished: bool,
}

/// A loop on the mechanism `M` under the discipline `D`.
pub struct ReadinessLoop<M, S: SocketService, D, A = Listeners> {
    state: LoopState<S, A, Notes>,
    dispatcher: Dispatcher<M>,
    events: Vec<Event>,
    /// The kernel has more events than the last wait reported.
    are_cut_short: bool,
    /// Connections whose turn ended early, to be continued without an event.
    unfinished: Vec<Token>,
    /// Connections whose wait for the service is over.
    arrived: Vec<Token>,
    discipline: D,
    read_after_accept: bool,
}

/// Runs a loop until it is told to stop and its connections have ended, or the drain timeout has passed. Blocks.
///
/// # Errors
/// The mechanism cannot be set up, or fails because of a bug of Inrush.
pub fn run<M: Mechanism, S: SocketService, D: Discipline, A: Arrivals>(parts: Parts<S, A>) -> io::Result<()> {
    ReadinessLoop::<M, S, D, A>::new(parts)?.run()
}

impl<M: Mechanism, S: SocketService, D: Discipline, A: Arrivals> ReadinessLoop<M, S, D, A> {
    /// True if the mechanism reports each change once.
    const EDGE: bool = matches!(M::CAPABILITIES.trigger, Trigger::Edge);

    fn new(parts: Parts<S, A>) -> io::Result<Self> {
        let mut dispatcher = Dispatcher::configured(&parts.mechanism)?;
        for (index, source) in parts.arrivals.sources().enumerate() {
            dispatcher.register_locked(source, listener_token(index), Interest::Read);
        }
        dispatcher.register(parts.stop.descriptor(), STOP, Interest::Read);
        if let Some(notices) = parts.service.notices() {
            dispatcher.register_locked(notices, NOTICES, Interest::Read);
        }
        Ok(ReadinessLoop {
            dispatcher,
            events: Vec::new(),
            are_cut_short: false,
            unfinished: Vec::new(),
            arrived: Vec::new(),
            discipline: D::default(),
            read_after_accept: parts.read_after_accept,
            state: LoopState::new(parts, RealClock::new()),
        })
    }

    fn time_to_wait(&mut self) -> Option<Nanos> {
        let left = self.state.time_left();
        let accepting = &self.state.accepting;
        let accepts_on = Self::EDGE && !accepting.ready.is_empty() && accepting.paused_until.is_none();
        let works_on = !self.unfinished.is_empty() || self.discipline.has_work();
        if accepts_on || works_on { Some(Nanos::ZERO) } else { left }
    }

    /// Keeps the events of connections for the work phase, and acts on the others.
    fn sort_events(&mut self) -> io::Result<()> {
        let accepting = &mut self.state.accepting;
        let (ready, sources) = (&mut accepting.ready, accepting.arrivals.sources().len());
        let mut is_noticed = self.state.lender.service.due_in() == Some(Nanos::ZERO);
        let mut is_woken = false;
        self.events.retain(|event| {
            let key = Key::from(event.token);
            if key.generation == 0 && (key.index as usize) < sources {
                ready.report(key.index as usize);
            }
            is_noticed |= event.token == NOTICES;
            is_woken |= event.token == STOP;
            key.generation != 0
        });
        if is_woken {
            self.state.stop.woken();
        }
        if is_noticed {
            self.state.lender.service.arrived(&mut self.arrived)?;
        }
        Ok(())
    }

    /// Takes the connections from the accept queues and closes these, then ends idle connections. Connections that the
    /// kernel has accepted are served; clients that connect later are refused.
    fn go_down(&mut self) {
        self.state.seal();
        self.take_the_last();
        self.state.accepting.arrivals.close(&mut self.dispatcher);
        self.dispatcher.deregister(self.state.stop.descriptor());
        self.state.begin_to_drain();
        // Drains after the close: answers take time, in which clients that connect would get no refusal.
        self.drain();
    }
}

impl<M: Mechanism, S: SocketService, D: Discipline, A: Arrivals> EventLoop for ReadinessLoop<M, S, D, A> {
    type Service = S;
    type Arrivals = A;
    type Own = Notes;
    type Clock = RealClock;

    fn state(&mut self) -> &mut LoopState<S, A, Notes> {
        &mut self.state
    }

    fn get_events(&mut self) -> io::Result<()> {
        self.events.clear();
        if !Self::EDGE {
            self.state.accepting.ready.clear();
        }
        let timeout = self.time_to_wait();
        self.state.end_turn();
        self.state.lender.counts.waits += 1;
        let waited = self.dispatcher.wait(&mut self.events, timeout)?;
        self.are_cut_short = waited == Waited::More;
        self.state.begin_turn();
        if !self.events.is_empty() || !self.state.accepting.ready.is_empty() || !self.unfinished.is_empty() {
            self.state.lender.counting().events += self.events.len() as u64;
        }
        self.sort_events()?;
        if self.state.life == Life::Serving && self.state.stop.asked() {
            self.go_down();
        }
        if self.state.resume_accepting() {
            self.watch_sources();
        }
        Ok(())
    }

    /// Returns true if the reports of sources may be missing.
    fn may_have_more(&self) -> bool {
        self.state.life == Life::Serving && self.are_cut_short
    }

    fn look_at_all(&mut self) {
        self.state.accepting.ready.report_all(self.state.accepting.arrivals.sources().len());
    }

    fn accepts(&mut self) -> bool {
        D::before_accepting(self)
    }

    fn watch_sources(&mut self) {
        let accepting = &self.state.accepting;
        let interest = if accepting.paused_until.is_none() { Interest::Read } else { Interest::None };
        for source in accepting.arrivals.sources() {
            self.dispatcher.modify(source, interest);
        }
    }

    fn admit(&mut self, arrived: Arrived) {
        let token = self.state.insert(arrived);
        let peer = self.state.peers.get_mut(token).expect("inserted just now");
        let interest = if Self::EDGE { Interest::Both } else { Interest::Read };
        self.dispatcher.register(peer.socket.as_fd(), token, interest);
        self.state.enter(token);
        // During a shutdown the connection gets its turn once the listeners are closed.
        if self.state.life == Life::Serving {
            D::admitted(self, token);
        }
    }

    fn work(&mut self) {
        self.resume_arrived();
        D::work(self);
    }

    fn go_on(&mut self, token: Token, has_expired: bool) {
        // Bytes that came in a pause have waited for the pace and not in a queue, and no edge reports them again.
        self.state.before_turn(token, false);
        let Some((peer, mut lent)) = self.state.connection(token) else { return };
        let moved = match has_expired {
            true => Self::move_bytes(peer, &mut lent, true),
            false => Moved::AsFarAsPossible,
        };
        self.register_or_close(token, moved);
    }

    fn receive_and_tell(&mut self, token: Token, tell: Tell<S>) {
        let Some((peer, mut lent)) = self.state.connection(token) else { return };
        let moved = Self::move_bytes(peer, &mut lent, true);
        tell(&mut peer.machine, &mut lent);
        // Under TLS a closing connection may have an alert to send.
        let moved = match moved {
            Moved::AsFarAsPossible => send(peer.socket.as_fd(), &mut peer.machine, &mut lent),
            ended => ended,
        };
        self.register_or_close(token, moved);
    }

    fn close(&mut self, token: Token) {
        let Some((peer, mut lent)) = self.state.connection(token) else { return };
        end(peer.socket.as_fd(), &mut peer.machine, &mut lent);
        if let Some(peer) = self.state.remove(token) {
            self.dispatcher.closing(peer.socket.as_fd());
        }
    }

    fn count_events(&mut self) {
        let (reconciled, counts) = (self.dispatcher.reconciled(), &mut self.state.lender.counts);
        counts.interest_applied = reconciled.applied;
        counts.interest_taken_back = reconciled.taken_back;
        counts.event_queue_overflows = self.dispatcher.counts().overflows;
    }
}
