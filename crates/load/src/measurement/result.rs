//! Builds the record of a run from the reports of its engines.

use std::collections::BTreeMap;

use base::Nanos;
use record::load::{Handshakes, NamedRequests, Outcomes, Retries, SCHEMA, Verdict};
use record::{Distribution, Latency, LoadResult, Manifest};

use crate::measurement::assembly::Assembly;
use crate::measurement::conclusion;
use crate::measurement::recorder::Totals;
use crate::measurement::thread_metrics::ThreadReport;
use crate::measurement::thread_metrics::named::Named;
use crate::measurement::verdict::{self, Evidence, LATENESS_P99_MAX};
use crate::plan::Plan;
use crate::plan::choices::expected::Statuses;
use crate::plan::choices::population::Population;
use crate::plan::terms::share::Share;

/// The reports of all threads: the lanes together, each population, and the first TLS failure. Reports of
/// several processes add up.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Reports {
    pub(crate) lanes: ThreadReport,
    pub(crate) populations: Vec<ThreadReport>,
    pub(crate) tls_failure: Option<String>,
}

impl Reports {
    /// Empty reports for a plan.
    pub fn of(plan: &Plan) -> Reports {
        let populations = plan.config.populations.iter().map(|_| ThreadReport::default()).collect();
        Reports { populations, ..Reports::default() }
    }

    /// Adds the reports of another process.
    pub fn merge(&mut self, other: &Reports) {
        self.lanes.merge(&other.lanes);
        for (sum, report) in self.populations.iter_mut().zip(&other.populations) {
            sum.merge(report);
        }
        self.tls_failure = self.tls_failure.take().or_else(|| other.tls_failure.clone());
    }

    /// Packets that any thread lost for lack of room.
    fn unsent_packets(&self) -> u64 {
        [&self.lanes].into_iter().chain(&self.populations).map(|report| report.unsent_packets).sum()
    }
}

/// Assembles the result of a run and judges it.
pub(crate) fn result(
    plan: &Plan,
    share: Share,
    reports: Reports,
    assembly: Assembly,
    manifest: Manifest,
) -> LoadResult {
    let times = Times::of(plan, &reports.lanes);
    let unsent_packets = reports.unsent_packets();
    let ThreadReport { ledger, totals, connections, failures, named, given_up, ended, .. } = reports.lanes;
    let cpu = reports.populations.iter().fold(reports.lanes.cpu, |sum, report| sum + report.cpu);
    let duration_s = ended.saturating_sub(plan.config.warmup).as_secs_f64();
    let rate = |count: u64| if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 };
    let (all, again) = (ledger.all(), ledger.retries());
    let aside = Aside {
        ended,
        late: totals.lateness.count_between(LATENESS_P99_MAX.0 + 1, u64::MAX),
        of_run: assembly.totals(),
        unsent_packets,
        tls_failure: reports.tls_failure,
    };
    let mut result = LoadResult {
        schema: SCHEMA.to_owned(),
        conclusion: String::new(),
        duration_s,
        offered: all.offered(),
        in_flight_at_end: all.in_flight_at_end(),
        outcomes: all.outcomes(),
        statuses: all.statuses().clone(),
        failed_replies: failures.into_examples(),
        requests: requests(plan, &named, ended),
        retries: Retries {
            offered: again.offered(),
            in_flight_at_end: again.in_flight_at_end(),
            outcomes: again.outcomes(),
            given_up,
        },
        connections,
        handshakes: plan.tls.as_ref().map(|_| handshakes(&totals, rate)),
        target_per_s: target_per_s(plan, share),
        offered_per_s: rate(all.offered()),
        sent_per_s: rate(totals.sent),
        replies_per_s: rate(totals.replies),
        replies_of_warmup: totals.replies_of_warmup,
        redirects: totals.redirects,
        goodput_per_s: rate(totals.good),
        content_bytes_per_s: rate(totals.content_bytes),
        latency_intended_ns: times.intended,
        latency_sent_ns: times.sent,
        first_byte_ns: times.first_byte,
        gap_ns: times.gap,
        connect_ns: times.connect,
        lateness_ns: Distribution::from(&totals.lateness),
        generator_cpu: if duration_s > 0.0 { cpu.as_secs_f64() / duration_s } else { 0.0 },
        populations: populations(plan, share, &reports.populations, ended, duration_s),
        series: assembly.into_points(),
        thresholds: Vec::new(),
        verdict: Verdict::Valid,
        reasons: Vec::new(),
        agents: Vec::new(),
        manifest,
    };
    judge(plan, &mut result, aside);
    result
}

/// The TLS handshakes; `rate` turns a count into events a second.
fn handshakes(totals: &Totals, rate: impl Fn(u64) -> f64) -> Handshakes {
    Handshakes {
        full: totals.handshakes_full,
        resumed: totals.handshakes_resumed,
        full_per_s: rate(totals.handshakes_full),
        resumed_per_s: rate(totals.handshakes_resumed),
        groups: totals.handshakes_by_group.clone(),
    }
}

/// What the verdict needs beside the figures.
struct Aside {
    ended: Nanos,
    /// Requests that were sent too late.
    late: u64,
    /// The outcomes and the established connections of the whole run, warm-up included.
    of_run: (Outcomes, u64),
    unsent_packets: u64,
    tls_failure: Option<String>,
}

/// Adds the verdict with its reasons, and the conclusion.
fn judge(plan: &Plan, result: &mut LoadResult, aside: Aside) {
    let (outcomes_of_run, established) = aside.of_run;
    let (verdict, mut reasons) = verdict::judge(&Evidence {
        planned: plan.config.duration,
        measured: aside.ended.saturating_sub(plan.config.warmup),
        offered: result.offered,
        outcomes: &result.outcomes,
        lateness: &result.lateness_ns,
        late: aside.late,
        outcomes_of_run: &outcomes_of_run,
        established,
        populations: &result.populations,
        missing: missing(plan, &result.populations),
        given_up: result.retries.given_up,
        unsent_packets: aside.unsent_packets,
        rate_changes: plan.tempo.changes(),
        above_clean_rate: plan.above_clean_rate(),
    });
    let expects_default = plan.config.expected.status == Statuses::default();
    let remark = verdict::of_statuses(&result.statuses, &result.outcomes, expects_default);
    let all_failed = verdict.is_valid() && result.offered > 0 && result.failed() == result.offered;
    if all_failed {
        // The cause is the first reason, and the remark on status codes may be the cause.
        reasons.insert(0, verdict::of_total_failure(result, plan.tls.is_some(), remark.as_deref()));
    }
    reasons.extend(remark.clone().filter(|remark| reasons.first() != Some(remark)));
    reasons.extend(aside.tls_failure.map(|why| format!("The first TLS failure: {why}.")));
    (result.verdict, result.reasons) = (verdict, reasons);
    // If most requests failed, the conclusion already names the status.
    let remark = remark.filter(|_| 2 * result.failed() <= result.offered);
    result.conclusion = conclusion::of(result, &plan.config.expected, remark.as_deref());
}

/// The rate that was asked for, in requests per second; `None` if it changed, or if there is none.
fn target_per_s(plan: &Plan, share: Share) -> Option<f64> {
    let of_all = plan.requests_per_s().filter(|_| plan.tempo.changes() == 0)?;
    Some(of_all * share.fraction(plan.lanes()))
}

/// The sentences about populations that are smaller than asked.
fn missing(plan: &Plan, found: &BTreeMap<String, record::Population>) -> Vec<String> {
    let of = |population: &Population| population.missing(found.get(&population.to_string())?);
    plan.config.populations.iter().filter_map(of).collect()
}

/// The latencies of one kind of clients.
struct Times {
    intended: Latency,
    sent: Latency,
    first_byte: Latency,
    gap: Latency,
    connect: Latency,
}

impl Times {
    fn of(plan: &Plan, report: &ThreadReport) -> Times {
        let ThreadReport { totals, connections, ended, .. } = report;
        let beyond = plan.longest_latency(ended.saturating_sub(plan.config.warmup));
        let not_established = connections.attempted.saturating_sub(totals.connect.len());
        Times {
            intended: Latency::new(&totals.latency_intended, totals.unanswered, beyond.0),
            sent: Latency::new(&totals.latency_sent, totals.unanswered, beyond.0),
            first_byte: Latency::new(&totals.first_byte, totals.unanswered, beyond.0),
            gap: Latency::new(&totals.gap, totals.unanswered, beyond.0),
            connect: Latency::new(&totals.connect, not_established, plan.config.connect_timeout.0),
        }
    }
}

/// The records of the requests of a file, by name.
fn requests(plan: &Plan, named: &[Named], ended: Nanos) -> BTreeMap<String, NamedRequests> {
    let beyond = plan.longest_latency(ended.saturating_sub(plan.config.warmup));
    let records = named.iter().map(|named| named.record(beyond));
    plan.workload.names().iter().cloned().zip(records).collect()
}

/// The records of the populations, by name.
fn populations(
    plan: &Plan,
    share: Share,
    reports: &[ThreadReport],
    ended: Nanos,
    duration_s: f64,
) -> BTreeMap<String, record::Population> {
    let record = |(population, report): (&Population, &ThreadReport)| {
        let replies = report.totals.replies as f64;
        let timed = population.sessions().map_or(ended, |_| ended.saturating_sub(plan.config.warmup));
        let record = record::Population {
            clients: u64::from(share.of(population.clients())),
            offered: report.ledger.all().offered(),
            in_flight_at_end: report.ledger.all().in_flight_at_end(),
            outcomes: report.ledger.all().outcomes(),
            connections: report.connections,
            open_at_start: report.open[0],
            open_at_end: report.open[1],
            replies_per_s: if duration_s > 0.0 { replies / duration_s } else { 0.0 },
            latency_intended_ns: Latency::new(
                &report.totals.latency_intended,
                report.totals.unanswered,
                plan.longest_latency(timed).0,
            ),
        };
        (population.to_string(), record)
    };
    plan.config.populations.iter().zip(reports).map(record).collect()
}
