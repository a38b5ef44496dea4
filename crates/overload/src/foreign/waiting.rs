//! The requests that wait for their turn.
//!
//! An unanswered request need not be in a queue. A client that sends half a request, and a long poll, wait for
//! something else than the server. The law must not count them, or such clients would make the guard refuse others.
//!
//! Requests in a queue are answered in order: a request is answered after those that were there before it. A request that
//! later ones overtake is not in the queue. So for each answer, the requests ahead when it was asked, less the answers
//! since, waited for something else:
//!
//! ```text
//!   stuck = mean over recent answers of (ahead - overtaking)
//! ```
//!
//! A connection in the accept queue is in a queue whatever overtakes it: a later request of an accepted connection does.
//! So the accept queue counts in full, and only the rest can be stuck.

use super::RequestTotals;

/// The answers over which the mean is taken.
const ANSWERS: f64 = 8.0;

/// The estimate of the requests that are not in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    /// Sums over recent answers.
    ahead: f64,
    overtaking: f64,
    answers: f64,
    /// The requests that waited for something else at the last reading.
    stuck: f64,
}

impl Waiting {
    /// Counts the answers of a tick.
    pub fn measure(&mut self, now: &RequestTotals, before: &RequestTotals) {
        let answered = now.answered.saturating_sub(before.answered) as f64;
        let keep = (-answered / ANSWERS).exp();
        self.answers = self.answers * keep + answered;
        self.ahead = self.ahead * keep + now.ahead.saturating_sub(before.ahead) as f64;
        self.overtaking = self.overtaking * keep + now.overtaking.saturating_sub(before.overtaking) as f64;
    }

    /// The requests that wait for their turn, with `depth` connections in the accept queue that will need `each` answers.
    pub fn waiting(&mut self, requests: &RequestTotals, depth: u32, each: f64) -> f64 {
        let depth = f64::from(depth);
        let accepted = (requests.unanswered() as f64 - depth).max(0.0);
        let overtaken = if self.answers >= 1.0 { (self.ahead - self.overtaking) / self.answers } else { 0.0 };
        self.stuck = overtaken.clamp(0.0, accepted);
        depth * each + accepted - self.stuck
    }

    /// The requests that waited for something else at the last reading.
    pub fn stuck(&self) -> f64 {
        self.stuck
    }
}
