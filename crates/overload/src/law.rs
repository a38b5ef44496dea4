//! The law: decides when to refuse connections, and how many.
//!
//! ```text
//!             the estimated wait is above 2.5 targets, and the
//!             queue has grown for 2 ticks; or many were late
//!       Open ───────────────────────────────────────> Shedding ──┐ each tick: admit
//!         ^                                              |       │ service rate x f(wait)
//!         └──────────────────────────────────────────────┘ <─────┘
//!             nothing was refused for 25 targets
//! ```
//!
//! The estimated wait is q / mu: the connections in the accept queue over the rate at which connections leave
//! it. The rate mu is measured only while the queue is never empty. Otherwise it would be the rate of
//! arrivals. For sessions of many requests, mu is the capacity that the loop has left for strangers, and
//! falls as sessions fill the loop. The result is the queueing delay that a stranger would really see.
//!
//! A server whose requests are as long as the target never has a long queue: it answers those that have waited too long
//! with 503 at once. So shedding also begins when a quarter of the recent connections got such an answer.
//!
//! A foreign server may be so slow that 64 connections are seconds of work. There shedding begins when the queue stands
//! (see [`foreign`](crate::foreign)).
//!
//! While shedding, the law admits mu times f of the wait w, around a set point s of a fifth of the target T:
//!
//! ```text
//!   f = 1 + p (1 - w / s)                   w < s: probes for a server that has become faster
//!   f = max(0.1, 1 - (w - s) / 5 T)         otherwise: works the excess off in five targets
//! ```
//!
//! The burst of a bucket shrinks with the admitted rate. A bucket counts its burst in time, so that each slower rate would
//! otherwise admit a whole burst again.
//!
//! p is 0.2. It doubles each tick, up to 1, while the server takes more than its estimated rate.
//!
//! After two ticks with fewer arrivals than nine tenths of mu the queue drains by itself, and the hook admits
//! everything. One tick is not enough: at ten times the capacity, a pause of a few milliseconds would admit the next
//! thousands of SYNs, whose handshakes keep the loop from its next tick. The hook refuses again after four ticks with
//! more arrivals, or at once if the wait is long enough to begin shedding. The end of a burst is thus admitted, and
//! the echo of a rush as far as there is room for it.
//!
//! A hook that selects by the identity of a SYN refuses a retransmission again, so retransmissions are
//! offered but never admitted. The share is therefore corrected until the admitted rate matches the law.
//!
//! A hook that remembers the refused SYNs holds them to the rate for 8 s after the last refusal, in either state. The
//! echo of a rush then gets the room that new clients leave.
//!
//! Clients whose final ACK was dropped believe that they are connected, and repeat their request 200 ms later. These
//! connections enter the queue past the hook. So the arrivals that count for the share, and for the end of a rush, are
//! the SYNs. A hook counts them, or the refused ones show how many there are.
//!
//! Until mu is known, in a server that has never been saturated, no wait can be estimated. Two ticks of a rush measure it.
//!
//! The thousands of SYNs that arrive before the law's first tick are a hook's own affair. A hook with a bucket admits two
//! targets of work at once in the open state, and twice the recent arrivals or the service rate beside it. The kernel would
//! drop the others at their final ACK.
//!
//! The backlog bounds the queue in every state, in targets of work:
//!
//! ```text
//!   open, queue below 1 target:   7.5   clients up to 150 ms away get their handshakes without cookies
//!   open, queue above 1 target:   3     the handshakes of a rush leave the server no time for its next tick
//!   shedding:                     3     and up to 3.3 times as much, for handshakes that do not fit
//! ```
//!
//! Beyond the bound the kernel drops SYNs, which costs a tenth of a handshake. The bound follows the service rate as
//! it was known before the tick in which the queue became long. For a server that was never saturated, it follows the
//! loop's own measurement of a connection's cost.
//!
//! Owns the state, the estimates and the decision. Leaves out reading signals and applying decisions. No
//! clock, no I/O.
//!
//! Invariants: the share is above 0 and at most 1. The backlog is at least 1 and at most the configured one.
//! In [`State::Open`] the share is 1.
//!
//! The modules: `constants` holds the numbers of the law, and `service_rate` measures mu.

mod constants;
mod service_rate;
pub mod sessions;

use std::fmt;
use std::ops::RangeInclusive;

use base::{Nanos, PerSecond};

use crate::hook::Admission;
pub use constants::Constants;
use service_rate::ServiceRate;
pub use sessions::Sessions;

/// The longest time between two ticks while connections are refused.
const LONGEST_TICK: Nanos = Nanos::from_millis(5);

/// The seconds after the last refusal in which refused clients keep to the rate. A kernel sends a SYN again after 1, 2 and
/// 4 s, and the program on devices remembers it for 4.3 to 8.6 s.
const MEMORY: f64 = 8.0;

/// The largest correction of the share. Hooks see each refused client at most a few times, and the correction
/// must not admit everything when clients fall silent.
const MOST_CORRECTION: f64 = 20.0;

/// The operator's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The approximate maximum wait of clients for an accept, within [`Settings::TARGETS`].
    pub target: Nanos,
    /// The largest backlog, also used while the server's speed is unknown: 1 or more.
    pub backlog: u32,
}

impl Settings {
    /// The allowed target delays. A shorter one asks for more ticks than a loop has turns. Clients retransmit and give up
    /// long before a longer wait ends.
    pub const TARGETS: RangeInclusive<Nanos> = Nanos::MILLISECOND..=Nanos::from_secs(10);
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { target: Nanos::from_millis(20), backlog: 4096 }
    }
}

/// The state of the law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Every new SYN for which the queue has room is admitted.
    #[default]
    Open,
    /// The law tells the hook what to admit.
    Shedding,
}

/// The readings of one accept queue. Counts are totals since the start, so that a missed tick loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Connections in the accept queue, read after the turns of open connections and before accepting.
    pub queued: u32,
    /// Connections accepted from the queue.
    pub accepted: u64,
    /// Those among them whose first request was refused because it had waited too long. They are no service, because a
    /// refusal costs little.
    pub late: u64,
    /// True if the queue has stood for longer than chance explains. Shedding then begins, however short the queue is.
    pub stands: bool,
    /// True if an accept has found the queue empty since the last tick, or a thread or process has waited for
    /// a connection.
    pub emptied: bool,
    /// SYNs that the hook decided on; `None` if it counts only those that it refuses.
    pub syns: Option<u64>,
    /// SYNs that the hook refused.
    pub refused: u64,
    /// SYNs and final ACKs that the listeners dropped because the queue was full.
    pub dropped: u64,
    /// The longest turn of the loop since the last tick; 0 for a server without a loop.
    pub lag: Nanos,
    /// Open connections, as a fraction of the connection limit.
    pub occupancy: f64,
    /// The time that a connection takes from its accept to its close, as the loop has measured it; 0 if it has not.
    pub cost: Nanos,
    /// The mean number of arrivals that come together; 0 counts as 1. The requests of a connection do.
    pub batch: f64,
}

/// The decision until the next tick, and the figures behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The state of the law.
    pub state: State,
    /// The admission for the hook.
    pub admission: Admission,
    /// The backlog for each listener.
    pub backlog: u32,
    /// The treatment of open connections.
    pub sessions: Sessions,
    /// The connections in the accept queue.
    pub queued: u32,
    /// The measured service rate, mu; `None` until the server has been saturated.
    pub service_rate: Option<PerSecond>,
    /// The smoothed rate of arrivals, including refused ones and retransmissions.
    pub offered: PerSecond,
    /// The estimated wait in the accept queue, q / mu; 0 while mu is unknown.
    pub queueing_delay: Nanos,
    /// The estimated wait of a new connection for its first turn: the queueing delay plus a turn of the loop.
    pub wait: Nanos,
}

/// A change of state and the figures behind it, for one line of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The new decision.
    pub decision: Decision,
    /// The duration of the last state.
    pub after: Nanos,
    /// The connections refused or dropped during the last state.
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
    /// The target delay, in seconds.
    target: f64,
    backlog: u32,
    tick: Nanos,
    /// The last readings; `at` is their time.
    last: Signals,
    at: Nanos,
    rate: ServiceRate,
    /// The smoothed rate of arrivals, in connections per second; `admitted` is that of arrivals in the queue.
    offered: f64,
    admitted: f64,
    /// The smoothed rate of SYNs, in connections per second.
    fresh: f64,
    /// The fraction of recent connections whose first request was refused because it had waited too long.
    late: f64,
    /// The excess over the service rate that an empty queue admits.
    probe: f64,
    /// Consecutive ticks in which a long queue has grown.
    grown: u32,
    /// The offered load of the recent ticks, in connections per second.
    recent: f64,
    /// Consecutive ticks with few enough arrivals for the queue to drain.
    drained: u32,
    /// Ticks with too many, since then.
    exceeded: u32,
    /// Seconds since the last refusal, apart from those by the bucket of the first tick.
    calm: f64,
    /// The service rate at the time when the queue became long; `None` while it is short.
    alarm: Option<f64>,
    /// The factor of the queue's bound that gives room to the handshakes of distant clients.
    far: f64,
    /// The factor of the share that makes up for missing arrivals.
    correction: f64,
    decision: Decision,
    /// The time of the last change of state, and the refusals until then.
    changed: (Nanos, u64),
}

/// The changes since the last tick, in seconds and connections.
struct Elapsed {
    seconds: f64,
    /// Connections accepted from the queue.
    taken: f64,
    /// Those of them that were not refused for being late.
    served: f64,
    /// Those that were.
    late: f64,
    /// Connections that entered the queue.
    admitted: f64,
    /// SYNs that the hook refused.
    refused: f64,
    /// SYNs and final ACKs that the listeners dropped.
    dropped: f64,
    /// The sum of admitted, refused and dropped.
    offered: f64,
    /// SYNs, if the hook shows their number, or else all offered connections.
    fresh: f64,
}

impl Controller {
    /// A controller in the open state.
    pub fn new(settings: Settings, now: Nanos) -> Controller {
        Controller::with(Constants::CHOSEN, settings, now)
    }

    /// A controller with other constants, for experiments.
    pub fn with(constants: Constants, settings: Settings, now: Nanos) -> Controller {
        Controller {
            constants,
            target: settings.target.as_secs_f64(),
            backlog: settings.backlog,
            tick: tick(settings.target),
            last: Signals::default(),
            at: now,
            rate: ServiceRate::default(),
            offered: 0.0,
            admitted: 0.0,
            fresh: 0.0,
            late: 0.0,
            probe: constants.probe,
            grown: 0,
            drained: 0,
            exceeded: 0,
            recent: 0.0,
            calm: f64::INFINITY,
            alarm: None,
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

    /// Changes the target delay, within [`Settings::TARGETS`], from the next tick on.
    pub fn set_target(&mut self, target: Nanos) {
        self.target = target.as_secs_f64();
        self.tick = tick(target);
    }

    /// The current decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The time of the next tick. An earlier tick would measure noise; in the open state a later one does no
    /// harm.
    pub fn due(&self) -> Nanos {
        self.at + self.tick
    }

    /// Decides on the current readings. Returns the change of state, if there is one.
    pub fn tick(&mut self, now: Nanos, signals: &Signals) -> Option<Change> {
        let elapsed = self.elapsed(now, signals)?;
        let known = self.known_rate(signals);
        self.measure(&elapsed, signals);
        let before = self.decision.state;
        if let Some(rate) = self.rate.per_second() {
            let wait = f64::from(signals.queued) / rate;
            if before == State::Open {
                // The bucket of the first tick also refuses, and must not be the reason to admit every new SYN.
                let echo = elapsed.refused > 0.0 && self.decision.admission.new_are_free;
                self.calm = if echo { 0.0 } else { self.calm + elapsed.seconds };
                self.decision.admission = self.free(rate);
                self.consider_shedding(&elapsed, signals, rate);
            }
            if self.decision.state == State::Shedding {
                self.shed(&elapsed, rate, wait);
            }
            self.decision.queueing_delay = Nanos::from_secs_f64(wait);
        }
        self.bound(&elapsed, signals, known);
        let state = self.decision.state;
        if state == State::Open && self.calm >= MEMORY {
            self.decision.admission = self.opening(known);
        }
        let target = Nanos::from_secs_f64(self.target);
        self.decision.sessions = Sessions::advised(state, target, signals.occupancy, signals.lag);
        self.decision.queued = signals.queued;
        self.decision.service_rate = self.rate.per_second().map(PerSecond);
        self.decision.offered = PerSecond(self.offered);
        self.decision.wait = self.decision.queueing_delay.saturating_add(signals.lag);
        // A mistake must not end a server that would only admit too many.
        let Decision { admission: Admission { share, .. }, backlog, .. } = self.decision;
        debug_assert!(share > 0.0 && share <= 1.0, "the share is {share}");
        debug_assert!((1..=self.backlog).contains(&backlog), "the backlog is {backlog}");
        (state != before).then(|| self.change(now, signals))
    }

    /// The changes since the last tick; `None` if no time has passed.
    fn elapsed(&mut self, now: Nanos, signals: &Signals) -> Option<Elapsed> {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        // The totals of worker processes fall when a worker dies.
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let taken = grown(signals.accepted, self.last.accepted);
        let late = grown(signals.late, self.last.late).min(taken);
        let served = taken - late;
        let refused = grown(signals.refused, self.last.refused);
        let dropped = grown(signals.dropped, self.last.dropped);
        let admitted = (taken + f64::from(signals.queued) - f64::from(self.last.queued)).max(0.0);
        let offered = admitted + refused + dropped;
        let share = self.decision.admission.share;
        let estimates = refused > 0.0 && share < self.constants.most_counted;
        let fresh = match signals.syns {
            Some(syns) => grown(syns, self.last.syns.unwrap_or_default()),
            None if estimates => offered.min(refused / (1.0 - share)),
            None => offered,
        };
        let elapsed = Elapsed { seconds, taken, served, late, admitted, refused, dropped, offered, fresh };
        self.at = now;
        Some(elapsed)
    }

    fn measure(&mut self, elapsed: &Elapsed, signals: &Signals) {
        let constants = &self.constants;
        let saturated = self.last.queued > 0 && signals.queued > 0 && !signals.emptied;
        // By the faster of the old and the new rate, so that a recovering server is noticed soon.
        let speed = self.rate.per_second().unwrap_or(0.0).max(elapsed.served / elapsed.seconds);
        let few = if speed > 0.0 { constants.memory_connections / speed } else { 0.0 };
        let memory = few.max(constants.memory * self.target);
        if elapsed.taken > 0.0 {
            let weight = (elapsed.taken / constants.memory_connections).min(1.0);
            self.late += weight * (elapsed.late / elapsed.taken - self.late);
        }
        // The probe doubles while the server empties its queue faster than its estimated rate.
        let exceeds =
            !saturated && self.rate.per_second().is_some_and(|rate| elapsed.served > rate * elapsed.seconds);
        let probe = if exceeds { self.probe * 2.0 } else { constants.probe };
        self.probe = probe.min(constants.most_probe);
        self.rate.tick(elapsed.served, elapsed.seconds, saturated, memory, constants.fade * self.target);
        self.offered += constants.smoothing * (elapsed.offered / elapsed.seconds - self.offered);
        self.fresh += constants.smoothing * (elapsed.fresh / elapsed.seconds - self.fresh);
        self.admitted += constants.smoothing * (elapsed.admitted / elapsed.seconds - self.admitted);
        self.last = *signals;
    }

    /// The service rate as known before this tick, in which a stall or handshakes may have left the server no time; 0 if
    /// it is unknown.
    fn known_rate(&self, signals: &Signals) -> f64 {
        let cost = signals.cost.min(self.last.cost).as_secs_f64();
        let by_cost = if cost > 0.0 { 1.0 / cost } else { 0.0 };
        self.rate.per_second().unwrap_or(0.0).max(by_cost)
    }

    /// Sets the hard bound of the queue. `known` is the service rate before this tick.
    fn bound(&mut self, elapsed: &Elapsed, signals: &Signals, known: f64) {
        let (constants, before) = (&self.constants, self.decision.backlog);
        let is_long = f64::from(self.last.queued) > constants.alarm * self.target * known;
        self.alarm = is_long.then(|| self.alarm.unwrap_or(known));
        let (targets, rate) = match (self.decision.state, self.alarm) {
            (State::Open, None) => (constants.standing, known),
            (State::Open, Some(rate)) => (constants.backlog, rate),
            (State::Shedding, _) => {
                // If the queue is short, and cannot have been full since the last tick, the drops are handshakes of
                // distant clients, which need more room. Beside a long queue they are the echo of the rush.
                let longest = f64::from(self.last.queued) + elapsed.taken;
                if elapsed.dropped > 0.0 && !is_long && longest < f64::from(before) {
                    self.far = (self.far * constants.far_growth).min(constants.most_far);
                }
                // The recent peak, so that a stall does not shorten the bound.
                let peak = self.rate.peak(constants.fade * self.target);
                (constants.backlog * self.far, peak.unwrap_or(known))
            }
        };
        let bound = if rate > 0.0 { (targets * self.target * rate) as u32 } else { self.backlog };
        let least = (f64::from(constants.least_backlog) * signals.batch.max(1.0)) as u32;
        let bound = bound.clamp(least.min(self.backlog), self.backlog);
        // A change must justify a system call.
        if bound.abs_diff(before) > before / 8 || bound == self.backlog {
            self.decision.backlog = bound;
        }
    }

    /// Begins to shed if the queue grows and will soon be too long.
    fn consider_shedding(&mut self, elapsed: &Elapsed, signals: &Signals, rate: f64) {
        let constants = &self.constants;
        let soon = (self.offered - rate).max(0.0) * constants.enter_horizon * self.target;
        let expected = f64::from(self.last.queued) + soon;
        let too_long =
            (constants.enter_wait * self.target * rate).min(constants.enter_full * f64::from(self.backlog));
        let long = expected > too_long && expected >= constants.enter_queue * signals.batch.max(1.0);
        let growing = elapsed.offered > elapsed.taken;
        // A queue of twice the allowed length needs no second tick, unless the loop stood still.
        let regular = elapsed.seconds < 3.0 * self.tick.as_secs_f64();
        let ticks = if regular && expected > 2.0 * too_long { constants.enter_ticks } else { 1 };
        self.grown = if long && growing { self.grown + ticks } else { 0 };
        if self.grown >= constants.enter_ticks || self.late > constants.enter_late || signals.stands {
            self.decision.state = State::Shedding;
            self.grown = 0;
            self.late = 0.0;
            self.drained = 0;
            self.exceeded = constants.refuse_ticks;
            self.recent = self.offered;
            self.far = 1.0;
            self.calm = 0.0;
            self.correction = 1.0;
        }
    }

    /// Decides what to admit, and ends the shedding when everything can be admitted again.
    fn shed(&mut self, elapsed: &Elapsed, rate: f64, wait: f64) {
        let constants = &self.constants;
        let weight = (rate * elapsed.seconds / constants.drains_connections).min(1.0);
        self.recent += weight * (elapsed.fresh / elapsed.seconds - self.recent);
        let few = self.recent < constants.drains_below * rate;
        self.drained = if few { self.drained + 1 } else { 0 };
        let drains = self.drained >= constants.drain_ticks;
        self.exceeded = if drains { 0 } else { self.exceeded.saturating_add(u32::from(!few)) };
        let long = !drains && wait > constants.enter_wait * self.target;
        // A queue above its bound triggers refusals without further arrivals.
        let full = wait > constants.backlog * self.target;
        let refuse = self.exceeded >= constants.refuse_ticks || long || full;
        let admission = if refuse { self.admission(elapsed, rate, wait) } else { self.free(rate) };
        self.decision.admission = admission;
        let calm = elapsed.refused == 0.0 && admission.share >= 1.0;
        self.calm = if calm { self.calm + elapsed.seconds } else { 0.0 };
        if self.calm >= self.constants.leave_after * self.target {
            self.decision.state = State::Open;
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
            burst: (f64::from(self.burst(rate)) * times.min(1.0)).ceil() as u32,
            new_are_free: false,
            share: (self.correction * wanted / self.fresh.max(wanted)).min(1.0),
        }
    }

    /// Admits every new SYN. SYNs that were refused before get the room beside them.
    fn free(&self, rate: f64) -> Admission {
        Admission { rate: PerSecond(rate), burst: self.burst(rate), new_are_free: true, share: 1.0 }
    }

    /// Admits what the queue has room for until the law has noticed a rush. What does not fit, the kernel would drop at its
    /// final ACK. Arrivals may double from one tick to the next, so that a server faster than was known is not held back.
    fn opening(&self, rate: f64) -> Admission {
        let burst = self.constants.opening * self.target * rate;
        if burst < self.constants.enter_queue {
            return Admission::ALL;
        }
        let rate = PerSecond(rate.max(2.0 * self.offered));
        Admission { rate, burst: burst as u32, new_are_free: false, share: 1.0 }
    }

    /// The burst of a token bucket, in connections.
    fn burst(&self, rate: f64) -> u32 {
        (self.constants.burst * self.target * rate).max(self.constants.least_burst) as u32
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

/// The time between two ticks for a target delay.
fn tick(target: Nanos) -> Nanos {
    LONGEST_TICK.min(target / 4)
}

#[cfg(test)]
mod tests;
