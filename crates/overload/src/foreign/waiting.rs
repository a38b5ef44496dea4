//! The unanswered requests that are not stuck.
//!
//! An unanswered request need not wait for the server. A client that sends half a request, and a long poll, wait for
//! something else. The law must not count them, or such clients would make the guard refuse others.
//!
//! Requests in a queue are answered in order: a request is answered after those that were there before it. A request that
//! later ones overtake is not in the queue. So for each prompt answer, the requests ahead when it was asked, less the
//! answers since, waited for something else:
//!
//! ```text
//!   stuck = mean over recent prompt answers of (ahead - overtaking)
//! ```
//!
//! A connection in the accept queue is in a queue whatever overtakes it: a later request of an accepted connection does.
//! So the accept queue counts in full, and only the rest can be stuck.

use super::RequestTotals;

/// The answers over which the mean is taken.
const ANSWERS: f64 = 8.0;

/// The estimate of the requests that are stuck.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    /// Sums over recent answers.
    ahead: f64,
    overtaking: f64,
    answers: f64,
    /// The stuck requests at the last reading.
    stuck: f64,
}

impl Waiting {
    /// Counts the answers of a tick.
    pub fn measure(&mut self, now: &RequestTotals, before: &RequestTotals) {
        let answered = now.answered_promptly.saturating_sub(before.answered_promptly) as f64;
        let keep = (-answered / ANSWERS).exp();
        self.answers = self.answers * keep + answered;
        self.ahead = self.ahead * keep + now.ahead.saturating_sub(before.ahead) as f64;
        self.overtaking = self.overtaking * keep + now.overtaking.saturating_sub(before.overtaking) as f64;
    }

    /// The unanswered requests of accepted connections that are not stuck, with `depth` connections in the accept queue.
    pub fn accepted(&mut self, requests: &RequestTotals, depth: u32) -> f64 {
        let accepted = (requests.unanswered() as f64 - f64::from(depth)).max(0.0);
        let overtaken = if self.answers >= 1.0 { (self.ahead - self.overtaking) / self.answers } else { 0.0 };
        self.stuck = overtaken.clamp(0.0, accepted);
        accepted - self.stuck
    }

    /// The stuck requests at the last reading.
    pub fn stuck(&self) -> f64 {
        self.stuck
    }
}
