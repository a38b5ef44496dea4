//! The tables of a run: its ledger, its latencies, its populations and its connections.

use record::load::AgentPart;
use record::{Latency, LoadResult, Outcomes};

use crate::format::{longer_than, percent, rate, time};
use crate::load::ending::Ending;
use crate::page::table::Table;

fn table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: Vec<[String; COLUMNS]>) -> Table {
    Table::new(&head, rows.into_iter().map(Vec::from).collect())
}

/// Writes the outcomes of the requests offered in the measured time, with the retries apart if there are any.
pub fn ledger(result: &LoadResult) -> Table {
    let offered = result.offered.max(1) as f64;
    let share = |count: u64| percent(count as f64 / offered);
    let retries = |count: u64| if result.retries.offered > 0 { count.to_string() } else { "–".to_owned() };
    let mut rows = vec![[
        "offered".to_owned(),
        result.offered.to_string(),
        share(result.offered),
        retries(result.retries.offered),
    ]];
    for (outcome, count) in result.outcomes.iter().filter(|(_, count)| *count > 0) {
        let name = Ending::Ended(outcome).name().to_owned();
        rows.push([name, count.to_string(), share(count), retries(result.retries.outcomes.get(outcome))]);
    }
    let left = result.in_flight_at_end;
    let name = Ending::InFlight.name().to_owned();
    rows.push([name, left.to_string(), share(left), retries(result.retries.in_flight_at_end)]);
    table(["what became of it", "requests", "share", "of them retries"], rows)
}

/// Writes the complete replies to requests offered in the measured time, by status code.
pub fn statuses(result: &LoadResult) -> Table {
    let all = result.statuses.total().max(1) as f64;
    let row = |(code, count): (u16, u64)| {
        let example = result.failed_replies.get(&code).cloned().unwrap_or_default();
        [code.to_string(), count.to_string(), percent(count as f64 / all), example]
    };
    table(
        ["status code", "replies", "share", "first failed reply"],
        result.statuses.iter().map(row).collect(),
    )
}

/// The distributions of the measured time, and the latencies of the requests of each name.
pub fn latency(result: &LoadResult) -> Table {
    let kinds = [
        ("latency from the intended time", result.latency_intended_ns),
        ("latency from sending", result.latency_sent_ns),
        ("first byte from sending", result.first_byte_ns),
        ("longest gap within a reply", result.gap_ns),
        ("connect", result.connect_ns),
        ("lateness of the generator", Latency::from(result.lateness_ns)),
    ];
    let named = result.requests.iter().map(|(name, requests)| (name.as_str(), requests.latency_intended_ns));
    let row = |(name, times): (&str, Latency)| {
        let Latency { answered, unanswered, p50, p90, p95, p99, p999, max, .. } = times;
        let counts = [name.to_owned(), answered.count.to_string(), unanswered.to_string()];
        let quantiles = [p50, p90, p95, p99, p999, max].map(|value| quantile(&times, value));
        let mut cells = counts.into_iter().chain(quantiles);
        std::array::from_fn::<_, 9, _>(|_| cells.next().unwrap_or_default())
    };
    let head = ["", "answered", "unanswered", "median", "p90", "p95", "p99", "p99.9", "largest"];
    table(head, kinds.into_iter().chain(named).map(row).collect())
}

/// Writes a percentile of all requests. A percentile that falls among the unanswered requests is longer than the
/// run could see.
pub fn quantile(of: &Latency, value: Option<u64>) -> String {
    match value {
        Some(ns) => time(ns as f64),
        None if of.all() == 0 => "–".to_owned(),
        None => longer_than(of.beyond_ns),
    }
}

/// The clients beside the measured traffic.
pub fn populations(result: &LoadResult) -> Table {
    let rows = result.populations.iter().map(|(name, beside)| {
        let latency = &beside.latency_intended_ns;
        [
            name.clone(),
            format!("{} of {}", beside.open_at_start, beside.clients),
            beside.open_at_end.to_string(),
            rate(beside.replies_per_s),
            quantile(latency, latency.p50),
            quantile(latency, latency.p99),
            beside.offered.to_string(),
            endings(&beside.outcomes),
        ]
    });
    let head =
        ["", "open at the start", "at the end", "replies", "median", "p99", "offered", "what became of it"];
    table(head, rows.collect())
}

/// The agents of a fleet; a lost one with the reason.
pub fn agents(result: &LoadResult) -> Table {
    let figures = |part: &AgentPart| {
        let (latency, late) = (&part.latency_intended_ns, Latency::from(part.lateness_ns));
        [
            rate(part.offered_per_s),
            rate(part.replies_per_s),
            quantile(latency, latency.p99),
            quantile(&late, late.p99),
            time(part.start_late_ns as f64),
            part.verdict.name().to_owned(),
        ]
    };
    let rows = result.agents.iter().map(|agent| {
        let lost = || format!("lost: {}", agent.lost.as_deref().unwrap_or_default());
        let [offered, replies, p99, late, start, verdict] = agent
            .part
            .as_ref()
            .map_or_else(|| ["–", "–", "–", "–", "–", &lost()].map(str::to_owned), figures);
        [agent.name.clone(), offered, replies, p99, late, start, verdict]
    });
    let head = ["", "offered", "replies", "p99", "lateness p99", "start late by", "verdict"];
    table(head, rows.collect())
}

/// `correct reply 12, connect timeout 3`.
fn endings(outcomes: &Outcomes) -> String {
    let seen = outcomes.iter().filter(|(_, count)| *count > 0);
    let shown: Vec<String> =
        seen.map(|(outcome, count)| format!("{} {count}", Ending::Ended(outcome).name())).collect();
    if shown.is_empty() { "–".to_owned() } else { shown.join(", ") }
}

/// Writes connections, handshakes, and the generator's own needs.
pub fn connections(result: &LoadResult) -> Table {
    let mut rows = vec![
        ["connections attempted".to_owned(), result.connections.attempted.to_string()],
        ["connections established".to_owned(), result.connections.established.to_string()],
        ["sockets open at most".to_owned(), result.connections.sockets_peak.to_string()],
        ["the generator's processor time".to_owned(), format!("{} of a core", percent(result.generator_cpu))],
    ];
    if let Some(handshakes) = &result.handshakes {
        let shown = |count: u64, per_s: f64| format!("{count} ({})", rate(per_s));
        rows.push(["full TLS handshakes".to_owned(), shown(handshakes.full, handshakes.full_per_s)]);
        rows.push(["resumed TLS handshakes".to_owned(), shown(handshakes.resumed, handshakes.resumed_per_s)]);
        let groups = handshakes.groups.iter();
        rows.extend(groups.map(|(group, count)| [format!("key exchanges by {group}"), count.to_string()]));
    }
    table(["what", "value"], rows)
}
