//! The law: when to refuse connections, and how many.
//!
//! ```text
//!             the estimated wait is above 2.5 targets,
//!             and the queue has grown for 2 ticks
//!       Open ───────────────────────────────────────> Shedding ──┐ each tick: admit
//!         ^                                              |       │ service rate x f(wait)
//!         └──────────────────────────────────────────────┘ <─────┘
//!             nothing was refused for 25 targets
//! ```
//!
//! The estimated wait is q / mu: the connections in the accept queue over the rate at which connections leave it. mu
//! is measured only while the queue is never empty, because otherwise it would be the rate of arrivals. For sessions
//! of many requests it is what the loop has left for strangers, and falls as sessions fill the loop; that is the
//! queueing delay which a stranger would really see.
//!
//! While shedding, the law admits mu times f of the wait w, around a set point s of a fifth of the target T:
//!
//! ```text
//!   f = 1 + p (1 - w / s)                   w < s: probes for a server that has become faster
//!   f = max(0.1, 1 - (w - s) / 5 T)         otherwise: works the excess off in five targets
//! ```
//!
//! p is 0.2, and doubles each tick up to 1 while the server takes more than it was thought to be able to.
//!
//! A tick with fewer arrivals than nine tenths of mu lets the queue drain by itself, and the hook admits everything. It
//! refuses again after four ticks with more arrivals, or at once if the wait is one that begins shedding. So the end of a
//! burst is admitted, and the echo of a rush as far as there is room for it.
//!
//! A hook that selects by the identity of a SYN refuses a retransmission again, so that retransmissions are offered
//! but never admitted. The share to admit is therefore corrected until the admitted rate is what the law wants.
//!
//! Before mu is known, in a server that has never been saturated, nothing is refused. Two ticks of a rush measure it,
//! and what was queued by then waits about five targets at ten times the capacity.
//!
//! The backlog is the configured one in the open state, and five targets of work while shedding. The kernel bounds the
//! handshakes under way by the same number, so that a smaller backlog would refuse clients who are far away, below
//! the capacity.
//!
//! Owns the state, the estimates and the decision. Leaves out reading signals and carrying decisions out. No clock, no
//! I/O.
//!
//! Invariants: the share is above 0 and at most 1; the backlog is at least 1 and at most the configured one; in
//! [`State::Open`] everything is admitted.

mod constants;
mod service_rate;

use std::fmt;

use base::{Nanos, PerSecond};

use crate::hook::Admission;
use crate::sessions::Sessions;
pub use constants::Constants;
use service_rate::ServiceRate;

/// The longest time between two ticks while connections are refused.
const LONGEST_TICK: Nanos = Nanos::from_millis(5);

/// The most that the share is corrected by: hooks see each refused client at most a few times, and the correction must
/// not open the gates when clients fall silent.
const MOST_CORRECTION: f64 = 20.0;

/// What an operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The wait for being accepted that clients are to see at most, about: 1 ms or more.
    pub target: Nanos,
    /// The backlog while nothing is known of the server's speed, and the largest: 1 or more.
    pub backlog: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { target: Nanos::from_millis(20), backlog: 4096 }
    }
}

/// Whether connections are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Everything is admitted.
    #[default]
    Open,
    /// The hook is told what to admit.
    Shedding,
}

/// The readings of one accept queue. Counts are totals since the start, so that a missed tick loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Connections in the accept queue now, read after the open connections had their turn and before accepting.
    pub queued: u32,
    /// Connections taken from the queue.
    pub accepted: u64,
    /// An accept has found the queue empty since the last tick, or somebody has waited for a connection.
    pub emptied: bool,
    /// SYNs that the hook refused.
    pub refused: u64,
    /// SYNs and final ACKs that the listeners dropped because the queue was full.
    pub dropped: u64,
    /// The longest turn of the loop since the last tick; 0 where there is none.
    pub lag: Nanos,
    /// Open connections, as a part of the most that there may be.
    pub occupancy: f64,
}

/// What is to be done until the next tick, and what it was decided on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Whether connections are refused.
    pub state: State,
    /// What the hook is to admit.
    pub admission: Admission,
    /// What each listener's backlog is to be.
    pub backlog: u32,
    /// What is to become of open connections.
    pub sessions: Sessions,
    /// The connections in the accept queue.
    pub queued: u32,
    /// The measured service rate, mu; none before the server was saturated for the first time.
    pub service_rate: Option<PerSecond>,
    /// The smoothed rate of arrivals, refused ones and retransmissions included.
    pub offered: PerSecond,
    /// The estimated wait in the accept queue, q / mu; 0 while mu is unknown.
    pub queueing_delay: Nanos,
    /// The estimated wait of a new connection for its first turn: the queueing delay and a turn of the loop.
    pub wait: Nanos,
}

/// A change of state and what it was decided on, for one line of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// What was decided.
    pub decision: Decision,
    /// How long the last state had lasted.
    pub after: Nanos,
    /// The connections refused or dropped in it.
    pub refused: u64,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { state, queued, queueing_delay, offered, service_rate, .. } = self.decision;
        let (served, ms) = (service_rate.unwrap_or_default().0, queueing_delay.as_secs_f64() * 1e3);
        let offered = offered.0;
        match state {
            State::Shedding => write!(
                f,
                "overload: refusing connections; {queued} wait about {ms:.1} ms, \
                 with {offered:.0}/s arriving and {served:.0}/s served"
            ),
            State::Open => write!(
                f,
                "overload over after {:.1} s: refused {} connections; {offered:.0}/s arrive, {served:.0}/s can be served",
                self.after.as_secs_f64(),
                self.refused
            ),
        }
    }
}

/// The controller of one accept queue.
#[derive(Clone, Debug)]
pub struct Controller {
    constants: Constants,
    /// In seconds.
    target: f64,
    backlog: u32,
    tick: Nanos,
    /// The last readings and their time.
    last: Signals,
    at: Nanos,
    rate: ServiceRate,
    /// The smoothed rates of arrivals, and of arrivals in the queue, in connections per second.
    offered: f64,
    admitted: f64,
    /// The excess over the service rate that is admitted to an empty queue.
    probe: f64,
    /// Ticks in a row that a long queue has grown for.
    grown: u32,
    /// The offered load of the last ticks, in connections per second.
    recent: f64,
    /// Ticks in a row in which more arrived than lets the queue drain.
    exceeded: u32,
    /// Seconds since something was refused.
    calm: f64,
    /// What the bound of the queue is multiplied by, for handshakes of clients that are far away.
    far: f64,
    /// What the share is multiplied by, for arrivals that fail to appear.
    correction: f64,
    decision: Decision,
    /// The time of the last change of state, and the refusals until then.
    changed: (Nanos, u64),
}

/// What happened since the last tick, in seconds and connections.
struct Elapsed {
    seconds: f64,
    /// Taken from the queue.
    taken: f64,
    /// Entered the queue.
    admitted: f64,
    /// Refused by the hook.
    refused: f64,
    /// Dropped by the listeners.
    dropped: f64,
    /// Admitted, refused or dropped.
    offered: f64,
}

impl Controller {
    /// A controller in the open state.
    pub fn new(settings: Settings, now: Nanos) -> Controller {
        Controller::with(Constants::CHOSEN, settings, now)
    }

    /// A controller with other constants, to see what they are worth.
    pub fn with(constants: Constants, settings: Settings, now: Nanos) -> Controller {
        Controller {
            constants,
            target: settings.target.as_secs_f64(),
            backlog: settings.backlog,
            tick: LONGEST_TICK.min(settings.target / 4),
            last: Signals::default(),
            at: now,
            rate: ServiceRate::default(),
            offered: 0.0,
            admitted: 0.0,
            probe: constants.probe,
            grown: 0,
            exceeded: 0,
            recent: 0.0,
            calm: 0.0,
            far: 1.0,
            correction: 1.0,
            decision: Decision {
                state: State::Open,
                admission: Admission::ALL,
                backlog: settings.backlog,
                sessions: Sessions::default(),
                queued: 0,
                service_rate: None,
                offered: PerSecond(0.0),
                queueing_delay: Nanos::ZERO,
                wait: Nanos::ZERO,
            },
            changed: (now, 0),
        }
    }

    /// The decision in force.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// When the next tick is due. Earlier ones would measure noise; in the open state later ones do no harm.
    pub fn due(&self) -> Nanos {
        self.at + self.tick
    }

    /// Decides anew on the readings of this moment. Gives the change of state, if there is one.
    pub fn tick(&mut self, now: Nanos, signals: &Signals) -> Option<Change> {
        let elapsed = self.elapsed(now, signals)?;
        self.measure(&elapsed, signals);
        let before = self.decision.state;
        if let Some(rate) = self.rate.per_second() {
            let wait = f64::from(signals.queued) / rate;
            if before == State::Open {
                self.consider_shedding(&elapsed, rate);
            }
            if self.decision.state == State::Shedding {
                self.shed(&elapsed, rate, wait);
            }
            self.bound(&elapsed);
            self.decision.queueing_delay = Nanos::from_secs_f64(wait);
        }
        let state = self.decision.state;
        let target = Nanos::from_secs_f64(self.target);
        self.decision.sessions = Sessions::advised(state, target, signals.occupancy);
        self.decision.queued = signals.queued;
        self.decision.service_rate = self.rate.per_second().map(PerSecond);
        self.decision.offered = PerSecond(self.offered);
        self.decision.wait = self.decision.queueing_delay.saturating_add(signals.lag);
        (state != before).then(|| self.change(now, signals))
    }

    /// What has happened since the last tick; nothing where no time has passed.
    fn elapsed(&mut self, now: Nanos, signals: &Signals) -> Option<Elapsed> {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        // Totals of worker processes fall when one dies.
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let taken = grown(signals.accepted, self.last.accepted);
        let refused = grown(signals.refused, self.last.refused);
        let dropped = grown(signals.dropped, self.last.dropped);
        let admitted = (taken + f64::from(signals.queued) - f64::from(self.last.queued)).max(0.0);
        let offered = admitted + refused + dropped;
        let elapsed = Elapsed { seconds, taken, admitted, refused, dropped, offered };
        self.at = now;
        Some(elapsed)
    }

    fn measure(&mut self, elapsed: &Elapsed, signals: &Signals) {
        let constants = &self.constants;
        let saturated = self.last.queued > 0 && signals.queued > 0 && !signals.emptied;
        // By the faster of what was and what is, so that a server which stood still is soon known to run again.
        let speed = self.rate.per_second().unwrap_or(0.0).max(elapsed.taken / elapsed.seconds);
        let few = if speed > 0.0 { constants.memory_connections / speed } else { 0.0 };
        let memory = few.max(constants.memory * self.target);
        // A server that empties its queue of more than it was thought to be able to is asked for more and more.
        let exceeds =
            !saturated && self.rate.per_second().is_some_and(|rate| elapsed.taken > rate * elapsed.seconds);
        let probe = if exceeds { self.probe * 2.0 } else { constants.probe };
        self.probe = probe.min(constants.most_probe);
        self.rate.tick(elapsed.taken, elapsed.seconds, saturated, memory, constants.fade * self.target);
        self.offered += constants.smoothing * (elapsed.offered / elapsed.seconds - self.offered);
        self.admitted += constants.smoothing * (elapsed.admitted / elapsed.seconds - self.admitted);
        self.last = *signals;
    }

    /// Sets the hard bound of the queue: by the fastest that the server has been of late, so that a stall does not
    /// shorten it. The kernel bounds the handshakes under way by the same number. Drops beside a short queue are theirs:
    /// clients are far away, and need more room.
    fn bound(&mut self, elapsed: &Elapsed) {
        let constants = &self.constants;
        let peak = self.rate.peak(constants.fade * self.target);
        let (State::Shedding, Some(peak)) = (self.decision.state, peak) else {
            self.decision.backlog = self.backlog;
            return;
        };
        if elapsed.dropped > 0.0 && self.last.queued < self.decision.backlog / 2 {
            self.far = (self.far * constants.far_growth).min(constants.most_far);
        }
        let bound = (constants.backlog * self.target * peak * self.far) as u32;
        let bound = bound.clamp(constants.least_backlog.min(self.backlog), self.backlog);
        // A change must be worth a system call.
        if bound.abs_diff(self.decision.backlog) > self.decision.backlog / 8 || bound == self.backlog {
            self.decision.backlog = bound;
        }
    }

    /// Begins to refuse where the queue will soon be too long, and grows.
    fn consider_shedding(&mut self, elapsed: &Elapsed, rate: f64) {
        let constants = &self.constants;
        let soon = (self.offered - rate).max(0.0) * constants.enter_horizon * self.target;
        let expected = f64::from(self.last.queued) + soon;
        let too_long =
            (constants.enter_wait * self.target * rate).min(constants.enter_full * f64::from(self.backlog));
        let long = expected > too_long && expected >= constants.enter_queue;
        let growing = elapsed.offered > elapsed.taken;
        // A queue that is twice too long needs no second look, unless the loop stood still meanwhile.
        let regular = elapsed.seconds < 3.0 * self.tick.as_secs_f64();
        let ticks = if regular && expected > 2.0 * too_long { constants.enter_ticks } else { 1 };
        self.grown = if long && growing { self.grown + ticks } else { 0 };
        if self.grown >= constants.enter_ticks {
            self.decision.state = State::Shedding;
            self.grown = 0;
            self.exceeded = constants.refuse_ticks;
            self.recent = self.offered;
            self.far = 1.0;
            self.calm = 0.0;
            self.correction = 1.0;
        }
    }

    /// Decides what to admit, or that everything may be admitted again.
    fn shed(&mut self, elapsed: &Elapsed, rate: f64, wait: f64) {
        let constants = &self.constants;
        let weight = (rate * elapsed.seconds / constants.drains_connections).min(1.0);
        self.recent += weight * (elapsed.offered / elapsed.seconds - self.recent);
        let drains = self.recent < constants.drains_below * rate;
        self.exceeded = if drains { 0 } else { self.exceeded.saturating_add(1) };
        let long = !drains && wait > constants.enter_wait * self.target;
        // Beyond its bound a queue need not wait for more to come.
        let full = wait > constants.backlog * self.target;
        let refuse = self.exceeded >= constants.refuse_ticks || long || full;
        let admission = if refuse { self.admission(elapsed, rate, wait) } else { Admission::ALL };
        self.decision.admission = admission;
        let calm = elapsed.refused == 0.0 && admission.share >= 1.0;
        self.calm = if calm { self.calm + elapsed.seconds } else { 0.0 };
        if self.calm >= self.constants.leave_after * self.target {
            self.decision.state = State::Open;
            self.decision.admission = Admission::ALL;
        }
    }

    fn admission(&mut self, elapsed: &Elapsed, rate: f64, wait: f64) -> Admission {
        let constants = &self.constants;
        let set_point = (constants.set_point * self.target).max(constants.set_point_queue / rate);
        let times = if wait < set_point {
            1.0 + self.probe * (1.0 - wait / set_point)
        } else {
            (1.0 - (wait - set_point) / (constants.drain_time * self.target)).max(constants.least_admitted)
        };
        let wanted = rate * times;
        let missing = (wanted - self.admitted) / rate;
        let correction = (missing * elapsed.seconds / (constants.correction * self.target)).exp();
        self.correction = (self.correction * correction).clamp(1.0, MOST_CORRECTION);
        Admission {
            rate: PerSecond(wanted),
            burst: (constants.burst * self.target * rate).max(constants.least_burst) as u32,
            share: (self.correction * wanted / self.offered.max(wanted)).min(1.0),
        }
    }

    fn change(&mut self, now: Nanos, signals: &Signals) -> Change {
        let refused = signals.refused + signals.dropped;
        let (since, before) = std::mem::replace(&mut self.changed, (now, refused));
        Change {
            decision: self.decision,
            after: now.saturating_sub(since),
            refused: refused.saturating_sub(before),
        }
    }
}

#[cfg(test)]
mod tests;
