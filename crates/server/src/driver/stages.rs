//! The staged driver: a connection is an event that goes from queue to queue (SEDA, sections 3 and 4).
//!
//! ```text
//!             accept <── listener ready ──┐
//!               | connections             |
//!               v                         |
//!   ┌────── the source: one thread, get-events, deadlines, ends ──────┐
//!   | readable or late      ^ nothing to do      | writable           |
//!   v                       |                    v                    |
//!  read ──bytes──> parse ──request──> file ──answer──> write ─────────┘
//!     └─ none ────────────────────────────────────────^ ^
//!                     └─ refused, or not whole ─────────┘
//! ```
//!
//! A connection is in one place at a time: with the source, in a queue, or with a thread. An idle connection therefore
//! costs a place in a table, but no thread and no lock. Stages do not call each other; they queue events. The
//! controllers set the threads of each stage and the rate of admitted requests (`control`).
//!
//! The parse stage admits requests. Requests that a connection has pipelined behind an admitted one are answered with
//! it. A response time begins when the source finds the connection ready, and ends when its first bytes are handed to
//! the kernel. A peer's reading speed is not part of the server's load.
//!
//! Owns the stages, their threads and the paths between them. Does not parse, and knows nothing of files.
//!
//! Invariants: only the source waits for sockets and ends connections; every connection that leaves the source comes
//! back or is counted as cut off.

mod control;
mod mail;
mod settings;
mod source;
mod stage;
mod work;

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::thread::{Builder, Scope};

use base::setting::Chosen;
use base::{Clock, Key, Nanos, RealClock, lock};
use connection::{LiveSettings, Machine, SocketService};
use dispatch::Mechanism;
use sys::thread::stop::Stop;

use crate::connections::accept::{Acceptor, Arrived, Short};
use crate::connections::slots::Share;
use crate::ground::counters::{Board, Counters};
use crate::ground::listener::Listener;
use crate::ground::threads::EndsTheServer;
use crate::observation::access_log::{LogSender, LoopLog};
use control::{AdmissionController, PoolController};
use mail::Mailbox;
pub use settings::SedaSettings;
use source::Source;
use stage::{Pushed, Stage};

/// The most connections that a thread takes from a queue at once: enough to amortize the lock.
const BATCH: usize = 16;
/// The batch size of the file stage: a thread that may wait for a disk takes one connection, so that it delays no
/// other.
const FILE_BATCH: usize = 1;
/// A thread's stack, several times its greatest need. The default of 2 MiB per thread would add up.
const STACK_BYTES: usize = 256 * 1024;

/// The parts of a staged server.
pub struct Parts<S> {
    /// The sources of connections.
    pub listeners: Vec<Listener>,
    /// The accept policy.
    pub acceptor: Acceptor,
    /// Answers requests; each thread of the file stage has a clone.
    pub service: S,
    /// Limits and timeouts of the protocol.
    pub settings: LiveSettings,
    /// The access log, if one is kept.
    pub log: Option<LogSender>,
    /// Settings of the event mechanism.
    pub mechanism: Chosen,
    /// The longest time that shutting down may take.
    pub drain_timeout: Nanos,
    /// Settings of the controllers.
    pub seda: SedaSettings,
}

/// A connection's progress towards the server's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The connection does not know of a shutdown.
    No,
    /// The connection is idle and must make room for another. Requests that have arrived are answered before it is
    /// told.
    GivesWay,
    /// The server is shutting down. Requests that have arrived are answered before the connection is told.
    LastLook,
    /// The connection has been told.
    Told,
}

/// A connection, wherever it is.
struct Peer {
    key: Key,
    arrived: Arrived,
    machine: Machine,
    /// Bytes that were read and are still to be parsed.
    received: Vec<u8>,
    /// The time when the source found the connection ready.
    ready_at: Nanos,
    /// A request was admitted on this pass through the stages.
    admitted: bool,
    /// A read has found the socket empty.
    drained: bool,
    ending: Ending,
}

/// The stages that a connection goes through.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read,
    Parse,
    File,
    Write,
}

/// A task of the accept stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// One accept phase.
    One,
    /// Turns away connections that have no room.
    TurnAway(Short),
    /// Takes all waiting connections; then the listeners are shut down.
    Last,
}

/// The state that all threads of a staged server share.
pub struct Pipeline<S> {
    service: S,
    settings: LiveSettings,
    log: Option<LogSender>,
    listeners: Vec<Listener>,
    share: Share,
    acceptor: Mutex<Acceptor>,
    accept: Stage<Phase>,
    steps: [Stage<Box<Peer>>; 4],
    admission: Mutex<AdmissionController>,
    mailbox: Mailbox,
    mechanism: Chosen,
    drain_timeout: Nanos,
    clock: RealClock,
}

impl<S: SocketService + Clone + Send + Sync> Pipeline<S> {
    /// Makes the stages, without threads yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(parts: Parts<S>) -> io::Result<Pipeline<S>> {
        let clock = RealClock::new();
        let pool = || PoolController::new(parts.seda.queue_threshold, parts.seda.max_threads);
        let step = |name, batch| Stage::new(name, batch, pool(), clock);
        Ok(Pipeline {
            accept: Stage::new("accept", 1, pool(), clock),
            steps: [
                step("read", BATCH),
                step("parse", BATCH),
                step("file", FILE_BATCH),
                step("write", BATCH),
            ],
            service: parts.service,
            settings: parts.settings,
            log: parts.log,
            listeners: parts.listeners,
            share: parts.acceptor.share.clone(),
            acceptor: Mutex::new(parts.acceptor),
            admission: Mutex::new(AdmissionController::new(parts.seda.target, parts.seda.percentile)),
            mailbox: Mailbox::new()?,
            mechanism: parts.mechanism,
            drain_timeout: parts.drain_timeout,
            clock,
        })
    }

    /// Adds current values: stages, admission, and the totals of shared state.
    pub fn add_gauges(&self, counters: &mut Counters) {
        counters.stages.push(self.accept.figures());
        counters.stages.extend(self.steps.iter().map(Stage::figures));
        counters.admission = Some(self.admission().figures());
        counters.service = self.service.counts();
    }

    /// Runs until it is told to stop and its connections have ended, or the drain timeout has passed. Blocks.
    ///
    /// # Errors
    /// The event mechanism or the first thread of a stage cannot be set up.
    pub fn run<M: Mechanism>(&self, stop: &Stop, board: &Board) -> io::Result<()> {
        std::thread::scope(|scope| {
            let crew = Crew { scope, pipeline: self, stop, board };
            let _guard = Closes(self);
            let mut source = Source::<M, S>::new(crew)?;
            crew.start()?;
            source.run()
        })
    }

    fn step(&self, step: Step) -> &Stage<Box<Peer>> {
        &self.steps[step as usize]
    }

    fn admission(&self) -> MutexGuard<'_, AdmissionController> {
        lock(&self.admission)
    }

    /// Waits until every thread has ended. Blocks.
    fn wait_for_threads(&self) {
        self.accept.wait_for_threads();
        self.steps.iter().for_each(Stage::wait_for_threads);
    }

    /// Makes every thread end, and returns the connections that were on their way.
    fn close(&self) -> VecDeque<Box<Peer>> {
        self.accept.close();
        self.steps.iter().flat_map(Stage::close).collect()
    }
}

/// Ends the threads of a pipeline on every path, so that they can be joined.
struct Closes<'a, S: SocketService + Clone + Send + Sync>(&'a Pipeline<S>);

impl<S: SocketService + Clone + Send + Sync> Drop for Closes<'_, S> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The threads of a pipeline, as a handle that they pass among themselves.
struct Crew<'scope, 'env, S> {
    scope: &'scope Scope<'scope, 'env>,
    pipeline: &'env Pipeline<S>,
    stop: &'env Stop,
    board: &'env Board,
}

impl<S> Clone for Crew<'_, '_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Crew<'_, '_, S> {}

impl<'scope, 'env, S: SocketService + Clone + Send + Sync> Crew<'scope, 'env, S> {
    /// Starts the first thread of each stage.
    fn start(self) -> io::Result<()> {
        self.start_acceptor()?;
        [Step::Read, Step::Parse, Step::File, Step::Write]
            .into_iter()
            .try_for_each(|step| self.start_worker(step))
    }

    fn log(self) -> Option<LoopLog> {
        self.pipeline.log.clone().map(LoopLog::new)
    }

    /// Queues a connection for a stage, and starts another thread there if one is due.
    fn send(self, step: Step, peer: Box<Peer>) {
        match self.pipeline.step(step).push(peer, self.pipeline.clock.now()) {
            Pushed::Queued => {}
            Pushed::ThreadWanted => {
                if self.start_worker(step).is_err() {
                    self.without_thread();
                }
            }
            // The server is shutting down. The source counts the connections that come back.
            Pushed::Refused(peer) => self.pipeline.mailbox.send([mail::Mail::Idle(peer)], None),
        }
    }

    /// Gives the accept stage a task.
    fn ask_for_connections(self, phase: Phase) {
        if self.pipeline.accept.push(phase, self.pipeline.clock.now()) == Pushed::ThreadWanted
            && self.start_acceptor().is_err()
        {
            self.without_thread();
        }
    }

    fn without_thread(self) {
        let mut counters = Counters::default();
        counters.loops.no_thread = 1;
        self.pipeline.mailbox.send([], Some(counters));
    }

    fn start_acceptor(self) -> io::Result<()> {
        self.start_thread(&self.pipeline.accept, move || work::accept(self))
    }

    fn start_worker(self, step: Step) -> io::Result<()> {
        self.start_thread(self.pipeline.step(step), move || work::work(self, step))
    }

    /// Starts a thread that its stage has counted already, and that the server cannot do without.
    fn start_thread<E: Send>(
        self,
        stage: &'env Stage<E>,
        body: impl FnOnce() + Send + 'scope,
    ) -> io::Result<()> {
        let stop = self.stop;
        let body = move || {
            let _lost = LostOnPanic { stage, stop };
            body();
        };
        let named = Builder::new().name(format!("seda-{}", stage.name())).stack_size(STACK_BYTES);
        named.spawn_scoped(self.scope, body).map(drop).inspect_err(|_| stage.thread_lost())
    }
}

/// Reports a thread that panicked to its stage, which would wait for it otherwise, and stops the server.
struct LostOnPanic<'a, E> {
    stage: &'a Stage<E>,
    stop: &'a Stop,
}

impl<E> Drop for LostOnPanic<'_, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stage.thread_lost();
            drop(EndsTheServer(self.stop.clone()));
        }
    }
}
