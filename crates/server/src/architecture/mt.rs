//! MT, multi-threaded: kernel threads, each with one connection at a time, blocking (SMPED, section 2).
//!
//! ```text
//!   pool                                      per-connection
//!             ┌─> thread 1: accept_n, serve            acceptor: accept_n
//!   queue ────┼─> thread 2: accept_n, serve   queue ──>   |
//!   (--wake)  └─> thread n: accept_n, serve               └─> a thread each: serve, end
//! ```
//!
//! With accept-limit n a thread of the pool takes up to n connections and serves them one after another
//! before it accepts again. All threads share one cache, which MP cannot do. The cache is striped, so a cold
//! file delays few threads, and a thread that waits for a disk blocks no other. MT wins with files that are
//! not in memory and with several processors. It loses with more connections than threads:
//!
//! - Each idle connection holds a thread of the pool while others wait in the queue.
//! - With an accept-limit above 1, a connection may wait behind others of its batch.
//! - With `--wake reuseport`, a connection waits in the queue of a busy thread while other threads sleep.
//!
//! A thread per connection has no such wait. It costs a start per connection and, under load, as many
//! switches as connections.
//!
//! Deviations: threads sleep in poll(2), because a blocking read ends neither at a deadline nor at a
//! shutdown. The paper's numbers are Apache's: 150 threads.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};

use base::lock;
use base::setting::{Declaration, Setting};
use connection::{LiveSettings, SocketService};
use sys::thread::stop::Stop;

use super::Architecture;
use crate::config::serve::ServeConfig;
use crate::connections::accept::{AcceptLimit, Acceptor};
use crate::connections::overload_control::{AcceptControl, ControlledQueue};
use crate::connections::slots::Share;
use crate::driver::kernel_threads::{AcceptingThread, Group, ServingThread};
use crate::driver::lender::Lender;
use crate::ground::choices::{Choice, IDLE_SESSIONS, Switch, WAKE, Wake, named};
use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::listener::Listener;
use crate::ground::threads::{EndsTheServer, start_thread};
use crate::observation::access_log::{LogSender, LoopLog};
use crate::plan::{Opened, Opening, Plan, Started, addresses};
use crate::service::{Costly, SharedSite};

/// Default threads of a pool: Apache's MaxClients in the paper.
const POOL: usize = 150;
/// Stack of a thread, several times the need. The default of 2 MiB per thread would add up.
const STACK_BYTES: usize = 256 * 1024;

named! {
    /// The origin of threads.
    #[derive(Default)]
    Threads {
        /// A fixed number, started before the first connection.
        #[default]
        Pool = "pool",
        /// A thread for each connection.
        PerConnection = "per-connection",
    }
}

static THREADS: Setting<Threads> = Setting::new(Declaration {
    flag: "--threads",
    value: "SOURCE",
    help: "use a pool of threads or start one per connection: pool (default) or per-connection",
    more: None,
    without: "has one thread for each loop",
    in_kernel: None,
});

pub const MT: Architecture = Architecture {
    name: "mt",
    summary: "kernel threads, one connection at a time each",
    accept_limit: AcceptLimit::Adaptive,
    descriptors: |config| config.open_files() + pool(config) * descriptors_per_thread(config),
    spreads: true,
    uses: &[Choice::Overload, Choice::LoadReports, Choice::ClientLimits],
    settings: &[&WAKE, &THREADS, &IDLE_SESSIONS],
    wakes: &[Wake::Exclusive, Wake::EpollExclusive, Wake::One, Wake::Mutex, Wake::All, Wake::Reuseport],
    fits,
    start,
    work: None,
};

fn pool(config: &ServeConfig) -> usize {
    config.workers.unwrap_or(POOL)
}

/// Descriptors of a thread: its interest set, or its accept queues.
fn descriptors_per_thread(config: &ServeConfig) -> usize {
    if config.chosen.get(&WAKE) == Some(Wake::Reuseport) { config.addresses().count() } else { 1 }
}

/// The shared state of the threads.
struct Crew {
    group: Arc<Group>,
    service: Costly<SharedSite>,
    settings: LiveSettings,
    /// The model for the acceptors of all threads.
    acceptor: Acceptor,
    log: Option<LogSender>,
    board: Board,
    /// The first error that ended a thread.
    failure: Mutex<Option<io::Error>>,
}

type Accepting<'a> = AcceptingThread<'a, Costly<SharedSite>>;

fn fits(config: &ServeConfig) -> Result<(), ServeError> {
    match config.chosen.get(&THREADS).unwrap_or_default() {
        Threads::Pool => MT.wake(config).map(drop),
        Threads::PerConnection => refuse_what_only_a_pool_has(config),
    }
}

fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let config = plan.config();
    let threads = config.chosen.get(&THREADS).unwrap_or_default();
    // A lone acceptor needs no choice among waiters.
    let (acceptors, wake) = match threads {
        Threads::Pool => (pool(config), MT.wake(config)?),
        Threads::PerConnection => (1, Wake::All),
    };
    let ((sets, control), opened) = queues(plan, opening, wake, acceptors)?;
    let addresses = addresses(&sets[0]);
    let share = Share::alone(config.max_connections);
    let acceptor = plan.acceptor(share.clone());
    let group = Group::new(sets, share, wake).map_err(system("make the waiters"))?;
    let group = Arc::new(group.with_idle_sessions(config.chosen.get(&IDLE_SESSIONS).unwrap_or_default()));
    let service = plan.costly(SharedSite::new(plan.hosts()));
    // The board outlives the group, and must not keep its listeners open.
    let (gauges, totals) = (Arc::downgrade(&group), service.clone());
    let board = Board::with_live(move |counters| {
        if let Some(group) = gauges.upgrade() {
            group.add_gauges(counters);
        }
        counters.service = totals.counts();
    });
    let stop = Stop::new().map_err(system("make an eventfd"))?;
    let crew = Crew {
        group,
        service,
        settings: plan.settings(),
        acceptor,
        log: plan.log(),
        board: board.clone(),
        failure: Mutex::default(),
    };
    let (asked, workers, drain_timeout) = (stop.clone(), pool(config), config.drain_timeout);
    let body = move || {
        let ended = std::thread::scope(|scope| {
            let _guard = crew.group.abandoned_on_panic();
            let ended = crew.start(scope, threads, workers).and_then(|mut acceptor| {
                crew.group.stop_when(&asked, &mut acceptor, control, drain_timeout, &crew.board)
            });
            if ended.is_err() {
                crew.group.abandon();
            }
            ended
        });
        crew.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(ended, Err)
    };
    let running = start_thread("mt".to_owned(), &config.cpus, stop, board, addresses, body)?;
    Ok(Started { loops: vec![running], opened })
}

/// The listeners of each accept queue, and the control of the only one.
type Queues = (Vec<Vec<Listener>>, Option<AcceptControl>);

/// Opens the accept queues: one for all threads, with overload control, or one for each.
fn queues(
    plan: &Plan,
    opening: Opening,
    wake: Wake,
    acceptors: usize,
) -> Result<(Queues, Opened), ServeError> {
    if wake != Wake::Reuseport {
        let (ControlledQueue { listeners, control }, opened) = opening.listen_once(plan)?;
        return Ok(((vec![listeners], control), opened));
    }
    if plan.config().overload != Some(Switch::Off) {
        sys::say!(
            "inrush: overload control is off: with --wake reuseport each thread has an accept queue of its own"
        );
    }
    let (sets, opened) = opening.listen_uncontrolled(plan, acceptors)?;
    Ok(((sets, None), opened))
}

fn refuse_what_only_a_pool_has(config: &ServeConfig) -> Result<(), ServeError> {
    let refusal = |setting, given: String| ServeError::Setting {
        setting,
        given,
        accepted: "only --threads pool has it: per connection, one thread accepts and starts the others"
            .to_owned(),
    };
    match (config.workers, config.chosen.get(&WAKE), config.chosen.get(&IDLE_SESSIONS)) {
        (Some(workers), ..) => Err(refusal("--workers", workers.to_string())),
        (None, Some(wake), _) => Err(refusal("--wake", wake.to_string())),
        (None, None, Some(idle)) => Err(refusal("--idle-sessions", idle.to_string())),
        (None, None, None) => Ok(()),
    }
}

impl Crew {
    fn serving(&self) -> ServingThread<'_, Costly<SharedSite>> {
        let log = self.log.clone().map(LoopLog::new);
        let clock = self.group.clock();
        let lender = Lender::new(self.service.clone(), self.settings.clone(), log, clock, 1);
        ServingThread::new(&self.group, lender, self.board.clone())
    }

    fn accepting(&self, index: usize) -> io::Result<Accepting<'_>> {
        AcceptingThread::new(self.serving(), self.acceptor.another(), index)
    }

    /// Starts the first threads of the group, and returns the acceptor for its end. The descriptors of the
    /// threads are made before any thread can take one for a connection.
    fn start<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        threads: Threads,
        workers: usize,
    ) -> io::Result<Acceptor> {
        let last = self.acceptor.another();
        match threads {
            Threads::Pool => {
                let workers =
                    (0..workers).map(|index| self.accepting(index)).collect::<io::Result<Vec<_>>>()?;
                for (index, worker) in workers.into_iter().enumerate() {
                    self.start_worker(scope, index, worker)?;
                }
            }
            Threads::PerConnection => self.start_acceptor(scope, self.accepting(0)?)?,
        }
        Ok(last)
    }

    /// Starts a thread that the group needs to go on.
    fn start_thread<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        name: String,
        body: impl FnOnce() -> io::Result<()> + Send + 'scope,
    ) -> io::Result<()> {
        let guard = EndsTheServer(self.group.stop().clone());
        let body = move || {
            let _guard = guard;
            if let Err(error) = body() {
                *lock(&self.failure) = Some(error);
            }
        };
        Builder::new().name(name).stack_size(STACK_BYTES).spawn_scoped(scope, body).map(drop)
    }

    /// Starts a thread of the pool: it takes up to accept-limit connections, serves them in turn, and
    /// repeats.
    fn start_worker<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        index: usize,
        mut worker: Accepting<'env>,
    ) -> io::Result<()> {
        self.start_thread(scope, format!("mt-{index}"), move || {
            loop {
                let batch = worker.accept_n()?;
                if batch.is_empty() {
                    return Ok(());
                }
                worker.serving.serve(batch);
            }
        })
    }

    /// Starts the thread that accepts all connections and starts a thread for each.
    fn start_acceptor<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        mut acceptor: Accepting<'env>,
    ) -> io::Result<()> {
        self.group.has_free_thread();
        self.start_thread(scope, "mt-acceptor".to_owned(), move || {
            loop {
                let batch = acceptor.accept_n()?;
                if batch.is_empty() {
                    return Ok(());
                }
                for arrived in batch {
                    let mut serving = self.serving();
                    let serve = move || {
                        serving.serve(vec![arrived]);
                        serving.publish();
                    };
                    let named = Builder::new().name("mt-connection".to_owned()).stack_size(STACK_BYTES);
                    if named.spawn_scoped(scope, serve).is_err() {
                        acceptor.without_thread()?;
                    }
                }
            }
        })
    }
}
