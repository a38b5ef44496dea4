//! Knot: user-level threads on one kernel thread, each with one connection at a time (Brecht 2004, 4.2).
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
//! `--idle-sessions stay` leaves each connection its thread to its end, as the paper does.
//!
//! `knot-a` has one thread that accepts, up to n at a time, and a thread for each connection. The paper's acceptor loops: it
//! runs ahead of the threads while connections wait (`--acceptor runs-ahead`).
//!
//! Knot wins if blocking code is worth a few KiB of stack per connection. It loses to an event loop by the cost of
//! its switches. Like an event loop, it stops for a file that must come from the disk.
//!
//! Deviations: the connection limit bounds Knot-A's threads. Connections wake one waiting thread at a time, the one
//! that began to wait last.

use std::io;

use base::Limit;
use base::setting::{Declaration, Setting};
use connection::SocketService;
use dispatch::Mechanism;

use super::Architecture;
use crate::connections::accept::AcceptLimit;
use crate::driver::event_loop::Parts;
use crate::driver::user_threads::{UserThread, run};
use crate::ground::choices::{Choice, IDLE_SESSIONS, IdleSessions, named};
use crate::ground::error::ServeError;
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
    help: "how a thread serves the connections of one accept phase: serial (default) or interleaved",
    more: None,
    without: "does not serve batches",
    in_kernel: None,
});

named! {
    /// The acceptor of Knot-A after an accept phase.
    #[derive(Default)]
    Acceptor {
        /// It lets the other threads run.
        #[default]
        Yields = "yields",
        /// It runs on until no connection waits, or the connection limit is reached (Brecht 2004). Neither events nor a stop
        /// are noticed meanwhile.
        RunsAhead = "runs-ahead",
    }
}

static ACCEPTOR: Setting<Acceptor> = Setting::new(Declaration {
    flag: "--acceptor",
    value: "HOW",
    help: "after each accept phase the acceptor yields to the threads (default), or runs-ahead while connections wait",
    more: None,
    without: "has no thread that accepts for others",
    in_kernel: None,
});

pub const KNOT_C: Architecture = Architecture {
    name: "knot-c",
    summary: "user-level threads on one processor, a fixed number, each of which accepts",
    accept_limit: AcceptLimit::Adaptive,
    descriptors: |config| config.open_files(),
    spreads: false,
    uses: &[Choice::Dispatch, Choice::Overload, Choice::LoadReports, Choice::ClientLimits],
    settings: &[&BATCH, &IDLE_SESSIONS],
    wakes: &[],
    fits: |_| Ok(()),
    start: |plan, opening| {
        let threads = plan.config().workers.unwrap_or(THREADS);
        let chosen = &plan.config().chosen;
        let (batch, idle) = (chosen.get(&BATCH), chosen.get(&IDLE_SESSIONS));
        let (batch, idle) = (batch.unwrap_or_default(), idle.unwrap_or_default());
        start(plan, opening, Form::Fixed { threads, batch, idle })
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
    settings: &[&ACCEPTOR],
    wakes: &[],
    fits: |config| {
        config.no_workers("knot-a has a thread for each connection; --max-connections bounds them")
    },
    start: |plan, opening| {
        let acceptor = plan.config().chosen.get(&ACCEPTOR).unwrap_or_default();
        start(plan, opening, Form::Acceptor(acceptor))
    },
    work: None,
};

#[derive(Clone, Copy)]
enum Form {
    Fixed { threads: usize, batch: Batch, idle: IdleSessions },
    Acceptor(Acceptor),
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
    let pool = match form {
        Form::Fixed { idle, .. } => Some(idle),
        Form::Acceptor(_) => None,
    };
    on_mechanism!(dispatch, Found => run::<Found, S>(parts, pool, move |first| begin(first, form)))
}

/// The work of the first thread.
fn begin<M, S>(first: &mut UserThread<'_, M, S>, form: Form)
where
    M: Mechanism + 'static,
    S: SocketService + 'static,
{
    match form {
        Form::Fixed { threads, batch, .. } => {
            for _ in 0..threads {
                first.spawn(move |thread| accept_and_serve(thread, batch));
            }
        }
        Form::Acceptor(how) => accept_and_start(first, how),
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
fn accept_and_start<M, S>(acceptor: &mut UserThread<'_, M, S>, how: Acceptor)
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
        if how == Acceptor::Yields {
            acceptor.let_others_run();
        }
    }
}
