//! The completion loop: the phases of the readiness loop over an io_uring that carries out the operations.
//!
//! ```text
//!   loop:  get_events ──────────> accept ─────────> work ──────────> expire
//!             ^ submit, wait,      (connections      (the completions   │ operations begun in these
//!             │ sort completions    that the kernel   of *this* wait)    │ phases are collected
//!             │                     has accepted)                        │
//!             └──────────────────────────────────────────────────────────┘
//! ```
//!
//! With accept-limit n, n accepts are in flight: those that completed, and were not admitted yet, count. With `inf` one
//! accept takes every connection, unless overload control bounds the accepts: an accept queue that is always empty tells it
//! nothing. What an accept in the kernel cannot do - no descriptor is left, the listener is shut down - is left to an accept
//! by hand, as on the readiness loop. A source of connections that is no listener of the loop's own is polled, and accepted
//! from by hand alone.
//!
//! Files leave by sendfile(2), records of TLS by sendmsg(2), each with a poll operation for room: a splice in a ring is
//! always left to a thread of the kernel's, one for each slow reader.
//!
//! The kernel and the clock are type parameters: `simulation` runs the loop on a kernel whose order, delays and faults a
//! seed decides.
//!
//! Invariants: time is read once per phase; memory lent to the kernel is the ring's until its operation completes
//! ([`sys::completion`]); completions appear only in get-events.

mod peer;
#[cfg(test)]
mod simulation;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use base::{Clock, Key, Limit, Nanos, RealClock, Slab};
use dispatch::{Timers, Token};
use http1::HttpDate;
use http1::server::Buffers;
use rustix::io::Errno;
use sys::completion::{Completion, CompletionRing, Done, Kernel, Uring};
use sys::errno::{Failure, classify};
use sys::poll::bits;

use super::machine::Machine;
use super::readiness::{
    Arrivals, DATE_EVERY, Listeners, News, Parts, RECEIVE_BYTES, STOP, SocketService, TIMER_SLOT,
    listener_token,
};
use crate::accept::{Accepted, Arrived, Look, PhaseEnd, RECLAIM_PAUSE, Ready, Short};
use crate::counters::{Counters, LoopCounts, PUBLISH_EVERY};
use crate::idle::IdleList;
use crate::overload_control::AcceptControl;
use peer::Peer;

/// The most accepts in flight on one listener: as many as its queue holds by default.
const MOST_ACCEPTS: usize = 4096;
/// Memory of completed sends that is kept for the next ones.
const MOST_SPARE: usize = 64;

/// The operations on one source of connections, and what they have brought.
#[derive(Default)]
struct Source {
    /// Accepts, or a poll.
    in_flight: Vec<Flight>,
    /// Connections that the kernel has accepted and that are not admitted yet.
    taken: VecDeque<OwnedFd>,
    /// An accept has failed, or the source is readable: accepts are made by hand until it is empty.
    by_hand: bool,
    /// No descriptor was left for an accept. The kernel looks for one before it looks for a connection, so that accepts would
    /// fail at once: the source is polled until an accept by hand succeeds.
    lacks_descriptors: bool,
}

/// An operation in flight.
struct Flight {
    operation: Key,
    way: Way,
    is_cancelled: bool,
}

/// The way to wait for connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Accepts of one connection.
    One,
    /// An accept that goes on.
    Each,
    /// A poll, and accepts by hand.
    Poll,
}

/// The state of a loop.
pub struct CompletionLoop<S: SocketService, A = Listeners, K: Kernel = Uring, C = RealClock> {
    parts: Parts<S, A>,
    ring: CompletionRing<K>,
    clock: C,
    now: Nanos,
    completions: Vec<Completion>,
    sources: Vec<Source>,
    peers: Slab<Peer>,
    idle: IdleList,
    timers: Timers,
    due: Vec<Token>,
    spare: Vec<Vec<u8>>,
    scratch: Box<[u8]>,
    buffers: Buffers,
    date: HttpDate,
    dated: Nanos,
    counts: LoopCounts,
    http: http1::server::Counts,
    http2: http2::Counts,
    published: Nanos,
    unpublished: bool,
    paused_until: Option<Nanos>,
    ready: Ready,
    drain_until: Option<Nanos>,
    /// The accepts in flight are being cancelled, before the listeners are closed.
    sealing: bool,
    turns: u64,
    phase_from: Nanos,
}

/// Runs a loop until it is told to stop and its connections have ended, or the drain time-out has. Blocks.
///
/// # Errors
/// The ring fails in a way that is our mistake.
pub fn run<S: SocketService, A: Arrivals>(parts: Parts<S, A>, ring: CompletionRing) -> io::Result<()> {
    let mut this = CompletionLoop::new(parts, ring, RealClock::new());
    while !this.ended() {
        this.turn()?;
    }
    this.finish();
    Ok(())
}

impl<S: SocketService, A: Arrivals, K: Kernel, C: Clock> CompletionLoop<S, A, K, C> {
    fn new(parts: Parts<S, A>, mut ring: CompletionRing<K>, clock: C) -> Self {
        let now = clock.now();
        ring.poll(parts.stop.descriptor(), bits::IN, STOP.0);
        let sources = parts.arrivals.sources().map(|_| Source::default()).collect();
        let date = HttpDate::new(clock.wall());
        let mut this = CompletionLoop {
            ring,
            clock,
            now,
            completions: Vec::new(),
            sources,
            peers: Slab::new(),
            idle: IdleList::default(),
            timers: Timers::new(TIMER_SLOT, now),
            due: Vec::new(),
            spare: Vec::new(),
            scratch: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            buffers: Buffers::default(),
            date,
            dated: now,
            counts: LoopCounts::default(),
            http: http1::server::Counts::default(),
            http2: http2::Counts::default(),
            published: Nanos::ZERO,
            unpublished: true,
            paused_until: None,
            ready: Ready::default(),
            drain_until: None,
            sealing: false,
            turns: 0,
            phase_from: now,
            parts,
        };
        this.watch_sources();
        this
    }

    /// All phases, once.
    fn turn(&mut self) -> io::Result<()> {
        self.get_events()?;
        self.accept();
        self.give_way();
        self.work_phase();
        self.expire();
        self.go_down();
        Ok(())
    }

    /// The first phase: submits, waits, and sorts accepts from the completions of connections.
    fn get_events(&mut self) -> io::Result<()> {
        let timeout = self.time_to_wait();
        self.counts.waits += 1;
        self.ring.submit()?;
        self.turned();
        self.ring.wait(timeout)?;
        self.now = self.clock.now();
        self.phase_from = self.now;
        self.parts.settings.refresh();
        if self.now - self.dated >= DATE_EVERY {
            self.tell_time();
        }
        while let Some(completion) = self.ring.completed() {
            self.sort(completion);
        }
        if self.paused_until.is_some_and(|until| until <= self.now) {
            self.paused_until = None;
            // A connection may be in the acceptor's hand.
            self.ready.report_all(self.sources.len());
        }
        Ok(())
    }

    fn sort(&mut self, completion: Completion) {
        self.counts.events += 1;
        self.unpublished = true;
        let Completion { name, operation, more, done } = completion;
        match done {
            Done::Accepted(result) => {
                let index = Key::from(Token(name)).index as usize;
                let source = &mut self.sources[index];
                if !more {
                    source.in_flight.retain(|flight| flight.operation != operation);
                }
                match result {
                    Ok(socket) => source.taken.push_back(socket),
                    Err(Errno::CANCELED) => return,
                    Err(errno) if classify(&errno.into()) == Failure::PeerGone => {
                        self.counts.aborted_in_queue += 1;
                    }
                    Err(errno) => {
                        source.by_hand = true;
                        source.lacks_descriptors |= classify(&errno.into()) == Failure::NoDescriptor;
                    }
                }
                self.ready.report(index);
            }
            Done::Ready(_) if name == STOP.0 => {
                self.parts.stop.woken();
                if !self.parts.stop.asked() {
                    self.ring.poll(self.parts.stop.descriptor(), bits::IN, STOP.0);
                } else if self.drain_until.is_none() {
                    self.seal();
                }
            }
            Done::Ready(result) if Key::from(Token(name)).generation == 0 => {
                let index = Key::from(Token(name)).index as usize;
                let source = &mut self.sources[index];
                source.in_flight.retain(|flight| flight.operation != operation);
                if result != Err(Errno::CANCELED) {
                    source.by_hand = true;
                    self.ready.report(index);
                }
            }
            done => {
                // With a request that has arrived it is not idle.
                self.idle.leave(Key::from(Token(name)));
                self.completions.push(Completion { name, operation, more, done });
            }
        }
    }

    fn time_to_wait(&mut self) -> Option<Nanos> {
        let news = News {
            replies: self.http.responses(),
            closed: self.counts.closed,
            idle_from: self.idle.idle_from(),
        };
        let heard = self.parts.arrivals.hear(news, self.now);
        if self.accepting() && !self.ready.is_empty() {
            return Some(Nanos::ZERO);
        }
        let publish = self.unpublished.then(|| self.published + PUBLISH_EVERY);
        [self.timers.next(), self.paused_until, publish, self.drain_until, heard]
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

    /// The second phase: admits the connections that the kernel has accepted, at most accept-limit in all.
    fn accept(&mut self) {
        self.parts.arrivals.tick(self.now);
        if !self.accepting() {
            return;
        }
        if self.ready.is_empty() {
            self.parts.arrivals.control().into_iter().for_each(AcceptControl::found_empty);
        } else {
            self.accept_phase(self.parts.arrivals.limit());
        }
        if self.drain_until.is_none() {
            self.watch_sources();
        }
    }

    /// True unless a pause or the end keeps it from accepting.
    fn accepting(&self) -> bool {
        self.paused_until.is_none() && !self.sealing
    }

    fn accept_phase(&mut self, limit: Limit) -> PhaseEnd {
        self.lap();
        let mut ready = std::mem::take(&mut self.ready);
        let mut phase = ready.phase(limit, |index| self.look(index));
        self.ready = ready;
        // With every accept completed there may be more in the queue.
        if self.parts.arrivals.are_listeners()
            && phase.end == PhaseEnd::Empty
            && self.sources.iter().any(|source| source.in_flight.is_empty() && !source.lacks_descriptors)
        {
            phase.end = PhaseEnd::AtLimit;
        }
        let took = self.lap();
        if let Some(control) = self.parts.arrivals.control() {
            control.accepted(phase.taken, phase.end);
            control.accepting_took(phase.taken, took);
        }
        self.parts.arrivals.count(&phase, &mut self.counts);
        self.unpublished = true;
        if let PhaseEnd::Pause(until) = phase.end {
            self.paused_until = Some(until);
        }
        phase.end
    }

    /// Admits one connection. Where there is no room for it, the longest-idle connection is closed, or else the new one
    /// turned away.
    fn look(&mut self, index: usize) -> Look {
        let source = &mut self.sources[index];
        if !self.parts.arrivals.has_newcomer() {
            match source.taken.pop_front() {
                Some(socket) => {
                    let known = self.parts.log.is_some().then(|| rustix::net::getpeername(&socket));
                    let peer = known.and_then(Result::ok).flatten().and_then(|peer| peer.try_into().ok());
                    self.parts.arrivals.offer(socket, peer, &mut self.counts);
                }
                None if !source.by_hand => return Look::Empty,
                None => {}
            }
        }
        loop {
            match self.parts.arrivals.accept(index, self.now, &mut self.counts) {
                Accepted::Connection(arrived) => {
                    self.sources[index].lacks_descriptors = false;
                    self.admit(arrived);
                    return Look::Taken;
                }
                Accepted::Empty => {
                    self.sources[index].by_hand = false;
                    return Look::Empty;
                }
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
        if !self.reclaim() {
            return Some(self.parts.arrivals.turn_away(index, short, self.now, &mut self.counts));
        }
        // A descriptor comes free once the ring has closed the socket, which is at the end of this turn.
        (short == Short::Descriptors).then_some(Look::Stop(PhaseEnd::AtLimit))
    }

    /// Closes as many idle connections as others have asked this loop for.
    fn give_way(&mut self) {
        for _ in 0..self.parts.arrivals.asked() {
            self.reclaim();
            self.parts.arrivals.answered();
        }
    }

    fn admit(&mut self, arrived: Arrived) {
        let key = self.peers.insert(Peer::new(arrived, &self.parts.settings));
        self.advance(Token::from(key));
    }

    /// Keeps as many accepts in flight on each source as the accept-limit says, or a poll.
    fn watch_sources(&mut self) {
        let (limit, paused) = (self.parts.arrivals.limit(), self.paused_until.is_some());
        let share = |most: u32| (most as usize).div_ceil(self.sources.len().max(1)).min(MOST_ACCEPTS);
        let (listening_way, listening_most) = match limit {
            Limit::Infinite => (Way::Each, 1),
            Limit::AtMost(most) => (Way::One, share(most)),
        };
        let are_listeners = self.parts.arrivals.are_listeners();
        for (index, (source, fd)) in self.sources.iter_mut().zip(self.parts.arrivals.sources()).enumerate() {
            let polls = source.lacks_descriptors || !are_listeners;
            let (way, most) = if polls { (Way::Poll, 1) } else { (listening_way, listening_most) };
            let wanted = if source.by_hand || paused { 0 } else { most };
            // Single accepts may stay in flight during a pause: they take no more than what they are.
            let kept = if way == Way::Each { wanted } else { most };
            let mut staying = 0;
            for flight in source.in_flight.iter_mut().filter(|flight| !flight.is_cancelled) {
                if flight.way == way && staying < kept {
                    staying += 1;
                } else {
                    flight.is_cancelled = true;
                    self.ring.cancel(flight.operation);
                }
            }
            let held = if way == Way::One { source.taken.len() } else { 0 };
            for _ in source.in_flight.len() + held..wanted {
                let name = listener_token(index).0;
                let operation = match way {
                    Way::Poll => self.ring.poll(fd, bits::IN, name),
                    Way::One | Way::Each => self.ring.accept(fd, way == Way::Each, name),
                };
                source.in_flight.push(Flight { operation, way, is_cancelled: false });
            }
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

    /// A turn is over: what it began has been handed to the kernel.
    fn turned(&mut self) {
        self.lap();
        let took = self.phase_from.saturating_sub(self.now);
        self.parts.arrivals.control().into_iter().for_each(|control| control.turned(took));
    }

    /// The third phase, measured.
    fn work_phase(&mut self) {
        let (turns, closed) = (self.turns, self.counts.closed);
        self.work();
        let took = self.lap();
        let (turns, closed) = (self.turns - turns, self.counts.closed - closed);
        if let Some(control) = self.parts.arrivals.control() {
            control.worked(turns, closed, took);
        }
    }

    /// Works on the completions of this get-events.
    fn work(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        for Completion { name, operation, more, done } in completions.drain(..) {
            self.turns += 1;
            match done {
                Done::Received(result) => self.received(Token(name), operation, more, result),
                Done::Sent(result, memory) => {
                    if self.spare.len() < MOST_SPARE {
                        self.spare.push(memory);
                    }
                    self.output_completed(Token(name), result);
                }
                Done::Ready(result) => self.output_completed(Token(name), result.map(|()| 0)),
                Done::Accepted(_) => {}
            }
        }
        self.completions = completions;
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
        self.counts.event_queue_overflows = self.ring.overflows();
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

    /// Lets no more connections into the accept queues, and ends the accepts in flight.
    fn seal(&mut self) {
        self.drain_until = Some(self.now.saturating_add(self.parts.drain_timeout));
        self.parts.arrivals.seal();
        self.sealing = true;
        for flight in self.sources.iter_mut().flat_map(|source| &mut source.in_flight) {
            if !std::mem::replace(&mut flight.is_cancelled, true) {
                self.ring.cancel(flight.operation);
            }
        }
    }

    /// Once no accept is in flight: takes the connections that wait, closes the listeners, and ends idle connections.
    fn go_down(&mut self) {
        if !self.sealing || self.sources.iter().any(|source| !source.in_flight.is_empty()) {
            return;
        }
        self.sealing = false;
        self.sources.iter_mut().for_each(|source| source.by_hand = true);
        self.ready.report_all(self.sources.len());
        while self.sources.iter().any(|source| source.by_hand)
            && self.accept_phase(Limit::Infinite) == PhaseEnd::AtLimit
        {}
        let held: usize = self.sources.iter().map(|source| source.taken.len()).sum();
        self.counts.cut_off_at_shutdown += held as u64 + u64::from(self.parts.arrivals.queue().depth);
        self.parts.arrivals.shut();
        self.sources.clear();
        self.ready.clear();
        self.paused_until = None;
        for key in self.peers.keys().collect::<Vec<_>>() {
            self.end_one(Token::from(key), Machine::drain);
        }
    }

    fn ended(&self) -> bool {
        self.drain_until.is_some_and(|until| (!self.sealing && self.peers.is_empty()) || self.now >= until)
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
