//! A process for each connection, forked when the connection is accepted and gone with it (SMPED, figure 2).
//!
//! ```text
//!                      ┌─ fork ─> child: serve one connection, add its counts, exit
//!   queue ──> forker ──┼─ fork ─> child
//!             accept_n └─ fork ─> child                      parent: watches the forker, serves nobody
//! ```
//!
//! The forker is the only worker of the parent, and has one thread: only such a process may fork and go on. When a
//! child ends, it gives the connection's slot back. So `--max-connections` bounds the processes. The parent answers 503
//! to further clients that have waited for a second. A client pays for a fork, and for a process that waits while the
//! client thinks.
//!
//! Children do not see later changes of the configuration. A child that is killed takes its counts along.
//!
//! Deviation: the forker gives up its access log, which would need a thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::setting::AnySetting;
use base::{Clock, Nanos, RealClock};
use connection::SocketService;
use dispatch::Trigger;
use overload::law::Sessions;
use rustix::process::Pid;
use sys::process::{Children, Fork};
use sys::readiness::epoll::{self, Operation, bits};
use sys::readiness::poll;
use sys::thread::stop::Stop;

use super::{FOUND_EMPTY, SINCE, TAKEN, WAITS};
use crate::config::serve::ServeConfig;
use crate::connections::accept::{Acceptor, Arrived, PhaseEnd};
use crate::connections::slots::{Share, Slot};
use crate::driver::blocking::{Awaited, Waiter, Woken, serve};
use crate::driver::lender::Lender;
use crate::driver::pools::waiters::readable;
use crate::ground::choices::{PROCESSES, Processes};
use crate::ground::counters::{Board, Counters, LoopCounts};
use crate::ground::error::{ServeError, system};
use crate::ground::listener::Listener;
use crate::ground::scoreboard::{self, Scoreboard};
use crate::processes::{Changed, Control, Heard, Worker, orphaned};
use crate::service::{Costly, SharedSite};

const CONTROL: u64 = 0;
const LISTENER: u64 = 1;
const CHILDREN: u64 = 2;
/// The longest time for which a full forker leaves the queue alone if no child ends.
const LOOK_AGAIN: Nanos = Nanos::SECOND;
/// Maximum events per call; the next call reports the others.
const EVENTS: usize = 64;

/// Refuses settings of the pool beside a process for each connection.
pub(super) fn refuse_what_it_has_not(config: &ServeConfig) -> Result<(), ServeError> {
    if config.chosen.get(&PROCESSES) != Some(Processes::PerConnection) {
        return Ok(());
    }
    let refused = |setting, given: String, why: &str| {
        Err(ServeError::Setting { setting, given, accepted: format!("{why}; leave out one of the two") })
    };
    if let Some(workers) = config.workers {
        return refused(
            "--workers",
            workers.to_string(),
            "--processes per-connection has a process for each",
        );
    }
    let is_of_pool = |flag| flag != PROCESSES.declaration().flag;
    if let Some((setting, given)) = config.chosen.iter().find(|(setting, _)| is_of_pool(setting.flag)) {
        let why = "--processes per-connection has one process that accepts, and no pool";
        return refused(setting.flag, given.to_owned(), why);
    }
    if !config.logs().is_empty() {
        let why = "--processes per-connection has no thread that writes it";
        return refused("--access-log", "a file".to_owned(), why);
    }
    Ok(())
}

/// Runs the forker until it was told to drain and its children have ended.
pub(super) fn work(mut worker: Worker, control: Control) -> Result<(), ServeError> {
    let inherited = std::mem::take(&mut worker.inherited).into_iter().skip(1);
    let listeners = worker.listeners(inherited)?;
    let forker = Forker::new(&worker, control, listeners).map_err(system("prepare to fork"))?;
    let changes = worker.reconfigurer();
    forker.run(&changes).map_err(system("fork a process for each connection"))
}

/// The process that accepts.
struct Forker<'a> {
    worker: &'a Worker,
    control: Control,
    listeners: Vec<Listener>,
    acceptor: Acceptor,
    share: Share,
    children: Children,
    /// The slots of the children's connections.
    slots: HashMap<Pid, Slot>,
    /// The control socket, the listeners and the children.
    set: OwnedFd,
    /// The counts of the children, which several of them may add to at once.
    totals: Arc<Scoreboard>,
    board: Board,
    counts: LoopCounts,
    service: Costly<SharedSite>,
    stop: Stop,
    clock: RealClock,
    /// The queue may have connections.
    accepts: bool,
    paused_until: Option<Nanos>,
    /// Connections taken so far, and accepts that found the queue empty.
    taken: u64,
    found_empty: u64,
}

impl<'a> Forker<'a> {
    fn new(worker: &'a Worker, control: Control, listeners: Vec<Listener>) -> io::Result<Forker<'a>> {
        let config = worker.plan.config();
        let share = Share::alone(config.max_connections);
        let service = super::service(worker);
        let names = service.counts().into_iter().map(|(name, _)| name).collect();
        let totals = Arc::new(Scoreboard::new(1, names, 0)?);
        let (of_children, gauge) = (Arc::clone(&totals), share.clone());
        let board = worker.board(move |counters: &mut Counters| {
            counters.add(&of_children.read(0));
            counters.connections = gauge.taken() as u64;
        });
        let (set, children) = (epoll::create()?, Children::new()?);
        epoll::control(&set, Operation::Add, children.as_fd().as_raw_fd(), bits::IN, CHILDREN)?;
        epoll::control(&set, Operation::Add, control.as_fd().as_raw_fd(), bits::IN, CONTROL)?;
        for listener in &listeners {
            epoll::control(&set, Operation::Add, listener.socket.as_raw_fd(), bits::IN, LISTENER)?;
        }
        let acceptor = worker.plan.acceptor(share.clone());
        let forker = Forker {
            worker,
            control,
            listeners,
            acceptor,
            share,
            children,
            slots: HashMap::new(),
            set,
            totals,
            board,
            counts: LoopCounts::default(),
            service,
            stop: Stop::new()?,
            clock: RealClock::new(),
            accepts: false,
            paused_until: None,
            taken: 0,
            found_empty: 0,
        };
        forker.says(SINCE, WAITS);
        Ok(forker)
    }

    fn run(mut self, changes: &dyn Fn(&Changed)) -> io::Result<()> {
        while !self.stop.asked() || !self.slots.is_empty() {
            self.publish();
            let mut events = [epoll::Event::EMPTY; EVENTS];
            let count = match epoll::wait(&self.set, &mut events, self.time_to_wait()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                waited => waited?,
            };
            for event in &events[..count] {
                match event.data() {
                    CONTROL => self.take_messages(changes)?,
                    LISTENER => self.accepts = true,
                    _ => self.bury()?,
                }
            }
            if self.paused_until.is_some_and(|until| until <= self.clock.now()) {
                self.pause(None)?;
            }
            if self.accepts && self.paused_until.is_none() && !self.stop.asked() {
                self.accept_phase()?;
            }
        }
        // The last children have counted since.
        self.publish();
        Ok(())
    }

    /// Shows the parent the counts of this process and of its children.
    fn publish(&mut self) {
        self.board.merge(&Counters { loops: std::mem::take(&mut self.counts), ..Counters::default() });
    }

    fn time_to_wait(&self) -> Option<Nanos> {
        match self.paused_until {
            _ if self.stop.asked() => None,
            Some(until) => Some(until.saturating_sub(self.clock.now())),
            None => self.accepts.then_some(Nanos::ZERO),
        }
    }

    /// Takes up to accept-limit connections and forks for each.
    fn accept_phase(&mut self) -> io::Result<()> {
        let (now, mut batch) = (self.clock.now(), Vec::new());
        if self.share.is_full() {
            // The parent answers those in the queue, once it has seen that this process is full.
            return self.pause(Some(now + LOOK_AGAIN));
        }
        let end = self.acceptor.phase(&self.listeners, now, &mut self.counts, &mut batch);
        self.accepts = end != PhaseEnd::Empty;
        self.found_empty += u64::from(end == PhaseEnd::Empty);
        self.taken += batch.len() as u64 + self.acceptor.take_refused();
        self.says(TAKEN, self.taken);
        self.says(FOUND_EMPTY, self.found_empty);
        match end {
            PhaseEnd::Pause(until) => self.pause(Some(until))?,
            // No descriptor is left.
            PhaseEnd::NoRoom(_) => self.pause(Some(now + LOOK_AGAIN))?,
            PhaseEnd::Empty | PhaseEnd::AtLimit => {}
        }
        let forked = self.fork_for_each(batch);
        self.says(SINCE, if self.share.is_full() { now.0 } else { WAITS });
        forked
    }

    /// Leaves the listeners alone until this time, or watches them again.
    fn pause(&mut self, until: Option<Nanos>) -> io::Result<()> {
        self.paused_until = until;
        let wanted = if until.is_some() { 0 } else { bits::IN };
        for listener in &self.listeners {
            epoll::control(&self.set, Operation::Modify, listener.socket.as_raw_fd(), wanted, LISTENER)?;
        }
        Ok(())
    }

    /// Forks for each connection.
    fn fork_for_each(&mut self, connections: impl IntoIterator<Item = Arrived>) -> io::Result<()> {
        let mut connections = connections.into_iter();
        while let Some(arrived) = connections.next() {
            self.fork_for(arrived, &mut connections)?;
        }
        Ok(())
    }

    /// Forks. The child serves the connection and never returns. It closes the others, which would stay open until
    /// its end.
    fn fork_for(&mut self, arrived: Arrived, others: impl Iterator<Item = Arrived>) -> io::Result<()> {
        match self.children.fork() {
            Ok(Fork::Child) => {
                others.for_each(drop);
                self.be_a_child(arrived)
            }
            Ok(Fork::Parent(child)) => {
                self.slots.insert(child, arrived.slot);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Err(error),
            Err(_) => {
                self.counts.no_thread += 1;
                let until = self.clock.now() + self.acceptor.next_pause();
                self.pause(Some(until))
            }
        }
    }

    /// Serves the connection, adds its counts, and exits.
    fn be_a_child(&mut self, arrived: Arrived) -> ! {
        // A client that connects after the server's end must not find a listener here.
        self.listeners.clear();
        let plan = &self.worker.plan;
        let lender = RefCell::new(Lender::new(self.service.clone(), plan.settings(), None, self.clock, 1));
        let drain_timeout = plan.config().drain_timeout;
        serve(
            arrived,
            &lender,
            &mut Alone {
                stop: &self.stop,
                slot: &self.worker.slot,
                clock: self.clock,
                drain_timeout,
                until: None,
            },
        );
        let mut lender = lender.into_inner();
        let mut counters = lender.take_totals(self.clock.now());
        counters.service = lender.service.counts();
        counters.loops.worker_cpu_time = sys::cpu::process_time().0 / 1_000;
        self.totals.add(0, &counters);
        std::process::exit(0)
    }

    /// Removes the children that have ended.
    fn bury(&mut self) -> io::Result<()> {
        while let Some((child, well)) = self.children.reap()? {
            self.slots.remove(&child);
            self.says(SINCE, WAITS);
            if !well {
                self.counts.worker_deaths += 1;
                self.counts.closed += 1;
            }
        }
        if self.paused_until.is_some() { self.pause(None) } else { Ok(()) }
    }

    /// Acts on the parent's messages.
    fn take_messages(&mut self, changes: &dyn Fn(&Changed)) -> io::Result<()> {
        loop {
            match self.control.receive()? {
                Heard::Nothing => return Ok(()),
                Heard::Changed(changed) => changes(&changed),
                // No connection waits for a process.
                Heard::Reclaim => {}
                Heard::Message(message) => {
                    let sockets = message.descriptors.into_iter();
                    let at = self.clock.now();
                    let passed = sockets.map(|socket| Arrived::passed(socket, at, &self.share));
                    self.fork_for_each(passed.collect::<Vec<_>>())?;
                }
                Heard::Drain => self.drain()?,
                Heard::Gone => orphaned(),
            }
        }
    }

    /// Takes no more connections, and tells the children to finish.
    fn drain(&mut self) -> io::Result<()> {
        if Listener::are_passed_on(&self.listeners) {
            // A connection may have woken only this process, and none of the one that now has the listeners.
            self.accept_phase()?;
        }
        if let Some(last) = self.acceptor.last_newcomer(self.clock.now()) {
            self.fork_for_each([last])?;
        }
        for listener in self.listeners.drain(..) {
            epoll::control(&self.set, Operation::Delete, listener.socket.as_raw_fd(), 0, 0)?;
        }
        self.stop.ask();
        Ok(())
    }

    fn says(&self, word: usize, value: u64) {
        self.worker.slot.own()[word].store(value, Ordering::Relaxed);
    }
}

/// A child's wait for its connection and the stop, in poll(2).
struct Alone<'a> {
    stop: &'a Stop,
    slot: &'a scoreboard::Slot,
    clock: RealClock,
    drain_timeout: Nanos,
    until: Option<Nanos>,
}

impl Waiter for Alone<'_> {
    const TRIGGER: Trigger = Trigger::Level;

    fn drain_until(&self) -> Option<Nanos> {
        self.until
    }

    fn sessions(&self) -> Sessions {
        self.slot.instructions().sessions
    }

    fn wait(&mut self, awaited: Awaited<'_>) -> Woken {
        let mut set = vec![awaited.watched()];
        // The stop stays readable. It is watched until the connection has been told.
        if !awaited.told {
            set.push(readable(&self.stop.descriptor()));
        }
        let timeout = awaited.until.saturating_sub(self.clock.now());
        // An interrupted wait counts as ready: the socket is tried again.
        let _ = poll::wait(&mut set, Some(timeout));
        if set.get(1).is_some_and(|stop| stop.reported() != 0) {
            self.until.get_or_insert(self.clock.now().saturating_add(self.drain_timeout));
        }
        Woken::Ready
    }

    fn pause(&mut self) {
        // The kernel shares the processor among processes.
    }

    fn closing(&mut self, _socket: BorrowedFd<'_>) {}
}
