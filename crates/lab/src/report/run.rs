//! One run of the load generator as a page: what happened when, what became of it all, and whether to believe it.
//!
//! Owns which figures and tables there are and the words around them. A pure function of the result.

mod figures;
mod tables;

use record::{LoadResult, Verdict};
use serde::Serialize;

use super::figures::Figure;
use super::format::{number, percent, rate};
use super::frame::render;
use super::tables::{Table, command_line, machine};

/// What the template of a single record shows.
#[derive(Serialize)]
pub(super) struct Page {
    pub title: String,
    pub version: String,
    pub verdict: &'static str,
    pub lede: String,
    pub warnings: Vec<String>,
    pub figures: Vec<Figure>,
    /// The most lines of a figure.
    pub lines_most: usize,
    pub tables: Vec<Part>,
    pub folded: Vec<Part>,
    pub again: String,
}

/// A table under a heading.
#[derive(Serialize)]
pub(super) struct Part {
    pub heading: &'static str,
    pub table: Table,
}

/// The run as one self-contained HTML file.
pub fn html(result: &LoadResult) -> String {
    let figures = figures::figures(result);
    let manifest = &result.manifest;
    let urls = manifest.config.get("urls").map_or("a server", String::as_str);
    let page = Page {
        title: format!("Load on {urls}"),
        version: manifest.version.clone(),
        verdict: match result.verdict {
            Verdict::Valid => "The run is valid.",
            Verdict::GeneratorLimited => {
                "The generator was the limit: the figures bound the server from below, no more."
            }
            Verdict::Unreachable => "Nobody was reached.",
        },
        lede: lede(result),
        warnings: result.reasons.clone(),
        lines_most: figures.iter().map(|figure| figure.keys.len()).max().unwrap_or(0),
        figures,
        tables: [
            Part { heading: "What became of all that was offered", table: tables::ledger(result) },
            Part { heading: "Times", table: tables::latency(result) },
            Part { heading: "Beside the measured traffic", table: tables::populations(result) },
        ]
        .into_iter()
        .filter(|part| !part.table.rows.is_empty())
        .collect(),
        folded: vec![
            Part { heading: "Connections and the generator", table: tables::connections(result) },
            Part { heading: "Where this comes from", table: machine(&result.schema, manifest) },
        ],
        again: command_line(&manifest.command),
    };
    render("run.html", &page)
}

/// What was offered and what came back, in two sentences.
fn lede(result: &LoadResult) -> String {
    let asked = match result.target_per_s {
        Some(target) => {
            format!("{} requests were asked for and {} offered", rate(target), rate(result.offered_per_s))
        }
        None => format!(
            "{} requests were offered by clients that wait for their replies",
            rate(result.offered_per_s)
        ),
    };
    let back = format!(
        "{asked} for {} s; {} replies came back",
        number(result.duration_s),
        rate(result.replies_per_s)
    );
    let latency = &result.latency_intended_ns;
    if latency.answered.count == 0 {
        return format!("{back}, and none of them was correct.");
    }
    let good = match result.offered_per_s > 0.0 {
        true => format!(", {} of the offered", percent(result.goodput_per_s / result.offered_per_s)),
        false => String::new(),
    };
    format!(
        "{back}, {} of them correct and in time{good}. From the time a request was meant to be sent to its correct reply, \
         the median was {} and the 99th percentile {}.",
        rate(result.goodput_per_s),
        tables::quantile(latency, latency.p50),
        tables::quantile(latency, latency.p99)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Distribution, Latency, Manifest, Outcome, Point};

    fn times(base: u64) -> Distribution {
        Distribution {
            count: 9,
            mean: 1.0,
            p50: base,
            p90: base * 2,
            p95: base * 2,
            p99: base * 3,
            p999: base * 4,
            max: base * 5,
        }
    }

    /// A run with 2 s of warm-up.
    fn run(seconds: u32) -> LoadResult {
        let point = |at: u32| {
            let mut point = Point {
                at_s: f64::from(at),
                interval_s: 1.0,
                offered: 100,
                replies: 90,
                good: 80,
                latency_intended_ns: times(1_000_000).into(),
                lateness_ns: times(10_000),
                ..Point::default()
            };
            point.outcomes.add(Outcome::Ok, 85);
            point.outcomes.add(Outcome::ConnectTimeout, 15);
            point
        };
        let none = Distribution::default();
        let mut run: LoadResult = serde_json::from_value(serde_json::json!({
            "schema": record::load::SCHEMA, "duration_s": 10.0, "offered": 1000, "in_flight_at_end": 0,
            "outcomes": { "ok": 850, "connect_timeout": 150 }, "target_per_s": 100.0, "offered_per_s": 100.0,
            "connections": { "attempted": 1000, "established": 900, "sockets_peak": 50 },
            "sent_per_s": 100.0, "replies_per_s": 90.0, "goodput_per_s": 80.0, "content_bytes_per_s": 0.0,
            "generator_cpu": 0.1, "latency_intended_ns": times(1_000_000), "latency_sent_ns": times(900_000),
            "connect_ns": none, "lateness_ns": times(10_000), "populations": {}, "series": [], "verdict": "valid",
            "reasons": [], "manifest": Manifest::default(),
        }))
        .unwrap();
        run.series = (1..=seconds).map(point).collect();
        run.manifest.config = [("urls", "http://127.0.0.1:1/"), ("warmup", "2s")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        run
    }

    #[test]
    fn the_page_has_every_figure_and_the_ledger() {
        let page = html(&run(12));
        for part in [
            "Load on http:",
            "The run is valid.",
            "<figure class=\"full\" id=\"rates\"",
            "id=\"latency\"",
            "id=\"outcomes\"",
            "id=\"lateness\"",
            "measured from here",
            "<th scope=\"row\">connect time-out</th><td>150</td><td>15 %</td>",
            "80 % of the offered",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert_eq!(page, html(&run(12)));
        assert!(page.trim_end().ends_with("</html>"));
    }

    #[test]
    fn the_page_asks_for_nothing_from_elsewhere_and_text_stays_text() {
        let mut run = run(3);
        run.reasons = vec!["<script>alert(1)</script>".to_owned()];
        run.verdict = Verdict::GeneratorLimited;
        let page = html(&run);
        assert!(!page.contains("src=\"") && !page.contains("href=\"http"), "{page}");
        assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert"));
        assert!(page.contains("The generator was the limit"));
    }

    #[test]
    fn long_runs_and_those_without_a_series_have_a_page() {
        assert!(html(&run(512)).contains("narrow dense"));
        let mut unanswered = run(3);
        unanswered.latency_intended_ns = Latency::default();
        unanswered.series.iter_mut().for_each(|point| point.latency_intended_ns = Latency::default());
        let page = html(&unanswered);
        assert!(!page.contains("id=\"latency\"") && page.contains("and none of them was correct."));
        let empty = html(&run(0));
        assert!(!empty.contains("<figure class") && empty.contains("What became of all"));
        let mut odd = run(3);
        odd.series[1] = Point { at_s: f64::NAN, interval_s: 0.0, ..Point::default() };
        let drawn = html(&odd);
        let drawn: String = drawn.split(" d=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
    }
}
