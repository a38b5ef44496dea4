//! The report of a path: counters and lateness of each direction, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use ::report::columns::aligned;
use ::report::format::time;
use base::{Nanos, Seed};
use serde::Serialize;
use sys::network::netlink::LinkStatistics;

use crate::conditions::Conditions;
use crate::router::Passed;

/// The version of the JSON.
const SCHEMA: &str = "inrush.wan/1";

/// The title of each count, in the order in which a packet could meet them.
pub const FATES: [(&str, &str); 10] = [
    ("received", "packets received"),
    ("forwarded", "forwarded"),
    ("reordered", "of these sent ahead"),
    ("lost", "lost, as asked"),
    ("queue_full", "dropped, queue full"),
    ("too_many", "dropped, too many"),
    ("on_their_way", "on their way at the end"),
    ("undelivered", "refused by the receiver"),
    ("never_read", "missed by the router"),
    ("dropped", "dropped"),
];

/// Counts that are shown even if they are zero.
const ALWAYS_SHOWN: [&str; 4] = ["received", "forwarded", "lost", "dropped"];

/// The lateness of packets, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Lateness {
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The maximum.
    pub max: u64,
}

/// The report of one direction.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// The configured conditions.
    pub conditions: Conditions,
    /// Packets, by their fate: [`FATES`].
    pub packets: BTreeMap<&'static str, u64>,
    /// Bytes of the packets forwarded.
    pub bytes_forwarded: u64,
    /// Actual minus due time; `None` if the engine does not report it or no packet came.
    pub lateness_ns: Option<Lateness>,
}

impl Direction {
    /// The report of the router; the packets came from the link `from` and went to the link `to`.
    pub(crate) fn routed(
        conditions: Conditions,
        passed: &Passed,
        from: LinkStatistics,
        to: LinkStatistics,
    ) -> Direction {
        let mut packets: BTreeMap<&'static str, u64> = passed.counts.named().collect();
        packets.insert("on_their_way", passed.on_their_way);
        packets.insert("undelivered", passed.undelivered + to.received_dropped);
        packets.insert("never_read", from.sent_dropped);
        let quantile = |share| passed.lateness.value_at_quantile(share);
        let lateness_ns = (!passed.lateness.is_empty()).then(|| Lateness {
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: passed.lateness.max(),
        });
        Direction { conditions, packets, bytes_forwarded: passed.bytes, lateness_ns }
    }

    fn count(&self, name: &str) -> u64 {
        self.packets.get(name).copied().unwrap_or(0)
    }
}

/// The report of a path.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    schema: &'static str,
    /// The engine: `router` or `netem`.
    pub engine: &'static str,
    /// The seed of the router's draws.
    pub seed: Option<Seed>,
    /// The lifetime of the path.
    pub duration_s: f64,
    /// CPU time of the router's thread, in seconds.
    pub router_cpu_s: Option<f64>,
    /// From the client to the server.
    pub up: Direction,
    /// From the server to the client.
    pub down: Direction,
    /// Deviations of the path from its conditions, one sentence each.
    pub warnings: Vec<String>,
    /// Exit code of the command on the client's side; 128 + the signal's number for a signal.
    pub exit_code: Option<u8>,
}

impl Report {
    pub(crate) fn new(engine: &'static str, duration: Nanos, up: Direction, down: Direction) -> Report {
        let mut report = Report {
            schema: SCHEMA,
            engine,
            seed: None,
            duration_s: duration.as_secs_f64(),
            router_cpu_s: None,
            up,
            down,
            warnings: Vec::new(),
            exit_code: None,
        };
        report.warnings = report.shortcomings().collect();
        report
    }

    fn shortcomings(&self) -> impl Iterator<Item = String> {
        let sum = |name| self.up.count(name) + self.down.count(name);
        let (missed, many, refused) = (sum("never_read"), sum("too_many"), sum("undelivered"));
        let missed = (missed > 0)
            .then(|| format!("The router did not keep up: {missed} packets were lost before it read them."));
        let many = (many > 0).then(|| {
            format!("{many} packets were dropped because too many were on their way: shorten the delay or lower the rate.")
        });
        let refused = (refused > 0).then(|| format!("The receiving kernel refused {refused} packets."));
        [missed, many, refused].into_iter().flatten()
    }

    /// The report as a table.
    pub fn text(&self) -> String {
        let mut rows = vec![
            ["".to_owned(), "up: client to server".to_owned(), "down: server to client".to_owned()],
            ["asked".to_owned(), self.up.conditions.to_string(), self.down.conditions.to_string()],
        ];
        // A count is omitted if it is zero and no condition asks for it.
        let shown = |(name, _): &&(&str, &str)| {
            ALWAYS_SHOWN.contains(name) && self.up.packets.contains_key(name)
                || self.up.count(name) + self.down.count(name) > 0
        };
        for (name, title) in FATES.iter().filter(shown) {
            rows.push([
                (*title).to_owned(),
                self.up.count(name).to_string(),
                self.down.count(name).to_string(),
            ]);
        }
        let bytes = |direction: &Direction| direction.bytes_forwarded.to_string();
        rows.push(["bytes forwarded".to_owned(), bytes(&self.up), bytes(&self.down)]);
        if self.router_cpu_s.is_some() {
            rows.push(["late p50 / p99 / max".to_owned(), lateness(&self.up), lateness(&self.down)]);
        }
        let mut out = format!("WAN by {}, {:.2} s", self.engine, self.duration_s);
        // Writing to a `String` cannot fail.
        if let (Some(cpu), Some(seed)) = (self.router_cpu_s, self.seed) {
            let _ = write!(out, ", {:.0} % of one processor, seed {seed}", cpu / self.duration_s * 100.0);
        }
        out.push('\n');
        out.push_str(&aligned(&rows, &[]));
        for warning in &self.warnings {
            let _ = writeln!(out, "warning: {warning}");
        }
        out
    }
}

fn lateness(direction: &Direction) -> String {
    direction
        .lateness_ns
        .as_ref()
        .map_or("-".to_owned(), |late| [late.p50, late.p99, late.max].map(|ns| time(ns as f64)).join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Changes;

    fn direction(packets: &[(&'static str, u64)]) -> Direction {
        Direction {
            conditions: "delay=50ms,loss=1%".parse::<Changes>().unwrap().check().unwrap(),
            packets: packets.iter().copied().collect(),
            bytes_forwarded: 1234,
            lateness_ns: Some(Lateness { p50: 900, p99: 45_600, max: 12_000_000 }),
        }
    }

    #[test]
    fn a_report_is_read_as_a_table() {
        let up = direction(&[("received", 1000), ("forwarded", 990), ("lost", 10), ("never_read", 3)]);
        let mut report = Report::new("router", Nanos::from_secs(2), up.clone(), up);
        report.router_cpu_s = Some(0.5);
        report.seed = Some(Seed(7));
        let expected = "\
WAN by router, 2.00 s, 25 % of one processor, seed 7
                           up: client to server    down: server to client
asked                             50ms, loss 1%             50ms, loss 1%
packets received                           1000                      1000
forwarded                                   990                       990
lost, as asked                               10                        10
missed by the router                          3                         3
bytes forwarded                            1234                      1234
late p50 / p99 / max  900 ns / 45.6 µs / 12 ms  900 ns / 45.6 µs / 12 ms
warning: The router did not keep up: 6 packets were lost before it read them.
";
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeeze(&report.text()), squeeze(expected), "{}", report.text());
    }

    #[test]
    fn every_count_of_the_router_has_its_words() {
        let named = crate::impairment::Counts::default();
        assert!(named.named().all(|(name, _)| FATES.iter().any(|(known, _)| *known == name)));
    }
}
