//! The readiness loop: the userver of Brecht 2004 (section 3.1), on any mechanism.
//!
//! ```text
//!   loop:  get_events ─> accept ─> work ─> expire
//!             ^   (up to the     (the descriptors   |
//!             |   accept-limit)  that *this* wait    |
//!             |                  reported)           |
//!             └──────────────────────────────────────┘
//! ```
//!
//! Connections accepted in a turn wait for the next get-events, unless `read_after_accept` is set. That is
//! the loop under [`ByPhases`]; TUX's [`UntilEmpty`] has the same phases, but accepts only when nothing is
//! pending (see `discipline`). The mechanism is chosen at compile time; that it reports edges is the one thing the loop has to know,
//! because then what ended before the socket was drained - a connection's turn at its allowance, an accept
//! phase at its limit - must be continued without another event.
//!
//! Invariants: time is read once per phase; a connection does a bounded amount of work a turn (bytes sent,
//! requests answered, reads: see `transfer`); nothing is allocated for a connection that is idle but its place
//! in the table.

mod arrivals;
mod discipline;
mod peer;
mod turn;

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::{Clock, Key, Limit, Nanos, RealClock, Slab};
use dispatch::{Dispatcher, Event, Interest, Mechanism, Timers, Token, Trigger};
use http1::server::{Buffers, Responder};
use http1::{FileRange, HttpDate};

use super::Stop;
use super::machine::Machine;
use crate::accept::{Accepted, Arrived, Look, PhaseEnd, RECLAIM_PAUSE, Ready, Short};
use crate::access_log::LoopLog;
use crate::counters::{Board, Counters, LoopCounts, PUBLISH_EVERY};
use crate::idle::IdleList;
use crate::overload_control::AcceptControl;
use crate::settings::LiveSettings;
pub use arrivals::{Arrivals, Listeners, News};
pub use discipline::{ByPhases, Discipline, UntilEmpty};
use peer::Peer;

/// The largest read, and what a slow client can make us read ahead.
pub(super) const RECEIVE_BYTES: usize = 64 * 1024;
/// The length of a timer slot: how late a time-out may come.
pub(super) const TIMER_SLOT: Nanos = Nanos::from_millis(16);
/// How old the `Date` field may be.
pub(super) const DATE_EVERY: Nanos = Nanos::from_millis(100);
/// Not a connection's token: connections have odd generations.
pub(super) const STOP: Token = Token(u32::MAX as u64);

/// The token of [`SocketService::notices`].
const NOTICES: Token = Token(u32::MAX as u64 - 1);

/// Answers with files that can be sent, and counts.
///
/// What comes after [`SocketService::counts`] is for a service that has to wait for something, such as a file that
/// is read from a disk by somebody else. For others it costs nothing. Only the readiness loop asks for it, and
/// [`SocketService::sendable`] whoever sends.
pub trait SocketService: Responder<File = Arc<OwnedFd>> {
    /// Its totals, by name.
    fn counts(&self) -> Vec<(&'static str, u64)>;

    /// The time since the peer of a connection was last answered without this loop; `None` where it never was.
    fn idle_for(&self, _socket: BorrowedFd<'_>) -> Option<Nanos> {
        None
    }

    /// How many bytes at the beginning of a range, `most` at most, can be sent without waiting for a disk; none
    /// where that has to be waited for.
    fn sendable(&mut self, _range: &FileRange<Arc<OwnedFd>>, most: u64) -> u64 {
        most
    }

    /// The turn of a connection is over: it waits for whatever was not there in this turn. Says whether that
    /// is what it is to send next, so that there is no point in waiting for room in its socket.
    fn waits(&mut self, _token: Token) -> bool {
        false
    }

    /// Readable when [`SocketService::arrived`] has something to tell.
    fn notices(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// How long until [`SocketService::arrived`] is to be called although nothing is readable.
    fn due_in(&self) -> Option<Nanos> {
        None
    }

    /// Adds the connections for which something has come that they waited for. Never blocks.
    ///
    /// # Errors
    /// A mistake of ours, which ends the loop.
    fn arrived(&mut self, _tokens: &mut Vec<Token>) -> io::Result<()> {
        Ok(())
    }
}

/// What a loop is made of.
pub struct Parts<S, A = Listeners> {
    /// Where connections come from.
    pub arrivals: A,
    /// Who answers.
    pub service: S,
    /// Limits and time-outs of the protocol.
    pub settings: LiveSettings,
    /// Read as soon as a connection is accepted.
    pub read_after_accept: bool,
    /// The access log, if it is kept.
    pub log: Option<LoopLog>,
    /// Where counters go.
    pub board: Board,
    /// Settings of the event mechanism.
    pub mechanism: dispatch::Settings,
    /// How the loop is told to end.
    pub stop: Stop,
    /// How long it may take to end.
    pub drain_timeout: Nanos,
}

impl<S, A> Parts<S, A> {
    /// The same with another service, made of this one.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn serving<T>(self, make: impl FnOnce(S) -> io::Result<T>) -> io::Result<Parts<T, A>> {
        Ok(Parts {
            arrivals: self.arrivals,
            service: make(self.service)?,
            settings: self.settings,
            read_after_accept: self.read_after_accept,
            log: self.log,
            board: self.board,
            mechanism: self.mechanism,
            stop: self.stop,
            drain_timeout: self.drain_timeout,
        })
    }
}

/// The state of a loop on the mechanism `M` under the discipline `D`.
pub struct ReadinessLoop<M, S: SocketService, D, A = Listeners> {
    parts: Parts<S, A>,
    dispatcher: Dispatcher<M>,
    clock: RealClock,
    now: Nanos,
    events: Vec<Event>,
    peers: Slab<Peer>,
    idle: IdleList,
    timers: Timers,
    due: Vec<Token>,
    /// Connections whose turn ended early, to be continued without an event.
    unfinished: Vec<Token>,
    /// Connections for which something has come that they waited for.
    arrived: Vec<Token>,
    /// The work-pending list, its head at the end; used under [`UntilEmpty`] alone.
    pending: Vec<Token>,
    /// Nothing was pending before the last get-events.
    emptied: bool,
    scratch: Box<[u8]>,
    buffers: Buffers,
    date: HttpDate,
    dated: Nanos,
    counts: LoopCounts,
    http: http1::server::Counts,
    http2: http2::Counts,
    published: Nanos,
    unpublished: bool,
    /// While paused, no connections are taken.
    paused_until: Option<Nanos>,
    /// Which sources of connections are ready in this turn. Under edges one stays until it has been emptied.
    ready: Ready,
    /// When a loop that was told to stop ends in any case.
    drain_until: Option<Nanos>,
    /// The turns of connections so far.
    turns: u64,
    /// When the phase under way began, for overload control.
    phase_from: Nanos,
    discipline: PhantomData<D>,
}

/// Runs a loop until it is told to stop and its connections have ended, or the drain time-out has.
/// Blocks.
///
/// # Errors
/// The mechanism cannot be set up, or fails in a way that is our mistake.
pub fn run<M: Mechanism, S: SocketService, D: Discipline, A: Arrivals>(parts: Parts<S, A>) -> io::Result<()> {
    let mut this = ReadinessLoop::<M, S, D, A>::new(parts)?;
    while !this.ended() {
        this.get_events()?;
        this.accept();
        this.give_way();
        this.work_phase();
        this.expire();
    }
    this.finish();
    Ok(())
}

impl<M: Mechanism, S: SocketService, D: Discipline, A: Arrivals> ReadinessLoop<M, S, D, A> {
    /// Whether the mechanism reports each change once.
    const EDGE: bool = matches!(M::CAPABILITIES.trigger, Trigger::Edge);

    fn new(parts: Parts<S, A>) -> io::Result<Self> {
        let clock = RealClock::new();
        let now = clock.now();
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
            clock,
            now,
            events: Vec::new(),
            peers: Slab::new(),
            idle: IdleList::default(),
            timers: Timers::new(TIMER_SLOT, now),
            due: Vec::new(),
            unfinished: Vec::new(),
            arrived: Vec::new(),
            pending: Vec::new(),
            emptied: true,
            scratch: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            buffers: Buffers::default(),
            date: HttpDate::new(clock.wall()),
            dated: now,
            counts: LoopCounts::default(),
            http: http1::server::Counts::default(),
            http2: http2::Counts::default(),
            published: Nanos::ZERO,
            unpublished: true,
            paused_until: None,
            ready: Ready::default(),
            drain_until: None,
            turns: 0,
            phase_from: now,
            discipline: PhantomData,
            parts,
        })
    }

    /// The first phase: waits, and sorts listeners from connections.
    fn get_events(&mut self) -> io::Result<()> {
        self.events.clear();
        if !Self::EDGE {
            self.ready.clear();
        }
        let timeout = self.time_to_wait();
        self.emptied = self.pending.is_empty();
        self.counts.waits += 1;
        self.dispatcher.wait(&mut self.events, timeout)?;
        self.now = self.clock.now();
        self.phase_from = self.now;
        self.parts.settings.refresh();
        self.counts.events += self.events.len() as u64;
        self.unpublished |= !self.events.is_empty() || !self.ready.is_empty() || !self.unfinished.is_empty();
        if self.now - self.dated >= DATE_EVERY {
            self.tell_time();
        }
        let (ready, sources) = (&mut self.ready, self.parts.arrivals.sources().len());
        let mut noticed = self.parts.service.due_in() == Some(Nanos::ZERO);
        let mut woken = false;
        self.events.retain(|event| {
            let key = Key::from(event.token);
            if key.generation == 0 && (key.index as usize) < sources {
                ready.report(key.index as usize);
            }
            noticed |= event.token == NOTICES;
            woken |= event.token == STOP;
            key.generation != 0
        });
        if woken {
            self.parts.stop.woken();
        }
        if noticed {
            self.parts.service.arrived(&mut self.arrived)?;
        }
        if self.drain_until.is_none() && self.parts.stop.asked() {
            self.begin_to_drain();
        }
        if self.paused_until.is_some_and(|until| until <= self.now) {
            self.paused_until = None;
            self.watch_sources();
            // A connection may be in the acceptor's hand, which no event tells of.
            self.ready.report_all(sources);
        }
        if D::UNTIL_EMPTY {
            self.pend_reported();
        }
        Ok(())
    }

    fn time_to_wait(&mut self) -> Option<Nanos> {
        let news = News {
            replies: self.http.responses(),
            closed: self.counts.closed,
            idle_from: self.idle.idle_from(),
        };
        let heard = self.parts.arrivals.hear(news, self.now);
        if !self.unfinished.is_empty()
            || !self.pending.is_empty()
            || (!self.ready.is_empty() && Self::EDGE && self.accepting())
        {
            return Some(Nanos::ZERO);
        }
        let publish = self.unpublished.then(|| self.published + PUBLISH_EVERY);
        let service = self.parts.service.due_in().map(|left| self.now.saturating_add(left));
        [self.timers.next(), self.paused_until, publish, self.drain_until, heard, service]
            .into_iter()
            .flatten()
            .min()
            .map(|next| next.saturating_sub(self.now))
    }

    fn tell_time(&mut self) {
        let wall = self.clock.wall();
        self.date = HttpDate::new(wall);
        self.dated = self.now;
        if let Some(log) = &mut self.parts.log {
            log.wall = wall;
        }
    }

    /// The second phase: takes connections from the queues, at most accept-limit in all.
    fn accept(&mut self) {
        self.parts.arrivals.tick(self.now);
        if !self.accepting() {
            return;
        }
        if self.ready.is_empty() {
            self.parts.arrivals.control().into_iter().for_each(AcceptControl::found_empty);
            return;
        }
        if D::UNTIL_EMPTY && !self.emptied {
            return;
        }
        self.accept_phase(self.parts.arrivals.limit());
    }

    fn accept_phase(&mut self, limit: Limit) -> PhaseEnd {
        self.lap();
        let mut ready = std::mem::take(&mut self.ready);
        let phase = ready.phase(limit, |index| self.look(index));
        self.ready = ready;
        let took = self.lap();
        if let Some(control) = self.parts.arrivals.control() {
            control.accepted(phase.taken, phase.end);
            control.accepting_took(phase.taken, took);
        }
        self.parts.arrivals.count(&phase, &mut self.counts);
        // The end of a pause begins a phase too, without an event.
        self.unpublished = true;
        if let PhaseEnd::Pause(until) = phase.end {
            self.paused_until = Some(until);
            self.watch_sources();
        }
        phase.end
    }

    /// Takes one connection. Where there is no room for it, the longest-idle connection is closed, or else the new one
    /// turned away.
    fn look(&mut self, index: usize) -> Look {
        loop {
            match self.parts.arrivals.accept(index, self.now, &mut self.counts) {
                Accepted::Connection(arrived) => {
                    self.admit(arrived);
                    return Look::Taken;
                }
                Accepted::Empty => return Look::Empty,
                Accepted::Dead => return Look::Dead,
                Accepted::Pause(until) => return Look::Stop(PhaseEnd::Pause(until)),
                Accepted::NoRoom(short) => {
                    if let Some(look) = self.make_room(index, short) {
                        return look;
                    }
                }
            }
        }
    }

    /// Closes the longest-idle connection, here or in another loop, or turns the new one away. Gives nothing if there
    /// is room now.
    fn make_room(&mut self, index: usize, short: Short) -> Option<Look> {
        let idle_from = self.idle.idle_from().min(self.now);
        if self.drain_until.is_none() && self.parts.arrivals.reclaim_elsewhere(idle_from) {
            return Some(Look::Stop(PhaseEnd::Pause(self.now + RECLAIM_PAUSE)));
        }
        if self.reclaim() {
            return None;
        }
        Some(self.parts.arrivals.turn_away(index, short, self.now, &mut self.counts))
    }

    /// Closes as many idle connections as others have asked this loop for.
    fn give_way(&mut self) {
        for _ in 0..self.parts.arrivals.asked() {
            self.reclaim();
            self.parts.arrivals.answered();
        }
    }

    /// Whether no pause keeps it from accepting.
    fn accepting(&self) -> bool {
        self.paused_until.is_none()
    }

    fn admit(&mut self, arrived: Arrived) {
        let key = self.peers.insert(Peer::new(arrived, &self.parts.settings));
        let token = Token::from(key);
        let peer = self.peers.get_mut(key).expect("inserted just now");
        let interest = if Self::EDGE { Interest::Both } else { Interest::Read };
        self.dispatcher.register(peer.socket.as_fd(), token, interest);
        peer.comes_up = self.timers.schedule(token, peer.machine.deadline());
        self.idle.enter(key, peer.machine.idle_from(), self.now);
        if self.drain_until.is_some() {
            // Its turn comes once the listeners are closed.
        } else if D::UNTIL_EMPTY {
            self.pend(token);
        } else if self.parts.read_after_accept {
            self.turn(token, true);
        }
    }

    /// Sets the interest in every source of connections to what the pause allows.
    fn watch_sources(&mut self) {
        let interest = if self.accepting() { Interest::Read } else { Interest::None };
        for source in self.parts.arrivals.sources() {
            self.dispatcher.modify(source, interest);
        }
    }

    /// The time since the last lap of this turn; 0 where nobody controls the accept queue.
    fn lap(&mut self) -> Nanos {
        if self.parts.arrivals.control().is_none() {
            return Nanos::ZERO;
        }
        let now = self.clock.now();
        now.saturating_sub(std::mem::replace(&mut self.phase_from, now))
    }

    /// The third phase, measured.
    fn work_phase(&mut self) {
        let (turns, closed) = (self.turns, self.counts.closed);
        self.work();
        let took = self.lap();
        let (turns, closed) = (self.turns - turns, self.counts.closed - closed);
        if let Some(control) = self.parts.arrivals.control() {
            control.worked(turns, closed, took);
            control.turned(self.phase_from.saturating_sub(self.now));
        }
    }

    /// Works on the connections that this get-events reported, and on those whose
    /// last turn ended early; or on what is pending, as the discipline has it.
    fn work(&mut self) {
        self.resume_arrived();
        if D::UNTIL_EMPTY {
            return self.work_on_pending();
        }
        for token in self.take_unfinished() {
            self.turn(token, true);
        }
        for index in 0..self.events.len() {
            let event = self.events[index];
            if event.failed && self.waits_in_vain(event.token) {
                continue;
            }
            self.turn(event.token, event.readable);
        }
    }

    /// The last phase: deadlines, and counters that have become old.
    fn expire(&mut self) {
        self.timers.expire(self.now, &mut self.due);
        self.unpublished |= !self.due.is_empty();
        while let Some(token) = self.due.pop() {
            self.deadline(token);
        }
        if self.unpublished && self.now - self.published >= PUBLISH_EVERY {
            self.publish();
        }
    }

    fn publish(&mut self) {
        if let Some(log) = &mut self.parts.log {
            log.flush();
        }
        let reconciled = self.dispatcher.reconciled();
        self.counts.interest_applied = reconciled.applied;
        self.counts.interest_taken_back = reconciled.taken_back;
        self.counts.event_queue_overflows = self.dispatcher.statistics().overflows;
        self.parts.board.publish(Counters {
            loops: self.counts.clone(),
            http: self.http.clone(),
            http2: self.http2.clone(),
            service: self.parts.service.counts(),
            connections: self.peers.len() as u64,
            queue: self.parts.arrivals.queue(),
            ..Counters::default()
        });
        self.published = self.now;
        self.unpublished = false;
    }

    /// Takes the connections from the accept queues and closes these, then ends idle connections. Connections that the
    /// kernel has accepted are served; clients that connect later are refused.
    fn begin_to_drain(&mut self) {
        self.drain_until = Some(self.now.saturating_add(self.parts.drain_timeout));
        self.parts.arrivals.seal();
        self.ready.report_all(self.parts.arrivals.sources().len());
        // Dead connections end a phase before the queue is empty.
        while self.accept_phase(Limit::Infinite) == PhaseEnd::AtLimit {}
        self.counts.cut_off_at_shutdown += u64::from(self.parts.arrivals.queue().depth);
        self.parts.arrivals.close(&mut self.dispatcher);
        self.dispatcher.deregister(self.parts.stop.descriptor());
        self.ready.clear();
        self.paused_until = None;
        // After the close: answers take time, in which clients that connect would get no refusal.
        for key in self.peers.keys().collect::<Vec<_>>() {
            self.end_one(Token::from(key), Machine::drain);
        }
    }

    fn ended(&self) -> bool {
        self.drain_until.is_some_and(|until| self.peers.is_empty() || self.now >= until)
    }

    /// Cuts off whoever has not finished in time, and leaves the last counters.
    fn finish(&mut self) {
        for key in self.peers.keys().collect::<Vec<_>>() {
            self.counts.cut_off_at_shutdown += 1;
            self.close(Token::from(key));
        }
        self.publish();
    }
}

/// The token of a listener, or another source of connections: generation 0, which no connection has.
pub fn listener_token(index: usize) -> Token {
    Token::from(Key { index: index as u32, generation: 0 })
}
