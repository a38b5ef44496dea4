//! Kernel threads that share listeners: how they wait for connections, sleep, and end.
//!
//! ```text
//!   asked to stop:  the group's first thread takes what waits in the accept queues ──> leftover
//!                   closes the listeners, sets the drain time-out, stops the others
//!   the others:     finish what they have, serve what is left over, end
//! ```
//!
//! A listener is tried before it is waited for. How the waiters of one listener are woken is a [`Wake`]: see
//! Molloy and Lever 2000.
//!
//! Owns accepting by many threads and their sleep. Does not start threads: an architecture does.
//!
//! Invariants: every thread that waits, waits for the stop as well; the drain time-out and what is left
//! over are complete before a thread can see the stop.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::{Clock, Nanos, RealClock};
use dispatch::{Interest, Trigger};
use rustix::net::Shutdown;
use sys::epoll::{self, Operation};
use sys::poll::{self, PollFd, bits};

use super::Stop;
use super::blocking::{Common, Waiter, serve};
use super::readiness::SocketService;
use crate::accept::{Acceptor, Arrived, PhaseEnd};
use crate::choices::Wake;
use crate::counters::{Board, Counters};
use crate::listener::Listener;
use crate::slots::Slots;

/// What the threads of a group share.
pub struct Group {
    listeners: Vec<Listener>,
    slots: Arc<Slots>,
    wake: Wake,
    /// Held by the one thread that waits and accepts, under [`Wake::Mutex`].
    accepting: Mutex<()>,
    /// Tells the threads to stop, after the group's first thread was told.
    stop: Stop,
    drain_until: OnceLock<Nanos>,
    leftover: Mutex<Vec<Arrived>>,
    clock: RealClock,
}

impl Group {
    /// A group without threads yet.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new(listeners: Vec<Listener>, max_connections: usize, wake: Wake) -> io::Result<Group> {
        Ok(Group {
            listeners,
            slots: Slots::new(max_connections),
            wake,
            accepting: Mutex::default(),
            stop: Stop::new()?,
            drain_until: OnceLock::new(),
            leftover: Mutex::default(),
            clock: RealClock::new(),
        })
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
        self.stop.ask();
        self.slots.wake_all();
    }

    /// Stops the threads if the calling thread panics while the guard lives: they wait for its word.
    pub fn abandoned_on_panic(&self) -> AbandonOnPanic<'_> {
        AbandonOnPanic(self)
    }

    /// Adds what only the moment tells: connections open, and the accept queues.
    pub fn add_gauges(&self, counters: &mut Counters) {
        counters.connections = self.slots.taken() as u64;
        counters.queue = Listener::queues(&self.listeners);
    }

    /// Sleeps until `asked` is, then stops the threads: what the kernel has accepted for us is kept to be
    /// served, and who comes later is refused at once. Blocks.
    pub fn stop_when(
        &self,
        asked: &Stop,
        acceptor: &mut Acceptor,
        drain_timeout: Nanos,
        board: &Board,
    ) -> io::Result<()> {
        while !asked.asked() {
            sleep(&mut [watched(&*asked.wake, bits::IN)], None)?;
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
        let _ = self.drain_until.set(now.saturating_add(drain_timeout));
        self.stop.ask();
        self.slots.wake_all();
        Ok(())
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
    /// Its own interest set, under [`Wake::Exclusive`].
    exclusive: Option<OwnedFd>,
}

impl<'a, S: SocketService> AcceptingThread<'a, S> {
    /// A thread that accepts for itself or others.
    ///
    /// # Errors
    /// No descriptor left for its interest set.
    pub fn new(serving: ServingThread<'a, S>, acceptor: Acceptor) -> io::Result<AcceptingThread<'a, S>> {
        let exclusive = match serving.group.wake {
            Wake::Exclusive => Some(interest_set(serving.group)?),
            Wake::Mutex | Wake::All => None,
        };
        Ok(AcceptingThread { serving, acceptor, exclusive })
    }

    /// Takes up to accept-limit connections, sleeping while there is none. None at all: the server goes
    /// down, and nothing is left to serve. Blocks.
    ///
    /// # Errors
    /// Waiting fails, which is our mistake.
    pub fn accept_n(&mut self) -> io::Result<Vec<Arrived>> {
        self.serving.publish();
        let group = self.serving.group;
        let _turn = matches!(group.wake, Wake::Mutex).then(|| lock(&group.accepting));
        let mut batch = Vec::new();
        loop {
            if group.stop.asked() {
                batch.extend(lock(&group.leftover).pop());
                return Ok(batch);
            }
            let counts = &mut self.serving.common.get_mut().counts;
            let end =
                self.acceptor.phase(&group.listeners, group.clock.now(), &group.slots, counts, &mut batch);
            match end {
                _ if !batch.is_empty() => return Ok(batch),
                PhaseEnd::Empty | PhaseEnd::AtLimit => self.wait_for_connections()?,
                PhaseEnd::Full => {
                    self.serving.publish();
                    group.slots.wait(|| group.stop.asked());
                }
                PhaseEnd::Exhausted(until) => {
                    self.serving.publish();
                    let pause = until.saturating_sub(group.clock.now());
                    sleep(&mut [watched(&*group.stop.wake, bits::IN)], Some(pause))?;
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
        sleep(&mut [watched(&*self.serving.group.stop.wake, bits::IN)], Some(self.acceptor.next_pause()))
    }

    fn wait_for_connections(&self) -> io::Result<()> {
        match &self.exclusive {
            Some(set) => unless_interrupted(epoll::wait(set, &mut [epoll::Event::EMPTY], None)),
            None => {
                let group = self.serving.group;
                let listeners = group.listeners.iter().map(|listener| &listener.socket);
                let all = listeners.chain([&*group.stop.wake]);
                let mut set: Vec<PollFd> = all.map(|descriptor| watched(descriptor, bits::IN)).collect();
                sleep(&mut set, None)
            }
        }
    }
}

/// Listeners exclusively, so that one waiter is woken; the stop for everybody.
fn interest_set(group: &Group) -> io::Result<OwnedFd> {
    let set = epoll::create()?;
    for listener in &group.listeners {
        let descriptor = listener.socket.as_raw_fd();
        epoll::control(&set, Operation::Add, descriptor, epoll::bits::IN | epoll::bits::EXCLUSIVE, 0)?;
    }
    epoll::control(&set, Operation::Add, group.stop.wake.as_raw_fd(), epoll::bits::IN, 0)?;
    Ok(set)
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

/// Sleeps until one of the descriptors is ready, at most so long; a signal ends it early.
fn sleep(set: &mut [PollFd], timeout: Option<Nanos>) -> io::Result<()> {
    unless_interrupted(poll::wait(set, timeout))
}

fn unless_interrupted(waited: io::Result<usize>) -> io::Result<()> {
    match waited {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
