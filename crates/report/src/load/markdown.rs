//! A run as Markdown, for a comment on a change: the conclusion, the thresholds, and the figures in one table.

use std::fmt::Write;

use record::LoadResult;
use record::load::Judged;

use super::tables::quantile;
use crate::experiment::escaped;
use crate::format::rate;

/// The run as Markdown.
pub fn markdown(result: &LoadResult) -> String {
    let mut out = String::new();
    write_all(&mut out, result).expect("writing to a string");
    out
}

fn write_all(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    writeln!(out, "**{}**\n", escaped(&result.conclusion))?;
    for Judged { threshold, measured, crossed } in &result.thresholds {
        let mark = if *crossed { "❌" } else { "✅" };
        writeln!(out, "- {mark} fails if {}: measured {}", escaped(threshold), escaped(measured))?;
    }
    if !result.thresholds.is_empty() {
        writeln!(out)?;
    }
    let latency = &result.latency_intended_ns;
    writeln!(out, "| offered | replies | goodput | failed | p50 | p90 | p99 | max |")?;
    writeln!(out, "|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    let cells = [
        rate(result.offered_per_s),
        rate(result.replies_per_s),
        rate(result.goodput_per_s),
        format!("{} of {}", result.failed(), result.offered),
        quantile(latency, latency.p50),
        quantile(latency, latency.p90),
        quantile(latency, latency.p99),
        quantile(latency, latency.max),
    ];
    writeln!(out, "| {} |\n", cells.join(" | "))?;
    let reasons = result.reasons.iter().map(|reason| format!(" {}", escaped(reason)));
    writeln!(out, "Verdict: {}.{}", result.verdict.name(), reasons.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    #[test]
    fn conclusions_come_first_and_figures_are_a_row() {
        let mut result = run(4);
        result.thresholds =
            vec![Judged { threshold: "p99>1ms".to_owned(), measured: "8 ms".to_owned(), crossed: true }];
        let text = markdown(&result);
        assert!(text.starts_with("**"), "{text}");
        assert!(text.contains("- ❌ fails if p99") && text.contains("measured 8 ms"), "{text}");
        let row = text.lines().find(|line| line.starts_with("| ") && line.contains("/s")).unwrap();
        assert_eq!(row.matches('|').count(), 9, "{row}");
        assert!(text.trim_end().contains("Verdict: valid."), "{text}");
    }
}
