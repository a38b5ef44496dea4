//! What one run of the load generator found out.
//!
//! The ledger is in *requests*: a session offers all its requests at the moment it is scheduled, and
//! each ends in exactly one [`Outcome`]. Where a session breaks off, the requests it had left share the
//! outcome that ended it. Invariant, checked by [`LoadResult::balance`]: `offered` equals the sum of the
//! outcomes plus `in_flight_at_end`.
//!
//! A request *failed* if it was due and had no correct reply when the run ended: it ended otherwise, or not at all
//! ([`LoadResult::failed`]). Failed requests are in the percentiles of latency, above every answer ([`Latency`]).

mod latency;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;
pub use latency::{Distribution, Latency};

/// The schema this version writes. Version 1 had the percentiles of the correct replies alone.
pub const SCHEMA: &str = "inrush.load/2";

/// How an offered request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A correct reply: complete, with an expected status, by default 2xx or 3xx, and the expected content, where
    /// there is an expectation.
    Ok,
    /// A complete reply with another status, 503 excepted.
    StatusError,
    /// The server turned it away in so many words: 503, where that was not expected.
    Shed,
    /// The connection attempt was answered by a reset: nobody listens.
    Refused,
    /// The network, not the host, said no: no route, or a filter on the way.
    Unreachable,
    /// Reset, or closed before the reply was complete.
    Reset,
    /// No TLS with the target: it speaks another protocol, or its certificate is not trusted.
    TlsFailed,
    /// A reply that is not HTTP.
    Malformed,
    /// A complete reply with an expected status whose content is not the expected one.
    WrongBody,
    /// No connection within the connect time-out.
    ConnectTimeout,
    /// No complete reply within the request time-out, from a server that acknowledged the request or an earlier one.
    ResponseTimeout,
    /// The client was connected, and the server was not: it acknowledged nothing within the request time-out. It
    /// had dropped the handshake's last segment, because its accept queue was full.
    Dropped,
    /// The client had no free port.
    NoPort,
    /// The client had no free descriptor.
    NoDescriptor,
    /// The client stood still or fell behind its schedule, and did not send it.
    NoTime,
}

impl Outcome {
    /// All of them, in the order they are shown.
    pub const ALL: [Outcome; 15] = [
        Outcome::Ok,
        Outcome::StatusError,
        Outcome::Shed,
        Outcome::Refused,
        Outcome::Unreachable,
        Outcome::Reset,
        Outcome::TlsFailed,
        Outcome::Malformed,
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
            Outcome::WrongBody => "wrong_body",
            Outcome::ConnectTimeout => "connect_timeout",
            Outcome::ResponseTimeout => "response_timeout",
            Outcome::Dropped => "dropped",
            Outcome::NoPort => "no_port",
            Outcome::NoDescriptor => "no_descriptor",
            Outcome::NoTime => "no_time",
        }
    }

    /// Whether the generator, not the server, is to blame.
    pub fn is_client_limit(self) -> bool {
        matches!(self, Outcome::NoPort | Outcome::NoDescriptor | Outcome::NoTime)
    }
}

/// Counts by outcome; every outcome is present, so that a reader can tell zero from unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Outcomes(BTreeMap<Outcome, u64>);

impl Default for Outcomes {
    fn default() -> Outcomes {
        Outcomes(Outcome::ALL.into_iter().map(|outcome| (outcome, 0)).collect())
    }
}

impl Outcomes {
    /// How many ended so.
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

    /// All that ended.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The outcomes in the order they are shown, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        Outcome::ALL.into_iter().map(|outcome| (outcome, self.get(outcome)))
    }
}

/// Complete replies by status code; codes without a reply are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Statuses(BTreeMap<u16, u64>);

impl Statuses {
    /// Adds replies with a code. A code has three digits, so a server cannot make this grow beyond them.
    pub fn add(&mut self, code: u16, count: u64) {
        *self.0.entry(code).or_insert(0) += count;
    }

    /// Adds the replies of another count.
    pub fn merge(&mut self, other: &Statuses) {
        other.iter().for_each(|(code, count)| self.add(code, count));
    }

    /// All replies.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Replies whose codes begin with a digit: 2 for 2xx.
    pub fn of_class(&self, class: u16) -> u64 {
        self.iter().filter(|(code, _)| code / 100 == class).map(|(_, count)| count).sum()
    }

    /// The codes in ascending order, with their counts.
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
    /// Requests scheduled in it.
    pub offered: u64,
    /// Requests sent in it.
    pub sent: u64,
    /// Of those offered, the retries.
    #[serde(default)]
    pub retries: u64,
    /// Complete replies of any status.
    pub replies: u64,
    /// Of these, the correct ones that came in time.
    #[serde(default)]
    pub good: u64,
    /// How requests ended in it. The last interval also has those that ended after it: the run waits for the replies
    /// that are on their way.
    pub outcomes: Outcomes,
    /// The replies among these by status code.
    #[serde(default)]
    pub statuses: Statuses,
    /// Latency from the intended time, of the requests that ended in it; in the last one also of those that never did.
    pub latency_intended_ns: Latency,
    /// How late the generator itself was.
    pub lateness_ns: Distribution,
    /// Sockets open at the end of it.
    pub sockets: u64,
}

/// Whether the run says anything about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The generator offered what it was asked to offer.
    Valid,
    /// So it did, but for something that the reasons name, with what to do about it.
    Degraded,
    /// No request was due in the measured time, or it was never reached.
    NotMeasured,
    /// The generator was the limit: the figures bound the server from below, no more.
    GeneratorLimited,
    /// Every connection attempt was refused, or nothing was found on the way: there is no server.
    Unreachable,
}

impl Verdict {
    /// Whether the figures speak about the server, with reservations or without.
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

/// TLS handshakes that came to their end in the measured time. A full one costs the server a signature and a key
/// exchange, a resumed one hardly more than a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handshakes {
    /// With the server's certificate.
    pub full: u64,
    /// On the strength of an earlier one.
    pub resumed: u64,
    /// `full` a second.
    pub full_per_s: f64,
    /// `resumed` a second.
    pub resumed_per_s: f64,
}

/// The connections behind the requests, those of the warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Connection attempts made, SYN sent.
    pub attempted: u64,
    /// Attempts that became connections.
    pub established: u64,
    /// The most sockets open at once; with several threads, the sum of theirs.
    pub sockets_peak: u64,
}

/// The retries among the requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// How many were offered.
    pub offered: u64,
    /// Those of them that had not ended when the run did.
    pub in_flight_at_end: u64,
    /// How the others ended.
    pub outcomes: Outcomes,
    /// Requests that were to be retried and were not, because too many were waiting for it.
    pub given_up: u64,
}

/// What became of a population beside the measured traffic. Its ledger is of the whole run, warm-up
/// included, because it is to be in place when the measured time begins. Of idle and slow clients a
/// connection is one request, offered when it is begun and in flight while it is held; what the server ends
/// is `reset`, or the outcome of what it said before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Population {
    /// How many clients it has.
    pub clients: u64,
    /// Requests scheduled since the run began.
    pub offered: u64,
    /// Requests that had not ended when the run did.
    pub in_flight_at_end: u64,
    /// How the others ended.
    pub outcomes: Outcomes,
    /// Connections behind them, since the run began.
    pub connections: Connections,
    /// Established connections when the measured time began.
    pub open_at_start: u64,
    /// Established connections when the run ended.
    pub open_at_end: u64,
    /// Complete replies of any status in the measured time, a second.
    pub replies_per_s: f64,
    /// As `latency_intended_ns` of the run; empty for idle clients.
    pub latency_intended_ns: Latency,
}

/// A threshold, and what was measured beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// As it was given: `p99>300ms`.
    pub threshold: String,
    /// The measured figure with its unit; `> 4 s` for a percentile that falls among the unanswered requests.
    pub measured: String,
    /// Whether that crosses the threshold.
    pub crossed: bool,
}

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// One line: what was offered, what came back in time, and what failed.
    #[serde(default)]
    pub conclusion: String,
    /// The measured time, warm-up left out.
    pub duration_s: f64,
    /// Requests scheduled in the measured time.
    pub offered: u64,
    /// Requests offered and neither answered nor given up when the run ended.
    pub in_flight_at_end: u64,
    /// Of `in_flight_at_end`, the requests that were not due yet: their sessions had others to make before them.
    #[serde(default)]
    pub not_due_at_end: u64,
    /// How the others ended.
    pub outcomes: Outcomes,
    /// The complete replies among these by status code.
    #[serde(default)]
    pub statuses: Statuses,
    /// Of these, the retries: they are offered load like any other. What is left without them is the
    /// demand, what users wanted.
    #[serde(default)]
    pub retries: Retries,
    /// Connections behind them.
    pub connections: Connections,
    /// Handshakes, of a target that speaks TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Requests a second that were asked for: the rate times the mean session length; absent for a
    /// closed client, which has no rate of its own.
    pub target_per_s: Option<f64>,
    /// `offered` over `duration_s`.
    pub offered_per_s: f64,
    /// Requests really sent, a second.
    pub sent_per_s: f64,
    /// Complete replies of any status, a second.
    pub replies_per_s: f64,
    /// Correct replies in time, a second: before their deadline, if the run had one.
    pub goodput_per_s: f64,
    /// Bytes of content received, a second.
    pub content_bytes_per_s: f64,
    /// From the time the request was meant to be sent until its correct reply was complete. Like `latency_sent_ns`, of
    /// all requests that were due in the measured time: a fast refusal does not pass for a fast server. Attempts that
    /// were retried are left out, since the latency of the last one is from the time of the first.
    pub latency_intended_ns: Latency,
    /// From the time it was sent.
    pub latency_sent_ns: Latency,
    /// From connect() until established, of all attempts.
    pub connect_ns: Latency,
    /// From the scheduled time of a session until its connect().
    pub lateness_ns: Distribution,
    /// CPU time of the generator over the measured time, in cores.
    pub generator_cpu: f64,
    /// The populations beside the measured traffic, by the text that asked for them.
    pub populations: BTreeMap<String, Population>,
    /// What happened when.
    pub series: Vec<Point>,
    /// The thresholds that were given, in their order.
    #[serde(default)]
    pub thresholds: Vec<Judged>,
    /// Whether the figures above speak about the server.
    pub verdict: Verdict,
    /// Why, one sentence each.
    pub reasons: Vec<String>,
    /// What was run, where, and how to run it again.
    pub manifest: Manifest,
}

/// A ledger does not add up: a bug of ours, never of the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger of {whose} does not balance: {offered} offered, {ended} ended, {in_flight} in flight")]
pub struct Unbalanced {
    whose: String,
    offered: u64,
    ended: u64,
    in_flight: u64,
}

impl LoadResult {
    /// Retries a second.
    pub fn retries_per_s(&self) -> f64 {
        if self.duration_s > 0.0 { self.retries.offered as f64 / self.duration_s } else { 0.0 }
    }

    /// The offered load over the demand: 1 where nothing was retried.
    pub fn amplification(&self) -> f64 {
        match self.offered - self.retries.offered {
            0 => 1.0,
            demand => self.offered as f64 / demand as f64,
        }
    }

    /// Requests that were due before the run ended.
    pub fn due(&self) -> u64 {
        self.offered.saturating_sub(self.not_due_at_end)
    }

    /// Requests that were due and had no correct reply when the run ended: they ended otherwise, or not at all.
    pub fn failed(&self) -> u64 {
        self.due().saturating_sub(self.outcomes.get(Outcome::Ok))
    }

    /// Checks that every offered request ended in exactly one way, in the populations too.
    ///
    /// # Errors
    /// [`Unbalanced`], with the three numbers.
    pub fn balance(&self) -> Result<(), Unbalanced> {
        balance("the run", self.offered, &self.outcomes, self.in_flight_at_end)?;
        let retries = &self.retries;
        balance("the retries", retries.offered, &retries.outcomes, retries.in_flight_at_end)?;
        self.populations.iter().try_for_each(|(name, population)| {
            balance(name, population.offered, &population.outcomes, population.in_flight_at_end)
        })
    }
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
