//! The hand-off by a dispatcher, which passes descriptors to worker processes.
//!
//! The [`scheduler`] chooses the worker of a connection, by the data of the [`feedback`](super::feedback) handler.
//! [`resources`](super::resources) decides on the number of workers, and [`relief`] on a C_max that adapts itself. The
//! [`pool`] is the account that joins them, and the [`dispatcher`] is the loop around it. [`handover`] and [`messages`]
//! carry connections to the [`worker`]s. The workers use the chosen event mechanism.
//!
//! A worker that dies takes its connections with it. Connections that it had not begun are placed anew, and
//! the accept queue loses nothing. A worker that is stopped or waits for its disk may not begin a connection
//! within 100 ms. The dispatcher then places that connection anew as well, and gives the worker no new ones
//! until it answers ([`handover`]).

mod dispatcher;
mod handover;
mod messages;
mod pool;
mod relief;
mod scheduler;
mod worker;

use base::{Clock, Seed};
use sys::thread::stop::Stop;

use super::settings::{SCHEDULE, role, smped_settings};
use crate::connections::slots::Share;
use crate::driver::event_loop::Listeners;
use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::threads::start_thread;
use crate::plan::{Opening, Plan, Started, addresses};
use crate::processes::Fleet;
use dispatcher::Parts;
use pool::Pool;
use relief::Relief;

pub use worker::work;

/// Seed of the random choices. No client gains by predicting them, and a run can be repeated.
const SEED: Seed = Seed(0);

/// Starts the dispatcher's thread.
///
/// # Errors
/// [`ServeError`]: the server cannot listen, open a descriptor or start the thread.
pub fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let config = plan.config();
    let settings = smped_settings(config);
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
