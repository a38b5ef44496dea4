//! The completion loop: the phases of [`EventLoop`] over an io_uring that carries out the operations.
//!
//! ```text
//!   loop:  get_events ──────────> accept ─────────> work ──────────> expire
//!             ^ submit, wait,      (connections      (the completions   │ operations begun in these
//!             │ sort completions    that the kernel   of *this* wait)    │ phases are collected
//!             │                     has accepted)                        │
//!             └──────────────────────────────────────────────────────────┘
//! ```
//!
//! With accept-limit n, n accepts are in flight, including completed ones whose connections are not yet admitted. With
//! `inf`, one accept takes every connection. If overload control is on, it bounds the accepts, because an accept queue
//! that is always empty tells it nothing. If the kernel's accept fails, because no descriptor is left or the listener
//! is shut down, the loop accepts by hand, as the readiness loop does. A source that is not a listener of the loop's
//! own is polled, and accepted from only by hand.
//!
//! Files leave by sendfile(2), and TLS records by sendmsg(2), each with a poll operation for room in the socket. The
//! ring would leave every splice to a kernel thread, one for each slow reader.
//!
//! The kernel and the clock are type parameters. `simulation` runs the loop on a kernel whose order, delays and faults
//! depend on a seed.
//!
//! Invariants: time is read once per phase; memory lent to the kernel is the ring's until its operation completes
//! ([`sys::completion`]); completions appear only in get-events.

#[cfg(test)]
mod simulation;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use base::{Clock, Key, Limit, Nanos, RealClock};
use connection::SocketService;
use connection::transfer::{Moved, end, receive};
use dispatch::Token;
use http_semantics::server::Wants;
use rustix::io::Errno;
use rustix::net::Shutdown;
use sys::completion::{Completion, CompletionRing, Done, Kernel, Uring};
use sys::errno::{Failure, classify};
use sys::readiness::poll::bits;

use super::event_loop::{
    Accepting, Arrivals, EventLoop, Life, Listeners, LoopState, Parts, STOP, Tell, listener_token,
};
use crate::connections::accept::{Arrived, Look, peer_of};

/// The most accepts in flight on one listener: the default length of its queue.
const MOST_ACCEPTS: usize = 4096;
/// Memory of completed sends that is kept for the next ones.
const MOST_SPARE: usize = 64;

/// The operations on one source of connections, and their results.
#[derive(Default)]
struct Source {
    /// Accepts, or a poll.
    in_flight: Vec<Flight>,
    /// Connections that the kernel has accepted and that are not admitted yet.
    taken: VecDeque<OwnedFd>,
    /// An accept has failed, or the source is readable: accepts are made by hand until it is empty.
    by_hand: bool,
    /// No descriptor was left for an accept. The kernel allocates the descriptor before it looks for a connection, so
    /// accepts would fail at once. The source is polled until an accept by hand succeeds.
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
    /// An accept that repeats until it is ended.
    Each,
    /// A poll, and accepts by hand.
    Poll,
}

/// The loop's notes on a connection: its operations in flight, and bytes that came too early.
#[derive(Default)]
pub(super) struct Flights {
    /// The receive in flight.
    receiving: Option<Key>,
    /// A send, or a wait for room in the socket, is in flight.
    is_sending: bool,
    /// Bytes have come, so more are expected: the next receive repeats until it is ended.
    has_spoken: bool,
    /// Bytes that came while output waited; never empty.
    #[expect(
        clippy::box_collection,
        reason = "a vector without bytes takes 16 bytes more in every connection"
    )]
    early: Option<Box<Vec<u8>>>,
    /// The receive in flight is being cancelled, because enough bytes wait.
    is_held: bool,
    end: End,
}

/// The end of the stream from the peer. A receive after it would bring it again at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    NotYet,
    /// It came, and the machine does not know it yet, because output waited.
    Early,
    /// The machine knows it.
    Told,
}

/// A loop over the kernel `K`.
pub struct CompletionLoop<S: SocketService, A = Listeners, K: Kernel = Uring, C = RealClock> {
    state: LoopState<S, A, Flights, C>,
    ring: CompletionRing<K>,
    completions: Vec<Completion>,
    sources: Vec<Source>,
    spare: Vec<Vec<u8>>,
}

/// Runs a loop until it is told to stop and its connections have ended, or the drain timeout has passed. Blocks.
///
/// # Errors
/// The ring fails because of a bug of Inrush.
pub fn run<S: SocketService, A: Arrivals>(parts: Parts<S, A>, ring: CompletionRing) -> io::Result<()> {
    CompletionLoop::new(parts, ring, RealClock::new()).run()
}

impl<S: SocketService, A: Arrivals, K: Kernel, C: Clock> CompletionLoop<S, A, K, C> {
    fn new(parts: Parts<S, A>, mut ring: CompletionRing<K>, clock: C) -> Self {
        ring.poll(parts.stop.descriptor(), bits::IN, STOP.0);
        let sources = parts.arrivals.sources().map(|_| Source::default()).collect();
        let state = LoopState::new(parts, clock);
        let mut this = CompletionLoop { state, ring, completions: Vec::new(), sources, spare: Vec::new() };
        this.watch_sources();
        this
    }

    fn time_to_wait(&mut self) -> Option<Nanos> {
        let left = self.state.time_left();
        let accepting = &self.state.accepting;
        let accepts_on = accepting.paused_until.is_none() && !accepting.ready.is_empty();
        if accepts_on && self.state.life != Life::Sealing { Some(Nanos::ZERO) } else { left }
    }

    /// Keeps the completions of connections for the work phase, and acts on the others.
    fn sort(&mut self, completion: Completion) {
        self.state.lender.counting().events += 1;
        let Completion { name, operation, more, done } = completion;
        match done {
            Done::Accepted(result) => self.accepted(Token(name), operation, more, result),
            Done::Ready(_) if name == STOP.0 => {
                self.state.stop.woken();
                if !self.state.stop.asked() {
                    self.ring.poll(self.state.stop.descriptor(), bits::IN, STOP.0);
                } else if self.state.life == Life::Serving {
                    self.seal();
                }
            }
            Done::Ready(result) if Key::from(Token(name)).generation == 0 => {
                let index = Key::from(Token(name)).index as usize;
                let source = &mut self.sources[index];
                source.in_flight.retain(|flight| flight.operation != operation);
                if result != Err(Errno::CANCELED) {
                    source.by_hand = true;
                    self.state.accepting.ready.report(index);
                }
            }
            done => {
                self.state.peers.leave_idle(Token(name));
                self.completions.push(Completion { name, operation, more, done });
            }
        }
    }

    /// An accept has completed.
    fn accepted(&mut self, source: Token, operation: Key, more: bool, result: Result<OwnedFd, Errno>) {
        let index = Key::from(source).index as usize;
        let source = &mut self.sources[index];
        if !more {
            source.in_flight.retain(|flight| flight.operation != operation);
        }
        match result {
            Ok(socket) => source.taken.push_back(socket),
            Err(errno) if classify(&errno.into()) == Failure::PeerGone => {
                self.state.lender.counts.aborted_in_queue += 1;
            }
            // A connection wakes one of several accepts. It may have woken only this one, even if this one was
            // cancelled.
            Err(errno) => {
                source.by_hand = true;
                source.lacks_descriptors |= classify(&errno.into()) == Failure::NoDescriptor;
            }
        }
        self.state.accepting.ready.report(index);
    }

    /// Lets no more connections into the accept queues, and ends the accepts in flight.
    fn seal(&mut self) {
        self.state.seal();
        for flight in self.sources.iter_mut().flat_map(|source| &mut source.in_flight) {
            if !std::mem::replace(&mut flight.is_cancelled, true) {
                self.ring.cancel(flight.operation);
            }
        }
    }

    /// Once no accept is in flight, takes the waiting connections, closes the listeners, and ends idle connections.
    fn go_down(&mut self) {
        if self.sources.iter().any(|source| !source.in_flight.is_empty()) {
            return;
        }
        self.take_the_last();
        self.state.lender.counts.cut_off_at_shutdown += self.accepted_by_kernel() as u64;
        self.state.accepting.arrivals.shut();
        self.sources.clear();
        self.state.begin_to_drain();
        self.drain();
    }

    /// Returns the number of connections that the kernel has accepted and that are not admitted yet.
    fn accepted_by_kernel(&self) -> usize {
        self.sources.iter().map(|source| source.taken.len()).sum()
    }

    /// Works on the completion of a connection's operation.
    fn complete(&mut self, Completion { name, operation, more, done }: Completion) {
        self.state.turns += 1;
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
}

impl<S: SocketService, A: Arrivals, K: Kernel, C: Clock> EventLoop for CompletionLoop<S, A, K, C> {
    type Service = S;
    type Arrivals = A;
    type Own = Flights;
    type Clock = C;

    /// The ring closes sockets when it is submitted.
    const FREES_LATE: bool = true;

    fn state(&mut self) -> &mut LoopState<S, A, Flights, C> {
        &mut self.state
    }

    fn get_events(&mut self) -> io::Result<()> {
        let timeout = self.time_to_wait();
        self.state.lender.counts.waits += 1;
        self.ring.submit()?;
        self.state.lap();
        self.state.end_turn();
        self.ring.wait(timeout)?;
        self.state.begin_turn();
        while let Some(completion) = self.ring.completed() {
            self.sort(completion);
        }
        self.state.resume_accepting();
        Ok(())
    }

    fn look_at_all(&mut self) {
        self.sources.iter_mut().for_each(|source| source.by_hand = true);
        self.state.accepting.ready.report_all(self.sources.len());
    }

    /// Takes one connection more: it may have woken only a cancelled accept of this loop, and none of the successor.
    fn take_accepted(&mut self) {
        let held = self.accepted_by_kernel() + usize::from(self.state.accepting.arrivals.has_newcomer());
        self.look_at_all();
        self.accept_phase(Limit::AtMost(held as u32 + 1));
    }

    fn accepts(&mut self) -> bool {
        self.state.life != Life::Sealing
    }

    /// Offers the acceptor a connection that the kernel has accepted, and then takes one.
    fn take_connection(&mut self, index: usize) -> Look {
        let (source, accepting) = (&mut self.sources[index], &mut self.state.accepting);
        if !accepting.arrivals.has_newcomer() {
            match source.taken.pop_front() {
                Some(socket) => {
                    // An accept that repeats tells no address, and rules about clients may come at a reload.
                    let peer = peer_of(&socket);
                    accepting.arrivals.offer(socket, peer);
                }
                None if !source.by_hand => return Look::Empty,
                None => {}
            }
        }
        let look = self.take(index);
        match look {
            Look::Taken => self.sources[index].lacks_descriptors = false,
            Look::Empty => self.sources[index].by_hand = false,
            _ => {}
        }
        look
    }

    /// Returns true if every accept has completed, because the queue may then hold more connections.
    fn may_have_more(&self) -> bool {
        let mut sources = self.sources.iter();
        self.state.life == Life::Serving
            && self.state.accepting.arrivals.are_listeners()
            && sources.any(|source| source.in_flight.is_empty() && !source.lacks_descriptors)
    }

    /// Keeps accepts in flight on each source, up to the accept-limit, or a poll.
    fn watch_sources(&mut self) {
        let Accepting { arrivals, paused_until, .. } = &self.state.accepting;
        let (limit, is_paused) = (arrivals.limit(), paused_until.is_some());
        let share = |most: u32| (most as usize).div_ceil(self.sources.len().max(1)).min(MOST_ACCEPTS);
        let (listening_way, listening_most) = match limit {
            Limit::Infinite => (Way::Each, 1),
            Limit::AtMost(most) => (Way::One, share(most)),
        };
        let are_listeners = arrivals.are_listeners();
        for (index, (source, fd)) in self.sources.iter_mut().zip(arrivals.sources()).enumerate() {
            let polls = source.lacks_descriptors || !are_listeners;
            let (way, most) = if polls { (Way::Poll, 1) } else { (listening_way, listening_most) };
            let wanted = if source.by_hand || is_paused { 0 } else { most };
            // Single accepts may stay in flight during a pause: each takes one connection at most.
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

    fn admit(&mut self, arrived: Arrived) {
        let token = self.state.insert(arrived);
        self.advance(token);
    }

    fn work(&mut self) {
        if self.state.life == Life::Serving {
            self.watch_sources();
        }
        let mut completions = std::mem::take(&mut self.completions);
        completions.drain(..).for_each(|completion| self.complete(completion));
        self.completions = completions;
        if self.state.life == Life::Sealing {
            self.go_down();
        }
    }

    fn go_on(&mut self, token: Token, _has_expired: bool) {
        // Bytes that came in a pause have waited for the pace and not in a queue.
        self.state.before_turn(token, false);
        self.advance(token);
    }

    /// The caller ensures that none of the connection's completions is left in the loop. Its next bytes are then in the
    /// socket.
    fn receive_and_tell(&mut self, token: Token, tell: Tell<S>) {
        let Some((peer, mut lent)) = self.state.connection(token) else { return };
        if !peer.own.is_sending && peer.machine.wants() == Wants::Receive {
            match receive(peer.socket.as_fd(), lent.scratch) {
                Ok(0) => peer.own.end = End::Early,
                Ok(count) => {
                    peer.own.has_spoken = true;
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

    /// Closes a connection, which also ends its operations in flight.
    fn close(&mut self, token: Token) {
        let Some((peer, mut lent)) = self.state.connection(token) else { return };
        end(peer.socket.as_fd(), &mut peer.machine, &mut lent);
        let Some(peer) = self.state.remove(token) else { return };
        if peer.own.receiving.is_some() || peer.own.is_sending {
            // A failure means that the peer has gone and needs no notice.
            let _ = rustix::net::shutdown(&peer.socket, Shutdown::Both);
        }
        self.ring.close(peer.socket);
    }

    fn count_events(&mut self) {
        self.state.lender.counts.event_queue_overflows = self.ring.overflows();
    }
}
