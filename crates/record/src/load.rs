//! The result of one run of the load generator.
//!
//! The ledger counts *requests*: those that fell due in the measured time, whenever their sessions began. Each ends in
//! exactly one [`Outcome`]. If a session of an open loop breaks off, its remaining requests fall due by their think times,
//! and share the outcome that ended it.
//! Invariant, checked by [`LoadResult::balance`]: `offered` equals the sum of the outcomes plus `in_flight_at_end`.
//!
//! A request *failed* if it had no correct reply when the run ended: it ended otherwise, or not at all
//! ([`LoadResult::failed`]). Failed requests are in the percentiles of latency, above every answer ([`Latency`]).

mod agent;
mod latency;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;
pub use agent::{Agent, AgentPart, AgentState};
pub use latency::{Distribution, Latency};

/// The schema this version writes. Version 1 had only the percentiles of the correct replies. In version 2 a session
/// offered all its requests at the moment it was scheduled.
pub const SCHEMA: &str = "inrush.load/3";

/// The end of an offered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A correct reply: complete, with an expected status (by default 2xx or 3xx), and with the expected content, if
    /// the run expects any.
    Ok,
    /// A complete reply with another status, 503 excepted.
    StatusError,
    /// The server refused the request with status 503, and 503 was not expected.
    Shed,
    /// A reset answered the connection attempt: no listener has this address and port.
    Refused,
    /// The network made the target unreachable: it has no route, or a filter rejects the packets.
    Unreachable,
    /// The server reset or closed the connection before the reply was complete.
    Reset,
    /// The TLS handshake failed: the target speaks another protocol, or its certificate is not trusted.
    TlsFailed,
    /// A reply that is not HTTP.
    Malformed,
    /// The server does not speak HTTP/2: it chose another protocol (ALPN), or its first bytes were no SETTINGS frame.
    NotHttp2,
    /// The server reset the request's HTTP/2 stream (RST_STREAM). The connection's other requests went on.
    StreamReset,
    /// The server ended the HTTP/2 connection with GOAWAY and did not answer this request.
    GoAway,
    /// A complete reply with an expected status whose content is not the expected one.
    WrongBody,
    /// No connection within the connect timeout.
    ConnectTimeout,
    /// No complete reply within the request timeout, from a server that acknowledged this request or an earlier one.
    ResponseTimeout,
    /// The server acknowledged nothing within the request timeout, although the client was connected. Its accept
    /// queue was full, so it had dropped the handshake's last segment.
    Dropped,
    /// The client had no free port.
    NoPort,
    /// The client had no free descriptor.
    NoDescriptor,
    /// The client was stopped or behind its schedule, and did not send the request.
    NoTime,
}

impl Outcome {
    /// All outcomes, in the order in which reports show them.
    pub const ALL: [Outcome; 18] = [
        Outcome::Ok,
        Outcome::StatusError,
        Outcome::Shed,
        Outcome::Refused,
        Outcome::Unreachable,
        Outcome::Reset,
        Outcome::TlsFailed,
        Outcome::Malformed,
        Outcome::NotHttp2,
        Outcome::StreamReset,
        Outcome::GoAway,
        Outcome::WrongBody,
        Outcome::ConnectTimeout,
        Outcome::ResponseTimeout,
        Outcome::Dropped,
        Outcome::NoPort,
        Outcome::NoDescriptor,
        Outcome::NoTime,
    ];

    /// The name in records: `connect_timeout`.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::StatusError => "status_error",
            Outcome::Shed => "shed",
            Outcome::Refused => "refused",
            Outcome::Unreachable => "unreachable",
            Outcome::Reset => "reset",
            Outcome::TlsFailed => "tls_failed",
            Outcome::Malformed => "malformed",
            Outcome::NotHttp2 => "not_http2",
            Outcome::StreamReset => "stream_reset",
            Outcome::GoAway => "go_away",
            Outcome::WrongBody => "wrong_body",
            Outcome::ConnectTimeout => "connect_timeout",
            Outcome::ResponseTimeout => "response_timeout",
            Outcome::Dropped => "dropped",
            Outcome::NoPort => "no_port",
            Outcome::NoDescriptor => "no_descriptor",
            Outcome::NoTime => "no_time",
        }
    }

    /// Tells whether the outcome is the generator's fault, not the server's.
    pub fn is_client_limit(self) -> bool {
        matches!(self, Outcome::NoPort | Outcome::NoDescriptor | Outcome::NoTime)
    }
}

/// Counts by outcome. Every outcome is present, so that a reader can tell zero from unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Outcomes(BTreeMap<Outcome, u64>);

impl Default for Outcomes {
    fn default() -> Outcomes {
        Outcomes(Outcome::ALL.into_iter().map(|outcome| (outcome, 0)).collect())
    }
}

impl Outcomes {
    /// Returns the number of requests with this outcome.
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.0.get(&outcome).copied().unwrap_or(0)
    }

    /// Adds to one outcome.
    pub fn add(&mut self, outcome: Outcome, count: u64) {
        *self.0.entry(outcome).or_insert(0) += count;
    }

    /// Adds another ledger's outcomes to these.
    pub fn merge(&mut self, other: &Outcomes) {
        for (outcome, count) in &other.0 {
            self.add(*outcome, *count);
        }
    }

    /// Returns the number of requests that ended.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Iterates over the outcomes in the order in which reports show them, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        Outcome::ALL.into_iter().map(|outcome| (outcome, self.get(outcome)))
    }
}

/// Complete replies by status code. A code without a reply is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Statuses(BTreeMap<u16, u64>);

impl Statuses {
    /// Adds replies with a code. A code has three digits, so a server cannot make the map grow beyond 1000 entries.
    pub fn add(&mut self, code: u16, count: u64) {
        *self.0.entry(code).or_insert(0) += count;
    }

    /// Adds the replies of another count.
    pub fn merge(&mut self, other: &Statuses) {
        other.iter().for_each(|(code, count)| self.add(code, count));
    }

    /// Returns the number of all replies.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the number of replies whose code begins with `class`: 2 for 2xx.
    pub fn of_class(&self, class: u16) -> u64 {
        self.iter().filter(|(code, _)| code / 100 == class).map(|(_, count)| count).sum()
    }

    /// Iterates over the codes in ascending order, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.0.iter().map(|(code, count)| (*code, *count))
    }
}

/// One interval of the time series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The end of the interval, seconds since the run began (warm-up included).
    pub at_s: f64,
    /// The interval's length.
    pub interval_s: f64,
    /// Requests that fell due in it.
    pub offered: u64,
    /// Requests sent in it.
    pub sent: u64,
    /// Retries among the offered requests.
    #[serde(default)]
    pub retries: u64,
    /// Complete replies of any status.
    pub replies: u64,
    /// Correct replies among these that came in time.
    #[serde(default)]
    pub good: u64,
    /// The outcomes of the requests that ended in it. The last interval includes the requests that ended after it,
    /// because the run waits for replies on their way.
    pub outcomes: Outcomes,
    /// The replies among these by status code.
    #[serde(default)]
    pub statuses: Statuses,
    /// Latency from the intended time, of the requests that ended in it. The last interval includes the requests that
    /// never ended.
    pub latency_intended_ns: Latency,
    /// The generator's own lateness.
    pub lateness_ns: Distribution,
    /// Sockets open at the end of it.
    pub sockets: u64,
}

/// The reliability of a run's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The generator offered the scheduled load.
    Valid,
    /// The generator offered the load, with a reservation. The reasons name it, with a remedy.
    Degraded,
    /// No request was due in the measured time, or the run ended before that time.
    NotMeasured,
    /// The generator was the limit: the server may be faster than the figures show.
    GeneratorLimited,
    /// Every connection attempt was refused or found no route: there is no server.
    Unreachable,
}

impl Verdict {
    /// Tells whether the figures describe the server, with reservations or without.
    pub fn is_valid(self) -> bool {
        matches!(self, Verdict::Valid | Verdict::Degraded)
    }

    /// The verdict in records: `generator-limited`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::Degraded => "degraded",
            Verdict::NotMeasured => "not-measured",
            Verdict::GeneratorLimited => "generator-limited",
            Verdict::Unreachable => "unreachable",
        }
    }
}

/// TLS handshakes of the sessions that were scheduled in the measured time. A full one costs the server a signature
/// and a key exchange, a resumed one hardly more than a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handshakes {
    /// Handshakes with the server's certificate.
    pub full: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed: u64,
    /// `full` a second.
    pub full_per_s: f64,
    /// `resumed` a second.
    pub resumed_per_s: f64,
    /// Handshakes by the group of their key exchange, which the server chose. A handshake that TLS 1.2 resumed has none.
    #[serde(default)]
    pub groups: BTreeMap<String, u64>,
}

/// The connections for requests that fell due in the measured time; of a population, all since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Connection attempts made, SYN sent.
    pub attempted: u64,
    /// Attempts that became connections.
    pub established: u64,
    /// The most sockets open at once in the measured time; with several threads, the sum of theirs.
    pub sockets_peak: u64,
}

/// The retries among the requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// Retries offered.
    pub offered: u64,
    /// Retries that had not ended when the run did.
    pub in_flight_at_end: u64,
    /// The outcomes of the other retries.
    pub outcomes: Outcomes,
    /// Requests whose retry was given up, because too many were waiting for theirs.
    pub given_up: u64,
}

/// The account of a population beside the measured traffic. Its ledger covers the whole run with the warm-up, because
/// the population must be complete when the measured time begins. For idle and slow clients, a connection is one
/// request, offered at its start and in flight while it is held. A connection that the server ends counts as `reset`,
/// or by the reply that came before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Population {
    /// Clients in the population.
    pub clients: u64,
    /// Requests scheduled since the run began.
    pub offered: u64,
    /// Requests that had not ended when the run did.
    pub in_flight_at_end: u64,
    /// The outcomes of the other requests.
    pub outcomes: Outcomes,
    /// The population's connections since the run began.
    pub connections: Connections,
    /// Established connections when the measured time began.
    pub open_at_start: u64,
    /// Established connections when the run ended.
    pub open_at_end: u64,
    /// Complete replies of any status in the measured time, per second.
    pub replies_per_s: f64,
    /// The same as `latency_intended_ns` of the run; of slow clients since the run began, and empty for idle clients.
    pub latency_intended_ns: Latency,
}

impl Population {
    /// Tells whether more than a tenth of the clients had no connection when the measured time began.
    pub fn is_short(&self) -> bool {
        10 * self.open_at_start < 9 * self.clients
    }
}

/// A threshold with the measured figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The threshold as it was given: `p99>300ms`.
    pub threshold: String,
    /// The measured figure with its unit; `> 4 s` for a percentile that falls among the unanswered requests.
    pub measured: String,
    /// True if the figure crosses the threshold.
    pub crossed: bool,
}

/// The requests of one name that were due in the measured window and were under way until they or the run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedRequests {
    /// The requests that ended, by outcome.
    pub outcomes: Outcomes,
    /// Requests that had not ended when the run did; 0 in a record of a version without this field.
    #[serde(default)]
    pub in_flight_at_end: u64,
    /// Latency from the intended time.
    pub latency_intended_ns: Latency,
}

impl NamedRequests {
    /// Returns the number of requests.
    pub fn offered(&self) -> u64 {
        self.outcomes.total() + self.in_flight_at_end
    }

    /// Returns the number of requests that had no correct reply when the run ended.
    pub fn failed(&self) -> u64 {
        self.offered() - self.outcomes.get(Outcome::Ok)
    }
}

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// The conclusion in one line: the offered load, the goodput and the failures.
    #[serde(default)]
    pub conclusion: String,
    /// The measured time, warm-up left out.
    pub duration_s: f64,
    /// Requests that fell due in the measured time.
    pub offered: u64,
    /// Requests offered, but neither answered nor given up when the run ended.
    pub in_flight_at_end: u64,
    /// The outcomes of the other requests.
    pub outcomes: Outcomes,
    /// Complete replies by status code.
    #[serde(default)]
    pub statuses: Statuses,
    /// The beginning of the content of the first failed reply with each status code, of HTTP/1.1.
    #[serde(default)]
    pub failed_replies: BTreeMap<u16, String>,
    /// The requests of a file by their names.
    #[serde(default)]
    pub requests: BTreeMap<String, NamedRequests>,
    /// The retries among the offered requests. The rest is the demand of the users.
    #[serde(default)]
    pub retries: Retries,
    /// The connections of the run.
    pub connections: Connections,
    /// The TLS handshakes; absent for a target without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Requests per second that were asked for: the rate times the mean session length. Absent for a closed client,
    /// which has no rate of its own.
    pub target_per_s: Option<f64>,
    /// `offered` over `duration_s`.
    pub offered_per_s: f64,
    /// Requests sent per second.
    pub sent_per_s: f64,
    /// Complete replies of any status per second.
    pub replies_per_s: f64,
    /// Replies in the measured time to requests that fell due in the warm-up. They count in `replies_per_s` and
    /// `goodput_per_s`, and not in `offered`.
    #[serde(default)]
    pub replies_of_warmup: u64,
    /// Redirects that requests due in the window followed. A redirected request is one request, and ends with its last reply.
    #[serde(default)]
    pub redirects: u64,
    /// Correct replies per second that met their deadline, if the run had one.
    pub goodput_per_s: f64,
    /// Bytes of content of correct replies per second, late ones included.
    pub content_bytes_per_s: f64,
    /// Latency from the intended time of a request to its complete, correct reply. As in `latency_sent_ns`, all
    /// requests due in the measured time count, so that a fast refusal does not pass for a fast server. A retried
    /// attempt is left out: the last attempt's latency starts at the first one's intended time.
    pub latency_intended_ns: Latency,
    /// Latency from the time at which the request was sent.
    pub latency_sent_ns: Latency,
    /// Time from sending a request to the first byte of its correct reply. The last byte's time is `latency_sent_ns`.
    #[serde(default)]
    pub first_byte_ns: Latency,
    /// Longest time between two pieces of a correct reply; 0 for one that came in one piece.
    #[serde(default)]
    pub gap_ns: Latency,
    /// Time from connect() to an established connection, of all attempts.
    pub connect_ns: Latency,
    /// Time from a session's schedule to its connect().
    pub lateness_ns: Distribution,
    /// CPU time of the generator in the measured time, in cores.
    pub generator_cpu: f64,
    /// The populations beside the measured traffic, by the option's text.
    pub populations: BTreeMap<String, Population>,
    /// The time series: one point for each interval.
    pub series: Vec<Point>,
    /// The thresholds of the run, in the order in which they were given.
    #[serde(default)]
    pub thresholds: Vec<Judged>,
    /// The reliability of the figures above.
    pub verdict: Verdict,
    /// The reasons for the verdict, one sentence each.
    pub reasons: Vec<String>,
    /// The agents of a run by a fleet, in the order of their shares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<Agent>,
    /// The conditions of the run: enough to repeat it.
    pub manifest: Manifest,
}

/// The ledger does not add up, which is a bug of Inrush, never of the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger of {whose} does not balance: {offered} offered, {ended} ended, {in_flight} in flight")]
pub struct Unbalanced {
    whose: String,
    offered: u64,
    ended: u64,
    in_flight: u64,
}

impl LoadResult {
    /// Returns retries per second.
    pub fn retries_per_s(&self) -> f64 {
        if self.duration_s > 0.0 { self.retries.offered as f64 / self.duration_s } else { 0.0 }
    }

    /// Returns the offered load over the demand: 1 without retries, and infinite if the demand came before the
    /// measured time.
    pub fn amplification(&self) -> f64 {
        amplification(self.offered, self.retries.offered)
    }

    /// Returns the number of offered requests that had no correct reply when the run ended.
    pub fn failed(&self) -> u64 {
        self.offered.saturating_sub(self.outcomes.get(Outcome::Ok))
    }

    /// Returns the cause, the first of the reasons, if every request of a valid run failed.
    pub fn total_failure(&self) -> Option<&str> {
        let all = self.verdict.is_valid() && self.offered > 0 && self.failed() == self.offered;
        self.reasons.first().filter(|_| all).map(String::as_str)
    }

    /// Checks that every offered request ended in exactly one way, in the populations too, and that the agents of a
    /// fleet offered the whole.
    ///
    /// # Errors
    /// [`Unbalanced`], with the three numbers.
    pub fn balance(&self) -> Result<(), Unbalanced> {
        balance("the run", self.offered, &self.outcomes, self.in_flight_at_end)?;
        let retries = &self.retries;
        balance("the retries", retries.offered, &retries.outcomes, retries.in_flight_at_end)?;
        let parts = || self.agents.iter().filter_map(|agent| agent.part.as_ref());
        if parts().next().is_some() {
            let mut ended = Outcomes::default();
            parts().for_each(|part| ended.merge(&part.outcomes));
            let in_flight = parts().map(|part| part.in_flight_at_end).sum();
            balance("the agents", self.offered, &ended, in_flight)?;
        }
        self.populations.iter().try_for_each(|(name, population)| {
            balance(name, population.offered, &population.outcomes, population.in_flight_at_end)
        })
    }
}

fn amplification(offered: u64, retries: u64) -> f64 {
    // A file may hold more retries than requests.
    let demand = offered.saturating_sub(retries);
    if offered.min(retries) == 0 { 1.0 } else { offered as f64 / demand as f64 }
}

fn balance(whose: &str, offered: u64, outcomes: &Outcomes, in_flight: u64) -> Result<(), Unbalanced> {
    let ended = outcomes.total();
    if offered == ended + in_flight {
        return Ok(());
    }
    Err(Unbalanced { whose: whose.to_owned(), offered, ended, in_flight })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_listed_and_named_as_it_is_written() {
        for outcome in Outcome::ALL {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.name());
        }
        let written = serde_json::to_value(Outcomes::default()).unwrap();
        assert_eq!(written.as_object().unwrap().len(), Outcome::ALL.len());
        for verdict in [
            Verdict::Valid,
            Verdict::Degraded,
            Verdict::NotMeasured,
            Verdict::GeneratorLimited,
            Verdict::Unreachable,
        ] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
        }
    }

    #[test]
    fn names_of_older_records_have_nothing_in_flight() {
        let old = serde_json::json!({ "outcomes": { "ok": 3, "reset": 1 }, "latency_intended_ns": Latency::default() });
        let read: NamedRequests = serde_json::from_value(old).unwrap();
        assert_eq!((read.offered(), read.failed()), (4, 1));
        let hung = NamedRequests { in_flight_at_end: 2, ..read };
        assert_eq!((hung.offered(), hung.failed()), (6, 3));
    }

    #[test]
    fn an_amplification_without_demand_is_infinite() {
        let of = |(offered, retries)| amplification(offered, retries);
        assert_eq!([(0, 0), (0, 9), (9, 0), (9, 6)].map(of), [1.0, 1.0, 1.0, 3.0]);
        assert_eq!([(9, 9), (6, 9)].map(of), [f64::INFINITY; 2]);
    }

    #[test]
    fn statuses_are_written_by_code_and_counted_by_class() {
        let mut statuses = Statuses::default();
        for (code, count) in [(200, 5), (404, 2), (204, 1), (404, 1)] {
            statuses.add(code, count);
        }
        let written = serde_json::to_string(&statuses).unwrap();
        assert_eq!(written, r#"{"200":5,"204":1,"404":3}"#);
        assert_eq!(serde_json::from_str::<Statuses>(&written).unwrap(), statuses);
        assert_eq!((statuses.total(), statuses.of_class(2), statuses.of_class(3)), (9, 6, 0));
    }
}
