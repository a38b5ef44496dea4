//! The guard: the readings of a foreign listener, and the hook.

use base::Nanos;
use overload::foreign::PROMPT;
use overload::{AcceptQueueReading, Admission, ForeignControl, Readings, RequestTotals};

use super::clients::Client;
use super::{Hook, Ledger, Scenario, Watches};

/// The part of the burst that a retransmission may use.
const AGAIN: f64 = 0.25;
/// The smallest relative change of a share that justifies a new program of the sink.
const WORTH: f64 = 0.07;

/// The state of an unanswered request: the unanswered requests when it was asked, and the answers until then.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub at: Nanos,
    ahead: u64,
    before: u64,
}

/// The guard's programs and its control.
pub struct Guard {
    watches: Option<Watches>,
    pub control: ForeignControl,
    requests: RequestTotals,
    hook: Hook,
    admission: Admission,
    share: f64,
    /// The time at which the bucket is full again (GCRA), in nanoseconds.
    full_at: f64,
}

impl Guard {
    pub fn new(scenario: &Scenario) -> Guard {
        Guard {
            watches: scenario.guard,
            control: ForeignControl::new(scenario.target, Nanos::ZERO),
            requests: RequestTotals::default(),
            hook: scenario.hook,
            admission: Admission::ALL,
            share: 1.0,
            full_at: 0.0,
        }
    }

    pub fn ask(&mut self, now: Nanos, first: bool) -> Asked {
        let asked = Asked { at: now, ahead: self.requests.unanswered(), before: self.requests.answered };
        self.requests.asked += 1;
        self.requests.first_asked += u64::from(first);
        asked
    }

    pub fn answer(&mut self, asked: &Asked, now: Nanos) {
        let overtaking = self.requests.answered - asked.before;
        self.requests.answered += 1;
        if now - asked.at <= PROMPT {
            self.requests.answered_promptly += 1;
            self.requests.ahead += asked.ahead;
            self.requests.overtaking += overtaking.min(asked.ahead);
            self.requests.first_byte_time += now - asked.at;
        }
    }

    pub fn end(&mut self) {
        self.requests.ended += 1;
    }

    /// Reads, decides, and applies the decision.
    pub fn tick(&mut self, now: Nanos, queue: AcceptQueueReading, ledger: &mut Ledger) {
        let Some(watches) = self.watches else { return };
        let readings = Readings {
            requests: (watches != Watches::Queue).then_some(self.requests),
            queue: (watches != Watches::Requests).then_some(queue),
            syns: (self.hook == Hook::Device).then_some(ledger.syns),
            refused: ledger.refused,
        };
        if let Some(change) = self.control.tick(now, &readings) {
            ledger.changes.push((now, change.decision.state));
        }
        self.admission = self.control.decision().admission;
        let share = self.admission.share;
        if (share >= 1.0) != (self.share >= 1.0) || (share - self.share).abs() > WORTH * self.share {
            self.share = share;
        }
    }

    /// Returns true if the hook refuses a SYN.
    pub fn refuses(&mut self, client: &Client, now: Nanos) -> bool {
        match self.hook {
            Hook::Sink => client.identity >= self.share,
            Hook::Device => {
                let again = client.tries > 0;
                let depth = self.admission.burst_time().0 as f64;
                let without = self.without_token(now.0 as f64, if again { depth * AGAIN } else { depth });
                without && (again || !self.admission.new_are_free)
            }
        }
    }

    /// Takes a token, at most this time ahead of the rate. Returns true if there is none.
    fn without_token(&mut self, now: f64, ahead: f64) -> bool {
        let interval = self.admission.interval().0 as f64;
        let depth = self.admission.burst_time().0 as f64;
        self.full_at = self.full_at.clamp(now, now + depth + interval);
        let without = interval > 0.0 && self.full_at - now > ahead;
        if !without {
            self.full_at += interval;
        }
        without
    }
}
