//! The control of a foreign listener: a listener that belongs to another program, such as nginx or a Node server.
//!
//! ```text
//!   requests at the connections ──┐
//!   accept queue of the listener ─┼──> waiting requests ──> law ──> hook: connections that pass
//!   refusals of the hook ─────────┘    (see `waiting`)
//! ```
//!
//! Nobody tells this control when a foreign server accepts, or when its loop is idle. It sees two queues from outside:
//! the requests that were asked and not answered, and the accept queue. Either signal alone can be blind:
//!
//! - A server that accepts at once has an empty accept queue, however many requests wait in the server.
//! - A server that answers a TLS handshake in three steps, of which the first costs nearly everything, has few
//!   unanswered requests beside a long accept queue.
//!
//! The two queues are in series, so a newcomer waits for both. The law counts requests, and the hook connections.
//! A connection in the accept queue counts with all the answers that it will need, and the admitted rate is divided by
//! the requests of a connection.
//!
//! Not every unanswered request is in a queue. These are left out:
//!
//! - stuck requests, such as half requests and long polls, which others overtake (`waiting`);
//! - requests younger than an answer takes by itself (`answer_time`), or than the last four answers;
//! - all requests while something behind the server has become slow (`doubt`).
//!
//! At least a tenth of the best recent rate of answers is admitted, whatever waits. So there are always answers that can
//! disprove a queue.
//!
//! Owns the estimates that turn readings into [`Signals`] of the [law](crate::law), and its decision into connections.
//! Leaves out reading and refusing. No clock, no I/O.
//!
//! Two rules are for slow servers, in which the 64 requests of the law's beginning are seconds of work. A queue that stands
//! for several answers begins the refusals (`standing`). Until the answers tell whether what waits is a queue, the hook
//! admits at most twice the best recent rate (`caution`).
//!
//! Invariants: see [`ForeignDecision`]. In [`State::Open`] the hook admits every new SYN, unless the decision is cautious.
//!
//! The modules: `waiting` tells stuck requests, `per_connection` the requests of a connection, `answer_time` the time of
//! an answer without a queue, `doubt` a slow backend from a queue, and `history` holds the totals of recent ticks.

mod answer_time;
mod caution;
mod doubt;
mod history;
mod per_connection;
mod standing;
mod waiting;

use base::{Nanos, PerSecond};

use crate::hook::Admission;
use crate::law::{Change, Constants, Controller, Settings, Signals, State};
use answer_time::AnswerTime;
use doubt::{Answers, Doubt};
use history::History;
use per_connection::RequestsPerConnection;
use standing::Standing;
use waiting::Waiting;

/// The fraction of the best recent rate of answers that is admitted whatever waits. Without answers nothing would disprove
/// the queue, and no connection would ever be admitted again.
const LEAST_ADMITTED: f64 = 0.1;

/// The time in which the best rate of answers loses its weight, in seconds.
const BEST_RATE_MEMORY: f64 = 60.0;

/// The time over which the rate of answers is measured, in seconds.
const RATE_MEMORY: f64 = 0.2;
/// The answers over which it is measured in a slow server, for a second at most.
const RATE_ANSWERS: f64 = 16.0;

/// The shortest target of the queue, in requests. A slow server that runs dry for a moment loses less than its clients do
/// by another request of 25 ms before them.
const SET_POINT_QUEUE: f64 = 2.0;

/// The burst of a cautious bucket, in requests.
const CAUTIOUS_BURST: u32 = 8;

/// The ticks of the law from one tick to the next while nothing waits. A tick finds cold caches, so that its cost does not
/// depend on the load, and a quarter of the ticks cost a quarter of the processor time.
const CALM_TICKS: u64 = 4;

/// The longest time to the first byte of a prompt answer.
pub const PROMPT: Nanos = Nanos::SECOND;

/// The answers, beside those to the requests in service, after which a request that is older than they are is known to
/// wait. 150 half requests at once are no queue, and the next answers show it.
const EVIDENCE: f64 = 8.0;

/// The age at which a request counts as waiting without that: the least in target delays, and the most in seconds.
const EVIDENCE_AGE: f64 = 2.5;
const LATEST_EVIDENCE: f64 = 1.0;

/// The requests at the connections of a listener, as totals since the watch began. A request is data from the client
/// after the server's last answer, and an answer is the first data from the server after a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Requests asked.
    pub asked: u64,
    /// Requests answered.
    pub answered: u64,
    /// Requests whose connection ended before an answer.
    pub ended: u64,
    /// Requests that were the first of their connection.
    pub first_asked: u64,
    /// Requests answered within [`PROMPT`]. A long poll and an upload are not, and say nothing about a queue.
    pub answered_promptly: u64,
    /// The sum, over these, of the unanswered requests at the moment when each was asked.
    pub ahead: u64,
    /// The sum, over these, of the answers between asking and answering each, at most its part of `ahead`.
    pub overtaking: u64,
    /// The sum, over these, of the times from request to first byte of the answer.
    pub first_byte_time: Nanos,
}

impl RequestTotals {
    /// The requests asked and neither answered nor ended.
    pub fn unanswered(&self) -> u64 {
        self.asked.saturating_sub(self.answered + self.ended)
    }
}

/// The accept queue of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptQueueReading {
    /// Connections in the queue.
    pub depth: u32,
    /// The backlog of the listener.
    pub limit: u32,
    /// Connections accepted from the queue since the watch began. Only used where no requests are read.
    pub accepted: u64,
    /// SYNs and final ACKs dropped because the queue was full, since the watch began.
    pub dropped: u64,
}

/// The readings of one foreign listener. Counts are totals, so that a missed tick loses nothing; a total that falls counts
/// as unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// The requests at the connections; `None` without a program that counts them.
    pub requests: Option<RequestTotals>,
    /// The accept queue; `None` without a copy of the listener.
    pub queue: Option<AcceptQueueReading>,
    /// SYNs that the hook decided on; `None` if it counts only those that it refuses.
    pub syns: Option<u64>,
    /// SYNs that the hook refused.
    pub refused: u64,
}

/// The decision for a foreign listener until the next tick, and the figures behind it.
///
/// Invariants: the admitted share is above 0 and at most 1, and the admitted rate above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForeignDecision {
    /// The state of the law.
    pub state: State,
    /// True if the law is open, and the admission bounded while nobody knows why many requests wait.
    pub is_cautious: bool,
    /// The admission for the hook, in connections.
    pub admission: Admission,
    /// The requests that wait for their turn, those in the accept queue among them. Without requests, connections.
    pub waiting: u32,
    /// The unanswered requests that wait for something else than their turn.
    pub stuck: u32,
    /// The requests of a connection; 1 until known.
    pub requests_per_connection: f64,
    /// The measured service rate, in requests; `None` until the server has been saturated.
    pub service_rate: Option<PerSecond>,
    /// The smoothed rate of arrivals, in requests, including refused ones and retransmissions.
    pub offered: PerSecond,
    /// The estimated wait of a new connection; 0 while the service rate is unknown.
    pub queueing_delay: Nanos,
}

/// Controls one foreign listener.
#[derive(Clone, Debug)]
pub struct ForeignControl {
    controller: Controller,
    waiting: Waiting,
    answer_time: AnswerTime,
    history: History,
    doubt: Doubt,
    /// The target delay, in seconds.
    target: f64,
    per_connection: RequestsPerConnection,
    standing: Standing,
    /// The last readings, and their time.
    last: Readings,
    at: Nanos,
    /// Refused and seen SYNs and drops, in requests.
    refused: Scaled,
    syns: Scaled,
    dropped: Scaled,
    /// The smoothed rate of answers, and the best recent one, in requests per second.
    rate: f64,
    best: f64,
    decision: ForeignDecision,
}

/// A total of connections that is counted in requests, each with the requests of a connection at its time.
#[derive(Clone, Copy, Debug, Default)]
struct Scaled {
    last: u64,
    total: f64,
}

impl Scaled {
    fn read(&mut self, now: u64, scale: f64) -> u64 {
        self.total += now.saturating_sub(self.last) as f64 * scale;
        self.last = now;
        self.total as u64
    }
}

impl ForeignControl {
    /// The control of a listener for a target delay within [`Settings::TARGETS`].
    pub fn new(target: Nanos, now: Nanos) -> ForeignControl {
        // The controller counts requests, whose number no backlog bounds.
        let settings = Settings { target, backlog: u32::MAX };
        let constants = Constants {
            // A client that leaves is no answer that came too late.
            enter_late: f64::INFINITY,
            set_point_queue: SET_POINT_QUEUE,
            // No queue drops another server's requests.
            opening: 0.0,
            ..Constants::CHOSEN
        };
        ForeignControl {
            controller: Controller::with(constants, settings, now),
            waiting: Waiting::default(),
            answer_time: AnswerTime::default(),
            history: History::default(),
            doubt: Doubt::default(),
            target: target.as_secs_f64(),
            per_connection: RequestsPerConnection::default(),
            standing: Standing::default(),
            last: Readings::default(),
            at: now,
            refused: Scaled::default(),
            syns: Scaled::default(),
            dropped: Scaled::default(),
            rate: 0.0,
            best: 0.0,
            decision: ForeignDecision {
                state: State::Open,
                is_cautious: false,
                admission: Admission::ALL,
                waiting: 0,
                stuck: 0,
                requests_per_connection: 1.0,
                service_rate: None,
                offered: PerSecond(0.0),
                queueing_delay: Nanos::ZERO,
            },
        }
    }

    /// Changes the target delay, within [`Settings::TARGETS`], from the next tick on.
    pub fn set_target(&mut self, target: Nanos) {
        self.target = target.as_secs_f64();
        self.controller.set_target(target);
    }

    /// The time of the next tick. An earlier tick would measure noise.
    pub fn due(&self) -> Nanos {
        let due = self.controller.due();
        let ForeignDecision { state, is_cautious, waiting, .. } = self.decision;
        let is_calm = state == State::Open && !is_cautious && waiting == 0;
        if is_calm { self.at + due.saturating_sub(self.at) * CALM_TICKS } else { due }
    }

    /// The current decision.
    pub fn decision(&self) -> &ForeignDecision {
        &self.decision
    }

    /// Decides on the current readings. Returns the change of state, if there is one; its counts are requests.
    pub fn tick(&mut self, now: Nanos, readings: &Readings) -> Option<Change> {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        self.measure(readings, seconds);
        let signals = self.signals(readings);
        let change = self.controller.tick(now, &signals);
        self.at = now;
        self.last = *readings;
        self.decide(readings);
        change
    }

    fn measure(&mut self, readings: &Readings, seconds: f64) {
        let (requests, before) =
            (readings.requests.unwrap_or_default(), self.last.requests.unwrap_or_default());
        let answered = requests.answered.saturating_sub(before.answered) as f64;
        let memory = (RATE_ANSWERS / self.best.max(RATE_ANSWERS)).max(RATE_MEMORY);
        self.rate += (1.0 - (-seconds / memory).exp()) * (answered / seconds - self.rate);
        self.best = (self.best * (-seconds / BEST_RATE_MEMORY).exp()).max(self.rate);
        self.per_connection.measure(&requests, &before, seconds);
        self.waiting.measure(&requests, &before);
        let calm = self.decision.state == State::Open;
        self.answer_time.measure(&requests, &before, seconds, calm);
        self.history.push(&requests, seconds);
    }

    /// The readings in the terms of the law, in requests.
    fn signals(&mut self, readings: &Readings) -> Signals {
        let each = self.per_connection.get();
        let queue = readings.queue.unwrap_or_default();
        let (queued, accepted, late) = match &readings.requests {
            Some(requests) => (
                self.waiting_requests(requests, queue.depth),
                requests.answered + requests.ended,
                requests.ended,
            ),
            None => (f64::from(queue.depth), queue.accepted, 0),
        };
        // Unknown until the server has been saturated for a tick.
        let served = self.decision.service_rate.map_or(f64::INFINITY, |rate| rate.0);
        Signals {
            queued: queued as u32,
            stands: self.standing.measure(queued, served, accepted),
            accepted,
            late,
            emptied: queued < 1.0,
            syns: readings.syns.map(|syns| self.syns.read(syns, each)),
            refused: self.refused.read(readings.refused, each),
            dropped: self.dropped.read(queue.dropped, each),
            // At most a tenth of the answers of a target delay, so that a slow server still refuses in time.
            batch: each.min(0.1 * self.target * self.best).max(1.0),
            ..Signals::default()
        }
    }

    /// The unanswered requests of the `depth` connections in the accept queue, and of accepted connections that are not
    /// stuck.
    fn unanswered(&mut self, requests: &RequestTotals, depth: u32) -> (f64, f64) {
        (f64::from(depth) * self.per_connection.get(), self.waiting.accepted(requests, depth))
    }

    /// The requests that wait for their turn.
    fn waiting_requests(&mut self, requests: &RequestTotals, depth: u32) -> f64 {
        let (queued, accepted) = self.unanswered(requests, depth);
        let (target, alone) = (self.target, self.answer_time.alone());
        let young;
        let no_queue = if self.decision.state == State::Shedding {
            let wait = self.decision.queueing_delay.as_secs_f64();
            // The server is busy, so that it has begun what it answers in that time, whatever has just been admitted.
            young = self.rate * alone;
            self.doubt.stays(&self.history, target, wait, alone, self.rate)
        } else {
            young = self.history.last(alone).asked.max(self.unproven(alone));
            match self.doubt.answers(&self.history, target, self.best) {
                Answers::Usual => false,
                Answers::Ceased => return queued,
                Answers::Resumed => true,
            }
        };
        if no_queue {
            self.answer_time.adopt(accepted / self.rate.max(1.0));
            return queued;
        }
        queued + (accepted - young).max(0.0)
    }

    /// The requests that are too young for the answers since to show that they wait.
    fn unproven(&self, alone: f64) -> f64 {
        let answers = EVIDENCE + self.best * alone;
        let age = (alone + EVIDENCE / self.best.max(EVIDENCE)).min(LATEST_EVIDENCE);
        let age = age.max(EVIDENCE_AGE * self.target);
        self.history.asked_since_answers(answers as u64, age)
    }

    /// The rate to admit, in requests per second, if many requests wait for an unknown reason.
    fn caution(&mut self, readings: &Readings) -> Option<f64> {
        let requests = readings.requests?;
        let depth = readings.queue.map_or(0, |queue| queue.depth);
        let (queued, accepted) = self.unanswered(&requests, depth);
        caution::rate(queued + accepted, self.best, self.answer_time.alone(), requests.answered)
    }

    /// Turns the law's decision into connections.
    fn decide(&mut self, readings: &Readings) {
        let law = *self.controller.decision();
        let each = self.per_connection.get();
        let mut admission = law.admission;
        if readings.requests.is_some() {
            let least = LEAST_ADMITTED * self.best;
            admission.rate = PerSecond(admission.rate.0.max(least));
            admission.share = admission.share.max((least / law.offered.0.max(least)).min(1.0));
        }
        let caution = self.caution(readings).filter(|_| law.state == State::Open);
        if let Some(most) = caution {
            let share = (most / law.offered.0.max(most)).min(1.0);
            admission =
                Admission { rate: PerSecond(most), burst: CAUTIOUS_BURST, new_are_free: false, share };
        }
        admission.rate = PerSecond(admission.rate.0 / each);
        admission.burst = (f64::from(admission.burst) / each).ceil() as u32;
        debug_assert!(admission.share > 0.0 && admission.share <= 1.0, "the share is {}", admission.share);
        debug_assert!(admission.rate.0 > 0.0, "the rate is {}", admission.rate.0);
        self.decision = ForeignDecision {
            state: law.state,
            is_cautious: caution.is_some(),
            admission,
            waiting: law.queued,
            stuck: self.waiting.stuck() as u32,
            requests_per_connection: each,
            service_rate: law.service_rate,
            offered: law.offered,
            queueing_delay: law.queueing_delay,
        };
    }
}

#[cfg(test)]
mod tests;
