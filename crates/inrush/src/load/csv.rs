//! A result as CSV: the time series, a row an interval, for a spreadsheet or a plot.

use std::io::{self, Write};

use record::{Distribution, LoadResult, Outcome, Point};

/// Writes the header and a row for each point.
pub fn write(out: &mut impl Write, result: &LoadResult) -> io::Result<()> {
    let outcomes = Outcome::ALL.map(|outcome| outcome.name().to_owned());
    let head = ["at_s", "interval_s", "offered", "retries", "sent", "replies", "good"].map(str::to_owned);
    let times = ["latency_intended", "lateness"].into_iter().flat_map(|times| {
        ["mean", "p50", "p90", "p99", "p999", "max"].map(|quantile| format!("{times}_{quantile}_ns"))
    });
    row(out, head.into_iter().chain(outcomes).chain(times).chain(["sockets".to_owned()]))?;
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
        .chain(quantiles(&point.lateness_ns))
        .chain([point.sockets.to_string()])
}

/// Empty cells where nothing was recorded: 0 would be a time.
fn quantiles(distribution: &Distribution) -> [String; 6] {
    let Distribution { count, mean, p50, p90, p99, p999, max } = *distribution;
    let shown =
        [format!("{mean:.0}")].into_iter().chain([p50, p90, p99, p999, max].map(|value| value.to_string()));
    let mut cells: [String; 6] = Default::default();
    if count > 0 {
        cells.iter_mut().zip(shown).for_each(|(cell, value)| *cell = value);
    }
    cells
}

fn row(out: &mut impl Write, cells: impl Iterator<Item = String>) -> io::Result<()> {
    writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_a_cell_for_every_column() {
        let busy = Distribution { count: 2, mean: 1.5, p50: 1, p90: 2, p99: 2, p999: 2, max: 2 };
        let point =
            Point { at_s: 1.0, interval_s: 1.0, offered: 3, latency_intended_ns: busy, ..Point::default() };
        let cells: Vec<String> = cells(&point).collect();
        assert_eq!(cells.len(), 7 + Outcome::ALL.len() + 12 + 1);
        assert_eq!(cells[..3], ["1.000", "1.000", "3"]);
        assert_eq!(
            cells[7 + Outcome::ALL.len()..][..7],
            ["2", "1", "2", "2", "2", "2", ""],
            "no lateness, no number"
        );
    }
}
