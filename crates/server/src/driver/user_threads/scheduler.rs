//! The scheduler: decides which user-level thread runs, and when.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use base::{Clock, Key, Nanos, RealClock, Slab};
use connection::SocketService;
use corosensei::CoroutineResult;
use corosensei::stack::DefaultStack;
use dispatch::{Dispatcher, Event, Interest, Mechanism, Timers, Token};
use sys::thread::stop::Stop;

use super::{Ask, Body, Coroutine, STACK_BYTES, Shared, UserThread};
use crate::connections::overload_control::AcceptControl;
use crate::connections::overload_control::ControlledQueue;
use crate::driver::event_loop::{Parts, STOP, TIMER_SLOT, listener_token};
use crate::driver::lender::Lender;
use crate::driver::pools::full_pool::{self, Pool, Sleep, State};
use crate::ground::choices::IdleSessions;
use crate::ground::counters::{Board, Counters};
use crate::ground::listener::Listener;

/// The most stacks kept for later threads.
const SPARE_STACKS: usize = 1024;

struct RunningThread {
    coroutine: Coroutine,
    /// The end of the wait if the thread waits for its socket.
    until: Option<Nanos>,
    /// The time of the thread's earliest entry in the timers.
    comes_up: Nanos,
}

struct Scheduler<M, S> {
    shared: Rc<Shared<M, S>>,
    threads: Slab<RunningThread>,
    runnable: VecDeque<Key>,
    /// Threads that wait for connections. The last one is woken first, because its stack is the warmest.
    acceptors: Vec<Key>,
    spare: Vec<DefaultStack>,
    events: Vec<Event>,
    timers: Timers,
    due: Vec<Token>,
    clock: RealClock,
    now: Nanos,
    totals: Counters,
    board: Board,
    stop: Stop,
    drain_timeout: Nanos,
    /// The number of threads is fixed, so all of them can be busy. Then idle connections give way, or stay.
    pool: Option<IdleSessions>,
    watch: full_pool::Watch,
}

/// Runs `first` and the threads that it starts, until all have ended. `pool` is given if their number is fixed and each of
/// them accepts. Blocks.
///
/// # Errors
/// The mechanism cannot be set up, or fails because of a bug of Inrush; or the threads end without having been told to
/// stop.
pub fn run<M: Mechanism + 'static, S: SocketService + 'static>(
    parts: Parts<S>,
    pool: Option<IdleSessions>,
    first: impl FnOnce(&mut UserThread<'_, M, S>) + 'static,
) -> io::Result<()> {
    let mut this = Scheduler::<M, S>::new(parts, pool)?;
    this.spawn(Box::new(first));
    loop {
        this.run_the_runnable();
        if this.threads.is_empty() {
            break;
        }
        this.get_events()?;
        this.accept();
        this.expire();
    }
    this.publish();
    if this.stop.asked() { Ok(()) } else { Err(io::Error::other("no memory for user-level threads")) }
}

impl<M: Mechanism + 'static, S: SocketService + 'static> Scheduler<M, S> {
    fn new(parts: Parts<S>, pool: Option<IdleSessions>) -> io::Result<Self> {
        let clock = RealClock::new();
        let mut dispatcher = Dispatcher::configured(&parts.mechanism)?;
        for (index, listener) in parts.arrivals.listeners.iter().enumerate() {
            dispatcher.register_locked(listener.socket.as_fd(), listener_token(index), Interest::Read);
        }
        dispatcher.register(parts.stop.descriptor(), STOP, Interest::Read);
        let (ControlledQueue { listeners, control }, acceptor) = parts.arrivals.into_parts();
        let side_by_side = acceptor.share.most();
        let shared = Shared {
            dispatcher: RefCell::new(dispatcher),
            lender: RefCell::new(Lender::new(parts.service, parts.settings, parts.log, clock, side_by_side)),
            listeners: RefCell::new(listeners),
            acceptor: RefCell::new(acceptor),
            control: RefCell::new(control),
            idle_sessions: pool.unwrap_or_default(),
            idle: RefCell::default(),
            reclaimed: RefCell::default(),
            ready: Cell::new(true),
            last_taken: Cell::new(clock.now()),
            paused_until: Cell::new(None),
            drain_until: Cell::new(None),
            leftover: RefCell::default(),
            spawned: RefCell::default(),
            bereft: RefCell::default(),
        };
        Ok(Scheduler {
            shared: Rc::new(shared),
            threads: Slab::new(),
            runnable: VecDeque::new(),
            acceptors: Vec::new(),
            spare: Vec::new(),
            events: Vec::new(),
            timers: Timers::new(TIMER_SLOT, clock.now()),
            due: Vec::new(),
            clock,
            now: clock.now(),
            totals: Counters::default(),
            board: parts.board,
            stop: parts.stop,
            drain_timeout: parts.drain_timeout,
            pool,
            watch: full_pool::Watch::of(pool.unwrap_or_default()),
        })
    }

    fn spawn(&mut self, body: Body<M, S>) {
        let stack = self.spare.pop().map_or_else(|| DefaultStack::new(STACK_BYTES), Ok);
        let Ok(stack) = stack else {
            self.shared.lender.borrow_mut().counting().no_thread += 1;
            return;
        };
        let shared = Rc::clone(&self.shared);
        let key = self.threads.insert_with(|key| {
            let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
                body(&mut UserThread { key, yielder, shared, others_wait: false })
            });
            RunningThread { coroutine, until: None, comes_up: Nanos::MAX }
        });
        self.runnable.push_back(key);
    }

    /// The first phase: gives each runnable thread one turn, in order.
    fn run_the_runnable(&mut self) {
        for _ in 0..self.runnable.len() {
            if let Some(key) = self.runnable.pop_front() {
                self.resume(key);
            }
            for body in self.shared.spawned.take() {
                self.spawn(body);
            }
            self.runnable.extend(self.shared.bereft.take());
            self.run_the_reclaimed();
        }
    }

    /// Makes the threads runnable that must give up their connections.
    fn run_the_reclaimed(&mut self) {
        for key in self.shared.reclaimed.take() {
            // A thread that an event has made runnable sees the order by itself.
            let waits = self.threads.get_mut(key).and_then(|thread| thread.until.take());
            self.runnable.extend(waits.map(|_| key));
        }
    }

    fn resume(&mut self, key: Key) {
        let Some(thread) = self.threads.get_mut(key) else { return };
        match thread.coroutine.resume(()) {
            CoroutineResult::Yield(Ask::Socket(until)) => {
                thread.until = Some(until);
                if until < thread.comes_up {
                    thread.comes_up = self.timers.schedule(Token::from(key), until);
                }
            }
            CoroutineResult::Yield(Ask::Connections) => self.acceptors.push(key),
            CoroutineResult::Yield(Ask::Turn) => self.runnable.push_back(key),
            CoroutineResult::Yield(Ask::Children) => {}
            CoroutineResult::Return(()) => {
                let ended = self.threads.remove(key).expect("it was running");
                if self.spare.len() < SPARE_STACKS {
                    self.spare.push(ended.coroutine.into_stack());
                }
            }
        }
    }

    /// The second phase: waits if no thread is runnable, and wakes the threads whose sockets are ready.
    fn get_events(&mut self) -> io::Result<()> {
        self.watch_listeners();
        self.events.clear();
        let timeout = self.time_to_wait();
        self.shared.dispatcher.borrow_mut().wait(&mut self.events, timeout)?;
        self.now = self.clock.now();
        let mut lender = self.shared.lender.borrow_mut();
        lender.counts.waits += 1;
        lender.counts.events += self.events.len() as u64;
        for event in &self.events {
            let key = Key::from(event.token);
            match self.threads.get_mut(key) {
                Some(thread) => self.runnable.extend(thread.until.take().map(|_| key)),
                None if key.generation != 0 => lender.counts.stale_events += 1,
                None => self.shared.ready.set(self.shared.ready.get() || event.token != STOP),
            }
        }
        drop(lender);
        if self.shared.drain_until.get().is_none() && self.stop.asked() {
            self.begin_to_drain();
        }
        if self.shared.paused_until.get().is_some_and(|until| until <= self.now) {
            self.shared.paused_until.set(None);
            self.shared.ready.set(true);
        }
        Ok(())
    }

    fn time_to_wait(&mut self) -> Option<Nanos> {
        // No event reports connections that an acceptor has left in the queue.
        if !self.runnable.is_empty() || (self.shared.ready.get() && self.accepting()) {
            return Some(Nanos::ZERO);
        }
        let publish = self.shared.lender.borrow().publish_due();
        let full = self.when_full().and_then(|sleep| sleep.until);
        let tick = self.shared.control.borrow().as_ref().and_then(AcceptControl::wakes_at);
        let next = [self.timers.next(), self.shared.paused_until.get(), publish, full, tick];
        next.into_iter().flatten().min().map(|next| next.saturating_sub(self.now))
    }

    /// Returns true if a thread waits for connections and no pause is under way.
    fn accepting(&self) -> bool {
        !self.acceptors.is_empty() && self.shared.paused_until.get().is_none()
    }

    /// Returns the terms of the next sleep while every thread of a pool is busy; otherwise `None`.
    fn when_full(&mut self) -> Option<Sleep> {
        let is_full =
            self.pool.is_some() && self.acceptors.is_empty() && self.shared.drain_until.get().is_none();
        is_full.then(|| self.watch.sleep(&&*self.shared, self.now))
    }

    /// Watches the listeners if a thread can accept or a full pool needs watching. Otherwise a listener that stays
    /// ready would end every wait at once.
    fn watch_listeners(&mut self) {
        let watches = self.accepting() || self.when_full().is_some_and(|sleep| sleep.queues);
        let interest = if watches { Interest::Read } else { Interest::None };
        let mut dispatcher = self.shared.dispatcher.borrow_mut();
        for listener in &*self.shared.listeners.borrow() {
            dispatcher.modify(listener.socket.as_fd(), interest);
        }
    }

    /// The third phase: wakes one acceptor, which takes up to accept-limit connections. If it leaves some, the next
    /// round wakes another acceptor, behind the threads that have work. If no acceptor is free, an idle connection may
    /// give way.
    fn accept(&mut self) {
        if let Some(control) = &mut *self.shared.control.borrow_mut() {
            let unpublished = self.shared.lender.borrow_mut().late_connections();
            control.late_connections(self.totals.loops.late_connections + unpublished);
            control.occupied(self.shared.acceptor.borrow().share.occupancy());
            control.tick(self.now, &self.shared.listeners.borrow());
        }
        if !self.shared.ready.get() {
            return;
        }
        if self.accepting() {
            self.runnable.extend(self.acceptors.pop());
            self.watch = full_pool::Watch::of(self.shared.idle_sessions);
        } else if self.when_full().is_some_and(|sleep| sleep.queues) && self.shared.somebody_waits() {
            self.watch.check_pool(&mut &*self.shared, self.now);
            self.run_the_reclaimed();
        }
    }

    /// The last phase: deadlines, and counters that have become old.
    fn expire(&mut self) {
        self.timers.expire(self.now, &mut self.due);
        while let Some(token) = self.due.pop() {
            let key = Key::from(token);
            // A thread that has ended leaves its timer entries behind.
            let Some(thread) = self.threads.get_mut(key).filter(|thread| thread.comes_up <= self.now) else {
                continue;
            };
            thread.comes_up = Nanos::MAX;
            match thread.until {
                Some(until) if until <= self.now => {
                    thread.until = None;
                    self.runnable.push_back(key);
                }
                Some(until) => thread.comes_up = self.timers.schedule(token, until),
                None => {}
            }
        }
        if self.shared.lender.borrow().publish_due().is_some_and(|due| due <= self.now) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let mut lender = self.shared.lender.borrow_mut();
        self.totals.add(&lender.take_totals(self.now));
        self.totals.service = lender.service.counts();
        self.totals.connections = self.shared.acceptor.borrow().share.taken() as u64;
        self.totals.queue = Listener::queues(&self.shared.listeners.borrow());
        let dispatcher = self.shared.dispatcher.borrow();
        self.totals.loops.interest_applied = dispatcher.reconciled().applied;
        self.totals.loops.interest_taken_back = dispatcher.reconciled().taken_back;
        self.totals.loops.event_queue_overflows = dispatcher.counts().overflows;
        self.board.publish(self.totals.clone());
    }

    /// Takes the connections that still wait in the accept queues.
    fn take_the_queue(&self) {
        let (mut acceptor, listeners) = (self.shared.acceptor.borrow_mut(), self.shared.listeners.borrow());
        let (mut lender, mut leftover) = (self.shared.lender.borrow_mut(), self.shared.leftover.borrow_mut());
        listeners.iter().for_each(Listener::seal);
        acceptor.last_phase(&listeners, self.now, lender.counting(), &mut leftover);
    }

    /// Takes the connections that still wait in the accept queues, closes the queues, and tells every thread.
    fn begin_to_drain(&mut self) {
        self.shared.drain_until.set(Some(self.now.saturating_add(self.drain_timeout)));
        self.take_the_queue();
        self.shared.control.take().into_iter().for_each(|control| control.withdraw());
        let mut dispatcher = self.shared.dispatcher.borrow_mut();
        for listener in self.shared.listeners.take() {
            dispatcher.closing_shared(listener.socket.as_fd());
        }
        dispatcher.deregister(self.stop.descriptor());
        self.shared.paused_until.set(None);
        self.runnable.append(&mut self.acceptors.drain(..).collect());
        for key in self.threads.keys().collect::<Vec<_>>() {
            let thread = self.threads.get_mut(key).expect("its key was listed");
            self.runnable.extend(thread.until.take().map(|_| key));
        }
    }
}

/// The threads as a pool.
impl<M, S: SocketService> Pool for &Shared<M, S> {
    fn state(&self) -> State {
        State { serves: true, has_free: false, last_taken: self.last_taken.get() }
    }

    fn reclaim(&mut self, now: Nanos) -> bool {
        Shared::reclaim(self, now)
    }

    fn turn_away(&mut self, now: Nanos) {
        Shared::turn_away(self, now);
    }
}
