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
//! Who gets a connection is the [`scheduler`]'s choice, by what the [`feedback`] handler knows; how many workers there
//! are is the business of [`resources`]; the [`pool`] is the account that joins the three, and the [`dispatcher`]
//! the loop around it. The event mechanism is that of the workers.
//!
//! It wins where a wait costs by the connection, as with select and poll, because each worker waits for few; where
//! some connections block a loop, because only those of the same worker wait; and with several processors. It
//! loses to one loop on mechanisms that do not care how many connections there are: passing a descriptor and
//! hearing of its end cost some microseconds a connection, and each worker has a cache of its own.
//!
//! A worker that dies takes its connections with it; what it had not begun is placed anew, and the accept
//! queue loses nothing. The same becomes of what a worker does not begin within 100 ms, because it is stopped or its
//! disk is: it gets no new connections until it answers ([`handover`]).
//!
//! Deviations, where the paper is silent: see the modules. When all workers are full (step 6), the longest-idle connection
//! is closed for the new one, or else the new one turned away.

mod dispatcher;
mod feedback;
mod handover;
mod messages;
mod pool;
mod resources;
mod scheduler;
mod worker;

use base::{Clock, Limit, Seed};

use super::Architecture;
use crate::choices::{Choice, Schedule};
use crate::config::ServeConfig;
use crate::counters::Board;
use crate::driver::Stop;
use crate::driver::readiness::Listeners;
use crate::error::{ServeError, system};
use crate::plan::{LoopHandle, Plan, addresses, start_thread};
use crate::processes::{Fleet, Role};
use crate::slots::Share;
use dispatcher::Parts;
use pool::Pool;

/// Of the dispatcher: a pidfd and a control socket for each worker.
const DESCRIPTORS_PER_WORKER: usize = 2;
/// Of a worker: control socket, mechanism, shared memory, log, root, and headroom for files.
const WORKERS_OWN: u64 = 24;
/// What chance draws from: nobody gains by foreseeing it, and a run can be repeated.
const SEED: Seed = Seed(0);

pub const SMPED: Architecture = Architecture {
    name: "smped",
    summary: "a dispatcher, and worker processes with an event loop each",
    accept_limit: Limit::AtMost(10),
    descriptors: |config| config.site.cache.open_files + places(config) * DESCRIPTORS_PER_WORKER,
    uses: &[Choice::Dispatch, Choice::ReadAfterAccept, Choice::Smped, Choice::Schedule, Choice::Overload],
    start,
    work: Some(worker::work),
};

fn places(config: &ServeConfig) -> usize {
    config.smped.clone().unwrap_or_default().p_max
}

/// The connections that a worker has descriptors for: it is given no more, so that it loses none.
fn room_of_a_worker() -> u32 {
    let limit = sys::descriptors::limit().unwrap_or(u64::MAX);
    u32::try_from(limit.saturating_sub(WORKERS_OWN).max(1)).unwrap_or(u32::MAX)
}

fn start(plan: &Plan) -> Result<Vec<LoopHandle>, ServeError> {
    let config = plan.config();
    plan.no_workers("smped has as many as it needs; --smped initial=N,p-min=N,p-max=N bounds them")?;
    let mut settings = config.smped.clone().unwrap_or_default();
    settings.c_max = settings.c_max.min(room_of_a_worker());
    let queue = plan.listen_once()?;
    let addresses = addresses(&queue.listeners);
    let role = Role {
        architecture: SMPED.name,
        noun: "worker",
        places: settings.p_max,
        service: site::Counts::default().named().map(|(name, _)| name).collect(),
        own_words: handover::WORDS,
    };
    let fleet = Fleet::new(plan, role, Vec::new())?;
    let workers = fleet.board();
    let board = Board::with_live(move |counters| {
        let mut of_workers = workers.read();
        // The dispatcher knows of those under way to a worker as well.
        of_workers.connections = 0;
        counters.add(&of_workers);
    });
    let schedule = config.schedule.unwrap_or(Schedule::Smped);
    let stop = Stop::new().map_err(system("make an eventfd"))?;
    let parts = Parts {
        listeners: Listeners::new(queue, plan.acceptor(Share::alone(usize::MAX))),
        pool: Pool::new(&settings, schedule, SEED, fleet.clock().now()),
        fleet,
        initial: settings.initial,
        max_connections: config.max_connections,
        board: board.clone(),
        stop: stop.clone(),
        drain_timeout: config.drain_timeout,
    };
    let body = move || dispatcher::run(parts);
    Ok(vec![start_thread("dispatcher".to_owned(), &config.cpus, stop, board, addresses, body)?])
}
