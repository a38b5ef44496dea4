//! Overload control for the drivers: one [`AcceptControl`] for each accept queue.
//!
//! ```text
//!   Overload::control ──> AcceptControl <── driver: connections taken, queue found empty, turns
//!                              | tick, every 5 ms at most
//!                              ├──> crate overload: share of refused SYNs
//!                              ├──> a line on standard error for each change of state
//!                              └──> QueueFigures ──> /status, /metrics
//! ```
//!
//! The listeners of one loop, or those that several threads or processes accept from, are one accept queue. The
//! process that made the listeners owns their sinks and runs their control. Worker processes only report their
//! accepts.
//!
//! Owns the wiring. `refuser` chooses the mechanism that refuses, and `device` has the programs on devices. Leaves
//! out the decision, which the crate [`overload`] makes.
//!
//! Invariant: the sinks leave their group before a listener does ([`AcceptControl::withdraw`]).

mod device;
mod refuser;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base::{Clock, Nanos, RealClock, lock};
use bpf::Exempt;
use bpf::admission::Attached;
use overload::hook::Routing;
use overload::law::Sessions;
use overload::{Hook, NoHook, Progress, QueueControl, Settings, State, Ticked};
use serde::Serialize;

use crate::connections::accept::PhaseEnd;
use crate::ground::choices::WantedHook;
use crate::ground::instructions::Instructions;
use crate::ground::listener::Listener;
use refuser::{Chosen, Refuser};

/// Listeners that one loop, or several threads or processes, accept from, with the control of their accept queue.
pub struct ControlledQueue {
    /// One listener for each address.
    pub listeners: Vec<Listener>,
    /// `None` without overload control.
    pub control: Option<AcceptControl>,
}

/// The age of a reading after which the queue must be idle, because a serving loop ticks more often.
const STALE: Nanos = Nanos::SECOND;

/// The time for which a server that takes over controls nothing. Its workers are starting and its predecessor still
/// accepts from the same queue, so the queue does not show this server's load.
const SHARED: Nanos = Nanos::from_secs(2);

/// Scheduler slice of a thread that only watches: many times the duration of a tick.
const SLICE: Nanos = Nanos::from_micros(100);

/// The overload control of a server, with the figures of its queues. Clones share them.
#[derive(Clone, Debug)]
pub struct Overload {
    target: LiveTarget,
    queues: Arc<Vec<Arc<Mutex<Reading>>>>,
    hook: &'static str,
    attached: Arc<Mutex<Vec<Attached>>>,
    /// The reason for the mechanism, if the server chose it.
    reason: Option<String>,
    failures: Vec<String>,
    refuser: Refuser,
    /// Another process controls the accept queues.
    withdrawn: Arc<AtomicBool>,
}

/// The target delay, which may change during use. Clones share it.
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

/// The figures of one accept queue at its last tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueFigures {
    /// `open` or `shedding`.
    pub state: &'static str,
    /// Connections in the accept queue.
    pub queued: u32,
    /// The measured service rate, mu; `None` before the queue was first saturated.
    pub service_rate_per_s: Option<f64>,
    /// Arrivals per second, smoothed; refused ones and retransmissions included.
    pub offered_per_s: f64,
    /// q / mu.
    pub queueing_delay_s: f64,
    /// The estimated wait of a new connection for its first turn: the queueing delay and a turn of the loop.
    pub wait_s: f64,
    /// The longest turn of the loop between two ticks; 0 without a loop.
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
    /// Starts a control for each accept queue. A queue is a set of listeners, one for each address. Blocks for at
    /// most a second, or for the time in which a driver restarts its device for XDP. A server that takes over from
    /// another one gets its sinks, and begins to control two seconds later. Clients of `exempt` are never refused.
    pub fn control(
        inherited: Option<Vec<OwnedFd>>,
        target: Nanos,
        backlog: u32,
        sets: &[Vec<Listener>],
        routing: Routing,
        hook: WantedHook,
        exempt: &Exempt,
    ) -> (Overload, Vec<AcceptControl>) {
        let clock = RealClock::new();
        let first = sets.first().map_or(&[][..], Vec::as_slice);
        let takes_over = inherited.is_some();
        let inherited = inherited.unwrap_or_default();
        let Chosen { refuser, attached, reason, failures } =
            Refuser::choose(hook, sets, routing, exempt, inherited);
        let settings = Settings { target, backlog: in_force(backlog, first) };
        let live = LiveTarget::new(target);
        let withdrawn = Arc::<AtomicBool>::default();
        let control = |queue| {
            let name = if sets.len() > 1 { format!("queue {queue}: ") } else { String::new() };
            let control = QueueControl::new(settings, refuser.hook(queue), clock.now());
            let wanted = live.clone();
            AcceptControl {
                refuser: refuser.clone(),
                queue,
                withdrawn: Arc::clone(&withdrawn),
                begins_at: if takes_over { clock.now() + SHARED } else { Nanos::ZERO },
                ..AcceptControl::new(name, wanted, control, clock.now())
            }
        };
        let controls: Vec<AcceptControl> = (0..sets.len()).map(control).collect();
        let queues = controls.iter().map(|control| Arc::clone(&control.reading)).collect();
        let hook = controls.first().map_or(NoHook.name(), |first| first.control.hook());
        let attached = Arc::new(Mutex::new(attached));
        let queues = Arc::new(queues);
        (Overload { target: live, queues, hook, attached, reason, failures, refuser, withdrawn }, controls)
    }

    /// Returns the target delay.
    pub fn target(&self) -> Nanos {
        self.target.get()
    }

    /// Sets the target delay, within [`Settings::TARGETS`], from the next tick of each queue on.
    pub fn set_target(&self, target: Nanos) {
        self.target.0.store(target.0, Ordering::Relaxed);
    }

    /// Returns the name of the hook that refuses connections.
    pub fn hook(&self) -> &'static str {
        self.hook
    }

    /// Describes the mechanism that refuses connections, with the reason if the server chose it.
    pub fn refuser(&self) -> String {
        let places: Vec<String> =
            self.devices().iter().map(|Attached { device, how }| format!("{how} on {device}")).collect();
        let place = if places.is_empty() { format!("the {}", self.hook) } else { places.join(", ") };
        self.reason.as_ref().map_or(place.clone(), |reason| format!("{place}, because {reason}"))
    }

    /// Returns the devices whose program refuses connections.
    pub fn devices(&self) -> Vec<Attached> {
        lock(&self.attached).clone()
    }

    /// Tells whether devices may have to be followed.
    pub fn has_devices(&self) -> bool {
        matches!(self.refuser, Refuser::Devices(_))
    }

    /// Refuses connections through devices that are new since the last call, and forgets those that are gone. Says so in
    /// one line each.
    pub fn follow_devices(&self) {
        // Only this thread changes them. Others read them while a driver restarts its device.
        let mut attached = self.devices();
        self.refuser.follow_devices(&mut attached);
        *lock(&self.attached) = attached;
    }

    /// Returns a line for each mechanism that does not refuse connections, and for each device whose connections pass.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Copies the sinks for a successor.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn sinks(&self) -> io::Result<Vec<OwnedFd>> {
        self.refuser.copies()
    }

    /// Stops refusing, for good: another process is about to control the accept queues.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Relaxed);
        (0..self.queues.len()).for_each(|queue| self.refuser.withdraw(queue));
    }

    /// Returns the figures of each queue. If a loop sleeps, its queue is shown as empty.
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

    /// Tells whether the queue refuses connections.
    pub fn is_shedding(&self) -> bool {
        self.state == name(State::Shedding)
    }
}

/// Returns the backlog of listeners, which the kernel bounds by somaxconn.
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
    /// The prefix of its messages, if there are several queues.
    name: String,
    control: QueueControl,
    /// The target delay in force.
    target: Nanos,
    wanted: LiveTarget,
    progress: Progress,
    /// Accepts by other threads that found the queue empty.
    found_empty: u64,
    /// True if connections arrived between the last two ticks, or wait.
    moves: bool,
    refuser: Refuser,
    /// The queue's number.
    queue: usize,
    /// Another process controls the queue.
    withdrawn: Arc<AtomicBool>,
    /// The time before which it does nothing.
    begins_at: Nanos,
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
            progress: Progress::default(),
            found_empty: 0,
            moves: false,
            refuser: Refuser::Backlog,
            queue: 0,
            withdrawn: Arc::default(),
            begins_at: Nanos::ZERO,
            reading: Arc::new(Mutex::new(reading)),
            control,
        }
    }

    /// Makes the control of an accept queue without a sink: only the backlog bounds it. Messages begin with `name`.
    pub fn by_backlog(name: String, target: Nanos, backlog: u32, listeners: &[Listener]) -> AcceptControl {
        let now = RealClock::new().now();
        let settings = Settings { target, backlog: in_force(backlog, listeners) };
        let control = QueueControl::new(settings, Box::new(NoHook), now);
        AcceptControl::new(name, LiveTarget::new(target), control, now)
    }

    /// Returns the time of a tick for which an idle loop must wake up; `None` while everything is admitted.
    pub fn wakes_at(&self) -> Option<Nanos> {
        self.control.wakes_at()
    }

    /// Makes the calling thread run soon after it wakes, even while many threads serve. It watches the queue for
    /// them.
    pub fn watch_from_this_thread(&self) {
        // If this fails, ticks come late while all threads are busy.
        let _ = sys::thread::set_slice(SLICE);
    }

    /// Notes that connections have come for other threads to accept.
    pub fn stir(&mut self) {
        self.moves = true;
    }

    /// Returns the time of the next tick for a thread that accepts nothing itself; `None` while no connection comes
    /// or waits.
    pub fn watches_at(&self) -> Option<Nanos> {
        self.moves.then(|| self.control.due_at().max(self.begins_at)).or_else(|| self.wakes_at())
    }

    /// Notes the connections that other threads took from the queue so far, refused ones included, and their accepts
    /// that found it empty.
    pub fn progress(&mut self, accepted: u64, found_empty: u64) {
        self.progress.accepted = accepted;
        self.progress.emptied |= std::mem::replace(&mut self.found_empty, found_empty) != found_empty;
    }

    /// Notes that an accept found the queue empty.
    pub fn found_empty(&mut self) {
        self.progress.emptied = true;
    }

    /// Notes the end of an accept phase that took this many connections, refused ones included.
    pub fn accepted(&mut self, taken: u64, end: PhaseEnd) {
        self.progress.accepted += taken;
        self.progress.emptied |= end == PhaseEnd::Empty;
    }

    /// Notes the number of connections so far whose first request was refused because it had waited too long.
    pub fn late_connections(&mut self, so_far: u64) {
        self.progress.late = so_far;
    }

    /// Notes the end of a turn of the loop.
    pub fn turned(&mut self, took: Nanos) {
        self.progress.lag = self.progress.lag.max(took);
    }

    /// Notes the used fraction of the connection limit.
    pub fn occupied(&mut self, fraction: f64) {
        self.progress.occupancy = fraction;
    }

    /// Returns the instructions for open connections whose requests cost this much.
    pub fn sessions(&self, cost: Nanos) -> Sessions {
        self.control.decision().sessions.for_requests(cost)
    }

    /// Returns the instructions for open connections whose requests this many processors serve. A request costs the
    /// time that these processors spend on one connection at the measured rate of service.
    pub fn instructions(&self, processors: usize) -> Instructions {
        let rate = self.control.decision().service_rate.filter(|rate| rate.0 > 0.0);
        let cost = rate.map_or(Nanos::ZERO, |rate| Nanos::from_secs_f64(processors as f64 / rate.0));
        Instructions { sessions: self.sessions(cost), target: Some(self.target) }
    }

    /// Notes the time that the loop spends on a connection from its accept to its close.
    pub fn connection_costs(&mut self, cost: Nanos) {
        self.progress.cost = cost;
    }

    /// Returns the target delay in force.
    pub fn target(&self) -> Nanos {
        self.target
    }

    /// At a tick, reads the signals, decides and acts. Never blocks.
    pub fn tick(&mut self, now: Nanos, listeners: &[Listener]) {
        if now < self.begins_at || !self.control.due(now) {
            return;
        }
        self.follow_target();
        let before = self.control.signals().accepted;
        // The bound of the queue is the other process's as well.
        let listeners = if self.withdrawn.load(Ordering::Relaxed) { &[] } else { listeners };
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
        let (mut figures, mut reading) = (QueueFigures::of(&self.control), lock(&self.reading));
        // A connection may have left the queue and not yet be counted as accepted. The total must not go back.
        figures.admitted = figures.admitted.max(reading.figures.admitted);
        *reading = Reading { figures, at: now };
    }

    /// Adopts a changed target delay.
    fn follow_target(&mut self) {
        let wanted = self.wanted.get();
        if std::mem::replace(&mut self.target, wanted) != wanted {
            self.control.set_target(wanted);
        }
    }

    /// Stops refusing, which must happen before a listener of the queue is closed.
    pub fn withdraw(&self) {
        self.refuser.withdraw(self.queue);
    }
}

#[cfg(test)]
mod tests {
    use base::Limit;

    use super::*;
    use crate::connections::accept::{AcceptLimit, Accepted, Acceptor, LiveLimit, Short};
    use crate::connections::refusals::Refusals;
    use crate::connections::slots::Share;
    use crate::driver::event_loop::{Arrivals, Listeners};
    use crate::ground::counters::LoopCounts;
    use crate::ground::listener::{connect, listen};

    /// The listeners of a loop whose accept queue only the backlog bounds, with a connection limit.
    fn loop_of(share: Share) -> Listeners {
        let listeners = listen("127.0.0.1:0".parse().unwrap(), 8, 1, false).unwrap();
        let control = Some(AcceptControl::by_backlog(String::new(), Nanos::SECOND, 8, &listeners));
        let limit = LiveLimit::new(AcceptLimit::Fixed(Limit::Infinite));
        let acceptor = Acceptor::new(limit, share, Some(Refusals::new().unwrap()));
        Listeners::new(ControlledQueue { listeners, control }, acceptor)
    }

    /// The connections that entered the queue, at a tick this long from now.
    fn admitted_after(listeners: &mut Listeners, seconds: u64) -> u64 {
        listeners.tick(RealClock::new().now() + Nanos::from_secs(seconds));
        lock(&listeners.control().unwrap().reading).figures.admitted
    }

    #[test]
    fn connections_that_are_turned_away_had_been_admitted() {
        let share = Share::alone(1);
        let _open = share.take().unwrap();
        let mut listeners = loop_of(share);
        let _clients = connect(&listeners.listeners[0], 3);
        let mut counts = LoopCounts::default();
        assert!(matches!(listeners.accept(0, Nanos::ZERO, &mut counts), Accepted::NoRoom(_)));
        for _ in 0..3 {
            listeners.turn_away(0, Short::Connections, Nanos::ZERO, &mut counts);
        }
        assert_eq!((counts.turned_away, admitted_after(&mut listeners, 1)), (3, 3));
    }

    #[test]
    fn the_number_of_admitted_connections_never_goes_back() {
        let mut listeners = loop_of(Share::alone(4));
        let clients = connect(&listeners.listeners[0], 2);
        assert_eq!(admitted_after(&mut listeners, 1), 2);
        // It is open, and the accept phase that took it has not ended.
        let open = listeners.accept(0, Nanos::ZERO, &mut LoopCounts::default());
        assert_eq!(admitted_after(&mut listeners, 2), 2);
        listeners.control().unwrap().accepted(1, PhaseEnd::AtLimit);
        assert_eq!(admitted_after(&mut listeners, 3), 2);
        drop((open, clients));
    }
}
