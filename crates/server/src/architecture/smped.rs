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
//! [`resources`] decides on the number of workers. The [`pool`] is the account that joins the three, and the
//! [`dispatcher`] is the loop around it. [`handover`] and [`messages`] carry connections to the [`worker`]s.
//! The workers use the chosen event mechanism.
//!
//! SMPED wins if the cost of a wait grows with the connections, as with select and poll, because each worker
//! waits for few. It wins if some connections block a loop, because only connections of the same worker wait,
//! and it wins with several processors. It loses to one loop on mechanisms whose cost does not depend on the
//! number of connections. Passing a descriptor and learning of its end cost some microseconds per connection,
//! and each worker has a cache of its own.
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

/// Descriptors of the dispatcher per worker: a pidfd and a control socket.
const DESCRIPTORS_PER_WORKER: usize = 2;
/// Descriptors of a worker beside its connections: control socket, mechanism, shared memory, log, root, and
/// headroom for files.
const WORKERS_OWN: u64 = 24;
/// Seed of the random choices. No client gains by predicting them, and a run can be repeated.
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

/// Number of connections that a worker has descriptors for. The dispatcher gives it no more, so that it loses
/// none.
fn room_of_a_worker() -> u32 {
    let limit = sys::descriptors::limit().unwrap_or(u64::MAX);
    u32::try_from(limit.saturating_sub(WORKERS_OWN).max(1)).unwrap_or(u32::MAX)
}

fn start(plan: &Plan) -> Result<Vec<LoopHandle>, ServeError> {
    let config = plan.config();
    plan.no_workers("smped chooses their number; --smped initial=N,p-min=N,p-max=N bounds them")?;
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
        // The dispatcher also counts the connections under way to a worker.
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
