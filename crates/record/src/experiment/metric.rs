//! The names of a trial's numbers.

use serde::Deserialize;

/// A unit of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A number per second.
    PerSecond,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Processors kept busy.
    Cores,
    /// A number of things.
    Count,
    /// A part of a whole, from 0 to 1.
    Share,
}

impl Unit {
    /// The unit as tables show it; empty for a number of things.
    pub fn word(self) -> &'static str {
        match self {
            Unit::PerSecond => "1/s",
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "us",
            Unit::Cores => "CPUs",
            Unit::Count => "",
            Unit::Share => "0 to 1",
        }
    }
}

/// A quantity of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its key in [`metrics`](super::TrialRecord::metrics).
    pub name: &'static str,
    /// The title of a chart's axis.
    pub title: &'static str,
    /// Its unit.
    pub unit: Unit,
}

const fn is(name: &'static str, title: &'static str, unit: Unit) -> Metric {
    Metric { name, title, unit }
}

/// All metrics with fixed names, in the order they are shown.
pub const METRICS: [Metric; 60] = [
    is("offered_per_s", "offered requests/s", Unit::PerSecond),
    is("sent_per_s", "sent requests/s", Unit::PerSecond),
    is("replies_per_s", "replies/s", Unit::PerSecond),
    is("goodput_per_s", "goodput/s", Unit::PerSecond),
    is("content_bytes_per_s", "content bytes/s", Unit::PerSecond),
    is("capacity_per_s", "capacity, requests/s", Unit::PerSecond),
    is("connects_attempted_per_s", "connection attempts/s", Unit::PerSecond),
    is("connects_established_per_s", "connections/s", Unit::PerSecond),
    is("sockets_peak", "most sockets open at once", Unit::Count),
    is("good_share", "share of the offered requests answered well", Unit::Share),
    is("in_flight_share", "share of the due requests in flight at the end", Unit::Share),
    is("latency_ms_mean", "mean response latency, ms", Unit::Milliseconds),
    is("latency_ms_p50", "median response latency, ms", Unit::Milliseconds),
    is("latency_ms_p90", "90th percentile of response latency, ms", Unit::Milliseconds),
    is("latency_ms_p99", "99th percentile of response latency, ms", Unit::Milliseconds),
    is("latency_ms_max", "longest response latency, ms", Unit::Milliseconds),
    is("service_latency_ms_mean", "mean service latency, ms", Unit::Milliseconds),
    is("service_latency_ms_p50", "median service latency, ms", Unit::Milliseconds),
    is("service_latency_ms_p99", "99th percentile of service latency, ms", Unit::Milliseconds),
    is("first_byte_ms_mean", "mean time to the first byte, ms", Unit::Milliseconds),
    is("first_byte_ms_p50", "median time to the first byte, ms", Unit::Milliseconds),
    is("first_byte_ms_p99", "99th percentile of the time to the first byte, ms", Unit::Milliseconds),
    is("gap_ms_mean", "mean longest gap within a reply, ms", Unit::Milliseconds),
    is("gap_ms_p50", "median longest gap within a reply, ms", Unit::Milliseconds),
    is("gap_ms_p99", "99th percentile of the longest gap within a reply, ms", Unit::Milliseconds),
    is("connect_ms_mean", "mean connect time, ms", Unit::Milliseconds),
    is("connect_ms_p50", "median connect time, ms", Unit::Milliseconds),
    is("connect_ms_p99", "99th percentile of connect time, ms", Unit::Milliseconds),
    is("lateness_ms_p99", "99th percentile of the generator's lateness, ms", Unit::Milliseconds),
    is("drops_per_s", "drops at the listener/s", Unit::PerSecond),
    is("drops_accept_queue_per_s", "drops by a full accept queue/s", Unit::PerSecond),
    is("drops_accept_queue_syn_per_s", "SYNs dropped by a full accept queue/s", Unit::PerSecond),
    is("drops_final_ack_per_s", "connections dropped at their final ACK/s", Unit::PerSecond),
    is("syns_arrived_per_s", "SYNs that arrive at the server/s", Unit::PerSecond),
    is("drops_syn_queue_per_s", "SYNs dropped by a full SYN queue/s", Unit::PerSecond),
    is("drops_other_per_s", "other drops at the listener/s", Unit::PerSecond),
    is("drops_packet_queue_per_s", "packets dropped before TCP/s", Unit::PerSecond),
    is("syn_cookies_per_s", "SYN cookies/s", Unit::PerSecond),
    is("retransmissions_per_s", "segments that the server's kernel sent again/s", Unit::PerSecond),
    is("queue_depth_mean", "mean length of the accept queue", Unit::Count),
    is("queue_depth_max", "greatest length of the accept queue", Unit::Count),
    is("server_cpu_cores", "server's CPUs busy, cores", Unit::Cores),
    is("server_steal_share", "server's CPUs taken away by a hypervisor", Unit::Share),
    is("client_cpu_cores", "client's CPUs busy, cores", Unit::Cores),
    is("generator_cpu_cores", "generator, cores", Unit::Cores),
    is("foreign_cpu_cores", "others on the client's CPUs, cores", Unit::Cores),
    is("server_us_per_reply", "server's CPU time per reply, us", Unit::Microseconds),
    is("accepts_per_s", "connections accepted/s", Unit::PerSecond),
    is("accept_phases_per_s", "accept phases/s", Unit::PerSecond),
    is("accepted_per_phase", "connections accepted per accept phase", Unit::Count),
    is("get_events_per_s", "calls of get-events/s", Unit::PerSecond),
    is("waits_per_connection", "waits that ended, per accepted connection", Unit::Count),
    is("settle_us_p50", "median settle time, us", Unit::Microseconds),
    is("settle_us_p95", "95th percentile of settle time, us", Unit::Microseconds),
    is("settle_us_max", "longest settle time, us", Unit::Microseconds),
    is("settle_us_mean", "mean settle time, us", Unit::Microseconds),
    is("wakeups_per_connection", "wake-ups per connection", Unit::Count),
    is("cpu_us_per_connection", "CPU time per connection, us", Unit::Microseconds),
    is("fairness", "fairness among the waiters", Unit::Share),
    is("winners", "waiters that got a connection", Unit::Count),
];

/// Prefixes of open families of names. A client or server provides the rest of the name: outcomes of requests
/// (`outcome_connect_timeout_per_s`), a server's counters (`counter_stale_events_per_s`), populations
/// (`population_idle_established`).
pub const FAMILIES: [&str; 3] = ["outcome_", "counter_", "population_"];

/// Returns the metric of that name, or `None` for an unknown name or one of a family.
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_hold_their_unit() {
        let parts = [
            ("_per_s", Unit::PerSecond),
            ("_ms", Unit::Milliseconds),
            ("_us", Unit::Microseconds),
            ("_cores", Unit::Cores),
        ];
        for (place, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..place].iter().all(|other| other.name != metric.name), "{}", metric.name);
            let Metric { name, unit, .. } = *metric;
            for (part, of_part) in parts {
                assert_eq!(name.contains(part), unit == of_part, "{name}: {unit:?}");
            }
            assert!(!name.contains("_share") || unit == Unit::Share, "{name}: {unit:?}");
        }
        assert_eq!(metric("fairness").unwrap().unit, Unit::Share);
        assert_eq!(metric("fairnes"), None);
    }
}
