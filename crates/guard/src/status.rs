//! The figures of a guard, for JSON and for Prometheus.

use std::fmt::Write;

use confine::Rights;
use serde::Serialize;

use crate::search::owner::Owner;

/// The state of a guard and the figures behind it. Counts are totals since the guard's start; rates are of the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// The guarded address.
    pub address: String,
    /// `open`, `refusing`, `cautious` while a bounded rate is admitted in doubt, `gone` without a listener, or `unguarded` after a failure.
    pub state: &'static str,
    /// `requests and queue`, or `queue`.
    pub signal: &'static str,
    /// The hook's name, or `none`.
    pub hook: &'static str,
    /// The listeners at the address.
    pub listeners: usize,
    /// The processes that hold them, at most 64.
    pub owners: Vec<Owner>,
    /// Connections in the accept queues.
    pub queue_depth: u32,
    /// The sum of the backlogs.
    pub queue_limit: u32,
    /// SYNs and final ACKs dropped because an accept queue was full.
    pub queue_dropped: u64,
    /// The figures of requests; absent if only the queue is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestFigures>,
    /// Connections, or requests if they are counted, that wait for their turn.
    pub waiting: u32,
    /// The estimated wait of a new connection, in ns.
    pub wait_ns: u64,
    /// Arrivals, refused ones included, in the unit of `waiting`.
    pub offered_per_s: f64,
    /// The measured service rate, in the same unit; absent until the server was saturated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_per_s: Option<f64>,
    /// The fraction of new connections that is admitted.
    pub share: f64,
    /// Connection attempts refused, a client's repetitions included.
    pub refused: u64,
    /// Connection attempts that would have been refused, while only observing.
    pub would_refuse: u64,
    /// The rights of the guard's two processes, as the kernel tells them; absent if it is one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights: Option<Split>,
}

/// The rights of the processes of a guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Split {
    /// Those of the process that attaches.
    pub starter: Rights,
    /// Those of the process that decides, prints, and answers at `--admin`.
    pub controller: Rights,
}

/// The figures of requests at the connections of a listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestFigures {
    /// Requests asked.
    pub asked: u64,
    /// Requests answered.
    pub answered: u64,
    /// Requests whose connection ended without an answer.
    pub ended: u64,
    /// Requests without an answer now.
    pub unanswered: u64,
    /// Those of them that wait for something else than their turn.
    pub stuck: u32,
    /// Connections that have asked.
    pub connections: u64,
    /// The mean number of requests of a connection.
    pub per_connection: f64,
    /// Answers a second.
    pub answers_per_s: f64,
    /// Median of the times from request to the answer's first byte, in ns; absent without an answer in the last second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_ns_p50: Option<u64>,
    /// The 99th percentile of the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_ns_p99: Option<u64>,
}

impl Status {
    /// The figures in the text format of Prometheus.
    pub fn prometheus(&self) -> String {
        let mut page = Page { text: String::new(), address: &self.address };
        let bounded = f64::from(u8::from(matches!(self.state, "refusing" | "cautious")));
        page.add("refusing", "gauge", "1 while new connections above a rate are refused.", bounded);
        page.add("listeners", "gauge", "Listeners at the address.", self.listeners as f64);
        page.add("queue_depth", "gauge", "Connections in the accept queues.", self.queue_depth.into());
        page.add("queue_limit", "gauge", "Sum of the backlogs.", self.queue_limit.into());
        let dropped = self.queue_dropped as f64;
        page.add(
            "queue_dropped_total",
            "counter",
            "SYNs and final ACKs dropped by full accept queues.",
            dropped,
        );
        page.add(
            "waiting",
            "gauge",
            "Requests or connections that wait for their turn.",
            self.waiting.into(),
        );
        page.add("wait_seconds", "gauge", "Estimated wait of a new connection.", self.wait_ns as f64 / 1e9);
        page.add("offered_per_second", "gauge", "Arrivals, refused ones included.", self.offered_per_s);
        if let Some(rate) = self.service_per_s {
            page.add("service_per_second", "gauge", "Measured service rate.", rate);
        }
        page.add("share", "gauge", "Fraction of new connections that is admitted.", self.share);
        page.add("refused_total", "counter", "Connection attempts refused.", self.refused as f64);
        let would = self.would_refuse as f64;
        page.add(
            "would_refuse_total",
            "counter",
            "Connection attempts to refuse if not only observing.",
            would,
        );
        if let Some(requests) = &self.requests {
            page.requests(requests);
        }
        page.text
    }
}

struct Page<'a> {
    text: String,
    address: &'a str,
}

impl Page<'_> {
    fn add(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        let address = self.address;
        let _ = write!(
            self.text,
            "# HELP inrush_guard_{name} {help}\n# TYPE inrush_guard_{name} {kind}\n\
             inrush_guard_{name}{{listener=\"{address}\"}} {value}\n"
        );
    }

    fn requests(&mut self, requests: &RequestFigures) {
        self.add("asked_total", "counter", "Requests asked.", requests.asked as f64);
        self.add("answered_total", "counter", "Requests answered.", requests.answered as f64);
        self.add(
            "ended_total",
            "counter",
            "Requests whose connection ended unanswered.",
            requests.ended as f64,
        );
        self.add("unanswered", "gauge", "Requests without an answer.", requests.unanswered as f64);
        self.add(
            "stuck",
            "gauge",
            "Unanswered requests that wait for something else.",
            requests.stuck.into(),
        );
        let connections = requests.connections as f64;
        self.add("connections_total", "counter", "Connections that have asked.", connections);
        for (name, time) in [("p50", requests.first_byte_ns_p50), ("p99", requests.first_byte_ns_p99)] {
            if let Some(time) = time {
                let name = format!("first_byte_seconds_{name}");
                self.add(&name, "gauge", "Time to the first byte, of the last second.", time as f64 / 1e9);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A status whose figures all differ.
    fn numbered() -> Status {
        let seconds = |number: u64| number * 1_000_000_000;
        let requests = RequestFigures {
            asked: 13,
            answered: 14,
            ended: 15,
            unanswered: 16,
            stuck: 17,
            connections: 18,
            per_connection: 19.0,
            answers_per_s: 20.0,
            first_byte_ns_p50: Some(seconds(21)),
            first_byte_ns_p99: Some(seconds(22)),
        };
        Status {
            address: ":80".to_owned(),
            state: "refusing",
            listeners: 2,
            queue_depth: 3,
            queue_limit: 4,
            queue_dropped: 5,
            waiting: 6,
            wait_ns: seconds(7),
            offered_per_s: 8.0,
            service_per_s: Some(9.0),
            share: 0.1,
            refused: 11,
            would_refuse: 12,
            requests: Some(requests),
            ..Status::default()
        }
    }

    #[test]
    fn prometheus_page_has_every_figure_once() {
        let page = numbered().prometheus();
        let values: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            ("refusing", "1"),
            ("listeners", "2"),
            ("queue_depth", "3"),
            ("queue_limit", "4"),
            ("queue_dropped_total", "5"),
            ("waiting", "6"),
            ("wait_seconds", "7"),
            ("offered_per_second", "8"),
            ("service_per_second", "9"),
            ("share", "0.1"),
            ("refused_total", "11"),
            ("would_refuse_total", "12"),
            ("asked_total", "13"),
            ("answered_total", "14"),
            ("ended_total", "15"),
            ("unanswered", "16"),
            ("stuck", "17"),
            ("connections_total", "18"),
            ("first_byte_seconds_p50", "21"),
            ("first_byte_seconds_p99", "22"),
        ];
        let line = |(name, value)| format!("inrush_guard_{name}{{listener=\":80\"}} {value}");
        assert_eq!(values, expected.map(line));
    }

    #[test]
    fn prometheus_page_leaves_out_what_is_not_known() {
        let mut status = Status { service_per_s: None, ..numbered() };
        status.requests.as_mut().unwrap().first_byte_ns_p99 = None;
        let page = status.prometheus();
        assert!(page.contains("_p50") && !page.contains("_p99") && !page.contains("service_per"), "{page}");
        let page = Status { requests: None, ..status }.prometheus();
        assert!(!page.contains("asked") && !page.contains("_p50"), "{page}");
    }

    #[test]
    fn refusing_is_one_while_the_guard_is_cautious() {
        let shown = |state| {
            let page = Status { address: ":80".to_owned(), state, ..Status::default() }.prometheus();
            page.contains("inrush_guard_refusing{listener=\":80\"} 1")
        };
        assert_eq!(["open", "refusing", "cautious", "gone"].map(shown), [false, true, true, false]);
    }
}
