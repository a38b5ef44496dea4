//! The figures of one engine thread: totals of the measured window, and the interval in progress.
//!
//! Memory is constant for any length of run: counters and histograms with fixed bounds. Rates count the
//! events *in* the measured window. Latencies belong to the requests *due* in the window: a correct reply has
//! a latency, and a request without one is counted beside them. Neither silence nor a fast refusal then looks
//! like a fast server.
//!
//! Replies after the schedule's end count in the latencies and outcomes of the last interval, and in no rate.
//!
//! The totals keep three digits, from 1 ns to [`LONGEST`](crate::LONGEST). The intervals keep two digits from 1 us, because
//! hundreds of them are in memory at once ([`crate::measurement::series`]).

use std::collections::BTreeMap;

use base::Nanos;
use hdrhistogram::Histogram;
use record::{Outcome, Statuses};
use rustls::NamedGroup;
use serde::{Deserialize, Serialize};

use crate::measurement::histograms::{compact, exact};
use crate::plan::terms::window::Window;

/// A completed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    /// True if it resumed an earlier session, false if it took the server's certificate.
    pub resumed: bool,
    /// The group of its key exchange; `None` if TLS 1.2 resumed, which has no key exchange.
    pub group: Option<NamedGroup>,
}

/// The distributions and rates of the measured window.
#[derive(Clone, Serialize, Deserialize)]
pub struct Totals {
    /// From the intended time to the complete reply.
    #[serde(with = "crate::measurement::histograms::exact")]
    pub latency_intended: Histogram<u64>,
    /// From the time the request was sent to the complete reply.
    #[serde(with = "crate::measurement::histograms::exact")]
    pub latency_sent: Histogram<u64>,
    /// From the time the request was sent to the first byte of the reply.
    #[serde(with = "crate::measurement::histograms::exact")]
    pub first_byte: Histogram<u64>,
    /// Between two pieces of a reply, the longest time of each.
    #[serde(with = "crate::measurement::histograms::exact")]
    pub gap: Histogram<u64>,
    /// From connect() to established.
    #[serde(with = "crate::measurement::histograms::exact")]
    pub connect: Histogram<u64>,
    /// From a session's scheduled time to its connect().
    #[serde(with = "crate::measurement::histograms::exact")]
    pub lateness: Histogram<u64>,
    /// Requests due in the window without a latency: they failed, or had no reply when the run ended.
    pub unanswered: u64,
    /// Requests sent in the window.
    pub sent: u64,
    /// Complete replies in the window.
    pub replies: u64,
    /// The replies among these to requests that fell due before the window.
    pub replies_of_warmup: u64,
    /// Redirects that requests due in the window followed.
    pub redirects: u64,
    /// Correct replies in the window that met their deadline.
    pub good: u64,
    /// Full TLS handshakes, with the server's certificate, of the sessions scheduled in the window.
    pub handshakes_full: u64,
    /// TLS handshakes of these sessions that resumed an earlier session.
    pub handshakes_resumed: u64,
    /// TLS handshakes of these sessions by the group of their key exchange.
    pub handshakes_by_group: BTreeMap<String, u64>,
    /// Bytes of content of the correct replies in the window, late ones included.
    pub content_bytes: u64,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals {
            latency_intended: exact(),
            latency_sent: exact(),
            first_byte: exact(),
            gap: exact(),
            connect: exact(),
            lateness: exact(),
            unanswered: 0,
            sent: 0,
            replies: 0,
            replies_of_warmup: 0,
            redirects: 0,
            good: 0,
            handshakes_full: 0,
            handshakes_resumed: 0,
            handshakes_by_group: BTreeMap::new(),
            content_bytes: 0,
        }
    }
}

impl Totals {
    /// Adds the totals of another thread.
    pub fn merge(&mut self, other: &Totals) {
        let pairs = [
            (&mut self.latency_intended, &other.latency_intended),
            (&mut self.latency_sent, &other.latency_sent),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.gap, &other.gap),
            (&mut self.connect, &other.connect),
            (&mut self.lateness, &other.lateness),
        ];
        for (sum, histogram) in pairs {
            sum.add(histogram).expect("all totals have the same bounds");
        }
        self.unanswered += other.unanswered;
        self.sent += other.sent;
        self.replies += other.replies;
        self.replies_of_warmup += other.replies_of_warmup;
        self.redirects += other.redirects;
        self.good += other.good;
        self.handshakes_full += other.handshakes_full;
        self.handshakes_resumed += other.handshakes_resumed;
        for (group, count) in &other.handshakes_by_group {
            *self.handshakes_by_group.entry(group.clone()).or_default() += count;
        }
        self.content_bytes += other.content_bytes;
    }
}

/// The events of one interval, in the warm-up or after it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Interval {
    /// The start, since the run's start.
    pub from: Nanos,
    /// The end, since the run's start.
    pub until: Nanos,
    /// Requests offered.
    pub offered: u64,
    /// Retries among the requests offered.
    pub retries: u64,
    /// Requests sent.
    pub sent: u64,
    /// Complete replies of any status.
    pub replies: u64,
    /// Replies that were correct and met their deadline.
    pub good: u64,
    /// The number of requests with each outcome, in the order of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// The replies among the outcomes, by status code.
    pub statuses: Statuses,
    /// Requests that ended without a latency and will not be retried; at the run's end also requests that
    /// have not ended.
    pub unanswered: u64,
    /// Latencies of correct replies from the intended time.
    #[serde(with = "crate::measurement::histograms::compact")]
    pub latency_intended: Histogram<u32>,
    /// Lateness of the sessions that began.
    #[serde(with = "crate::measurement::histograms::compact")]
    pub lateness: Histogram<u32>,
    /// Open sockets at the interval's end.
    pub sockets: u64,
    /// Connections established.
    pub established: u64,
}

impl Interval {
    /// An empty interval that begins at `from`.
    pub fn new(from: Nanos) -> Interval {
        Interval {
            from,
            until: from,
            offered: 0,
            retries: 0,
            sent: 0,
            replies: 0,
            good: 0,
            outcomes: [0; Outcome::ALL.len()],
            statuses: Statuses::default(),
            unanswered: 0,
            latency_intended: compact(),
            lateness: compact(),
            sockets: 0,
            established: 0,
        }
    }

    /// Adds the events of another interval; keeps the times and the sockets.
    fn add_events(&mut self, other: &Interval) {
        self.offered += other.offered;
        self.retries += other.retries;
        self.sent += other.sent;
        self.replies += other.replies;
        self.good += other.good;
        self.statuses.merge(&other.statuses);
        self.unanswered += other.unanswered;
        self.established += other.established;
        for (sum, count) in self.outcomes.iter_mut().zip(other.outcomes) {
            *sum += count;
        }
        self.latency_intended.add(&other.latency_intended).expect("all intervals have the same bounds");
        self.lateness.add(&other.lateness).expect("all intervals have the same bounds");
    }

    /// Adds another thread's record of the same interval.
    pub fn merge_thread(&mut self, other: &Interval) {
        self.add_events(other);
        self.until = self.until.max(other.until);
        self.sockets += other.sockets;
    }

    /// Adds the interval that follows this one.
    pub fn append(&mut self, later: &Interval) {
        self.add_events(later);
        self.until = later.until;
        self.sockets = later.sockets;
    }
}

/// The times at which the pieces of a reply arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    pub first: Nanos,
    last: Nanos,
    /// The longest time between two of them.
    pub longest_gap: Nanos,
}

impl Pieces {
    /// Notes a piece that arrived at `now`, after the pieces of `earlier`.
    pub fn after(earlier: Option<Pieces>, now: Nanos) -> Pieces {
        match earlier {
            None => Pieces { first: now, last: now, longest_gap: Nanos::ZERO },
            Some(Pieces { first, last, longest_gap }) => {
                Pieces { first, last: now, longest_gap: longest_gap.max(now.saturating_sub(last)) }
            }
        }
    }
}

/// One correct reply.
#[derive(Clone, Copy, Debug)]
pub struct Correct {
    /// From the intended time.
    pub latency_intended: Nanos,
    /// From the time it was sent.
    pub latency_sent: Nanos,
    /// From the time it was sent to the reply's first byte.
    pub first_byte: Nanos,
    /// The longest time between two pieces of the reply.
    pub longest_gap: Nanos,
    /// Bytes of content.
    pub content_bytes: u64,
    /// True for a reply within its deadline, or without a deadline.
    pub in_time: bool,
}

/// The figures of one thread. Times are since the run's start.
pub struct Recorder {
    window: Window,
    interval_length: Nanos,
    interval: Interval,
    totals: Totals,
}

impl Recorder {
    /// An empty recorder; its first interval begins with the run.
    pub fn new(window: Window, interval_length: Nanos) -> Recorder {
        let interval = Interval::new(Nanos::ZERO);
        Recorder { window, interval_length, interval, totals: Totals::default() }
    }

    /// Counts requests that fell due.
    pub fn offered(&mut self, requests: u32) {
        self.interval.offered += u64::from(requests);
    }

    /// Counts a request that is offered again.
    pub fn offered_again(&mut self) {
        self.offered(1);
        self.interval.retries += 1;
    }

    /// Records the lateness of a session that began.
    pub fn late(&mut self, lateness: Nanos, measured: bool) {
        self.interval.lateness.saturating_record(lateness.0);
        if measured {
            self.totals.lateness.saturating_record(lateness.0);
        }
    }

    /// Counts an established connection and records the time of its connect.
    pub fn established(&mut self, connect: Nanos, measured: bool) {
        self.interval.established += 1;
        if measured {
            self.totals.connect.saturating_record(connect.0);
        }
    }

    /// Counts a sent request.
    pub fn sent(&mut self, now: Nanos) {
        self.interval.sent += u64::from(now < self.window.until);
        self.totals.sent += u64::from(self.window.contains(now));
    }

    /// Counts a completed TLS handshake of a session that was scheduled in the window.
    pub fn handshake(&mut self, handshake: Handshake) {
        self.totals.handshakes_full += u64::from(!handshake.resumed);
        self.totals.handshakes_resumed += u64::from(handshake.resumed);
        if let Some(group) = handshake.group {
            *self.totals.handshakes_by_group.entry(format!("{group:?}")).or_default() += 1;
        }
    }

    /// Counts a complete reply to a request that was due at `intended`.
    pub fn reply(&mut self, now: Nanos, intended: Nanos, status: u16) {
        self.interval.statuses.add(status, 1);
        self.interval.replies += u64::from(now < self.window.until);
        if self.window.contains(now) {
            self.totals.replies += 1;
            self.totals.replies_of_warmup += u64::from(intended < self.window.from);
        }
    }

    /// Counts a redirect that a request followed; `measured` if the request was due in the window.
    pub fn redirected(&mut self, measured: bool) {
        self.totals.redirects += u64::from(measured);
    }

    /// Records a correct reply; `measured` if its request was due in the window, whenever its session began.
    pub fn correct(&mut self, now: Nanos, reply: Correct, measured: bool) {
        self.interval.latency_intended.saturating_record(reply.latency_intended.0);
        self.interval.good += u64::from(reply.in_time && now < self.window.until);
        if measured {
            self.totals.latency_intended.saturating_record(reply.latency_intended.0);
            self.totals.latency_sent.saturating_record(reply.latency_sent.0);
            self.totals.first_byte.saturating_record(reply.first_byte.0);
            self.totals.gap.saturating_record(reply.longest_gap.0);
        }
        if self.window.contains(now) {
            self.totals.good += u64::from(reply.in_time);
            self.totals.content_bytes += reply.content_bytes;
        }
    }

    /// Counts requests that will have no latency; `measured` if they were due in the window.
    pub fn unanswered(&mut self, requests: u32, measured: bool) {
        self.interval.unanswered += u64::from(requests);
        self.totals.unanswered += if measured { u64::from(requests) } else { 0 };
    }

    /// The longest latency of a correct reply so far.
    pub fn longest(&self) -> Nanos {
        Nanos(self.totals.latency_intended.max())
    }

    /// Ends the schedule, perhaps earlier than planned: rates ignore everything after `at`.
    pub fn end_schedule(&mut self, at: Nanos) {
        self.window.until = at;
    }

    /// Counts requests that ended with this outcome.
    pub fn ended(&mut self, outcome: Outcome, requests: u32) {
        self.interval.outcomes[outcome as usize] += u64::from(requests);
    }

    /// The planned end of the interval in progress.
    pub fn interval_end(&self) -> Nanos {
        self.interval.from + self.interval_length
    }

    /// Closes the interval in progress at its planned end, or at the run's end if that is earlier, and begins
    /// the next one.
    pub fn close_interval(&mut self, until: Nanos, sockets: u64) -> Interval {
        let mut closed = std::mem::replace(&mut self.interval, Interval::new(until));
        closed.until = until;
        closed.sockets = sockets;
        closed
    }

    /// The totals of the finished run.
    pub fn into_totals(self) -> Totals {
        self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { from: Nanos::from_secs(1), until: Nanos::from_secs(3) };

    #[test]
    fn rates_count_by_event_and_latencies_by_schedule() {
        let mut recorder = Recorder::new(WINDOW, Nanos::SECOND);
        let reply = Correct {
            latency_intended: Nanos(2_000),
            latency_sent: Nanos(1_000),
            first_byte: Nanos(500),
            longest_gap: Nanos(400),
            content_bytes: 10,
            in_time: true,
        };
        recorder.correct(Nanos::from_secs(2), reply, false);
        recorder.correct(Nanos::from_secs(4), Correct { in_time: false, ..reply }, true);
        assert_eq!(recorder.close_interval(Nanos::from_secs(4), 0).good, 1);
        let totals = recorder.into_totals();
        assert_eq!((totals.good, totals.content_bytes), (1, 10));
        assert_eq!((totals.latency_intended.len(), totals.latency_sent.max()), (1, 1_000));
        assert_eq!((totals.first_byte.len(), totals.first_byte.max()), (1, 500));
        assert_eq!((totals.gap.len(), totals.gap.max()), (1, 400));
    }

    #[test]
    fn replies_after_the_end_count_in_latencies_only() {
        let mut recorder = Recorder::new(WINDOW, Nanos::SECOND);
        recorder.end_schedule(Nanos::from_secs(2));
        let late = Nanos::from_millis(2_500);
        let reply = Correct {
            latency_intended: late,
            latency_sent: late,
            first_byte: late,
            longest_gap: Nanos::ZERO,
            content_bytes: 10,
            in_time: true,
        };
        recorder.sent(late);
        recorder.reply(late, Nanos::ZERO, 200);
        recorder.correct(late, reply, true);
        recorder.ended(Outcome::Ok, 1);
        recorder.unanswered(3, true);
        recorder.unanswered(4, false);
        assert!(recorder.longest() >= late && recorder.longest() < late + Nanos::from_millis(3));
        let last = recorder.close_interval(Nanos::from_secs(2), 0);
        assert_eq!((last.sent, last.replies, last.good), (0, 0, 0));
        assert_eq!((last.outcomes[Outcome::Ok as usize], last.latency_intended.len()), (1, 1));
        assert_eq!(last.unanswered, 7);
        let totals = recorder.into_totals();
        assert_eq!((totals.sent, totals.replies, totals.good, totals.content_bytes), (0, 0, 0, 0));
        assert_eq!((totals.latency_intended.len(), totals.unanswered), (1, 3));
    }

    #[test]
    fn intervals_are_consecutive_and_hold_their_events() {
        let mut recorder = Recorder::new(WINDOW, Nanos::SECOND);
        recorder.offered(3);
        recorder.late(Nanos(5_000), false);
        assert_eq!(recorder.interval_end(), Nanos::SECOND);
        let first = recorder.close_interval(Nanos::SECOND, 7);
        recorder.ended(Outcome::Refused, 3);
        let second = recorder.close_interval(Nanos::from_secs(2), 5);
        assert_eq!((first.offered, first.sockets, first.lateness.len()), (3, 7, 1));
        assert_eq!((second.from, second.until, second.offered), (first.until, Nanos::from_secs(2), 0));
        let mut both = first.clone();
        both.append(&second);
        assert_eq!((both.from, both.until, both.sockets), (Nanos::ZERO, Nanos::from_secs(2), 5));
        assert_eq!((both.offered, both.outcomes[Outcome::Refused as usize]), (3, 3));
    }

    #[test]
    fn threads_merge_into_one() {
        let (mut one, mut other) = (Totals::default(), Totals::default());
        one.connect.record(1_000).unwrap();
        other.connect.record(3_000).unwrap();
        other.sent = 2;
        one.merge(&other);
        assert_eq!((one.connect.len(), one.connect.max() >= 3_000, one.sent), (2, true, 2));
        let (mut here, mut there) = (Interval::new(Nanos::ZERO), Interval::new(Nanos::ZERO));
        (here.sockets, there.sockets, there.offered) = (4, 5, 6);
        here.merge_thread(&there);
        assert_eq!((here.sockets, here.offered), (9, 6));
    }
}
