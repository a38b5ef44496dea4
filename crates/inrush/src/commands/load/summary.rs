//! A result as text for a person.

use std::fmt::Write;

use base::Nanos;
use record::load::{Agent, Handshakes, Judged};
use record::{Latency, LoadResult, Outcomes, Population, Verdict};

/// A percentile of all requests: `8.65 ms`, `> 4 s` if it falls among the unanswered, `-` if there are no
/// requests.
pub fn quantile(of: &Latency, value: Option<u64>) -> String {
    match value {
        Some(ns) => Nanos(ns).approximate(),
        None if of.all() == 0 => "-".to_owned(),
        None => format!("> {}", Nanos(of.beyond_ns).approximate()),
    }
}

/// A rate per second, whole from 100 up.
pub fn rate(per_s: f64) -> String {
    let digits = usize::from(per_s < 100.0);
    format!("{per_s:.digits$}/s")
}

/// The beginning of a further line beside a name at the left.
const INDENT: &str = "\n           ";

/// The whole summary.
pub fn text(result: &LoadResult) -> String {
    let mut out = String::new();
    summary(&mut out, result).expect("writing to a string");
    out
}

fn summary(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    if result.verdict == Verdict::Unreachable {
        // There is nothing to tell of a server that is not there.
        return writeln!(out, "{}", result.conclusion);
    }
    beginning(out, result)?;
    rates(out, result)?;
    latencies(out, result)?;
    named(out, result)?;
    let steps = report::load::steps(result);
    if !steps.is_empty() {
        write!(out, "\n{steps}")?;
    }
    outcomes(out, result)?;
    for (name, beside) in &result.populations {
        population(out, name, beside)?;
    }
    connections(out, result)?;
    agents(out, &result.agents)?;
    handshakes(out, result.handshakes.as_ref())?;
    verdict(out, result)
}

/// The conclusion, the thresholds, and what was measured.
fn beginning(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    writeln!(out, "{}", result.conclusion)?;
    for Judged { threshold, measured, crossed } in &result.thresholds {
        let judged = if *crossed { "FAIL" } else { "pass" };
        writeln!(out, "{judged}  fails if {threshold}: measured {measured}")?;
    }
    writeln!(
        out,
        "\nmeasured   {:.1} s, seed {}",
        result.duration_s,
        result.manifest.seed.map_or(0, |seed| seed.0)
    )
}

fn rates(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    let asked = result.target_per_s.map_or(String::new(), |target| format!("  of {} asked", rate(target)));
    writeln!(out, "offered    {:>10}{asked}", rate(result.offered_per_s))?;
    if result.retries.offered > 0 {
        let amplification = result.amplification();
        let retries = rate(result.retries_per_s());
        writeln!(out, "  retries  {retries:>10}  of these: {amplification:.2} times the demand is offered")?;
    }
    writeln!(out, "sent       {:>10}", rate(result.sent_per_s))?;
    let of_warmup = match result.replies_of_warmup {
        0 => String::new(),
        early => format!("  {early} of them to requests of the warm-up"),
    };
    writeln!(out, "replies    {:>10}{of_warmup}", rate(result.replies_per_s))?;
    writeln!(out, "goodput    {:>10}", rate(result.goodput_per_s))?;
    match result.redirects {
        0 => Ok(()),
        followed => writeln!(out, "redirects  {followed:>10}  followed"),
    }
}

fn latencies(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    writeln!(
        out,
        "\n{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "latency", "p50", "p90", "p95", "p99", "p99.9", "max"
    )?;
    for (name, latency) in [
        ("intended", result.latency_intended_ns),
        ("first byte", result.first_byte_ns),
        ("sent", result.latency_sent_ns),
        ("gap", result.gap_ns),
        ("connect", result.connect_ns),
        ("lateness", Latency::from(result.lateness_ns)),
    ] {
        // Whole replies in one piece have no gaps to show.
        if name != "gap" || latency.answered.max > 0 {
            quantiles(out, name, &latency)?;
        }
    }
    let latency = &result.latency_intended_ns;
    if latency.unanswered > 0 {
        writeln!(
            out,
            "  of all {} requests: {} had no correct reply and count as longer than {}",
            latency.all(),
            latency.unanswered,
            Nanos(latency.beyond_ns).approximate()
        )?;
    }
    Ok(())
}

/// The requests of a file by name, one line each.
fn named(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    if result.requests.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<20} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "request", "count", "failed", "p50", "p99", "max"
    )?;
    for (name, requests) in &result.requests {
        let latency = &requests.latency_intended_ns;
        write!(out, "{name:<20} {:>9} {:>9}", requests.offered(), requests.failed())?;
        let shown = [latency.p50, latency.p99, latency.max].map(|value| quantile(latency, value));
        shown.iter().try_for_each(|shown| write!(out, " {shown:>9}"))?;
        writeln!(out)?;
    }
    Ok(())
}

/// The ledger by outcome and status, and the part of the retries.
fn outcomes(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    writeln!(out, "\n{} requests offered, by outcome", result.offered)?;
    ledger(out, result.offered, &result.outcomes, result.in_flight_at_end)?;
    statuses(out, result)?;
    if result.retries.offered > 0 {
        writeln!(out, "\n{} of them retries", result.retries.offered)?;
        ledger(out, result.retries.offered, &result.retries.outcomes, result.retries.in_flight_at_end)?;
    }
    Ok(())
}

fn connections(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    let connections = &result.connections;
    writeln!(
        out,
        "\nconnections {} attempted, {} established, {} sockets at most; generator {:.0} % of a core",
        connections.attempted,
        connections.established,
        connections.sockets_peak,
        result.generator_cpu * 100.0
    )
}

fn handshakes(out: &mut String, handshakes: Option<&Handshakes>) -> std::fmt::Result {
    let Some(handshakes) = handshakes else { return Ok(()) };
    write!(
        out,
        "handshakes  {} full ({}), {} resumed ({})",
        handshakes.full,
        rate(handshakes.full_per_s),
        handshakes.resumed,
        rate(handshakes.resumed_per_s)
    )?;
    let groups: Vec<String> =
        handshakes.groups.iter().map(|(group, count)| format!("{group} {count}")).collect();
    if !groups.is_empty() {
        write!(out, "; key exchange: {}", groups.join(", "))?;
    }
    writeln!(out)
}

/// The agents of a fleet, a line each, and how well they started together.
fn agents(out: &mut String, agents: &[Agent]) -> std::fmt::Result {
    if agents.is_empty() {
        return Ok(());
    }
    let head = ["offered", "replies", "p99", "late p99", "start late", "clock +-"];
    write!(out, "\n{:<16}", "agent")?;
    head.iter().try_for_each(|name| write!(out, " {name:>10}"))?;
    writeln!(out, "  verdict")?;
    for agent in agents {
        let Some(part) = &agent.part else {
            writeln!(out, "{:<16} lost: {}", agent.name, agent.lost.as_deref().unwrap_or_default())?;
            continue;
        };
        let (latency, late) = (&part.latency_intended_ns, Latency::from(part.lateness_ns));
        let figures = [
            rate(part.offered_per_s),
            rate(part.replies_per_s),
            quantile(latency, latency.p99),
            quantile(&late, late.p99),
            Nanos(part.start_late_ns).approximate(),
            Nanos(agent.clock_round_trip_ns / 2).approximate(),
        ];
        write!(out, "{:<16}", agent.name)?;
        figures.iter().try_for_each(|figure| write!(out, " {figure:>10}"))?;
        writeln!(out, "  {}", part.verdict.name())?;
    }
    let late = agents.iter().filter_map(|agent| Some(agent.part.as_ref()?.start_late_ns));
    writeln!(out, "start skew {} at most", Nanos(late.max().unwrap_or(0)).approximate())
}

/// The verdict with its reasons; a valid result may have remarks too.
fn verdict(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    let verdict = match result.verdict {
        Verdict::GeneratorLimited => "generator-limited, the figures bound the server from below, no more",
        verdict => verdict.name(),
    };
    let gap = match (result.reasons.is_empty(), result.verdict) {
        (true, _) => "",
        (false, Verdict::Valid) => INDENT,
        (false, _) => ": ",
    };
    writeln!(out, "verdict    {verdict}{gap}{}", result.reasons.join(INDENT))
}

/// The replies by status code, one line each, with the beginning of the first failed one.
fn statuses(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    let all = result.statuses.total();
    if all > 0 {
        writeln!(out, "\n{all} complete replies, by status code")?;
    }
    result.statuses.iter().try_for_each(|(code, count)| {
        write!(out, "  {code:<20} {count:>9}  {:>6.2} %", 100.0 * count as f64 / all as f64)?;
        match result.failed_replies.get(&code).filter(|example| !example.is_empty()) {
            Some(example) => writeln!(out, "  {example}"),
            None => writeln!(out),
        }
    })
}

/// The offered requests by outcome, one line each.
fn ledger(out: &mut String, offered: u64, outcomes: &Outcomes, in_flight: u64) -> std::fmt::Result {
    let ended = outcomes.iter().map(|(outcome, count)| (outcome.name(), count));
    for (name, count) in ended.chain([("in flight at the end", in_flight)]).filter(|(_, count)| *count > 0) {
        let share = 100.0 * count as f64 / offered.max(1) as f64;
        writeln!(out, "  {name:<20} {count:>9}  {share:>6.2} %")?;
    }
    Ok(())
}

fn population(out: &mut String, name: &str, population: &Population) -> std::fmt::Result {
    write!(
        out,
        "\nbeside it {name}: {} of {} connections open when measuring began, {} at the end",
        population.open_at_start, population.clients, population.open_at_end
    )?;
    let latency = &population.latency_intended_ns;
    if latency.all() > 0 {
        write!(
            out,
            "; {} replies, latency p50 {}, p99 {}",
            rate(population.replies_per_s),
            quantile(latency, latency.p50),
            quantile(latency, latency.p99)
        )?;
    }
    writeln!(out, "\n{} requests offered since the run began", population.offered)?;
    ledger(out, population.offered, &population.outcomes, population.in_flight_at_end)
}

fn quantiles(out: &mut String, name: &str, latency: &Latency) -> std::fmt::Result {
    let Latency { p50, p90, p95, p99, p999, max, .. } = *latency;
    write!(out, "{name:<10}")?;
    let shown = [p50, p90, p95, p99, p999, max].map(|value| quantile(latency, value));
    shown.iter().try_for_each(|shown| write!(out, " {shown:>9}"))?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_whole_from_100_up() {
        assert_eq!(rate(9.96), "10.0/s");
        assert_eq!(rate(12_345.6), "12346/s");
    }
}
