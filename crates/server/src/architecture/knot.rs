//! Knot: user-level threads on one kernel thread, each with one connection at a time (Brecht 2004, 3.2).
//!
//! ```text
//!   knot-c                                     knot-a
//!             ┌─> user thread 1: accept_n, serve            acceptor: accept_n
//!   queue ────┼─> user thread 2: accept_n, serve   queue ──>   |
//!             └─> user thread n: accept_n, serve               └─> a user thread each: serve, end
//!             └──── one kernel thread, one get-events for all, switched where they wait ────┘
//! ```
//!
//! `knot-c` has a fixed number of threads. With accept-limit n a thread takes up to n connections. When an
//! accept would block, a thread with at least one connection goes on, and a thread with none sleeps. A thread
//! finishes all its connections before it accepts again; n = 1 is the original. `--batch serial` serves them
//! one after another, as the paper does. Large limits then let some connections wait behind others. The paper
//! finds an optimum in between on one-packet loads and a loss on SPECweb. `--batch interleaved` starts a
//! child thread for each connection.
//!
//! `knot-a` has one thread that accepts, up to n at a time, and a thread for each connection.
//!
//! Knot wins if blocking code is worth a few KiB of stack per connection. It loses to an event loop by the cost of
//! its switches. Like an event loop, it stops for a file that must come from the disk.
//!
//! Deviations: the connection limit bounds Knot-A's threads. Connections wake one waiting thread at a time, the one
//! that began to wait last.

use std::io;

use base::Limit;
use dispatch::Mechanism;

use super::Architecture;
use crate::connections::accept::AcceptLimit;
use crate::driver::event_loop::Parts;
use crate::driver::socket_service::SocketService;
use crate::driver::user_threads::{UserThread, run};
use crate::ground::choices::{Choice, named};
use crate::ground::error::ServeError;
use crate::ground::setting::{Declaration, Setting};
use crate::ground::threads::start_thread;
use crate::plan::{Opening, Plan, Started, addresses, on_mechanism};

/// Default number of threads of Knot-C [Brecht 2004, 4].
const THREADS: usize = 1000;

named! {
    /// The order in which a thread serves the connections of one accept phase.
    #[derive(Default)]
    Batch {
        /// One after another (Brecht 2004).
        #[default]
        Serial = "serial",
        /// Side by side, in a child thread each.
        Interleaved = "interleaved",
    }
}

static BATCH: Setting<Batch> = Setting::new(Declaration {
    flag: "--batch",
    value: "HOW",
    help: "knot-c: how a thread serves the connections of one accept phase: serial (default) or interleaved",
    more: None,
    without: "does not serve batches",
    in_kernel: None,
});

pub const KNOT_C: Architecture = Architecture {
    name: "knot-c",
    summary: "user-level threads on one processor, a fixed number, each of which accepts",
    accept_limit: AcceptLimit::Adaptive,
    descriptors: |config| config.open_files(),
    spreads: false,
    uses: &[Choice::Dispatch, Choice::Overload, Choice::LoadReports, Choice::ClientLimits],
    settings: &[&BATCH],
    fits: |_| Ok(()),
    start: |plan, opening| {
        let threads = plan.config().workers.unwrap_or(THREADS);
        let batch = plan.config().chosen.get(&BATCH).unwrap_or_default();
        start(plan, opening, Form::Fixed { threads, batch })
    },
    work: None,
};

pub const KNOT_A: Architecture = Architecture {
    name: "knot-a",
    summary: "user-level threads on one processor, one that accepts and one for each connection",
    accept_limit: AcceptLimit::Fixed(Limit::AtMost(10)),
    descriptors: |config| config.open_files(),
    spreads: false,
    uses: &[Choice::Dispatch, Choice::Overload, Choice::LoadReports, Choice::ClientLimits],
    settings: &[],
    fits: |config| {
        config.no_workers("knot-a has a thread for each connection; --max-connections bounds them")
    },
    start: |plan, opening| start(plan, opening, Form::Acceptor),
    work: None,
};

#[derive(Clone, Copy)]
enum Form {
    Fixed { threads: usize, batch: Batch },
    Acceptor,
}

fn start(plan: &Plan, opening: Opening, form: Form) -> Result<Started, ServeError> {
    let (queue, opened) = opening.listen_once(plan)?;
    let addresses = addresses(&queue.listeners);
    let parts = plan.parts_alone(queue, &opened)?;
    let (stop, board) = (parts.stop.clone(), parts.board.clone());
    let (dispatch, cpu) = (plan.dispatch(), plan.cpus()[0]);
    let body = move || run_on(dispatch, parts, form);
    let running = start_thread("knot".to_owned(), &[cpu], stop, board, addresses, body)?;
    Ok(Started { loops: vec![running], opened })
}

/// Runs the threads on the event mechanism named `dispatch`.
fn run_on<S: SocketService + 'static>(dispatch: &str, parts: Parts<S>, form: Form) -> io::Result<()> {
    let is_pool = matches!(form, Form::Fixed { .. });
    on_mechanism!(dispatch, Found => run::<Found, S>(parts, is_pool, move |first| begin(first, form)))
}

/// The work of the first thread.
fn begin<M, S>(first: &mut UserThread<'_, M, S>, form: Form)
where
    M: Mechanism + 'static,
    S: SocketService + 'static,
{
    match form {
        Form::Fixed { threads, batch } => {
            for _ in 0..threads {
                first.spawn(move |thread| accept_and_serve(thread, batch));
            }
        }
        Form::Acceptor => accept_and_start(first),
    }
}

/// The work of a thread of Knot-C.
fn accept_and_serve<M, S>(thread: &mut UserThread<'_, M, S>, batch: Batch)
where
    M: Mechanism + 'static,
    S: SocketService + 'static,
{
    loop {
        let taken = thread.accept_n();
        match batch {
            _ if taken.is_empty() => return,
            Batch::Serial => thread.serve_serially(taken),
            Batch::Interleaved => thread.serve_interleaved(taken),
        }
        // Connections with waiting requests would otherwise keep the processor from events, timers and the
        // stop.
        thread.let_others_run();
    }
}

/// The work of Knot-A's acceptor.
fn accept_and_start<M, S>(acceptor: &mut UserThread<'_, M, S>)
where
    M: Mechanism + 'static,
    S: SocketService + 'static,
{
    loop {
        let taken = acceptor.accept_n();
        if taken.is_empty() {
            return;
        }
        for arrived in taken {
            acceptor.spawn(move |thread| thread.serve(arrived));
        }
        acceptor.let_others_run();
    }
}
