//! MP, multi-process: pre-forked worker processes, one connection at a time each, blocking (SMPED, section 2).
//!
//! ```text
//!             ┌─> worker process 1: accept_n, serve
//!   queue ────┼─> worker process 2: accept_n, serve         parent: starts, replaces, adds and ends
//!   (--wake)  └─> worker process n: accept_n, serve                 workers; serves nobody
//! ```
//!
//! MP is Apache's first architecture. All workers wait for the same listeners, which they inherit. The kernel
//! or a mutex gives a connection to one of them, and only that worker serves it. Workers share nothing but
//! the scoreboard. A worker that dies therefore takes only its own connection with it, and each worker pays
//! for a cache of its own. MP wins in isolation, and if requests block on the disk. It loses with more
//! connections than workers: even an idle connection holds a process while others wait in the queue. It also
//! pays for switching between processes.
//!
//! With `--processes per-connection` there is one worker, which forks a process for each connection (see
//! [`per_connection`]). The rest of this page is about the pool.
//!
//! The number of workers is fixed, or follows the load (`--min-spare`, `--max-spare`: see [`spares`]). The
//! mutex of `--wake mutex` records its holder, and the parent unlocks it if the holder dies. With `--wake one` the
//! parent is the waker; if a worker dies, it wakes another in its place. The connection
//! limit bounds the number of workers. The rest of the limit is the workers' share in one accept phase.
//!
//! While every worker serves, the parent watches the queue (see `driver/pools/full_pool`). It tells the worker
//! whose connection has been idle longest to close it.
//!
//! At the end the parent takes the connections in the accept queues, refuses later ones, and passes the taken
//! ones to idle workers. No connection that the kernel has accepted is lost.
//!
//! Deviations: workers sleep in poll(2) or epoll_wait(2), because a blocking accept or read ends neither at a
//! deadline nor at a shutdown. They are started anew and not forked (see `processes`). The paper's numbers
//! are Apache's: 150 workers.

mod per_connection;
mod spares;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Clock, Nanos};
use connection::SocketService;
use overload::law::Sessions;
use sys::thread::stop::Stop;

use self::spares::{Adjustment, SpareServers, Spares};
use super::Architecture;
use crate::config::serve::ServeConfig;
use crate::connections::accept::{AcceptLimit, Acceptor, Arrived, Short};
use crate::connections::overload_control::AcceptControl;
use crate::connections::overload_control::ControlledQueue;
use crate::connections::slots::Share;
use crate::driver::kernel_threads::{AcceptingThread, Controller, Group, ServingThread};
use crate::driver::lender::Lender;
use crate::driver::pools::full_pool::{self, Pool, State};
use crate::driver::pools::idle_threads::IdleThreads;
use crate::driver::pools::waiters::{Waiters, readable, sleep};
use crate::ground::choices::{Choice, IDLE_SESSIONS, IdleSessions, PROCESSES, Processes, WAKE, Wake};
use crate::ground::counters::{Board, Counters, LoopCounts};
use crate::ground::error::{ServeError, system};
use crate::ground::listener::Listener;
use crate::ground::scoreboard::{IDLE_FROM, Slot};
use crate::ground::threads::start_thread;
use crate::observation::access_log::{LogSender, LoopLog};
use crate::plan::{Opening, Plan, Started, addresses};
use crate::processes::{Control, Event, Fleet, Message, Reclaims, Role, Sent, Worker};
use crate::service::{Costly, SharedSite};

/// Default maximum of workers: Apache's MaxClients in the paper.
const WORKERS: usize = 150;
/// Maximum value of --workers, more processes than any machine should run.
const MOST_WORKERS: usize = 10_000;
/// Workers at the start if their number follows the load: Apache's StartServers.
const START: usize = 5;
/// Interval of checking the number of idle workers, as in Apache.
const LOOK_EVERY: Nanos = Nanos::SECOND;
/// Additional time for workers to end after their own drain timeout.
const PATIENCE: Nanos = Nanos::SECOND;
/// Descriptors of the parent per worker: a pidfd and a control socket.
const DESCRIPTORS_PER_WORKER: usize = 2;

/// The words of a worker in shared memory, all 0 before it has begun: the time since which its connection has
/// been idle ([`IDLE_FROM`]); the time when it took the connection that it serves, in nanoseconds, or
/// [`WAITS`]; the number of connections that it took; the number of accepts that found the queue empty.
const SINCE: usize = IDLE_FROM + 1;
const TAKEN: usize = SINCE + 1;
const FOUND_EMPTY: usize = TAKEN + 1;
const WORDS: usize = FOUND_EMPTY + 1;
/// The worker waits for a connection.
const WAITS: u64 = 1;

pub const MP: Architecture = Architecture {
    name: "mp",
    summary: "worker processes, one connection at a time each",
    accept_limit: AcceptLimit::Adaptive,
    descriptors: |config| config.open_files() + most_workers(config) * DESCRIPTORS_PER_WORKER,
    spreads: true,
    uses: &[Choice::Overload],
    settings: &[&WAKE, &PROCESSES, &IDLE_SESSIONS, &spares::MINIMUM, &spares::MAXIMUM],
    // A worker's own accept queue would lose its connections with the worker.
    wakes: &[Wake::Exclusive, Wake::EpollExclusive, Wake::One, Wake::Mutex, Wake::All],
    fits,
    start,
    work: Some(work),
};

/// Maximum workers at once, at most the number of allowed connections.
fn most_workers(config: &ServeConfig) -> usize {
    match config.chosen.get(&PROCESSES) {
        Some(Processes::PerConnection) => 1,
        _ => config.workers.unwrap_or(WORKERS).min(config.max_connections),
    }
}

fn fits(config: &ServeConfig) -> Result<(), ServeError> {
    let most = most_workers(config);
    if most > MOST_WORKERS {
        return Err(ServeError::Setting {
            setting: "--workers",
            given: config.workers.unwrap_or(WORKERS).to_string(),
            accepted: format!("mp has 1 to {MOST_WORKERS} worker processes"),
        });
    }
    per_connection::refuse_what_it_has_not(config)?;
    Spares::chosen(&config.chosen)?;
    MP.wake(config).map(drop)
}

fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let config = plan.config();
    let most = most_workers(config);
    let spares = Spares::chosen(&config.chosen)?;
    let wake = MP.wake(config)?;
    let (ControlledQueue { listeners, control }, opened) = opening.listen_once(plan)?;
    let addresses = addresses(&listeners);
    let waiters = Waiters::new(wake, &listeners).map_err(system("make the waiters"))?;
    let inherited = to_inherit(&waiters, &listeners).map_err(system("share the listeners"))?;
    let service = SharedSite::of_one_thread(plan.hosts()).counts();
    let role = Role {
        architecture: MP.name,
        noun: "worker",
        places: most,
        service: service.into_iter().map(|(name, _)| name).collect(),
        serves: true,
        own_words: WORDS,
    };
    let fleet = Fleet::new(plan, role, inherited)?;
    let listeners = Arc::new(listeners);
    // The board outlives the thread, and must not keep the listeners open.
    let (workers, queues) = (fleet.board(), Arc::downgrade(&listeners));
    let board = Board::with_live(move |counters| {
        counters.add(&workers.read());
        if let Some(listeners) = queues.upgrade() {
            counters.queue = Listener::queues(&listeners);
        }
    });
    let stop = Stop::new().map_err(system("make an eventfd"))?;
    let lives = vec![Default::default(); fleet.places()];
    let parent = Parent {
        fleet,
        waiters,
        listeners,
        acceptor: plan.acceptor(Share::alone(usize::MAX)),
        turned_away: 0,
        reclaims: Reclaims::default(),
        idle_sessions: config.chosen.get(&IDLE_SESSIONS).unwrap_or_default(),
        control,
        board: board.clone(),
        stop: stop.clone(),
        spares: spares.map(|spares| SpareServers::new(spares, most)),
        first: spares.map_or(most, |_| START.min(most)),
        max_connections: config.max_connections,
        drain_timeout: config.drain_timeout,
        processors: plan.cpus().len(),
        lives,
    };
    let cpus = config.cpus.clone();
    let running = start_thread("mp".to_owned(), &cpus, stop, board, addresses, move || parent.run())?;
    Ok(Started { loops: vec![running], opened })
}

/// The descriptors that workers inherit: the memory of the waiters, and the listeners.
fn to_inherit(waiters: &Waiters, listeners: &[Listener]) -> io::Result<Vec<OwnedFd>> {
    let sockets = listeners.iter().map(|listener| listener.socket.try_clone());
    std::iter::once(waiters.memory().try_clone_to_owned()).chain(sockets).collect()
}

/// The parent's thread, which watches over the workers.
struct Parent {
    fleet: Fleet,
    waiters: Waiters,
    listeners: Arc<Vec<Listener>>,
    /// Accepts connections that no worker takes.
    acceptor: Acceptor,
    /// Connections turned away so far.
    turned_away: u64,
    reclaims: Reclaims,
    idle_sessions: IdleSessions,
    control: Option<AcceptControl>,
    board: Board,
    stop: Stop,
    spares: Option<SpareServers>,
    /// Number of workers at the start.
    first: usize,
    /// Maximum connections at once, over all workers.
    max_connections: usize,
    drain_timeout: Nanos,
    /// The number of processors that serve.
    processors: usize,
    /// Of each place, what its workers have counted as taken, and as the queue found empty.
    lives: Vec<[Lives; 2]>,
}

/// A count of the workers of one place, each of which begins at 0.
#[derive(Clone, Copy, Default)]
struct Lives {
    gone: u64,
    last: u64,
}

impl Lives {
    /// Returns the count of all of them, from that of the present one.
    fn of_all(&mut self, count: u64) -> u64 {
        if count < self.last {
            self.gone += self.last;
        }
        self.last = count;
        self.gone + count
    }
}

impl Parent {
    fn run(mut self) -> io::Result<()> {
        let clock = self.fleet.clock();
        for place in 0..self.first {
            self.fleet.start(place).map_err(io::Error::other)?;
        }
        let mut look = clock.now() + LOOK_EVERY;
        let mut watch = full_pool::Watch::of(self.idle_sessions);
        self.control.iter().for_each(AcceptControl::watch_from_this_thread);
        while !self.stop.asked() {
            let now = clock.now();
            let full = watch.sleep(&self, now);
            let looks = self.spares.is_some().then_some(look);
            let tick = self.control.as_ref().and_then(AcceptControl::watches_at);
            let next = [self.fleet.due(), looks, full.until, tick].into_iter().flatten().min();
            let mut set = [self.stop.descriptor(), self.fleet.ready()].map(|ready| readable(&ready)).to_vec();
            set.extend(self.waiters.calls_the_waker().iter().map(readable));
            let first_queue = set.len();
            if full.queues {
                set.extend(self.listeners.iter().map(|listener| readable(&listener.socket)));
            }
            sleep(&mut set, next.map(|next| next.saturating_sub(now)))?;
            self.handle_workers()?;
            self.waiters.wake(&self.listeners, &self.acceptor.limit)?;
            self.tick(clock.now());
            if set[first_queue..].iter().any(|queue| queue.reported() != 0) {
                self.control.iter_mut().for_each(AcceptControl::stir);
                watch.check_pool(&mut self, clock.now());
            }
            if clock.now() >= look {
                look = clock.now() + LOOK_EVERY;
                self.adjust();
            }
        }
        self.end()
    }

    /// Controls the accept queue by the number of connections that the workers and the parent have taken from it.
    fn tick(&mut self, now: Nanos) {
        let occupancy = self.open_connections() as f64 / self.max_connections as f64;
        let Some(control) = &mut self.control else { return };
        let mut all = |index: usize, word: usize| -> u64 {
            let reported = |(place, lives): (usize, &mut [Lives; 2])| {
                lives[index].of_all(self.fleet.own(place)[word].load(Ordering::Relaxed))
            };
            self.lives.iter_mut().enumerate().map(reported).sum()
        };
        let (taken, found_empty) = (all(0, TAKEN), all(1, FOUND_EMPTY));
        control.progress(taken + self.turned_away, found_empty);
        control.late_connections(self.fleet.late_connections());
        control.occupied(occupancy);
        control.tick(now, &self.listeners);
        self.fleet.instruct(control.instructions(self.processors));
    }

    /// Handles the events of workers.
    fn handle_workers(&mut self) -> io::Result<()> {
        let mut events = Vec::new();
        self.fleet.handle_events(&mut events)?;
        events.iter().for_each(|event| bury(&self.waiters, event));
        Ok(())
    }

    /// The time at which a worker took the connection that it serves, as far as it has reported; at most
    /// [`WAITS`] if it serves none.
    fn since(&self, place: usize) -> u64 {
        if self.fleet.runs(place) { self.fleet.own(place)[SINCE].load(Ordering::Relaxed) } else { 0 }
    }

    /// The open connections of all workers. A busy worker has at least one, and shows their number rarely.
    fn open_connections(&self) -> u64 {
        let open = |place| self.fleet.connections(place).max(u64::from(self.since(place) > WAITS));
        (0..self.fleet.places()).map(open).sum()
    }

    /// True if a worker serves no connection, as far as it has reported.
    fn idle(&self, place: usize) -> bool {
        self.fleet.runs(place) && self.since(place) <= WAITS
    }

    fn publish(&self, loops: LoopCounts) {
        self.board.merge(&Counters { loops, ..Counters::default() });
    }

    /// Starts or ends workers if their number follows the load.
    fn adjust(&mut self) {
        let Some(mut spares) = self.spares.take() else { return };
        let places = 0..spares.most();
        let idle: Vec<usize> = places.clone().filter(|place| self.idle(*place)).collect();
        let vacant = places.filter(|place| self.fleet.is_vacant(*place)).collect::<Vec<_>>();
        match spares.adjust(idle.len(), vacant.len()) {
            Adjustment::None => {}
            Adjustment::AtLimit => self.publish(LoopCounts { limit_workers: 1, ..LoopCounts::default() }),
            // Retires the last idle one, as Apache does, so that those in front stay warm.
            Adjustment::End => idle.last().into_iter().for_each(|place| self.fleet.retire(*place)),
            Adjustment::Start(count) => {
                for place in vacant.into_iter().take(count) {
                    if let Err(error) = self.fleet.start(place) {
                        sys::say!(
                            "inrush: {error}; the server checks the number of workers again in {LOOK_EVERY}"
                        );
                        break;
                    }
                }
            }
        }
        self.spares = Some(spares);
    }

    /// Lets idle workers serve the connections in the queue, refuses later ones, and waits for all workers to
    /// end.
    fn end(mut self) -> io::Result<()> {
        self.control.iter().for_each(AcceptControl::withdraw);
        let taken = self.take_the_queue();
        for listener in &*self.listeners {
            // Workers may be waiting on the listener, so closing it would not shut it down.
            listener.hand_over();
        }
        self.pass_on(&taken);
        let Parent { fleet, waiters, drain_timeout, .. } = &mut self;
        fleet.end(drain_timeout.saturating_add(PATIENCE), |event| bury(waiters, &event))
    }

    fn take_the_queue(&mut self) -> Vec<Arrived> {
        let (now, mut counts, mut taken) = (self.fleet.clock().now(), LoopCounts::default(), Vec::new());
        self.listeners.iter().for_each(Listener::seal);
        self.acceptor.last_phase(&self.listeners, now, &mut counts, &mut taken);
        // The worker that serves a connection counts it.
        self.publish(LoopCounts { accepts: 0, accept_phases: 0, ..counts });
        taken
    }

    /// Passes connections to workers in turn, to idle ones if there are any.
    fn pass_on(&self, taken: &[Arrived]) {
        let running: Vec<usize> = (0..self.fleet.places()).filter(|place| self.fleet.runs(*place)).collect();
        let idle: Vec<usize> = running.iter().copied().filter(|place| self.idle(*place)).collect();
        let takers = if idle.is_empty() { running } else { idle };
        let mut lost = if takers.is_empty() { taken.len() } else { 0 };
        for (arrived, place) in taken.iter().zip(takers.iter().cycle()) {
            let sent = self.fleet.send(*place, b"", &[arrived.socket.as_fd()]);
            lost += usize::from(!matches!(sent, Ok(Sent::Yes)));
        }
        if lost > 0 {
            self.publish(LoopCounts { cut_off_at_shutdown: lost as u64, ..LoopCounts::default() });
            sys::say!(
                "inrush: {lost} connections in the accept queue are lost: no worker process could take them"
            );
        }
    }
}

impl Pool for Parent {
    fn state(&self) -> State {
        let places = || (0..self.fleet.places()).filter(|place| !self.fleet.is_vacant(*place));
        let since = |place| self.since(place);
        let may_start = self.spares.is_some() && places().count() < self.fleet.places();
        State {
            serves: places().any(|place| since(place) > WAITS),
            // A worker that has died is about to be replaced.
            has_free: may_start || places().any(|place| since(place) <= WAITS && !self.fleet.retires(place)),
            last_taken: Nanos(places().map(since).max().unwrap_or(0)),
        }
    }

    fn reclaim(&mut self, now: Nanos) -> bool {
        let mut reclaims = std::mem::take(&mut self.reclaims);
        let wanting = || !self.state().has_free && Listener::any_waits(&self.listeners);
        let will_be_free = reclaims.reclaim(&self.fleet, |_| true, wanting, now);
        self.reclaims = reclaims;
        will_be_free
    }

    fn turn_away(&mut self, now: Nanos) {
        let mut counts = LoopCounts::default();
        self.acceptor.turn_away_phase(&self.listeners, Short::Connections, now, &mut counts);
        self.turned_away += self.acceptor.take_refused();
        self.publish(counts);
    }
}

/// Removes a worker that is gone from the waiters.
fn bury(waiters: &Waiters, event: &Event) {
    if let Event::Died(place) | Event::Ended(place) = event {
        waiters.bury(*place);
    }
}

/// The parent, as it appears in a worker's memory.
struct ByParent(Arc<Slot>);

impl Controller for ByParent {
    fn show_empty(&self, count: u64) {
        self.0.own()[FOUND_EMPTY].store(count, Ordering::Relaxed);
    }

    fn sessions(&self) -> Sessions {
        self.0.instructions().sessions
    }
}

/// Returns the service of a process that serves one connection at a time.
fn service(worker: &Worker) -> Costly<SharedSite> {
    worker.plan.costly(SharedSite::of_one_thread(worker.plan.hosts()))
}

/// Runs a worker process: it takes up to accept-limit connections, serves them in turn, and repeats.
fn work(mut worker: Worker, control: Control) -> Result<(), ServeError> {
    if worker.plan.config().chosen.get(&PROCESSES) == Some(Processes::PerConnection) {
        return per_connection::work(worker, control);
    }
    // The worker does not keep the short turns of the parent's thread.
    let _ = sys::thread::set_slice(Nanos::ZERO);
    let mut inherited = std::mem::take(&mut worker.inherited).into_iter();
    let waiters = inherited.next().ok_or(ServeError::NoParent)?;
    let listeners = worker.listeners(inherited)?;
    let config = worker.plan.config();
    let share = config.max_connections / most_workers(config);
    let wake = MP.wake(config)?;
    let waiters = Waiters::open(wake, waiters, worker.place).map_err(system("map the waiters"))?;
    let slot = Arc::clone(&worker.slot);
    let idle = IdleThreads::shown_to(move |from| slot.show_idle(from));
    let share = Share::alone(share);
    let group =
        Group::among_processes(waiters, listeners, share.clone(), idle, ByParent(Arc::clone(&worker.slot)));
    let idle_sessions = config.chosen.get(&IDLE_SESSIONS).unwrap_or_default();
    let group = Arc::new(group.map_err(system("make an eventfd"))?.with_idle_sessions(idle_sessions));
    let service = service(&worker);
    let (gauges, totals, log) = (Arc::clone(&group), service.clone(), worker.plan.log());
    let board = worker.board(move |counters: &mut Counters| {
        counters.connections = gauges.connections();
        counters.service = totals.counts();
        counters.loops.log_lines_dropped = log.as_ref().map_or(0, LogSender::dropped);
    });
    let (takes, ends, drain_timeout) = (Arc::clone(&group), Arc::clone(&group), config.drain_timeout);
    let (gives_way, published) = (Arc::clone(&group), board.clone());
    let reclaim = move || {
        let mut loops = LoopCounts::default();
        gives_way.reclaim(|| true, &mut loops);
        published.merge(&Counters { loops, ..Counters::default() });
    };
    let hand_over = move |message: Message| takes.hand_over(message.descriptors);
    worker.obey(control, hand_over, reclaim, move || ends.end_within(drain_timeout))?;
    let log = worker.plan.log().map(LoopLog::new);
    let lender = Lender::new(service, worker.plan.settings(), log, group.clock(), 1);
    let serving = ServingThread::new(&group, lender, board);
    let acceptor = worker.plan.acceptor(share);
    let mut thread =
        AcceptingThread::new(serving, acceptor, worker.place).map_err(system("make an interest set"))?;
    let says = |word: usize, value| worker.slot.own()[word].store(value, Ordering::Relaxed);
    let mut taken = 0;
    loop {
        says(SINCE, WAITS);
        let batch = thread.accept_n().map_err(system("wait for connections"))?;
        if batch.is_empty() {
            return Ok(());
        }
        taken += batch.len() as u64;
        says(TAKEN, taken);
        says(SINCE, group.clock().now().0);
        thread.serving.serve(batch);
    }
}
