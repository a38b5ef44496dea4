//! SMPED, symmetric multi-process event-driven: a dispatcher and a pool of SPED workers (SMPED).
//!
//! ```text
//!             ┌────────────── dispatcher ──────────────┐  descriptors   ┌────────────────────┐
//!             │            feedback handler (T_i, C_i)<─────────────────┤                    │
//!   queue ───>│ acceptor ─> scheduler ─────────────────────────────────>│ worker process: a  │
//!             │            resource controller ───────────starts, stops─>│ SPED loop          │
//!             └────────────────────────────────────────┘                └────────────────────┘
//!                            replies each period, closed connections at once
//! ```
//!
//! The [`scheduler`] chooses the worker of a connection, by the data of the [`feedback`] handler.
//! [`resources`] decides on the number of workers, and [`relief`] on a C_max that adapts itself. The [`pool`] is the
//! account that joins them, and the [`dispatcher`] is the loop around it. [`handover`] and [`messages`] carry
//! connections to the [`worker`]s. The workers use the chosen event mechanism.
//!
//! SMPED wins if the cost of a wait grows with the connections, as with select and poll, because each worker
//! waits for few. It wins if some connections block a loop, because only connections of the same worker wait,
//! and it wins with several processors. It loses to one loop on mechanisms whose cost does not depend on the
//! number of connections. Passing a descriptor and learning of its end cost some microseconds per connection,
//! and each worker has a cache of its own.
//!
//! With `--handoff kernel` there is no dispatcher ([`steering`]). Each worker has accept queues of its own, and a program
//! in the kernel applies the same schedule at each SYN. Without the capabilities for it, the dispatcher passes descriptors.
//!
//! A worker that dies takes its connections with it. Connections that it had not begun are placed anew, and
//! the accept queue loses nothing. A worker that is stopped or waits for its disk may not begin a connection
//! within 100 ms. The dispatcher then places that connection anew as well, and gives the worker no new ones
//! until it answers ([`handover`]).
//!
//! Deviations, where the paper is silent: see the modules. If all workers are full (step 6), the server
//! closes the longest-idle connection for the new one. If no connection is idle, it turns the new one away.

mod dispatcher;
mod feedback;
mod handover;
mod messages;
mod pool;
mod relief;
mod resources;
mod scheduler;
mod settings;
mod steering;
mod worker;

use base::{Clock, Nanos, Seed};

use super::Architecture;
use crate::config::serve::ServeConfig;
use crate::connections::accept::AcceptLimit;
use crate::connections::slots::Share;
use crate::driver::event_loop::Listeners;
use crate::ground::choices::{Choice, named};
use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::setting::{Declaration, Setting};
use crate::ground::stop::Stop;
use crate::ground::threads::start_thread;
use crate::plan::{Opening, Plan, Started, addresses};
use crate::processes::{Control, Fleet, Role, Worker};
use dispatcher::Parts;
use pool::Pool;
use relief::Relief;
use settings::SmpedSettings;

/// Descriptors of the dispatcher per worker: a pidfd and a control socket.
const DESCRIPTORS_PER_WORKER: usize = 2;
/// Descriptors of a worker beside its connections: control socket, mechanism, shared memory, log, root, and
/// headroom for files.
const WORKERS_OWN: u64 = 24;
/// Further descriptors of a worker with queues of its own: listeners, and connections that it turns away.
const WITH_QUEUES: u64 = 32;
/// Additional time for workers to end after their own drain timeout.
const PATIENCE: Nanos = Nanos::SECOND;
/// Delay before another attempt to start a worker, after one failed.
const START_PAUSE: Nanos = Nanos::SECOND;
/// Seed of the random choices. No client gains by predicting them, and a run can be repeated.
const SEED: Seed = Seed(0);

named! {
    /// The rule by which a dispatcher chooses the worker of a new connection.
    #[derive(Default)]
    Schedule {
        /// The least share of throughput times the least share of connections (SMPED).
        #[default]
        Smped = "smped",
        /// The fewest connections.
        LeastConnections = "least-connections",
        /// One after another.
        RoundRobin = "round-robin",
        /// Chance.
        Random = "random",
    }
}

named! {
    /// The way of a connection to its chosen worker.
    #[derive(Default)]
    Handoff {
        /// A dispatcher accepts it and passes its descriptor (SMPED).
        #[default]
        Fd = "fd",
        /// The kernel puts it into the worker's own accept queue: a BPF program has chosen at its SYN.
        Kernel = "kernel",
    }
}

static NUMBERS: Setting<SmpedSettings> = Setting::new(Declaration {
    flag: "--smped",
    value: "NAME=VALUE,...",
    help: "smped: settings of the dispatcher [default: \
           c-max=256,p-min=2,p-max=32,initial=10,alpha=0.2,period=100ms,idle=5s]",
    more: Some(
        "c-max=adaptive: a worker is full while another would relieve it, because it is occupied and a processor is free.",
    ),
    without: "has no dispatcher",
    in_kernel: None,
});

static SCHEDULE: Setting<Schedule> = Setting::new(Declaration {
    flag: "--schedule",
    value: "RULE",
    help: "smped: how the dispatcher chooses a worker: smped (default), least-connections, round-robin or random",
    more: None,
    without: "has no dispatcher that chooses workers",
    in_kernel: None,
});

static HANDOFF: Setting<Handoff> = Setting::new(Declaration {
    flag: "--handoff",
    value: "HOW",
    help: "smped: how a connection gets to its worker: fd (default) or kernel",
    more: Some(
        "fd: the dispatcher accepts it and passes its descriptor. kernel: a program in the kernel chooses the worker's \
         own accept queue; needs CAP_BPF and CAP_NET_ADMIN.",
    ),
    without: "has no workers to hand connections to",
    in_kernel: Some("kernel"),
});

pub const SMPED: Architecture = Architecture {
    name: "smped",
    summary: "a dispatcher, and worker processes with an event loop each",
    accept_limit: AcceptLimit::Adaptive,
    descriptors: |config| {
        let listeners = if by_kernel(config) { config.listen.len() } else { 0 };
        let places = config.chosen.get(&NUMBERS).unwrap_or_default().p_max;
        config.open_files() + places * (DESCRIPTORS_PER_WORKER + listeners)
    },
    spreads: true,
    uses: &[Choice::Dispatch, Choice::Driver, Choice::ReadAfterAccept, Choice::Overload],
    settings: &[&NUMBERS, &SCHEDULE, &HANDOFF],
    fits,
    start,
    work: Some(work),
};

fn by_kernel(config: &ServeConfig) -> bool {
    config.chosen.get(&HANDOFF).unwrap_or_default() == Handoff::Kernel
}

/// Returns the settings, with C_max lowered to the connections that a worker has descriptors for. A worker would lose
/// any connection beyond them.
fn smped_settings(config: &ServeConfig) -> SmpedSettings {
    let own = WORKERS_OWN + if by_kernel(config) { WITH_QUEUES } else { 0 };
    let limit = sys::descriptors::limit().unwrap_or(u64::MAX);
    let room = u32::try_from(limit.saturating_sub(own).max(1)).unwrap_or(u32::MAX);
    let settings = config.chosen.get(&NUMBERS).unwrap_or_default();
    SmpedSettings { c_max: settings.c_max.min(room), ..settings }
}

/// Returns the role of the workers, each with `own_words` words of shared memory.
fn role(settings: &SmpedSettings, own_words: usize) -> Role {
    Role {
        architecture: SMPED.name,
        noun: "worker",
        places: settings.p_max,
        service: site::Counts::default().named().map(|(name, _)| name).collect(),
        serves: true,
        own_words,
    }
}

/// Runs a worker of either hand-off. Only the hand-off by the kernel gives it memory to inherit.
fn work(worker: Worker, control: Control) -> Result<(), ServeError> {
    if worker.inherited.is_empty() { worker::work(worker, control) } else { steering::work(worker, control) }
}

fn fits(config: &ServeConfig) -> Result<(), ServeError> {
    config.no_workers("smped chooses their number; --smped initial=N,p-min=N,p-max=N bounds them")?;
    let refused = |setting, given, accepted: &str| {
        let accepted = format!("{accepted}; --handoff fd accepts the setting");
        Err(ServeError::Setting { setting, given, accepted })
    };
    match config.overload_hook {
        _ if !by_kernel(config) => Ok(()),
        _ if smped_settings(config).adapts => {
            refused("--smped", "c-max=adaptive".to_owned(), "a number with --handoff kernel")
        }
        Some(hook) => refused("--overload-hook", hook.to_string(), "--handoff kernel has the backlog alone"),
        None => Ok(()),
    }
}

fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let config = plan.config();
    let settings = smped_settings(config);
    if by_kernel(config) {
        match steering::load(plan) {
            Ok(program) => return steering::start(plan, opening, program),
            Err(error) => {
                sys::say!("inrush: --handoff kernel: {error}; the dispatcher passes descriptors instead")
            }
        }
    }
    let (queue, opened) = opening.listen_once(plan)?;
    let addresses = addresses(&queue.listeners);
    let fleet = Fleet::new(plan, role(&settings, relief::WORDS), Vec::new())?;
    let workers = fleet.board();
    let board = Board::with_live(move |counters| {
        let mut of_workers = workers.read();
        // The dispatcher counts these itself, together with the connections under way to a worker.
        of_workers.connections = 0;
        counters.add(&of_workers);
    });
    let schedule = config.chosen.get(&SCHEDULE).unwrap_or_default();
    let stop = Stop::new().map_err(system("make an eventfd"))?;
    let now = fleet.clock().now();
    let relief = settings.adapts.then(|| Relief::new(plan.cpus(), settings.p_max, now)).transpose();
    let parts = Parts {
        listeners: Listeners::new(queue, plan.acceptor(Share::alone(usize::MAX))),
        pool: Pool::new(&settings, schedule, SEED, now),
        relief: relief.map_err(system("read the idle time of the processors"))?,
        fleet,
        initial: settings.initial,
        max_connections: config.max_connections,
        board: board.clone(),
        stop: stop.clone(),
        drain_timeout: config.drain_timeout,
        processors: plan.cpus().len(),
    };
    let body = move || dispatcher::run(parts);
    let running = start_thread("dispatcher".to_owned(), &config.cpus, stop, board, addresses, body)?;
    Ok(Started { loops: vec![running], opened })
}
