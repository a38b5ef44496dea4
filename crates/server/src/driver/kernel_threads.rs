//! Kernel threads that share listeners: how they wait for connections, sleep, and end.
//!
//! ```text
//!   while it runs:  the group's first thread wakes others where the strategy wants that, and watches over a pool
//!                   whose threads are all busy
//!   asked to stop:  it takes what waits in the accept queues ──> leftover
//!                   closes the listeners, sets the drain time-out, stops the others
//!   the others:     finish what they have, serve what is left over, end
//! ```
//!
//! A thread tries a listener before it waits for it. [`Waiters`] is the strategy that wakes waiting threads.
//! [`full_pool`](super::pools::full_pool) decides for connections that wait while every thread is busy. An idle connection
//! gives way to others that its own thread has taken, or that wait in an accept queue of that thread's own. With
//! [`IdleSessions::Stay`] none gives way.
//!
//! Owns accepting by many threads, and their sleep. Does not start threads; an architecture does.
//!
//! Invariants: every wait of a thread also ends at the stop; the drain timeout and the leftover connections are
//! complete before a thread can see the stop. `sleeper` is the wait of a thread for its connection, `pool` the threads as a
//! pool that may be full.

mod pool;
mod sleeper;

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use base::{Clock, Nanos, RealClock, lock};
use connection::SocketService;
use overload::law::Sessions;
use sys::readiness::poll::PollFd;
use sys::thread::stop::Stop;

use pool::KernelPool;
use sleeper::Sleeper;

use super::blocking::serve;
use super::lender::Lender;
use super::pools::full_pool;
use super::pools::idle_threads::{IdleThreads, Leaving, Reclaimed};
use super::pools::waiters::{self, Waiters, readable, sleep};
use crate::connections::accept::{Acceptor, Arrived, PhaseEnd, RECLAIM_PAUSE, Short};
use crate::connections::overload_control::AcceptControl;
use crate::connections::slots::Share;
use crate::ground::choices::{IdleSessions, Wake};
use crate::ground::counters::{Board, Counters, LoopCounts};
use crate::ground::instructions;
use crate::ground::listener::Listener;

/// The state that the threads of a group share.
pub struct Group {
    /// The listeners of all sets, one set after another.
    listeners: Vec<Listener>,
    /// The places of the sets: one for all threads together, or one for each thread. Their sizes may differ.
    sets: Vec<Range<usize>>,
    waiters: Waiters,
    share: Share,
    idle: IdleThreads,
    idle_sessions: IdleSessions,
    /// Threads that are about to accept or wait for a connection, including threads that have not run yet.
    free: AtomicUsize,
    /// The time when a thread last took a connection.
    last_taken: AtomicU64,
    /// Connections taken from the queues so far, by all threads; refused ones included.
    taken: AtomicU64,
    /// Accepts that found an empty queue so far.
    found_empty: AtomicU64,
    /// Connections so far whose first request was refused because it had waited too long, as far as threads have
    /// published them.
    late_connections: AtomicU64,
    /// The instructions of overload control, if a thread of this process controls the queue.
    instructions: [AtomicU64; instructions::WORDS],
    /// The process that controls the queue, if it is another one.
    controller: Option<Box<dyn Controller + Send + Sync>>,
    /// Tells the threads to stop, after the group's first thread was told to.
    stop: Stop,
    drain_until: OnceLock<Nanos>,
    leftover: Mutex<Vec<Arrived>>,
    clock: RealClock,
}

/// The process that controls the accept queue of a group.
pub trait Controller {
    /// Receives the number of accepts so far that found the queue empty.
    fn show_empty(&self, count: u64);

    /// Returns its instructions for open connections.
    fn sessions(&self) -> Sessions;
}

impl Group {
    /// Makes a group without threads. They will accept from one common set of listeners or from one set each.
    ///
    /// # Errors
    /// No descriptor or memory is left.
    pub fn new(sets: Vec<Vec<Listener>>, share: Share, wake: Wake) -> io::Result<Group> {
        let (mut listeners, mut places) = (Vec::new(), Vec::new());
        for set in sets {
            let first = listeners.len();
            listeners.extend(set);
            places.push(first..listeners.len());
        }
        let waiters = Waiters::new(wake, &listeners)?;
        Group::waiting_by(waiters, listeners, places, share, IdleThreads::default())
    }

    /// Makes the group of a process that shares its listeners with other processes.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn among_processes(
        waiters: Waiters,
        listeners: Vec<Listener>,
        share: Share,
        idle: IdleThreads,
        controller: impl Controller + Send + Sync + 'static,
    ) -> io::Result<Group> {
        let all = std::iter::once(0..listeners.len()).collect();
        let group = Group::waiting_by(waiters, listeners, all, share, idle)?;
        Ok(Group { controller: Some(Box::new(controller)), ..group })
    }

    fn waiting_by(
        waiters: Waiters,
        listeners: Vec<Listener>,
        sets: Vec<Range<usize>>,
        share: Share,
        idle: IdleThreads,
    ) -> io::Result<Group> {
        let clock = RealClock::new();
        Ok(Group {
            listeners,
            sets,
            waiters,
            share,
            idle,
            idle_sessions: IdleSessions::default(),
            free: AtomicUsize::new(0),
            last_taken: AtomicU64::new(clock.now().0),
            taken: AtomicU64::new(0),
            found_empty: AtomicU64::new(0),
            late_connections: AtomicU64::new(0),
            instructions: Default::default(),
            controller: None,
            stop: Stop::new()?,
            drain_until: OnceLock::new(),
            leftover: Mutex::default(),
            clock,
        })
    }

    /// Makes idle connections give way to others, or stay.
    pub fn with_idle_sessions(self, idle_sessions: IdleSessions) -> Group {
        Group { idle_sessions, ..self }
    }

    /// True if no connection ends for another one's sake.
    fn keeps_sessions(&self) -> bool {
        self.idle_sessions == IdleSessions::Stay
    }

    /// Counts a thread that is never busy, so that the group never counts as a full pool.
    pub fn has_free_thread(&self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the thread with the longest-idle connection close it, if another is still `wanting` for its place.
    pub fn reclaim(&self, wanting: impl FnOnce() -> bool, counts: &mut LoopCounts) -> Reclaimed {
        if self.keeps_sessions() {
            return Reclaimed::None;
        }
        let reclaimed = self.idle.reclaim(self.clock.now(), wanting);
        counts.reclaimed += u64::from(reclaimed == Reclaimed::One);
        reclaimed
    }

    /// Stops the threads. They finish their connections within the drain timeout, those handed over included.
    pub fn end_within(&self, drain_timeout: Nanos) {
        let _ = self.drain_until.set(self.clock.now().saturating_add(drain_timeout));
        self.stop_all();
    }

    /// Takes over connections that another process has accepted before the stop.
    pub fn hand_over(&self, sockets: impl IntoIterator<Item = OwnedFd>) {
        let at = self.clock.now();
        let arrived = sockets.into_iter().map(|socket| Arrived::passed(socket, at, &self.share));
        lock(&self.leftover).extend(arrived);
    }

    /// Returns the number of connections that its threads have open.
    pub fn connections(&self) -> u64 {
        self.share.taken() as u64
    }

    /// Returns the clock of all its threads.
    pub fn clock(&self) -> RealClock {
        self.clock
    }

    /// Returns the stop that its threads watch.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Stops the threads at once, because the group cannot be completed.
    pub fn abandon(&self) {
        let _ = self.drain_until.set(self.clock.now());
        self.stop_all();
    }

    /// Returns a guard that stops the threads if the calling thread panics. They would wait for its signal otherwise.
    pub fn abandoned_on_panic(&self) -> AbandonOnPanic<'_> {
        AbandonOnPanic(self)
    }

    /// Adds current values: the open connections and the accept queues.
    pub fn add_gauges(&self, counters: &mut Counters) {
        counters.connections = self.connections();
        counters.queue = Listener::queues(&self.listeners);
    }

    /// Watches over the threads until `asked` is set, then stops them. Connections that the kernel has accepted are
    /// kept to be served; later clients are refused. Blocks.
    ///
    /// # Errors
    /// Waiting fails because of a bug of Inrush.
    pub fn stop_when(
        &self,
        asked: &Stop,
        acceptor: &mut Acceptor,
        mut control: Option<AcceptControl>,
        drain_timeout: Nanos,
        board: &Board,
    ) -> io::Result<()> {
        self.watch(asked, acceptor, &mut control, board)?;
        control.into_iter().for_each(|control| control.withdraw());
        let now = self.clock.now();
        let mut counters = Counters::default();
        self.listeners.iter().for_each(Listener::seal);
        acceptor.last_phase(&self.listeners, now, &mut counters.loops, &mut lock(&self.leftover));
        for listener in &self.listeners {
            // Threads may be waiting on the listener, so that closing it would not end it.
            listener.hand_over();
        }
        board.merge(&counters);
        self.end_within(drain_timeout);
        Ok(())
    }

    /// Wakes threads for connections if the strategy needs a waker, handles connections that wait for a full pool, and
    /// controls the accept queue. Blocks.
    fn watch(
        &self,
        asked: &Stop,
        acceptor: &mut Acceptor,
        control: &mut Option<AcceptControl>,
        board: &Board,
    ) -> io::Result<()> {
        let mut pool = KernelPool { group: self, acceptor, board };
        let mut watch = full_pool::Watch::of(self.idle_sessions);
        control.iter().for_each(AcceptControl::watch_from_this_thread);
        let processors = sys::cpu::allowed()?.len();
        while !asked.asked() {
            let now = self.clock.now();
            let next = watch.sleep(&pool, now);
            let mut set = vec![readable(&asked.descriptor())];
            set.extend(self.waiters.calls_the_waker().iter().map(readable));
            let first_queue = set.len();
            if next.queues {
                set.extend(self.listeners.iter().map(|listener| readable(&listener.socket)));
            }
            let tick = control.as_ref().and_then(AcceptControl::watches_at);
            let until = [next.until, tick].into_iter().flatten().min();
            sleep(&mut set, until.map(|until| until.saturating_sub(now)))?;
            if let Some(control) = control {
                let count = |total: &AtomicU64| total.load(Ordering::Relaxed);
                control.progress(count(&self.taken), count(&self.found_empty));
                control.late_connections(count(&self.late_connections));
                control.occupied(self.share.occupancy());
                control.tick(self.clock.now(), &self.listeners);
                control.instructions(processors).write(&self.instructions);
            }
            self.waiters.wake(&self.listeners, &pool.acceptor.limit)?;
            if set[first_queue..].iter().any(|queue| queue.reported() != 0) {
                control.iter_mut().for_each(AcceptControl::stir);
                watch.check_pool(&mut pool, self.clock.now());
            }
        }
        Ok(())
    }

    /// Adds what a thread has counted since the last call to the totals of the group.
    fn publish<S: SocketService>(&self, lender: &mut Lender<S>, board: &Board) {
        let totals = lender.take_totals(self.clock.now());
        self.late_connections.fetch_add(totals.loops.late_connections, Ordering::Relaxed);
        board.merge(&totals);
    }

    /// Counts an accept that found the queue empty.
    fn found_empty(&self) {
        let count = self.found_empty.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(controller) = &self.controller {
            controller.show_empty(count);
        }
    }

    fn stop_all(&self) {
        self.stop.ask();
        self.waiters.wake_all();
    }

    /// Returns true if each thread has an accept queue of its own.
    fn has_queues_of_their_own(&self) -> bool {
        self.sets.len() > 1
    }

    /// Returns the listeners that the thread of this number accepts from.
    fn listeners_of(&self, index: usize) -> &[Listener] {
        &self.listeners[self.sets[index % self.sets.len()].clone()]
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

/// The serving part of a group's thread.
pub struct ServingThread<'a, S> {
    group: &'a Group,
    lender: RefCell<Lender<S>>,
    board: Board,
    /// An accept queue that no other thread accepts from, if an idle connection gives way to those that wait there.
    own_queue: &'a [Listener],
    /// The poll set, kept to reuse its memory.
    set: Vec<PollFd>,
    /// Its last connection was given up for another, and the thread does not count as free yet.
    leaving: Option<Leaving<'a>>,
}

impl<'a, S: SocketService> ServingThread<'a, S> {
    /// Makes a thread that adds its counts to a board.
    pub fn new(group: &'a Group, lender: Lender<S>, board: Board) -> ServingThread<'a, S> {
        ServingThread {
            group,
            lender: RefCell::new(lender),
            board,
            own_queue: &[],
            set: Vec::new(),
            leaving: None,
        }
    }

    /// Serves connections to their ends, one after another. Blocks.
    pub fn serve(&mut self, batch: Vec<Arrived>) {
        let mut batch = batch.into_iter();
        while let Some(arrived) = batch.next() {
            let ServingThread { group, lender, board, own_queue, set, leaving: left } = &mut *self;
            let others_wait = batch.len() > 0 && !group.keeps_sessions();
            let (lender, leaving) = (&*lender, None);
            let mut sleeper = Sleeper { group, lender, board, own_queue, others_wait, set, leaving };
            serve(arrived, lender, &mut sleeper);
            *left = sleeper.leaving;
        }
    }

    /// Adds the counts since the last call to the group's totals.
    pub fn publish(&mut self) {
        self.group.publish(self.lender.get_mut(), &self.board);
    }
}

/// A thread of a group that accepts.
pub struct AcceptingThread<'a, S> {
    /// The serving part of the thread.
    pub serving: ServingThread<'a, S>,
    acceptor: Acceptor,
    waiter: waiters::Waiter<'a>,
    /// Counts the thread as free while it has no connection.
    free: Option<Free<'a>>,
    /// The thread has tried the listeners once more after the stop.
    looked_again: bool,
}

impl<'a, S: SocketService> AcceptingThread<'a, S> {
    /// Makes the accepting thread of this number. It accepts for itself or for other threads.
    ///
    /// # Errors
    /// No descriptor is left for its waiter.
    pub fn new(
        mut serving: ServingThread<'a, S>,
        acceptor: Acceptor,
        index: usize,
    ) -> io::Result<AcceptingThread<'a, S>> {
        let group = serving.group;
        if group.has_queues_of_their_own() && !group.keeps_sessions() {
            serving.own_queue = group.listeners_of(index);
        }
        let waiter = group.waiters.waiter(index, group.listeners_of(index), group.stop.descriptor())?;
        let free = Some(Free::new(&group.free));
        Ok(AcceptingThread { serving, acceptor, waiter, free, looked_again: false })
    }

    /// Takes up to accept-limit connections, and sleeps while there is none. Returns an empty batch when the server
    /// shuts down and nothing is left to serve. Blocks.
    ///
    /// # Errors
    /// Waiting fails because of a bug of Inrush.
    pub fn accept_n(&mut self) -> io::Result<Vec<Arrived>> {
        self.serving.publish();
        let group = self.serving.group;
        self.free.get_or_insert_with(|| Free::new(&group.free));
        self.serving.leaving = None;
        let _turn = self.waiter.turn();
        let mut batch = Vec::new();
        loop {
            let now = group.clock.now();
            if group.stop.asked() {
                let last = self.acceptor.last_newcomer(now);
                batch.extend(last.or_else(|| lock(&group.leftover).pop()));
                // The connection may have woken only this thread, and none of the process that now has the listeners.
                if batch.is_empty()
                    && Listener::are_passed_on(self.waiter.listeners())
                    && !std::mem::replace(&mut self.looked_again, true)
                {
                    let counts = &mut self.serving.lender.get_mut().counts;
                    self.acceptor.phase(self.waiter.listeners(), now, counts, &mut batch);
                    batch.extend(self.acceptor.last_newcomer(now));
                }
                return Ok(batch);
            }
            let counts = &mut self.serving.lender.get_mut().counts;
            let end = self.acceptor.phase(self.waiter.listeners(), now, counts, &mut batch);
            if end == PhaseEnd::Empty {
                group.found_empty();
            }
            let refused = self.acceptor.take_refused();
            group.taken.fetch_add(batch.len() as u64 + refused, Ordering::Relaxed);
            if !batch.is_empty() {
                group.last_taken.store(now.0, Ordering::Relaxed);
                self.free = None;
                self.waiter.found_connections()?;
                return Ok(batch);
            }
            if refused > 0 {
                self.serving.publish();
            }
            match end {
                // The queue may hold more connections, which no event would report.
                PhaseEnd::AtLimit if refused > 0 => {}
                PhaseEnd::Empty | PhaseEnd::AtLimit => {
                    // A thread that woke in vain may never take a connection.
                    if self.serving.lender.get_mut().counts.waits > 0 {
                        self.serving.publish();
                    }
                    self.waiter.wait()?;
                    self.serving.lender.get_mut().counts.waits += 1;
                }
                PhaseEnd::NoRoom(short) => self.make_room(short, now)?,
                PhaseEnd::Pause(until) => self.pause(until.saturating_sub(now))?,
            }
        }
    }

    /// Closes the longest-idle connection for the waiting ones, or turns them away. Blocks for a second at most.
    fn make_room(&mut self, short: Short, now: Nanos) -> io::Result<()> {
        let (group, counts) = (self.serving.group, &mut self.serving.lender.get_mut().counts);
        let listeners = self.waiter.listeners();
        let wanting = || short != Short::Connections || group.share.is_full();
        let end = match group.reclaim(wanting, counts) {
            Reclaimed::One | Reclaimed::Already => PhaseEnd::Pause(now + RECLAIM_PAUSE),
            Reclaimed::None => self.acceptor.turn_away_phase(listeners, short, now, counts),
        };
        group.taken.fetch_add(self.acceptor.take_refused(), Ordering::Relaxed);
        match end {
            PhaseEnd::Pause(until) => self.pause(until.saturating_sub(now))?,
            _ => self.serving.publish(),
        }
        Ok(())
    }

    /// Counts a connection whose thread could not be started, and waits for other threads to end. Blocks for a second
    /// at most.
    ///
    /// # Errors
    /// Waiting fails because of a bug of Inrush.
    pub fn without_thread(&mut self) -> io::Result<()> {
        self.serving.lender.get_mut().counts.no_thread += 1;
        let pause = self.acceptor.next_pause();
        self.pause(pause)
    }

    fn pause(&mut self, pause: Nanos) -> io::Result<()> {
        self.serving.publish();
        sleep(&mut [readable(&self.serving.group.stop.descriptor())], Some(pause)).map(drop)
    }
}

/// Counts a thread as free.
struct Free<'a>(&'a AtomicUsize);

impl<'a> Free<'a> {
    fn new(free: &'a AtomicUsize) -> Free<'a> {
        free.fetch_add(1, Ordering::Relaxed);
        Free(free)
    }
}

impl Drop for Free<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
