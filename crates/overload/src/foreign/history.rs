//! The totals of requests at recent ticks.

use std::collections::VecDeque;

use super::RequestTotals;

/// The longest time for which totals are kept, in seconds: 1000 ticks.
pub const LONGEST: f64 = 5.0;

/// The totals after a tick.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    at: f64,
    asked: u64,
    answered: u64,
}

/// The totals of recent ticks, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    now: f64,
    ticks: VecDeque<Past>,
}

/// The requests of a span that ends now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// The length of the span, in seconds.
    pub seconds: f64,
    /// Requests asked.
    pub asked: f64,
    /// Requests answered.
    pub answered: f64,
}

impl History {
    /// Adds a tick after this many seconds.
    pub fn push(&mut self, requests: &RequestTotals, seconds: f64) {
        self.now += seconds;
        self.ticks.push_back(Past { at: self.now, asked: requests.asked, answered: requests.answered });
        while self.ticks.get(1).is_some_and(|past| past.at <= self.now - LONGEST) {
            self.ticks.pop_front();
        }
    }

    /// Seconds since the first tick.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// The last `seconds`, or less if there are no older ticks.
    pub fn last(&self, seconds: f64) -> Span {
        self.since(self.ticks.partition_point(|past| past.at <= self.now - seconds).saturating_sub(1))
    }

    /// The requests asked since the tick before the last `answers` answers, but at most `seconds` ago.
    pub fn asked_since_answers(&self, answers: u64, seconds: f64) -> f64 {
        let last = self.ticks.back().copied().unwrap_or_default();
        let before = self.ticks.partition_point(|past| past.answered + answers <= last.answered);
        self.since(before.saturating_sub(1)).asked.min(self.last(seconds).asked)
    }

    fn since(&self, tick: usize) -> Span {
        let (Some(first), Some(last)) = (self.ticks.get(tick), self.ticks.back()) else {
            return Span::default();
        };
        Span {
            seconds: last.at - first.at,
            asked: last.asked.saturating_sub(first.asked) as f64,
            answered: last.answered.saturating_sub(first.answered) as f64,
        }
    }
}
