//! A result as a person reads it.

use std::fmt::Write;

use record::{Distribution, LoadResult, Outcomes, Population, Verdict};

/// A time in three significant digits and a unit that fits.
pub fn time(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (nanos as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// A rate a second: whole from 100 up.
pub fn rate(per_s: f64) -> String {
    let digits = usize::from(per_s < 100.0);
    format!("{per_s:.digits$}/s")
}

/// The whole summary, several lines.
pub fn text(result: &LoadResult) -> String {
    let mut out = String::new();
    summary(&mut out, result).expect("writing to a string");
    out
}

fn summary(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    writeln!(
        out,
        "measured   {:.1} s, seed {}",
        result.duration_s,
        result.manifest.seed.map_or(0, |seed| seed.0)
    )?;
    let asked = result.target_per_s.map_or(String::new(), |target| format!("  of {} asked", rate(target)));
    writeln!(out, "offered    {:>10}{asked}", rate(result.offered_per_s))?;
    if result.retries.offered > 0 {
        let amplification = result.amplification();
        let retries = rate(result.retries_per_s());
        writeln!(out, "  retries  {retries:>10}  of these: {amplification:.2} times the demand is offered")?;
    }
    writeln!(out, "sent       {:>10}", rate(result.sent_per_s))?;
    writeln!(out, "replies    {:>10}", rate(result.replies_per_s))?;
    writeln!(out, "goodput    {:>10}", rate(result.goodput_per_s))?;
    writeln!(out, "\n{:<10} {:>9} {:>9} {:>9} {:>9} {:>9}", "latency", "p50", "p90", "p99", "p99.9", "max")?;
    for (name, distribution) in [
        ("intended", &result.latency_intended_ns),
        ("sent", &result.latency_sent_ns),
        ("connect", &result.connect_ns),
        ("lateness", &result.lateness_ns),
    ] {
        quantiles(out, name, distribution)?;
    }
    writeln!(out, "\n{} requests offered, and what became of them", result.offered)?;
    ledger(out, result.offered, &result.outcomes, result.in_flight_at_end)?;
    if result.retries.offered > 0 {
        writeln!(out, "\n{} of them retries", result.retries.offered)?;
        ledger(out, result.retries.offered, &result.retries.outcomes, result.retries.in_flight_at_end)?;
    }
    for (name, beside) in &result.populations {
        population(out, name, beside)?;
    }
    let connections = &result.connections;
    writeln!(
        out,
        "\nconnections {} attempted, {} established, {} sockets at most; generator {:.0} % of a core",
        connections.attempted,
        connections.established,
        connections.sockets_peak,
        result.generator_cpu * 100.0
    )?;
    if let Some(handshakes) = &result.handshakes {
        writeln!(
            out,
            "handshakes  {} full ({}), {} resumed ({})",
            handshakes.full,
            rate(handshakes.full_per_s),
            handshakes.resumed,
            rate(handshakes.resumed_per_s)
        )?;
    }
    let verdict = match result.verdict {
        Verdict::Valid => "valid",
        Verdict::GeneratorLimited => "generator-limited: the figures say nothing about the server",
        Verdict::Unreachable => "unreachable",
    };
    writeln!(out, "verdict    {verdict}")?;
    result.reasons.iter().try_for_each(|reason| writeln!(out, "  {reason}"))
}

/// What became of what was offered, a line each.
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
    if latency.count > 0 {
        write!(
            out,
            "; {} replies, latency p50 {}, p99 {}",
            rate(population.replies_per_s),
            time(latency.p50),
            time(latency.p99)
        )?;
    }
    writeln!(out, "\n{} requests offered since the run began", population.offered)?;
    ledger(out, population.offered, &population.outcomes, population.in_flight_at_end)
}

fn quantiles(out: &mut String, name: &str, distribution: &Distribution) -> std::fmt::Result {
    if distribution.count == 0 {
        return writeln!(out, "{name:<10} {:>9}", "none");
    }
    let Distribution { p50, p90, p99, p999, max, .. } = *distribution;
    write!(out, "{name:<10}")?;
    [p50, p90, p99, p999, max].iter().try_for_each(|value| write!(out, " {:>9}", time(*value)))?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown: Vec<String> = [0, 999, 1_500, 23_456_000, 512_000_000, 2_000_000_000].map(time).to_vec();
        assert_eq!(shown, ["0 ns", "999 ns", "1.50 us", "23.5 ms", "512 ms", "2.00 s"]);
        assert_eq!(rate(9.96), "10.0/s");
        assert_eq!(rate(12_345.6), "12346/s");
    }
}
