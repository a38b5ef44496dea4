//! Kernel threads that share listeners: how they wait for connections, sleep, and end.
//!
//! ```text
//!   asked to stop:  the group's first thread takes what waits in the accept queues ──> leftover
//!                   closes the listeners, sets the drain time-out, stops the others
//!   the others:     finish what they have, serve what is left over, end
//! ```
//!
//! A listener is tried before it is waited for. How those who wait are woken is a strategy of its own:
//! [`Waiters`].
//!
//! Owns accepting by many threads and their sleep. Does not start threads: an architecture does.
//!
//! Invariants: every thread that waits, waits for the stop as well; the drain time-out and what is left
//! over are complete before a thread can see the stop.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::{Clock, Nanos, RealClock};
use dispatch::{Interest, Trigger};
use rustix::net::Shutdown;
use sys::poll::{self, PollFd, bits};

use super::Stop;
use super::blocking::{Common, Waiter, serve};
use super::readiness::SocketService;
use super::waiters::{self, Waiters, sleep};
use crate::accept::{Acceptor, Arrived, PhaseEnd};
use crate::choices::Wake;
use crate::counters::{Board, Counters};
use crate::listener::Listener;
use crate::slots::Slots;

/// What the threads of a group share.
pub struct Group {
    /// One set of listeners after another: of all threads together, or of one thread each.
    listeners: Vec<Listener>,
    /// Listeners of a set.
    addresses: usize,
    waiters: Waiters,
    slots: Arc<Slots>,
    /// Tells the threads to stop, after the group's first thread was told.
    stop: Stop,
    drain_until: OnceLock<Nanos>,
    leftover: Mutex<Vec<Arrived>>,
    clock: RealClock,
}

impl Group {
    /// A group without threads yet, of which at most so many are to accept: from one set of listeners for
    /// all, or from a set each.
    ///
    /// # Errors
    /// No descriptor or memory left.
    pub fn new(
        sets: Vec<Vec<Listener>>,
        max_connections: usize,
        wake: Wake,
        acceptors: usize,
    ) -> io::Result<Group> {
        let addresses = sets.first().map_or(1, Vec::len);
        let listeners: Vec<Listener> = sets.into_iter().flatten().collect();
        let waiters = Waiters::new(wake, acceptors, &listeners)?;
        Group::waiting_by(waiters, listeners, addresses, max_connections)
    }

    /// The group of a process that waits for the same listeners as others.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn among_processes(
        waiters: Waiters,
        listeners: Vec<Listener>,
        max_connections: usize,
    ) -> io::Result<Group> {
        let addresses = listeners.len();
        Group::waiting_by(waiters, listeners, addresses, max_connections)
    }

    fn waiting_by(
        waiters: Waiters,
        listeners: Vec<Listener>,
        addresses: usize,
        max_connections: usize,
    ) -> io::Result<Group> {
        Ok(Group {
            listeners,
            addresses,
            waiters,
            slots: Slots::new(max_connections),
            stop: Stop::new()?,
            drain_until: OnceLock::new(),
            leftover: Mutex::default(),
            clock: RealClock::new(),
        })
    }

    /// Stops the threads: they finish what they have within the time, and serve what was handed over.
    pub fn end_within(&self, drain_timeout: Nanos) {
        let _ = self.drain_until.set(self.clock.now().saturating_add(drain_timeout));
        self.stop_all();
    }

    /// Takes over connections that another process has accepted before the stop.
    pub fn hand_over(&self, sockets: impl IntoIterator<Item = OwnedFd>) {
        let at = self.clock.now();
        let arrived = sockets.into_iter().map(|socket| {
            let peer = rustix::net::getpeername(&socket).ok().flatten().and_then(|peer| peer.try_into().ok());
            Arrived { socket, peer, at, slot: self.slots.take_beyond() }
        });
        lock(&self.leftover).extend(arrived);
    }

    /// The connections that its threads have open.
    pub fn connections(&self) -> u64 {
        self.slots.taken() as u64
    }

    /// The time of all its threads.
    pub fn clock(&self) -> RealClock {
        self.clock
    }

    /// The stop that its threads are to see.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Stops the threads at once: the group cannot be completed.
    pub fn abandon(&self) {
        let _ = self.drain_until.set(self.clock.now());
        self.stop_all();
    }

    /// Stops the threads if the calling thread panics while the guard lives: they wait for its word.
    pub fn abandoned_on_panic(&self) -> AbandonOnPanic<'_> {
        AbandonOnPanic(self)
    }

    /// Adds what only the moment tells: connections open, and the accept queues.
    pub fn add_gauges(&self, counters: &mut Counters) {
        counters.connections = self.connections();
        counters.queue = Listener::queues(&self.listeners);
    }

    /// Wakes threads for connections, where they need somebody to, until `asked` is; then stops them: what
    /// the kernel has accepted for us is kept to be served, and who comes later is refused at once. Blocks.
    pub fn stop_when(
        &self,
        asked: &Stop,
        acceptor: &mut Acceptor,
        drain_timeout: Nanos,
        board: &Board,
    ) -> io::Result<()> {
        while !asked.asked() {
            self.waiters.watch(&self.listeners, asked.wake.as_fd(), &acceptor.limit)?;
        }
        let now = self.clock.now();
        let mut counters = Counters::default();
        let mut leftover = lock(&self.leftover);
        // Each phase ends at the accept-limit.
        while let PhaseEnd::AtLimit =
            acceptor.phase(&self.listeners, now, &self.slots, &mut counters.loops, &mut leftover)
        {}
        drop(leftover);
        for listener in &self.listeners {
            // Threads may be waiting on it, so that closing it would not end it.
            let _ = rustix::net::shutdown(&listener.socket, Shutdown::Both);
        }
        board.merge(&counters);
        self.end_within(drain_timeout);
        Ok(())
    }

    fn stop_all(&self) {
        self.stop.ask();
        self.waiters.wake_all();
        self.slots.wake_all();
    }

    /// What the thread of a number accepts from.
    fn listeners_of(&self, index: usize) -> &[Listener] {
        let sets = self.listeners.len() / self.addresses;
        self.listeners.chunks(self.addresses).nth(index % sets).unwrap_or_default()
    }
}

/// See [`Group::abandoned_on_panic`].
pub struct AbandonOnPanic<'a>(&'a Group);

impl Drop for AbandonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon();
        }
    }
}

/// A thread of a group, as far as it serves.
pub struct ServingThread<'a, S> {
    group: &'a Group,
    common: RefCell<Common<S>>,
    board: Board,
}

impl<'a, S: SocketService> ServingThread<'a, S> {
    /// A thread that adds what it counts to a board.
    pub fn new(group: &'a Group, common: Common<S>, board: Board) -> ServingThread<'a, S> {
        ServingThread { group, common: RefCell::new(common), board }
    }

    /// Serves a connection to its end. Blocks.
    pub fn serve(&mut self, arrived: Arrived) {
        let (common, board) = (&self.common, &self.board);
        serve(arrived, common, &mut Sleeper { group: self.group, common, board });
    }

    /// Adds what was counted since the last time to the group's totals.
    pub fn publish(&mut self) {
        let now = self.group.clock.now();
        self.board.merge(&self.common.get_mut().take_totals(now));
    }
}

/// A thread of a group that accepts.
pub struct AcceptingThread<'a, S> {
    /// The same thread, as far as it serves.
    pub serving: ServingThread<'a, S>,
    acceptor: Acceptor,
    waiter: waiters::Waiter<'a>,
}

impl<'a, S: SocketService> AcceptingThread<'a, S> {
    /// A thread that accepts for itself or others, the one of this number among them.
    ///
    /// # Errors
    /// No descriptor left for what it waits by.
    pub fn new(
        serving: ServingThread<'a, S>,
        acceptor: Acceptor,
        index: usize,
    ) -> io::Result<AcceptingThread<'a, S>> {
        let group = serving.group;
        let waiter = group.waiters.waiter(index, group.listeners_of(index), group.stop.wake.as_fd())?;
        Ok(AcceptingThread { serving, acceptor, waiter })
    }

    /// Takes up to accept-limit connections, sleeping while there is none. None at all: the server goes
    /// down, and nothing is left to serve. Blocks.
    ///
    /// # Errors
    /// Waiting fails, which is our mistake.
    pub fn accept_n(&mut self) -> io::Result<Vec<Arrived>> {
        self.serving.publish();
        let group = self.serving.group;
        let _turn = self.waiter.turn();
        let mut batch = Vec::new();
        loop {
            if group.stop.asked() {
                batch.extend(lock(&group.leftover).pop());
                return Ok(batch);
            }
            let counts = &mut self.serving.common.get_mut().counts;
            let listeners = self.waiter.listeners();
            let end = self.acceptor.phase(listeners, group.clock.now(), &group.slots, counts, &mut batch);
            match end {
                _ if !batch.is_empty() => return Ok(batch),
                PhaseEnd::Empty | PhaseEnd::AtLimit => self.waiter.wait()?,
                PhaseEnd::Full => {
                    self.serving.publish();
                    group.slots.wait(|| group.stop.asked());
                }
                PhaseEnd::Exhausted(until) => {
                    self.serving.publish();
                    let pause = until.saturating_sub(group.clock.now());
                    self.pause(pause)?;
                }
            }
        }
    }

    /// A thread for a connection could not be started: counts it, and lets others end. Blocks, for a second
    /// at most.
    ///
    /// # Errors
    /// Waiting fails, which is our mistake.
    pub fn without_thread(&mut self) -> io::Result<()> {
        self.serving.common.get_mut().counts.no_thread += 1;
        let pause = self.acceptor.next_pause();
        self.pause(pause)
    }

    fn pause(&self, pause: Nanos) -> io::Result<()> {
        sleep(&mut [watched(&*self.serving.group.stop.wake, bits::IN)], Some(pause)).map(drop)
    }
}

/// How a kernel thread waits for its connection: in poll(2), for the stop as well.
struct Sleeper<'a, S> {
    group: &'a Group,
    common: &'a RefCell<Common<S>>,
    board: &'a Board,
}

impl<S: SocketService> Waiter for Sleeper<'_, S> {
    const TRIGGER: Trigger = Trigger::Level;

    fn drain_until(&self) -> Option<Nanos> {
        self.group.drain_until.get().copied()
    }

    fn wait(&mut self, socket: BorrowedFd<'_>, interest: Interest, until: Nanos) {
        let wanted = if interest.writes() { bits::OUT } else { bits::IN };
        let mut set = [watched(&socket, wanted), watched(&self.group.stop.wake, bits::IN)];
        // After the stop the second would be ready for ever.
        let watched = if self.drain_until().is_none() { &mut set[..] } else { &mut set[..1] };
        loop {
            let due = self.common.borrow().publish_due();
            let now = self.group.clock.now();
            let next = due.unwrap_or(until).min(until);
            match poll::wait(watched, Some(next.saturating_sub(now))) {
                Ok(0) if next < until => {
                    let now = self.group.clock.now();
                    self.board.merge(&self.common.borrow_mut().take_totals(now));
                }
                // Interrupted is as good as ready: the socket is tried again.
                _ => return,
            }
        }
    }

    fn pause(&mut self) {
        // The kernel shares the processor out.
    }

    fn closing(&mut self, _socket: BorrowedFd<'_>) {}
}

fn watched(descriptor: &impl AsRawFd, bits: i16) -> PollFd {
    PollFd::new(descriptor.as_raw_fd(), bits)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
