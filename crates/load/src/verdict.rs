//! Whether a run says anything about the server.
//!
//! A generator that could not offer what it was asked to measures itself. Two things give it away:
//! sessions that began late, and requests that it could not send for want of a port, a descriptor or
//! time. A third is known before: a rate above the machine's clean rate, where that was measured. The
//! offered count itself cannot miss the schedule: every scheduled session is in the ledger, and one that
//! could not begin is there as a limit of the client.

use std::collections::BTreeMap;

use base::Nanos;
use record::{Distribution, Outcome, Outcomes, Population, Verdict};

/// Sessions may begin so late at the 99th percentile: a scheduler tick. Lateness is part of the latency
/// from the intended time, and a later client smooths or bunches the load it was asked for.
pub const LATENESS_P99_MAX: Nanos = Nanos::from_millis(10);

/// The share of requests that the client itself may fail to send.
pub const CLIENT_LIMIT_SHARE_MAX: f64 = 0.001;

/// What a verdict is based on.
pub(crate) struct Evidence<'a> {
    /// Requests offered in the measured window.
    pub offered: u64,
    /// How they ended.
    pub outcomes: &'a Outcomes,
    /// How late sessions began.
    pub lateness: &'a Distribution,
    /// How requests ended since the run's start, warm-up included.
    pub outcomes_of_run: &'a Outcomes,
    /// Connections established since the run's start.
    pub established: u64,
    /// The populations beside it, by name.
    pub populations: &'a BTreeMap<String, Population>,
    /// Retries for which there was no room.
    pub given_up: u64,
    /// What there is to say if more was asked for than the machine's clean rate.
    pub above_clean_rate: Option<String>,
}

/// The verdict, and its reasons, one sentence each.
pub(crate) fn judge(evidence: &Evidence<'_>) -> (Verdict, Vec<String>) {
    if let Some(reason) = unreachable(evidence.outcomes_of_run, evidence.established) {
        return (Verdict::Unreachable, vec![reason]);
    }
    let mut reasons: Vec<String> = evidence.above_clean_rate.iter().cloned().collect();
    let lateness = Nanos(evidence.lateness.p99);
    if lateness > LATENESS_P99_MAX {
        reasons.push(format!(
            "Sessions began up to {:.1} ms late (99th percentile; the bound is {LATENESS_P99_MAX}): the client's processor \
             was busy or taken away; use more threads, or another machine.",
            lateness.as_secs_f64() * 1e3,
        ));
    }
    for outcome in Outcome::ALL.into_iter().filter(|outcome| outcome.is_client_limit()) {
        let count = evidence.outcomes.get(outcome);
        if count as f64 > CLIENT_LIMIT_SHARE_MAX * evidence.offered as f64 {
            reasons.push(format!(
                "{count} of {} requests were not sent: {}.",
                evidence.offered,
                shortage(outcome)
            ));
        }
    }
    if evidence.given_up as f64 > CLIENT_LIMIT_SHARE_MAX * evidence.offered as f64 {
        reasons.push(format!(
            "{} requests were not retried: too many were waiting for it; use more threads, or fewer retries.",
            evidence.given_up
        ));
    }
    for (name, population) in evidence.populations {
        for outcome in Outcome::ALL.into_iter().filter(|outcome| outcome.is_client_limit()) {
            let count = population.outcomes.get(outcome);
            if count as f64 > CLIENT_LIMIT_SHARE_MAX * population.offered as f64 {
                reasons.push(format!("Population {name}: {count} times, {}.", shortage(outcome)));
            }
        }
    }
    let verdict = if reasons.is_empty() { Verdict::Valid } else { Verdict::GeneratorLimited };
    (verdict, reasons)
}

/// What to say of each limit of the client.
fn shortage(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NoPort => "the client had no free port; use more source addresses (--source-ip)",
        Outcome::NoTime => "the client was more than a second behind its schedule; use more threads",
        _ => "the client had no free descriptor; raise --sockets or the descriptor limit",
    }
}

/// Why there is no server: every attempt was refused or got nowhere. A listener that never accepts is
/// not that: its connects complete or time out.
pub(crate) fn unreachable(outcomes: &Outcomes, established: u64) -> Option<String> {
    let (refused, no_route) = (outcomes.get(Outcome::Refused), outcomes.get(Outcome::Unreachable));
    let nowhere = established == 0 && refused + no_route > 0;
    let only_that = outcomes
        .iter()
        .filter(|(outcome, _)| !outcome.is_client_limit())
        .all(|(outcome, count)| count == 0 || matches!(outcome, Outcome::Refused | Outcome::Unreachable));
    (nowhere && only_that).then(|| match no_route {
        0 => "Every connection was refused: nobody listens there.".to_owned(),
        _ => "Every connection was refused or found no way to the target.".to_owned(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use record::load::Connections;
    use record::{Latency, LoadResult, Manifest};

    /// A result in which nothing happened.
    pub(crate) fn result() -> LoadResult {
        LoadResult {
            schema: String::new(),
            duration_s: 1.0,
            offered: 0,
            in_flight_at_end: 0,
            not_due_at_end: 0,
            outcomes: Outcomes::default(),
            retries: Default::default(),
            handshakes: None,
            connections: Connections::default(),
            target_per_s: None,
            offered_per_s: 0.0,
            sent_per_s: 0.0,
            replies_per_s: 0.0,
            goodput_per_s: 0.0,
            content_bytes_per_s: 0.0,
            latency_intended_ns: Latency::default(),
            latency_sent_ns: Latency::default(),
            connect_ns: Latency::default(),
            lateness_ns: Distribution::default(),
            generator_cpu: 0.0,
            populations: Default::default(),
            series: Vec::new(),
            thresholds: Vec::new(),
            verdict: Verdict::Valid,
            reasons: Vec::new(),
            manifest: Manifest::default(),
        }
    }

    fn judged(counts: &[(Outcome, u64)], lateness_p99: Nanos, established: u64) -> (Verdict, Vec<String>) {
        let mut outcomes = Outcomes::default();
        counts.iter().for_each(|(outcome, count)| outcomes.add(*outcome, *count));
        let lateness = Distribution { p99: lateness_p99.0, ..Distribution::default() };
        let offered = outcomes.total();
        judge(&Evidence {
            offered,
            outcomes: &outcomes,
            lateness: &lateness,
            outcomes_of_run: &outcomes,
            established,
            populations: &BTreeMap::new(),
            given_up: 0,
            above_clean_rate: None,
        })
    }

    #[test]
    fn a_server_that_fails_is_still_measured() {
        let (verdict, reasons) = judged(&[(Outcome::ConnectTimeout, 100)], Nanos::ZERO, 0);
        assert_eq!((verdict, reasons.len()), (Verdict::Valid, 0));
        let (verdict, _) = judged(&[(Outcome::Refused, 99), (Outcome::Ok, 1)], Nanos::ZERO, 1);
        assert_eq!(verdict, Verdict::Valid);
    }

    #[test]
    fn a_server_that_is_not_there_is_not() {
        let (verdict, reasons) = judged(&[(Outcome::Refused, 100)], Nanos::from_secs(1), 0);
        assert_eq!(verdict, Verdict::Unreachable);
        assert_eq!(reasons, ["Every connection was refused: nobody listens there."]);
    }

    #[test]
    fn the_generators_own_limits_are_told_one_by_one() {
        let counts = [(Outcome::Ok, 9_900), (Outcome::NoPort, 90), (Outcome::NoDescriptor, 10)];
        let (verdict, reasons) = judged(&counts, Nanos::from_millis(12), 9_900);
        assert_eq!(verdict, Verdict::GeneratorLimited);
        assert!(reasons[0].starts_with("Sessions began up to 12.0 ms late"), "{reasons:?}");
        assert!(reasons[1].starts_with("90 of 10000 requests were not sent"), "{reasons:?}");
        assert_eq!(reasons.len(), 2, "10 of 10000 are within the bound");
    }
}
