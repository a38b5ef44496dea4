//! The loop of Brecht 2004 (section 4.1), over any way of learning of events.
//!
//! ```text
//!   turn:  get_events ─> accept ─> work ─> expire
//!             ^   (up to the    (what this      |
//!             |   accept-limit)  wait reported) |
//!             └─────────────────────────────────┘
//!
//!   Serving ──stop──> Sealing ──no accept in flight──> Draining ──no connection left, or timeout──> the end
//! ```
//!
//! [`EventLoop`] is that recipe. The readiness loop and the completion loop supply the steps that depend on how the
//! kernel reports events. [`LoopState`] has three parts that own their state: [`Accepting`], [`Peers`] and the
//! [`Lender`](super::lender::Lender).
//!
//! Owns the phases, their measurement for overload control, room for newcomers, deadlines, publishing, and the end. Leaves
//! moving bytes to `transfer` and to the loops.
//!
//! Invariants: the time is read once per phase; a connection that is idle costs only its place in the table.

mod arrivals;
mod peers;
mod state;

use std::io;
use std::os::fd::AsFd;

use base::setting::Chosen;
use base::{Clock, Key, Limit, Nanos};
use connection::{Lent, LiveSettings, Machine, SocketService};
use dispatch::Token;
use sys::thread::stop::Stop;

use crate::connections::accept::{Arrived, Look, PhaseEnd, RECLAIM_PAUSE, Short};
use crate::connections::overload_control::AcceptControl;
use crate::ground::counters::Board;
use crate::observation::access_log::LoopLog;
pub use arrivals::{Arrivals, Listeners, News, count};
pub use peers::{Peer, Peers};
pub use state::{Accepting, Life, LoopState};

/// The length of a timer slot: the most by which a timeout may be late.
pub(super) const TIMER_SLOT: Nanos = Nanos::from_millis(16);
/// The most idle connections that are asked for answers without this loop before one is closed.
const MOST_LOOKS: usize = 64;
/// The token of the stop. Connections have odd generations, so it is none of theirs.
pub(super) const STOP: Token = Token(u32::MAX as u64);

/// The parts of a loop.
pub struct Parts<S, A = Listeners> {
    /// The sources of connections.
    pub arrivals: A,
    /// Answers requests.
    pub service: S,
    /// Limits and timeouts of the protocol.
    pub settings: LiveSettings,
    /// Reads from a connection as soon as it is accepted.
    pub read_after_accept: bool,
    /// The access log, if one is kept.
    pub log: Option<LoopLog>,
    /// The board that publishes the counters.
    pub board: Board,
    /// Settings of the event mechanism.
    pub mechanism: Chosen,
    /// Tells the loop to end.
    pub stop: Stop,
    /// The longest time that ending may take.
    pub drain_timeout: Nanos,
}

impl<S, A> Parts<S, A> {
    /// Returns the same parts with another service, which `make` makes from this one.
    ///
    /// # Errors
    /// The errors of `make`.
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

/// The treatment of an idle connection after [`MOST_LOOKS`] others have turned out to be in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// It is closed, because a new one needs its place.
    Close,
    /// It stays until the next turn.
    Keep,
}

/// [`Machine::drain`] or [`Machine::give_way`].
pub(super) type Tell<S> = fn(&mut Machine, &mut Lent<'_, S>);

/// The state of the loop `L`.
type StateOf<L> = LoopState<
    <L as EventLoop>::Service,
    <L as EventLoop>::Arrivals,
    <L as EventLoop>::Own,
    <L as EventLoop>::Clock,
>;

/// The steps of a loop, and the recipe that they make up.
pub(super) trait EventLoop {
    /// Answers requests.
    type Service: SocketService;
    /// The sources of connections.
    type Arrivals: Arrivals;
    /// The loop's notes on a connection.
    type Own: Default;
    /// The source of the time.
    type Clock: Clock;

    /// True if the descriptor of a closed connection comes free only at the end of the turn.
    const FREES_LATE: bool = false;

    fn state(&mut self) -> &mut StateOf<Self>;

    /// The first phase: waits, and sorts sources of connections from connections.
    fn get_events(&mut self) -> io::Result<()>;

    /// Returns true if this turn accepts. Called once a turn, before the accept phase.
    fn accepts(&mut self) -> bool;

    /// Takes one connection from a source.
    fn take_connection(&mut self, index: usize) -> Look {
        self.take(index)
    }

    /// Returns true if sources that seem empty may hold more connections.
    fn may_have_more(&self) -> bool {
        false
    }

    /// Makes the next accept phase look at every source.
    fn look_at_all(&mut self);

    /// Watches the sources of connections unless accepting pauses.
    fn watch_sources(&mut self);

    /// Begins to serve a connection.
    fn admit(&mut self, arrived: Arrived);

    /// The third phase: works on connections.
    fn work(&mut self);

    /// Continues a connection whose timer entry is due. `has_expired` is true if its deadline has passed too.
    fn go_on(&mut self, token: Token, has_expired: bool);

    /// Receives what has arrived for a connection, and tells it to end.
    fn receive_and_tell(&mut self, token: Token, tell: Tell<Self::Service>);

    /// Closes a connection.
    fn close(&mut self, token: Token);

    /// Copies the event mechanism's totals into the loop's.
    fn count_events(&mut self);

    /// Runs until the loop has been told to stop and its connections have ended, or the drain timeout has passed. Blocks.
    fn run(&mut self) -> io::Result<()> {
        while !self.state().has_ended() {
            self.turn()?;
        }
        self.finish();
        Ok(())
    }

    /// All phases, once.
    fn turn(&mut self) -> io::Result<()> {
        self.get_events()?;
        self.accept();
        self.give_way();
        self.work_phase();
        self.expire();
        Ok(())
    }

    /// The second phase: takes connections from the queues, at most accept-limit in all.
    fn accept(&mut self) {
        let (accepts, may_have_more) = (self.accepts(), self.may_have_more());
        let state = self.state();
        let (now, accepting) = (state.lender.now(), &mut state.accepting);
        accepting.arrivals.late_connections(state.lender.late_connections());
        accepting.arrivals.tick(now);
        state.sessions = accepting.arrivals.sessions();
        if accepting.paused_until.is_some() {
            return;
        }
        if !accepting.ready.is_empty() {
            let limit = accepting.arrivals.limit();
            if accepts {
                self.accept_phase(limit);
            }
        } else if !may_have_more {
            accepting.arrivals.control().into_iter().for_each(AcceptControl::found_empty);
        }
    }

    fn accept_phase(&mut self, limit: Limit) -> PhaseEnd {
        self.state().lap();
        let mut ready = std::mem::take(&mut self.state().accepting.ready);
        let mut phase = ready.phase(limit, |index| self.take_connection(index));
        self.state().accepting.ready = ready;
        if phase.end == PhaseEnd::Empty && self.may_have_more() {
            phase.end = PhaseEnd::AtLimit;
        }
        let state = self.state();
        let took = state.lap();
        let accepting = &mut state.accepting;
        if let Some(control) = accepting.arrivals.control() {
            control.accepted(phase.taken, phase.end);
        }
        accepting.arrivals.accepting_took(phase.taken, took);
        // The end of a pause also begins an accept phase, without an event.
        accepting.arrivals.count(&phase, state.lender.counting());
        if let PhaseEnd::Pause(until) = phase.end {
            accepting.paused_until = Some(until);
            self.watch_sources();
        }
        phase.end
    }

    /// Takes the last connections: those in the sealed queues, and the one that waits for room. Queues that were passed
    /// on are not sealed: later connections are the successor's.
    fn take_the_last(&mut self) {
        if self.state().accepting.arrivals.are_passed_on() {
            self.take_accepted();
        } else {
            self.empty_queues();
        }
        let state = self.state();
        if let Some(last) = state.accepting.arrivals.last_newcomer(state.lender.now()) {
            state.lender.counting().accepts += 1;
            self.admit(last);
        }
    }

    /// Takes the connections that the kernel has accepted by itself from queues that were passed on.
    fn take_accepted(&mut self) {}

    /// Takes the connections from queues that are sealed. A connection may still be on its way through the kernel at the
    /// first look.
    fn empty_queues(&mut self) {
        let mut left = u32::MAX;
        loop {
            self.look_at_all();
            // Dead connections end a phase before the queue is empty.
            while self.accept_phase(Limit::Infinite) == PhaseEnd::AtLimit {}
            let depth = self.state().accepting.arrivals.queue().depth;
            if depth == 0 || depth >= left {
                self.state().lender.counts.cut_off_at_shutdown += u64::from(depth);
                return;
            }
            left = depth;
        }
    }

    /// Takes one connection by hand. Without room for it, closes the longest-idle connection, or else turns the new one
    /// away.
    fn take(&mut self, index: usize) -> Look {
        loop {
            let state = self.state();
            let (now, counts) = (state.lender.now(), &mut state.lender.counts);
            match state.accepting.arrivals.accept(index, now, counts).or_look() {
                Ok(arrived) => {
                    self.admit(arrived);
                    return Look::Taken;
                }
                Err(Look::Stop(PhaseEnd::NoRoom(short))) => {
                    if let Some(look) = self.make_room(index, short) {
                        return look;
                    }
                }
                Err(look) => return look,
            }
        }
    }

    /// Closes the longest-idle connection, here or in another loop, or turns the new one away. Returns `None` if there is
    /// room now.
    fn make_room(&mut self, index: usize, short: Short) -> Option<Look> {
        let state = self.state();
        let now = state.lender.now();
        let idle_from = state.peers.idle_from().min(now);
        if state.life == Life::Serving && state.accepting.arrivals.reclaim_elsewhere(idle_from, now) {
            return Some(Look::Stop(PhaseEnd::Pause(now + RECLAIM_PAUSE)));
        }
        if !self.reclaim() {
            let state = self.state();
            return Some(state.accepting.arrivals.turn_away(index, short, now, &mut state.lender.counts));
        }
        (Self::FREES_LATE && short == Short::Descriptors).then_some(Look::Stop(PhaseEnd::AtLimit))
    }

    /// Closes the number of idle connections that others have asked this loop to close, and those that were idle for too
    /// long while new connections are refused.
    fn give_way(&mut self) {
        for _ in 0..self.state().accepting.arrivals.asked() {
            self.reclaim();
            self.state().accepting.arrivals.answered();
        }
        while let Some(timeout) = self.state().sessions.idle_timeout {
            let by = self.state().lender.now().saturating_sub(timeout);
            if !self.reclaim_idle_since(by, Unasked::Keep) {
                break;
            }
        }
    }

    /// Closes the longest-idle connection. Returns true if there is one less.
    fn reclaim(&mut self) -> bool {
        let now = self.state().lender.now();
        self.reclaim_idle_since(now, Unasked::Close)
    }

    /// Closes the longest-idle connection that has been idle since `by`. Returns true if there is one less.
    fn reclaim_idle_since(&mut self, by: Nanos, unasked: Unasked) -> bool {
        let mut looked = 0;
        loop {
            let Some(token) = self.state().peers.longest_idle(by) else { return false };
            if looked < MOST_LOOKS && self.was_answered_elsewhere(token) {
                looked += 1;
                self.state().enter(token);
                continue;
            }
            if looked == MOST_LOOKS && unasked == Unasked::Keep {
                return false;
            }
            // A request that has arrived is answered, and the next longest closed.
            self.end_one(token, Machine::give_way);
            let state = self.state();
            if !state.peers.contains(token) {
                state.lender.counts.reclaimed += 1;
                return true;
            }
        }
    }

    /// Hears of answers that a connection got without this loop, while it waits for a request. Returns true if one is
    /// newer than the connection's last.
    fn was_answered_elsewhere(&mut self, token: Token) -> bool {
        let Some((peer, lent)) = self.state().connection(token) else { return false };
        let (now, before) = (lent.context.now, peer.machine.idle_from());
        if peer.machine.awaits_request()
            && let Some(idle) = lent.context.service.idle_for(peer.socket.as_fd())
        {
            peer.machine.answered_elsewhere(now.saturating_sub(idle), lent.context.settings);
        }
        peer.machine.idle_from() > before
    }

    /// The third phase, measured.
    fn work_phase(&mut self) {
        let state = self.state();
        let turns = state.turns;
        self.work();
        let state = self.state();
        let (took, turns, closed) = (state.lap(), state.turns - turns, state.newly_closed());
        state.accepting.arrivals.worked(turns, closed, took);
    }

    /// The last phase: acts on deadlines, and publishes totals that have become old.
    fn expire(&mut self) {
        loop {
            let state = self.state();
            let now = state.lender.now();
            let Some(token) = state.peers.take_due(now) else { break };
            state.lender.counting();
            self.deadline(token);
        }
        let state = self.state();
        if state.lender.publish_due().is_some_and(|due| due <= state.lender.now()) {
            self.publish();
        }
    }

    /// Acts on a timer entry if the deadline has really passed.
    fn deadline(&mut self, token: Token) {
        // A connection that has ended leaves its timer entries behind; they are not stale events.
        let Some((peer, lent)) = self.state().connection(token) else { return };
        let now = lent.context.now;
        if now < peer.comes_up {
            return;
        }
        peer.comes_up = Nanos::MAX;
        if now >= peer.machine.deadline() {
            self.was_answered_elsewhere(token);
        }
        let Some((peer, mut lent)) = self.state().connection(token) else { return };
        let has_expired = now >= peer.machine.deadline();
        if has_expired {
            peer.machine.expire(&mut lent);
        }
        self.go_on(token, has_expired);
    }

    fn publish(&mut self) {
        self.count_events();
        self.state().publish();
    }

    /// Closes a connection that has failed.
    fn broken(&mut self, token: Token) {
        self.state().lender.counts.peers.broken += 1;
        self.close(token);
    }

    /// Tells a connection to end after the responses to its received requests.
    fn end_one(&mut self, token: Token, tell: Tell<Self::Service>) {
        self.state().before_turn(token, true);
        self.receive_and_tell(token, tell);
    }

    /// Ends every connection, once what has arrived is answered.
    fn drain(&mut self) {
        for token in self.state().peers.tokens() {
            self.end_one(token, Machine::drain);
        }
    }

    /// Cuts off the connections that have not finished in time, and publishes the last totals.
    fn finish(&mut self) {
        if self.state().lender.settings.custody().is_passed_on() {
            // The clients of idle connections had the whole drain time for another request.
            for token in self.state().peers.tokens() {
                self.end_one(token, Machine::give_way);
            }
        }
        for token in self.state().peers.tokens() {
            self.state().lender.counts.cut_off_at_shutdown += 1;
            self.close(token);
        }
        self.publish();
    }
}

/// The token of a listener, or another source of connections: generation 0, which no connection has.
pub fn listener_token(index: usize) -> Token {
    Token::from(Key { index: index as u32, generation: 0 })
}
