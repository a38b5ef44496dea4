//! Two runs of load side by side, as a table for the terminal.

use std::fmt::Write;

use analysis::load_gates::{Judged, RunsComparison, Verdict};
use analysis::load_runs::{Change, Comparison, Row};
use base::printable;
use statistics::Interval;

use crate::columns::aligned;
use crate::format::{multiple, number, percent, rate, time};

/// Writes the table, a reading aid, and the reasons for doubt.
pub fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    write_all(&mut out, comparison).expect("writing to a string");
    out
}

/// Several runs of each as a table, with the thresholds.
pub fn of_runs(comparison: &RunsComparison) -> String {
    let mut out = String::new();
    for (letter, names) in ["A", "B"].iter().zip(&comparison.names) {
        let names = printable(&names.join(" ")).into_owned();
        out.push_str(&format!("{letter}  {names}\n"));
    }
    let mut rows = vec![["", "B / A", "95 % interval", ""].map(str::to_owned)];
    rows.extend(comparison.figures.iter().map(|figure| {
        let [ratio, interval] = [multiple(figure.ratio), shown(figure.ci95)];
        [figure.name.to_owned(), ratio, interval, word(figure.change).to_owned()]
    }));
    out.push_str(&format!("\n{}", aligned(&rows, &[2, 3])));
    out.push_str("\nThe ratios are of geometric means; the intervals come from the scatter of the runs.\n");
    out + &thresholds(&comparison.thresholds)
}

/// The thresholds on ratios, a line each.
pub fn thresholds(judged: &[Judged]) -> String {
    let line = |Judged { threshold, ratio, ci95, verdict, runs_needed }: &Judged| {
        let (ratio, interval) = (multiple(*ratio), shown(*ci95));
        let more = match (verdict, runs_needed) {
            (Verdict::Undecided, Some(runs)) => format!("; {runs} runs of each would decide it"),
            (Verdict::Undecided, None) => "; the ratio is too close to the bound to decide it".to_owned(),
            _ => String::new(),
        };
        let word = match verdict {
            Verdict::Passed => "pass",
            Verdict::Crossed => "FAIL",
            Verdict::Undecided => "undecided",
        };
        format!("{word}  fails if {threshold}: {ratio} ({interval}){more}\n")
    };
    judged.iter().map(line).collect()
}

fn shown(ci95: Option<Interval>) -> String {
    ci95.map_or("-".to_owned(), |ci95| format!("{} to {}", multiple(ci95.low), multiple(ci95.high)))
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Better => "better",
        Change::Worse => "WORSE",
        Change::NoneSeen => "no difference seen",
        Change::Unknown => "cannot be told",
    }
}

fn write_all(out: &mut String, comparison: &Comparison) -> std::fmt::Result {
    for (letter, (name, intervals)) in
        ["A", "B"].iter().zip(comparison.names.iter().zip(comparison.intervals))
    {
        writeln!(out, "{letter}  {}, {intervals} measured intervals", printable(name))?;
    }
    let mut rows = vec![["", "A", "B", "B / A", "95 % interval", ""].map(str::to_owned)];
    rows.extend(comparison.rows.iter().map(cells));
    write!(out, "\n{}", aligned(&rows, &[4, 5]))?;
    let [one, other] = comparison.block;
    let blocks = if one == other { one.to_string() } else { format!("{one} (A) and {other} (B)") };
    writeln!(
        out,
        "\nLatencies are from the intended time, and means over the intervals of each interval's quantile. The 95 %\n\
         intervals come from drawing the measured intervals again, {blocks} neighbours at a time; each row is judged\n\
         by itself, and of twenty rows of equal servers one is off by chance."
    )?;
    writeln!(
        out,
        "They know nothing of what differs from one run of the same server to the next: before you believe a small\n\
         difference, run both again, in turn."
    )?;
    comparison.warnings.iter().try_for_each(|warning| writeln!(out, "warning: {}", printable(warning)))
}

/// Returns a metric's name for people, and the notation of its values.
fn named(metric: &str) -> (&str, fn(f64) -> String) {
    match metric {
        "goodput_per_s" => ("goodput", rate),
        "replies_per_s" => ("replies", rate),
        "error_share" => ("errors", percent),
        "latency_p50_ns" => ("latency p50", latency),
        "latency_p90_ns" => ("latency p90", latency),
        "latency_p99_ns" => ("latency p99", latency),
        "latency_p999_ns" => ("latency p99.9", latency),
        other => (other, number),
    }
}

fn cells(row: &Row) -> [String; 6] {
    let (name, show) = named(row.metric);
    let or_none = |value: Option<f64>, show: fn(f64) -> String| value.map_or("-".to_owned(), show);
    [
        name.to_owned(),
        or_none(row.first, show),
        or_none(row.second, show),
        or_none(row.ratio, multiple),
        shown(row.ci95),
        word(row.change).to_owned(),
    ]
}

/// A latency; an infinite one falls among requests without a correct reply.
fn latency(ns: f64) -> String {
    if ns.is_infinite() { "unanswered".to_owned() } else { time(ns) }
}
