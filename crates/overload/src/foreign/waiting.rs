//! The requests that wait for their turn, told from those that are stuck.
//!
//! Half a request, a long poll or a slow backend waits for something else than its turn. Such requests are overtaken. Each
//! answered request knows the requests that were unanswered when it was asked, `ahead`, and the answers until its own,
//! `overtaking`. In a queue the first ones are all answered before it. So what was there when it was asked, less the
//! answers since, waited for something else:
//!
//! ```text
//!   stuck = mean over recent prompt answers of (ahead - overtaking)
//! ```
//!
//! Two means are taken, and the larger one counts. The latest answers soon show what became stuck, and more of them keep a
//! steady figure. In a queue both are near 0.
//!
//! A connection in the accept queue is in a queue whatever overtakes it: a later request of an accepted connection does.
//! So the accept queue counts in full, and only the rest can be stuck.

use super::RequestTotals;

/// The answers over which the means are taken.
const RECENT: f64 = 8.0;
const LATEST: f64 = 3.0;

/// The estimate of the requests that are stuck.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    recent: Mean,
    latest: Mean,
    /// The stuck requests at the last reading.
    stuck: f64,
}

/// A mean over answers, as sums that decay with each.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    not_overtaken: f64,
    answers: f64,
}

impl Mean {
    /// Counts answers, with the sum over them of the requests that were ahead and not overtaken.
    fn count(&mut self, answered: f64, not_overtaken: f64, over: f64) {
        let keep = (-answered / over).exp();
        self.answers = self.answers * keep + answered;
        self.not_overtaken = self.not_overtaken * keep + not_overtaken;
    }

    fn get(&self) -> f64 {
        if self.answers >= 1.0 { self.not_overtaken / self.answers } else { 0.0 }
    }
}

impl Waiting {
    /// Counts the answers of a tick.
    pub fn measure(&mut self, now: &RequestTotals, before: &RequestTotals) {
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let answered = grown(now.answered_promptly, before.answered_promptly);
        let not_overtaken = grown(now.ahead, before.ahead) - grown(now.overtaking, before.overtaking);
        self.recent.count(answered, not_overtaken, RECENT);
        self.latest.count(answered, not_overtaken, LATEST);
    }

    /// The unanswered requests of accepted connections that are not stuck, with `depth` connections in the accept queue.
    pub fn accepted(&mut self, requests: &RequestTotals, depth: u32) -> f64 {
        let accepted = (requests.unanswered() as f64 - f64::from(depth)).max(0.0);
        self.stuck = self.recent.get().max(self.latest.get()).clamp(0.0, accepted);
        accepted - self.stuck
    }

    /// The stuck requests at the last reading.
    pub fn stuck(&self) -> f64 {
        self.stuck
    }
}
