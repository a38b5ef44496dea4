//! The last five minutes as one sample per second, for the page and its stream of events.
//!
//! Owns the samples and their events. The caller reads the totals.
//!
//! Invariant: holds at most [`SAMPLES`] samples.

use std::collections::VecDeque;

use base::Nanos;
use serde::Serialize;

use crate::connections::accept::AcceptLimit;
use crate::connections::overload_control::QueueFigures;
use crate::ground::counters::Counters;

/// The time between two samples.
pub const PERIOD: Nanos = Nanos::SECOND;
/// The number of samples kept: five minutes.
pub const SAMPLES: usize = 300;

/// The rates of one second, and the settings at its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The sample's number, counted from the start of the server.
    pub number: u64,
    /// `open`, `shedding`, or `uncontrolled` without overload control.
    pub state: &'static str,
    /// SYNs that arrived, retransmissions included. Without overload control: connections accepted.
    pub offered_per_s: f64,
    /// Connections that entered an accept queue.
    pub admitted_per_s: f64,
    /// SYNs that were refused or dropped; `None` without a counter for them.
    pub refused_per_s: Option<f64>,
    /// Replies with status 2xx and 3xx.
    pub goodput_per_s: f64,
    /// The longest queueing delay of all accept queues, in milliseconds; `None` without overload control.
    pub queueing_delay_ms: Option<f64>,
    /// The accept-limit in force.
    pub accept_limit: String,
    /// The target delay in force, in milliseconds; `None` without overload control.
    pub queue_target_ms: Option<f64>,
}

/// The input of a sample.
pub struct Reading {
    /// The totals of all loops.
    pub total: Counters,
    /// The accept queues and the target delay; `None` without overload control.
    pub control: Option<(Vec<QueueFigures>, Nanos)>,
    /// The accept-limit.
    pub limit: AcceptLimit,
}

/// Totals since the start.
#[derive(Clone, Copy, Default)]
struct Totals {
    admitted: u64,
    refused: u64,
    replies: u64,
}

impl Totals {
    fn of(reading: &Reading) -> Totals {
        let http = &reading.total.http;
        let replies = http.responses_2xx + http.responses_3xx;
        match &reading.control {
            None => Totals { admitted: reading.total.loops.accepts, refused: 0, replies },
            Some((queues, _)) => Totals {
                admitted: queues.iter().map(|queue| queue.admitted).sum(),
                refused: queues.iter().map(|queue| queue.refused + queue.dropped).sum(),
                replies,
            },
        }
    }
}

/// The samples, oldest first.
#[derive(Default)]
pub struct History {
    samples: VecDeque<Sample>,
    last: Totals,
    at: Nanos,
    taken: u64,
}

impl History {
    /// Begins a history now.
    pub fn new(now: Nanos) -> History {
        History { at: now, ..History::default() }
    }

    /// Returns the time of the next sample.
    pub fn due(&self) -> Nanos {
        self.at + PERIOD
    }

    /// Takes a sample. Returns its event.
    pub fn take(&mut self, now: Nanos, reading: &Reading) -> String {
        let totals = Totals::of(reading);
        let seconds = now.saturating_sub(self.at).max(Nanos::MILLISECOND).as_secs_f64();
        // The totals of worker processes fall when one dies.
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let admitted = rate(totals.admitted, self.last.admitted);
        let refused = rate(totals.refused, self.last.refused);
        let control = reading.control.as_ref();
        let delay =
            control.map(|(queues, _)| queues.iter().map(|queue| queue.queueing_delay_s).fold(0.0, f64::max));
        self.taken += 1;
        let sample = Sample {
            number: self.taken,
            state: match control {
                None => "uncontrolled",
                Some((queues, _)) if queues.iter().any(QueueFigures::is_shedding) => "shedding",
                Some(_) => "open",
            },
            offered_per_s: admitted + refused,
            admitted_per_s: admitted,
            refused_per_s: control.map(|_| refused),
            goodput_per_s: rate(totals.replies, self.last.replies),
            queueing_delay_ms: delay.map(|delay| delay * 1e3),
            accept_limit: reading.limit.to_string(),
            queue_target_ms: control.map(|(_, target)| target.as_secs_f64() * 1e3),
        };
        (self.last, self.at) = (totals, now);
        let event = event("sample", self.taken, &sample);
        self.samples.push_back(sample);
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        event
    }

    /// Returns the event of all samples, with which a stream begins.
    pub fn event(&self) -> String {
        event("history", self.taken, &self.samples)
    }

    /// Iterates over the samples, oldest first.
    pub fn samples(&self) -> impl DoubleEndedIterator<Item = &Sample> + ExactSizeIterator {
        self.samples.iter()
    }
}

/// An event in the form of the HTML standard, section 9.2. JSON has no line ends.
fn event(name: &str, number: u64, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("samples are JSON");
    format!("event: {name}\nid: {number}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(accepts: u64, replies: u64) -> Reading {
        let mut total = Counters::default();
        total.loops.accepts = accepts;
        (total.http.responses_2xx, total.http.responses_3xx) = (replies, 1);
        Reading { total, control: None, limit: AcceptLimit::Adaptive }
    }

    #[test]
    fn a_sample_is_what_happened_since_the_last() {
        let mut history = History::new(Nanos::from_secs(10));
        assert_eq!(history.due(), Nanos::from_secs(11));
        history.take(Nanos::from_secs(11), &reading(100, 50));
        let event = history.take(Nanos::from_secs(13), &reading(300, 150));
        let newest = history.samples().next_back().unwrap();
        assert_eq!((newest.offered_per_s, newest.admitted_per_s, newest.goodput_per_s), (100.0, 100.0, 50.0));
        assert_eq!(
            (newest.refused_per_s, newest.queueing_delay_ms, newest.state),
            (None, None, "uncontrolled")
        );
        let lines: Vec<&str> = event.split('\n').collect();
        assert_eq!((lines[0], lines[1], &lines[3..]), ("event: sample", "id: 2", &["", ""][..]));
        let data: serde_json::Value = serde_json::from_str(lines[2].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(
            (&data["number"], &data["refused_per_s"], &data["accept_limit"]),
            (&2.into(), &serde_json::Value::Null, &"adaptive".into())
        );
        // A worker's end takes its counts away.
        history.take(Nanos::from_secs(14), &reading(0, 0));
        assert_eq!(history.samples().next_back().unwrap().admitted_per_s, 0.0);
    }

    #[test]
    fn the_oldest_samples_give_way() {
        let mut history = History::new(Nanos::ZERO);
        for second in 1..=SAMPLES as u64 + 7 {
            history.take(Nanos::from_secs(second), &reading(second, second));
        }
        assert_eq!(history.samples().len(), SAMPLES);
        assert_eq!(history.samples().next().unwrap().number, 8);
        assert!(history.event().starts_with("event: history\nid: 307\ndata: [{\"number\":8,"));
    }
}
