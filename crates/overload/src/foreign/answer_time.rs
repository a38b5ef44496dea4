//! The time that an answer takes by itself, without a queue.
//!
//! A server with eight workers has eight requests in service, and a server whose backend answers in 400 ms has as many as
//! arrive in that time. They are no queue. So the control learns the time of an answer while there is no queue, and leaves
//! out the requests that are younger.
//!
//! The time falls at once to a shorter mean of recent answers. It rises slowly while nothing is refused, or by
//! [`AnswerTime::adopt`] when the control has found that answers take long for another reason than a queue.

use super::RequestTotals;
use super::history::LONGEST;

/// The answers over which the recent mean is taken.
const ANSWERS: f64 = 16.0;
/// The time in which a time that is too short grows by a factor of e, in seconds.
const FORGETS: f64 = 600.0;

/// The learned time of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerTime {
    /// Sums over recent answers.
    seconds: f64,
    answers: f64,
    alone: Option<f64>,
}

impl AnswerTime {
    /// Counts the answers of a tick. `calm` means that nothing is refused.
    pub fn measure(&mut self, now: &RequestTotals, before: &RequestTotals, seconds: f64, calm: bool) {
        let answered = now.answered_promptly.saturating_sub(before.answered_promptly) as f64;
        let keep = (-answered / ANSWERS).exp();
        self.answers = self.answers * keep + answered;
        self.seconds =
            self.seconds * keep + now.first_byte_time.saturating_sub(before.first_byte_time).as_secs_f64();
        let grown = if calm { (seconds / FORGETS).exp() } else { 1.0 };
        if let Some(recent) = self.recent() {
            self.alone = Some(self.alone.map_or(recent, |alone| (alone * grown).min(recent)));
        }
    }

    /// The mean time of recent answers in seconds; `None` before enough answers.
    pub fn recent(&self) -> Option<f64> {
        (self.answers >= ANSWERS / 2.0).then(|| self.seconds / self.answers)
    }

    /// The time of an answer without a queue, in seconds; 0 until it is known.
    pub fn alone(&self) -> f64 {
        self.alone.unwrap_or_default()
    }

    /// Takes a time in seconds, at most [`LONGEST`], for that of an answer without a queue.
    pub fn adopt(&mut self, seconds: f64) {
        // Earlier answers belong to the time before.
        *self = AnswerTime { alone: Some(seconds.min(LONGEST)), ..AnswerTime::default() };
    }
}
