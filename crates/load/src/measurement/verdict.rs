//! Judges whether a run says anything about the server.
//!
//! A generator that could not offer the requested load measures itself. Two signs reveal that: sessions that
//! began late, and requests that the client could not send for lack of a port, a descriptor or time. A third
//! sign is known before the run: a rate above the machine's measured clean rate. The offered count itself
//! cannot miss the schedule, because every scheduled session is in the ledger. A session that could not begin
//! is there as a limit of the client.
//!
//! A verdict needs several events: one hiccup among twenty sessions is their 99th percentile. Fewer than
//! [`EVENTS_LEAST`] events degrade a run without condemning it. Every reason names the cause and the next
//! step.

use std::collections::BTreeMap;

use base::Nanos;
use record::{Distribution, LoadResult, Outcome, Outcomes, Population, Statuses, Verdict};

/// The highest 99th percentile of lateness in a valid run: a scheduler tick. Lateness is part of the latency
/// from the intended time, and a later client smooths or bunches its load.
pub const LATENESS_P99_MAX: Nanos = Nanos::from_millis(10);

/// The share of requests that the client itself may fail to send.
pub const CLIENT_LIMIT_SHARE_MAX: f64 = 0.001;

/// The fewest late sessions or unsent requests for a generator-limited run. Fewer may be one hiccup.
pub const EVENTS_LEAST: u64 = 10;

/// The figures that a verdict is based on.
pub(crate) struct Evidence<'a> {
    /// The planned measured time.
    pub planned: Nanos,
    /// The measured time until the run ended.
    pub measured: Nanos,
    /// Requests that fell due in the measured time.
    pub offered: u64,
    /// The outcomes of those requests.
    pub outcomes: &'a Outcomes,
    /// The lateness of sessions.
    pub lateness: &'a Distribution,
    /// Sessions that began later than [`LATENESS_P99_MAX`].
    pub late: u64,
    /// Outcomes since the run's start, warm-up included.
    pub outcomes_of_run: &'a Outcomes,
    /// Connections established since the run's start.
    pub established: u64,
    /// The populations beside the measured traffic, by name.
    pub populations: &'a BTreeMap<String, Population>,
    /// A sentence for each population whose connections were missing.
    pub missing: Vec<String>,
    /// Retries that found the queue full.
    pub given_up: u64,
    /// Packets that found no room on the way out of this machine, in the measured time.
    pub unsent_packets: u64,
    /// Changes of the rate by hand.
    pub rate_changes: u32,
    /// A sentence for a rate above the machine's clean rate.
    pub above_clean_rate: Option<String>,
}

/// The reasons for a verdict, one sentence each.
#[derive(Default)]
struct Reasons {
    limited: Vec<String>,
    degraded: Vec<String>,
}

impl Reasons {
    /// Adds a reason for something that happened `events` times, if it ever happened. `is_too_often` decides
    /// its weight.
    fn add(&mut self, events: u64, is_too_often: bool, sentence: impl FnOnce() -> String) {
        match events {
            0 => {}
            EVENTS_LEAST.. if is_too_often => self.limited.push(sentence()),
            _ => self.degraded.push(sentence()),
        }
    }

    fn add_client_limits(&mut self, offered: u64, outcomes: &Outcomes, whose: &str) {
        for outcome in Outcome::ALL.into_iter().filter(|outcome| outcome.is_client_limit()) {
            let count = outcomes.get(outcome);
            self.add(count, is_above_share(count, offered), || {
                format!("{count} of {offered} requests{whose} were not sent: {}.", shortage(outcome))
            });
        }
    }
}

/// The verdict, and its reasons.
pub(crate) fn judge(evidence: &Evidence<'_>) -> (Verdict, Vec<String>) {
    if let Some(reason) = unreachable(evidence.outcomes_of_run, evidence.established) {
        return (Verdict::Unreachable, vec![reason]);
    }
    if let Some(reason) = not_measured(evidence) {
        return (Verdict::NotMeasured, vec![reason]);
    }
    let mut reasons = Reasons::default();
    reasons.limited.extend(evidence.above_clean_rate.clone());
    let is_late = evidence.lateness.p99 > LATENESS_P99_MAX.0;
    // A few late sessions among many are no reason.
    reasons.add(if is_late { evidence.late } else { 0 }, is_late, || lateness(evidence));
    reasons.add_client_limits(evidence.offered, evidence.outcomes, "");
    reasons.add(evidence.given_up, is_above_share(evidence.given_up, evidence.offered), || {
        format!(
            "{} requests were not retried because the queue of retries was full; use more threads, or fewer retries.",
            evidence.given_up
        )
    });
    reasons.add(evidence.unsent_packets, is_above_share(evidence.unsent_packets, evidence.offered), || {
        format!(
            "{} packets of the client were lost before they left this machine, so timeouts may not be the server's; lower \
             --rate, or use more machines.",
            evidence.unsent_packets
        )
    });
    for (name, population) in evidence.populations {
        reasons.add_client_limits(
            population.offered,
            &population.outcomes,
            &format!(" of population {name}"),
        );
    }
    reasons.degraded.extend(evidence.missing.clone());
    reasons.degraded.extend((evidence.rate_changes > 0).then(|| {
        format!(
            "The rate was changed by hand, {} times; for the figures of one rate, run it with --rate.",
            evidence.rate_changes
        )
    }));
    reasons.degraded.extend((evidence.measured < evidence.planned).then(|| {
        format!(
            "The run was ended after {} of {}; let it run to its end.",
            evidence.measured.approximate(),
            evidence.planned.approximate()
        )
    }));
    let verdict = match (reasons.limited.is_empty(), reasons.degraded.is_empty()) {
        (false, _) => Verdict::GeneratorLimited,
        (true, false) => Verdict::Degraded,
        (true, true) => Verdict::Valid,
    };
    (verdict, [reasons.limited, reasons.degraded].concat())
}

fn is_above_share(count: u64, offered: u64) -> bool {
    count as f64 > CLIENT_LIMIT_SHARE_MAX * offered as f64
}

/// The reason why a run has no figures.
fn not_measured(evidence: &Evidence<'_>) -> Option<String> {
    if evidence.measured == Nanos::ZERO {
        return Some("The run was ended in its warm-up; let it run on, or shorten --warmup.".to_owned());
    }
    (evidence.offered == 0)
        .then(|| "No request was due in the measured time; raise --rate or --duration.".to_owned())
}

fn lateness(evidence: &Evidence<'_>) -> String {
    let Evidence { late, lateness, .. } = evidence;
    let sessions = format!(
        "{late} of {} sessions began more than {} late, {} at most",
        lateness.count,
        LATENESS_P99_MAX.approximate(),
        Nanos(lateness.max).approximate()
    );
    match *late {
        EVENTS_LEAST.. => format!(
            "{sessions}: the client's processor was busy or taken away; use more threads, or another machine."
        ),
        _ => format!(
            "{sessions}: too few sessions to judge the generator by; run longer, or on a machine with less to do."
        ),
    }
}

/// The cause of a limit of the client, and the next step.
fn shortage(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NoPort => {
            "the client had no free port; use more source addresses (--source-ip, or --source-net)"
        }
        Outcome::NoTime => {
            "the client stood still or fell behind its schedule; use more threads, or a machine with less to do"
        }
        _ => "the client had no free descriptor; raise --sockets or the descriptor limit",
    }
}

/// A remark for replies that are mostly redirects or errors, unless the user expects them.
pub(crate) fn of_statuses(statuses: &Statuses, outcomes: &Outcomes, expects_default: bool) -> Option<String> {
    let all = statuses.total();
    let most = |count: u64| 2 * count > all;
    let percent = |count: u64, of: u64| 100.0 * count as f64 / of as f64;
    // 304 answers a conditional request and redirects nobody.
    let redirects = || statuses.iter().filter(|(code, _)| code / 100 == 3 && *code != 304);
    let redirected = redirects().map(|(_, count)| count).sum();
    if most(redirected) && expects_default {
        let (code, count) = redirects().max_by_key(|(_, count)| *count)?;
        let share = percent(count, redirected);
        return Some(format!(
            "Most replies are redirects ({share:.0} % of them {code}), which this run does not follow; load their target."
        ));
    }
    let (code, count) =
        statuses.iter().filter(|(code, _)| code / 100 != 2).max_by_key(|(_, count)| *count)?;
    let share = percent(count, all);
    let next = match code {
        401 | 403 => "the server wants other credentials, such as --header 'Authorization: Bearer TOKEN'",
        503 => "the server refuses this load; lower --rate",
        _ => "check the URL, or name the correct statuses with --expect-status",
    };
    (most(all - statuses.of_class(2)) && !most(outcomes.get(Outcome::Ok)))
        .then(|| format!("Most replies are not 2xx ({share:.0} % of them {code}); {next}."))
}

/// The cause of the failure of every request, with the next step; `statuses` is the remark on status codes.
pub(crate) fn of_total_failure(result: &LoadResult, is_tls: bool, statuses: Option<&str>) -> String {
    let most = result.outcomes.iter().max_by_key(|(_, count)| *count);
    let outcome = most.filter(|(_, count)| *count > 0).map(|(outcome, _)| outcome);
    match (outcome, statuses) {
        (Some(Outcome::StatusError | Outcome::Shed), Some(statuses)) => statuses.to_owned(),
        (Some(Outcome::Reset | Outcome::Malformed), _) if !is_tls => {
            "The server closed connections without a reply: this port may speak TLS; try https://.".to_owned()
        }
        (Some(Outcome::WrongBody), _) => "No reply has the expected content.".to_owned(),
        (Some(outcome), _) => format!("Most requests ended as {}.", outcome.name()),
        (None, _) => "No request has ended: the server does not answer.".to_owned(),
    }
}

/// The reason why no server was found: every attempt was refused or had no route, no server spoke HTTP/2, or every TLS
/// handshake failed. A listener that never accepts is different: its connects complete or time out.
pub(crate) fn unreachable(outcomes: &Outcomes, established: u64) -> Option<String> {
    let ended = outcomes.iter().filter(|(outcome, _)| !outcome.is_client_limit()).map(|(_, count)| count);
    let ended: u64 = ended.sum();
    let all = |outcome| ended > 0 && outcomes.get(outcome) == ended;
    if all(Outcome::NotHttp2) {
        return Some("The server does not speak HTTP/2 on that port; leave --http2 out.".to_owned());
    }
    if all(Outcome::TlsFailed) {
        return Some("Every TLS handshake failed.".to_owned());
    }
    let (refused, no_route) = (outcomes.get(Outcome::Refused), outcomes.get(Outcome::Unreachable));
    let nowhere = established == 0 && refused + no_route > 0;
    let only_that = outcomes
        .iter()
        .filter(|(outcome, _)| !outcome.is_client_limit())
        .all(|(outcome, count)| count == 0 || matches!(outcome, Outcome::Refused | Outcome::Unreachable));
    (nowhere && only_that).then(|| match no_route {
        0 => "Every connection was refused: nothing listens on that port.".to_owned(),
        _ => "Every connection was refused or had no route to the target.".to_owned(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use record::load::Connections;
    use record::{Latency, Manifest};

    /// A result without any events.
    pub(crate) fn result() -> LoadResult {
        LoadResult {
            schema: String::new(),
            duration_s: 1.0,
            offered: 0,
            conclusion: String::new(),
            in_flight_at_end: 0,
            outcomes: Outcomes::default(),
            statuses: Statuses::default(),
            failed_replies: Default::default(),
            requests: Default::default(),
            retries: Default::default(),
            handshakes: None,
            connections: Connections::default(),
            target_per_s: None,
            offered_per_s: 0.0,
            sent_per_s: 0.0,
            replies_per_s: 0.0,
            replies_of_warmup: 0,
            redirects: 0,
            goodput_per_s: 0.0,
            content_bytes_per_s: 0.0,
            latency_intended_ns: Latency::default(),
            latency_sent_ns: Latency::default(),
            first_byte_ns: Latency::default(),
            gap_ns: Latency::default(),
            connect_ns: Latency::default(),
            lateness_ns: Distribution::default(),
            generator_cpu: 0.0,
            populations: Default::default(),
            series: Vec::new(),
            thresholds: Vec::new(),
            verdict: Verdict::Valid,
            reasons: Vec::new(),
            agents: Vec::new(),
            manifest: Manifest::default(),
        }
    }

    /// A run of ten seconds with one request per session, some of which began late.
    fn evidence<'a>(
        outcomes: &'a Outcomes,
        lateness: &'a Distribution,
        populations: &'a BTreeMap<String, Population>,
    ) -> Evidence<'a> {
        let offered = outcomes.total();
        Evidence {
            planned: Nanos::from_secs(10),
            measured: Nanos::from_secs(10),
            offered,
            outcomes,
            lateness,
            late: 0,
            outcomes_of_run: outcomes,
            established: outcomes.get(Outcome::Ok),
            populations,
            missing: Vec::new(),
            given_up: 0,
            unsent_packets: 0,
            rate_changes: 0,
            above_clean_rate: None,
        }
    }

    #[track_caller]
    fn check(
        counts: &[(Outcome, u64)],
        change: impl FnOnce(&mut Evidence<'_>),
        verdict: Verdict,
        reasons: &[&str],
    ) {
        let mut outcomes = Outcomes::default();
        counts.iter().for_each(|(outcome, count)| outcomes.add(*outcome, *count));
        let late = Nanos::from_millis(12).0;
        let lateness =
            Distribution { count: outcomes.total(), p99: late, max: late, ..Distribution::default() };
        let none = BTreeMap::new();
        let mut evidence = evidence(&outcomes, &lateness, &none);
        change(&mut evidence);
        let (judged, because) = judge(&evidence);
        assert_eq!((judged, because.len()), (verdict, reasons.len()), "{because:?}");
        for (because, part) in because.iter().zip(reasons) {
            assert!(because.contains(part), "no {part:?} in {because:?}");
        }
    }

    #[test]
    fn a_server_that_fails_is_still_measured() {
        check(&[(Outcome::ConnectTimeout, 100)], |_| {}, Verdict::Valid, &[]);
        check(&[(Outcome::Refused, 99), (Outcome::Ok, 1)], |_| {}, Verdict::Valid, &[]);
    }

    #[test]
    fn a_server_that_is_not_there_is_not() {
        let told = ["Every connection was refused: nothing listens on that port."];
        check(&[(Outcome::Refused, 100)], |evidence| evidence.late = 100, Verdict::Unreachable, &told);
    }

    #[test]
    fn the_generators_own_limits_are_told_one_by_one() {
        let counts = [(Outcome::Ok, 9_900), (Outcome::NoPort, 90), (Outcome::NoDescriptor, 10)];
        let told = [
            "200 of 10000 sessions began more than 10 ms late, 12 ms at most: the client's processor was busy",
            "90 of 10000 requests were not sent: the client had no free port; use more source addresses",
            "10 of 10000 requests were not sent: the client had no free descriptor; raise --sockets or the descriptor limit",
        ];
        check(&counts, |evidence| evidence.late = 200, Verdict::GeneratorLimited, &told);
    }

    #[test]
    fn a_few_events_degrade_a_run_and_do_not_condemn_it() {
        let told = ["1 of 20 sessions began more than 10 ms late, 12 ms at most: too few sessions to judge"];
        check(&[(Outcome::Ok, 20)], |evidence| evidence.late = 1, Verdict::Degraded, &told);
        let counts = [(Outcome::Ok, 19), (Outcome::NoTime, 1)];
        let told = ["1 of 20 requests were not sent: the client stood still or fell behind its schedule"];
        check(&counts, |_| {}, Verdict::Degraded, &told);
        let counts = [(Outcome::Ok, 99_990), (Outcome::NoPort, 10)];
        check(&counts, |_| {}, Verdict::Degraded, &["10 of 100000 requests were not sent"]);
    }

    #[test]
    fn packets_lost_by_client_spare_the_server() {
        let silent = [(Outcome::ConnectTimeout, 1_000)];
        let lost = |count| move |evidence: &mut Evidence<'_>| evidence.unsent_packets = count;
        let told = |count| format!("{count} packets of the client were lost before they left this machine");
        check(&silent, lost(900), Verdict::GeneratorLimited, &[&told(900)]);
        check(&silent, lost(1), Verdict::Degraded, &[&told(1)]);
    }

    #[test]
    fn a_run_that_was_ended_is_not_what_was_planned() {
        let ok = [(Outcome::Ok, 20)];
        let ended = |after| move |evidence: &mut Evidence<'_>| evidence.measured = after;
        check(&ok, ended(Nanos::from_secs(3)), Verdict::Degraded, &["ended after 3 s of 10 s; let it run"]);
        check(&ok, ended(Nanos::ZERO), Verdict::NotMeasured, &["ended in its warm-up"]);
        check(&[], |_| {}, Verdict::NotMeasured, &["No request was due in the measured time"]);
        let changed = |evidence: &mut Evidence<'_>| evidence.rate_changes = 2;
        check(&ok, changed, Verdict::Degraded, &["changed by hand, 2 times"]);
    }

    #[test]
    fn replies_that_nobody_wants_are_remarked_upon() {
        let remark = |codes: &[(u16, u64)], ok: u64, expects_default: bool| {
            let (mut statuses, mut outcomes) = (Statuses::default(), Outcomes::default());
            codes.iter().for_each(|(code, count)| statuses.add(*code, *count));
            outcomes.add(Outcome::Ok, ok);
            of_statuses(&statuses, &outcomes, expects_default).unwrap_or_default()
        };
        assert_eq!(remark(&[(200, 60), (404, 40)], 60, true), "");
        assert!(
            remark(&[(200, 1), (404, 99)], 1, true)
                .starts_with("Most replies are not 2xx (99 % of them 404)")
        );
        assert!(
            remark(&[(301, 100)], 100, true).starts_with("Most replies are redirects (100 % of them 301)")
        );
        let mixed = remark(&[(301, 15), (302, 30), (304, 5), (307, 15), (404, 35)], 65, true);
        assert!(mixed.starts_with("Most replies are redirects (50 % of them 302)"), "{mixed}");
        assert_eq!(remark(&[(301, 100)], 100, false), "", "that was asked for");
        assert_eq!(remark(&[(404, 100)], 100, false), "", "that was asked for");
        assert_eq!(remark(&[(304, 100)], 100, true), "", "that answers a condition");
        assert_eq!(remark(&[], 0, true), "");
    }
}
