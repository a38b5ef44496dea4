//! A result as CSV: the time series with one row per interval, for a spreadsheet or a plot.

use std::io::{self, Write};

use record::{Distribution, Latency, LoadResult, Outcome, Point};

/// Writes the header and a row for each point.
pub fn write(out: &mut (impl Write + ?Sized), result: &LoadResult) -> io::Result<()> {
    let outcomes = Outcome::ALL.map(|outcome| outcome.name().to_owned());
    let head = ["at_s", "interval_s", "offered", "retries", "sent", "replies", "good"].map(str::to_owned);
    let times = ["latency_intended", "lateness"].into_iter().flat_map(|times| {
        ["mean", "p50", "p90", "p95", "p99", "p999", "max"].map(|quantile| format!("{times}_{quantile}_ns"))
    });
    let tail = ["sockets", "unanswered"].map(str::to_owned);
    row(out, head.into_iter().chain(outcomes).chain(times).chain(tail))?;
    result.series.iter().try_for_each(|point| row(out, cells(point)))
}

fn cells(point: &Point) -> impl Iterator<Item = String> + '_ {
    let counts = [point.offered, point.retries, point.sent, point.replies, point.good];
    let outcomes = point.outcomes.iter().map(|(_, count)| count.to_string());
    [format!("{:.3}", point.at_s), format!("{:.3}", point.interval_s)]
        .into_iter()
        .chain(counts.map(|count| count.to_string()))
        .chain(outcomes)
        .chain(quantiles(&point.latency_intended_ns))
        .chain(quantiles(&Latency::from(point.lateness_ns)))
        .chain([point.sockets, point.latency_intended_ns.unanswered].map(|count| count.to_string()))
}

/// The mean over the answered requests and the percentiles over all requests. A cell is empty if nothing was
/// recorded, because 0 would be a time. It is `inf` for a percentile that falls among the unanswered
/// requests.
fn quantiles(latency: &Latency) -> [String; 7] {
    let Latency { answered: Distribution { count, mean, .. }, p50, p90, p95, p99, p999, max, .. } = *latency;
    let mean = if count > 0 { format!("{mean:.0}") } else { String::new() };
    let missing = if latency.all() > 0 { "inf" } else { "" };
    let cell = |value: Option<u64>| value.map_or(missing.to_owned(), |ns| ns.to_string());
    [mean, cell(p50), cell(p90), cell(p95), cell(p99), cell(p999), cell(max)]
}

fn row(out: &mut (impl Write + ?Sized), cells: impl Iterator<Item = String>) -> io::Result<()> {
    writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_a_cell_for_every_column() {
        let answered = Distribution { count: 2, mean: 1.5, p50: 1, max: 2, ..Distribution::default() };
        let busy = Latency { answered, unanswered: 1, p50: Some(1), ..Latency::default() };
        let point =
            Point { at_s: 1.0, interval_s: 1.0, offered: 3, latency_intended_ns: busy, ..Point::default() };
        let cells: Vec<String> = cells(&point).collect();
        assert_eq!(cells.len(), 7 + Outcome::ALL.len() + 14 + 2);
        assert_eq!(cells[..3], ["1.000", "1.000", "3"]);
        assert_eq!(
            cells[7 + Outcome::ALL.len()..][..8],
            ["2", "1", "inf", "inf", "inf", "inf", "inf", ""],
            "no lateness, no number"
        );
        assert_eq!(cells.last().unwrap(), "1");
    }
}
