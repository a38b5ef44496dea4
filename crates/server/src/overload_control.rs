//! Overload control as the drivers use it: one [`AcceptControl`] for each accept queue.
//!
//! ```text
//!   Overload::control ──> AcceptControl <── driver: connections taken, queue found empty, turns
//!                              | tick, every 5 ms at most
//!                              ├──> crate overload: what to refuse, and by what
//!                              ├──> a line on standard error for each change of state
//!                              └──> QueueFigures ──> /status, /metrics
//! ```
//!
//! The listeners of one loop, or those that several threads or processes accept from, are one accept queue. The
//! process that made the listeners owns their sinks and runs their control; worker processes only say what they
//! accepted.
//!
//! Owns the wiring; the choice of what refuses in `refuser`, the programs on devices in `device`. Leaves out the
//! decision, which is that of the crate [`overload`].
//!
//! Invariant: the sinks leave their group before a listener does ([`AcceptControl::withdraw`]).

mod device;
mod refuser;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{Clock, Limit, Nanos, RealClock};
use bpf::admission::Attached;
use overload::hook::Routing;
use overload::{AcceptLimit, Hook, NoHook, Progress, QueueControl, Settings, State, Ticked};
use serde::Serialize;

use crate::accept::PhaseEnd;
use crate::choices::OverloadHook;
use crate::listener::Listener;
use refuser::{Chosen, Refuser};

/// The age of a reading after which nothing can have happened since: a loop that serves ticks more often.
const STALE: Nanos = Nanos::SECOND;

/// A turn on the processor of a thread that only watches: many times what a tick takes.
const SLICE: Nanos = Nanos::from_micros(100);

/// The overload control of a server, and what its queues say of themselves. Clones share the figures.
#[derive(Clone, Debug)]
pub struct Overload {
    target: LiveTarget,
    queues: Arc<Vec<Arc<Mutex<Reading>>>>,
    hook: &'static str,
    attached: Vec<Attached>,
    failures: Vec<String>,
}

/// The target delay, to be changed while it is used. Clones are the same.
#[derive(Clone, Debug)]
struct LiveTarget(Arc<AtomicU64>);

impl LiveTarget {
    fn new(target: Nanos) -> LiveTarget {
        LiveTarget(Arc::new(AtomicU64::new(target.0)))
    }

    fn get(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The figures of one accept queue, as they stood at a tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueFigures {
    /// `open` or `shedding`.
    pub state: &'static str,
    /// Connections in the accept queue.
    pub queued: u32,
    /// The measured service rate, mu; none before the queue was saturated for the first time.
    pub service_rate_per_s: Option<f64>,
    /// Arrivals, refused ones and retransmissions included, smoothed.
    pub offered_per_s: f64,
    /// q / mu.
    pub queueing_delay_s: f64,
    /// The estimated wait of a new connection for its first turn: the queueing delay and a turn of the loop.
    pub wait_s: f64,
    /// The longest turn of the loop between two ticks; 0 where there is no loop.
    pub turn_s: f64,
    /// The part of all SYNs that the hook admits.
    pub share: f64,
    /// The backlog in force.
    pub backlog: u32,
    /// Connections that entered the queue.
    pub admitted: u64,
    /// SYNs that the hook refused.
    pub refused: u64,
    /// SYNs and final ACKs that the kernel dropped because the queue was full.
    pub dropped: u64,
}

/// Figures and their time.
#[derive(Clone, Debug)]
struct Reading {
    figures: QueueFigures,
    at: Nanos,
}

impl Overload {
    /// The controls of some accept queues, each a set of listeners that has one for every address. Blocks for at most a
    /// second, or for the time in which a driver restarts its device for XDP.
    pub fn control(
        target: Nanos,
        backlog: u32,
        sets: &[Vec<Listener>],
        routing: Routing,
        hook: Option<OverloadHook>,
    ) -> (Overload, Vec<AcceptControl>) {
        let clock = RealClock::new();
        let first = sets.first().map_or(&[][..], Vec::as_slice);
        let Chosen { refuser, attached, failures } = Refuser::choose(hook, sets, routing);
        let settings = Settings { target, backlog: in_force(backlog, first) };
        let live = LiveTarget::new(target);
        let control = |queue| {
            let name = if sets.len() > 1 { format!("queue {queue}: ") } else { String::new() };
            let control = QueueControl::new(settings, refuser.hook(queue), clock.now());
            let wanted = live.clone();
            AcceptControl {
                refuser: refuser.clone(),
                queue,
                ..AcceptControl::new(name, wanted, control, clock.now())
            }
        };
        let controls: Vec<AcceptControl> = (0..sets.len()).map(control).collect();
        let queues = controls.iter().map(|control| Arc::clone(&control.reading)).collect();
        let hook = controls.first().map_or(NoHook.name(), |first| first.control.hook());
        (Overload { target: live, queues: Arc::new(queues), hook, attached, failures }, controls)
    }

    /// The target delay.
    pub fn target(&self) -> Nanos {
        self.target.get()
    }

    /// Aims at another wait, 1 ms or more, from the next tick of each queue on.
    pub fn set_target(&self, target: Nanos) {
        self.target.0.store(target.0, Ordering::Relaxed);
    }

    /// The name of what refuses.
    pub fn hook(&self) -> &'static str {
        self.hook
    }

    /// What refuses, in words.
    pub fn refuser(&self) -> String {
        if self.attached.is_empty() {
            return format!("the {}", self.hook);
        }
        let places: Vec<String> =
            self.attached.iter().map(|Attached { device, how }| format!("{how} on {device}")).collect();
        places.join(", ")
    }

    /// The devices on which a program refuses.
    pub fn devices(&self) -> &[Attached] {
        &self.attached
    }

    /// Why something else refuses than should, in a line each.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// The figures of each queue. A queue whose loop sleeps is empty.
    pub fn figures(&self, now: Nanos) -> Vec<QueueFigures> {
        let read = |reading: &Arc<Mutex<Reading>>| {
            let Reading { mut figures, at } = lock(reading).clone();
            if now.saturating_sub(at) > STALE && figures.state == name(State::Open) {
                figures.queued = 0;
                figures.offered_per_s = 0.0;
                figures.queueing_delay_s = 0.0;
                figures.wait_s = 0.0;
                figures.turn_s = 0.0;
            }
            figures
        };
        self.queues.iter().map(read).collect()
    }
}

impl QueueFigures {
    fn of(control: &QueueControl) -> QueueFigures {
        let (decision, signals) = (control.decision(), control.signals());
        QueueFigures {
            state: name(decision.state),
            queued: decision.queued,
            service_rate_per_s: decision.service_rate.map(|rate| rate.0),
            offered_per_s: decision.offered.0,
            queueing_delay_s: decision.queueing_delay.as_secs_f64(),
            wait_s: decision.wait.as_secs_f64(),
            turn_s: signals.lag.as_secs_f64(),
            share: decision.admission.share,
            backlog: decision.backlog,
            admitted: signals.accepted + u64::from(signals.queued),
            refused: signals.refused,
            dropped: signals.dropped,
        }
    }

    /// Whether connections are refused.
    pub fn is_shedding(&self) -> bool {
        self.state == name(State::Shedding)
    }
}

/// The backlog that listeners have: the kernel bounds it by somaxconn.
fn in_force(backlog: u32, listeners: &[Listener]) -> u32 {
    let limits = listeners.iter().map(|one| Listener::queues(std::slice::from_ref(one)).limit);
    limits.fold(backlog, u32::min).max(1)
}

fn name(state: State) -> &'static str {
    match state {
        State::Open => "open",
        State::Shedding => "shedding",
    }
}

/// Controls one accept queue for the loop or thread that holds it.
pub struct AcceptControl {
    /// What its messages begin with, where there are several.
    name: String,
    control: QueueControl,
    /// The target delay in force.
    target: Nanos,
    wanted: LiveTarget,
    limit: AcceptLimit,
    progress: Progress,
    /// Accepts of others that found the queue empty.
    found_empty: u64,
    /// Connections were taken between the last two ticks, or wait.
    moves: bool,
    refuser: Refuser,
    /// The queue's number.
    queue: usize,
    reading: Arc<Mutex<Reading>>,
}

impl AcceptControl {
    fn new(name: String, wanted: LiveTarget, control: QueueControl, now: Nanos) -> AcceptControl {
        let reading = Reading { figures: QueueFigures::of(&control), at: now };
        let target = wanted.get();
        AcceptControl {
            name,
            target,
            wanted,
            limit: AcceptLimit::new(target),
            progress: Progress::default(),
            found_empty: 0,
            moves: false,
            refuser: Refuser::Backlog,
            queue: 0,
            reading: Arc::new(Mutex::new(reading)),
            control,
        }
    }

    /// The control of an accept queue that has no sink: only the backlog bounds it. Messages begin with `name`.
    pub fn by_backlog(name: String, target: Nanos, backlog: u32, listeners: &[Listener]) -> AcceptControl {
        let now = RealClock::new().now();
        let settings = Settings { target, backlog: in_force(backlog, listeners) };
        let control = QueueControl::new(settings, Box::new(NoHook), now);
        AcceptControl::new(name, LiveTarget::new(target), control, now)
    }

    /// When a loop must wake up for a tick although nothing happens; never while everything is admitted.
    pub fn wakes_at(&self) -> Option<Nanos> {
        self.control.wakes_at()
    }

    /// Has the calling thread run soon after it wakes, beside many threads that serve: it watches the queue for them.
    pub fn watch_from_this_thread(&self) {
        // Without it, ticks come late while all threads are busy.
        let _ = sys::thread::set_slice(SLICE);
    }

    /// Connections have come for others to accept.
    pub fn stir(&mut self) {
        self.moves = true;
    }

    /// When a thread that accepts nothing itself must wake up for a tick: never while no connection comes or waits.
    pub fn watches_at(&self) -> Option<Nanos> {
        self.moves.then(|| self.control.due_at()).or_else(|| self.wakes_at())
    }

    /// Connections that others took from the queue so far, and accepts that found it empty.
    pub fn progress(&mut self, accepted: u64, found_empty: u64) {
        self.progress.accepted = accepted;
        self.progress.emptied |= std::mem::replace(&mut self.found_empty, found_empty) != found_empty;
    }

    /// An accept found the queue empty.
    pub fn found_empty(&mut self) {
        self.progress.emptied = true;
    }

    /// An accept phase is over that took this many connections.
    pub fn accepted(&mut self, taken: u64, end: PhaseEnd) {
        self.progress.accepted += taken;
        self.progress.emptied |= end == PhaseEnd::Empty;
    }

    /// An accept phase of a loop took this time.
    pub fn accepting_took(&mut self, taken: u64, took: Nanos) {
        self.limit.accepted(u32::try_from(taken).unwrap_or(u32::MAX), took);
    }

    /// A work phase of a loop is over: `turns` connections had a turn, and `closed` of them have ended.
    pub fn worked(&mut self, turns: u64, closed: u64, took: Nanos) {
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        self.limit.worked(count(turns), count(closed), took);
    }

    /// A turn of the loop is over.
    pub fn turned(&mut self, took: Nanos) {
        self.progress.lag = self.progress.lag.max(took);
    }

    /// The most connections that the next accept phase of a loop may take, at most the operator's.
    pub fn limit(&self, operators: Limit) -> Limit {
        let limit = self.limit.limit();
        match operators {
            Limit::AtMost(most) => Limit::AtMost(most.min(limit)),
            Limit::Infinite => Limit::AtMost(limit),
        }
    }

    /// Reads the signals, decides and carries out, if it is time. Never blocks.
    pub fn tick(&mut self, now: Nanos, listeners: &[Listener]) {
        if !self.control.due(now) {
            return;
        }
        self.follow_target();
        let before = self.control.signals().accepted;
        let sockets = listeners.iter().map(|listener| listener.socket.as_fd());
        let Ticked { change, failure } = self.control.tick(now, sockets, self.progress);
        (self.progress.emptied, self.progress.lag) = (false, Nanos::ZERO);
        self.moves = self.progress.accepted != before || self.control.signals().queued > 0;
        let name = &self.name;
        if let Some(change) = change {
            sys::say!("inrush: {name}{change}");
        }
        if let Some(failure) = failure {
            sys::say!("inrush: {name}{failure}; from now on only the backlog bounds the accept queue");
        }
        *lock(&self.reading) = Reading { figures: QueueFigures::of(&self.control), at: now };
    }

    /// Takes over a target delay that was changed.
    fn follow_target(&mut self) {
        let wanted = self.wanted.get();
        if std::mem::replace(&mut self.target, wanted) != wanted {
            self.control.set_target(wanted);
            self.limit.set_target(wanted);
        }
    }

    /// Stops refusing, which must come before a listener of the queue is closed.
    pub fn withdraw(&self) {
        self.refuser.withdraw(self.queue);
    }
}

fn lock(reading: &Mutex<Reading>) -> MutexGuard<'_, Reading> {
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}
