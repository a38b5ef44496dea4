//! One run of the load generator as a page: the series over time, the outcomes, and the verdict on the run. Beside it,
//! the run for continuous integration, `junit` and `markdown`, and the `steps` of its rate.
//!
//! `figures` and `tables` are the page's, and `ending` names the ends of a request.
//!
//! Owns the choice of figures and tables and their texts. A pure function of the result.

mod ending;
mod figures;
mod junit;
mod markdown;
mod steps;
mod tables;

use record::{LoadResult, Verdict};

use crate::format::{percent, rate};
use crate::page::frame::render;
use crate::page::record::{Part, RecordPage, Tile};
use crate::page::table::{command_line, machine};
pub use junit::junit;
pub use markdown::markdown;
pub use steps::steps;

/// The run as one self-contained HTML file.
pub fn html(result: &LoadResult) -> String {
    let figures = figures::figures(result);
    let manifest = &result.manifest;
    let urls = manifest.config.get("urls").map_or("a server", String::as_str);
    let page = RecordPage {
        title: format!("Load on {urls}"),
        version: manifest.version.clone(),
        verdict: match result.verdict {
            Verdict::Valid => "The run is valid.",
            Verdict::Degraded => "The run is degraded.",
            Verdict::NotMeasured => "Nothing was measured.",
            Verdict::GeneratorLimited => {
                "The generator was the limit: the figures bound the server from below, no more."
            }
            Verdict::Unreachable => "Nobody was reached.",
        },
        lede: result.conclusion.clone(),
        tiles: tiles(result),
        thresholds: result.thresholds.clone(),
        warnings: result.reasons.clone(),
        lines_most: figures.iter().map(|figure| figure.keys.len()).max().unwrap_or(0),
        figures,
        tables: [
            Part { heading: "What became of all that was offered", table: tables::ledger(result) },
            Part { heading: "Status codes of the replies", table: tables::statuses(result) },
            Part { heading: "Times", table: tables::latency(result) },
            Part { heading: "Beside the measured traffic", table: tables::populations(result) },
            Part { heading: "The agents of the fleet", table: tables::agents(result) },
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
    render("record.html", &page)
}

/// The figures that a reader looks for first.
fn tiles(result: &LoadResult) -> Vec<Tile> {
    let latency = &result.latency_intended_ns;
    let asked = result.target_per_s.map(|target| format!("of {} asked for", rate(target)));
    let of = |part: f64, whole: f64| if whole > 0.0 { percent(part / whole) } else { "–".to_owned() };
    let tile = |name, value, detail, is_bad| Tile { name, value, detail, is_bad };
    let failed = result.failed();
    vec![
        tile("offered", rate(result.offered_per_s), asked.unwrap_or_default(), false),
        tile(
            "goodput",
            rate(result.goodput_per_s),
            format!("{} of the offered", of(result.goodput_per_s, result.offered_per_s)),
            false,
        ),
        tile(
            "failed",
            of(failed as f64, result.offered as f64),
            format!("{failed} of {} requests", result.offered),
            failed > 0,
        ),
        tile("median latency", tables::quantile(latency, latency.p50), "of all requests".to_owned(), false),
        tile("99th percentile", tables::quantile(latency, latency.p99), "of all requests".to_owned(), false),
    ]
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
    pub(super) fn run(seconds: u32) -> LoadResult {
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
            "outcomes": { "ok": 850, "connect_timeout": 150 }, "statuses": { "200": 850, "404": 50 },
            "conclusion": "The whole run in a line.",
            "thresholds": [{ "threshold": "p99>1ms", "measured": "3.000ms", "crossed": true }], "target_per_s": 100.0, "offered_per_s": 100.0,
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
            "<th scope=\"row\">connect timeout</th><td>150</td><td>15 %</td>",
            "<th scope=\"row\">404</th><td>50</td><td>6 %</td>",
            "80 % of the offered",
            "<dd>15 % <small>150 of 1000 requests</small></dd>",
            "The whole run in a line.",
            "p99&gt;1ms",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert_eq!(page, html(&run(12)));
        assert!(page.trim_end().ends_with("</html>"));
    }

    #[test]
    fn a_fleets_page_has_its_agents() {
        assert!(!html(&run(3)).contains("The agents of the fleet"));
        let mut fleet = run(3);
        fleet.agents = vec![record::load::Agent {
            name: "a".to_owned(),
            state: record::load::AgentState::Lost,
            lost: Some("it was silent".to_owned()),
            share: 1.0,
            clock_offset_ns: 0,
            clock_round_trip_ns: 0,
            part: None,
        }];
        assert!(html(&fleet).contains("lost: it was silent"));
    }

    #[test]
    fn load_page_is_self_contained_and_escapes_text() {
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
        assert!(!page.contains("id=\"latency\""), "no line without a point");
        let empty = html(&run(0));
        assert!(!empty.contains("<figure class") && empty.contains("What became of all"));
        let mut odd = run(3);
        odd.series[1] = Point { at_s: f64::NAN, interval_s: 0.0, ..Point::default() };
        let drawn = html(&odd);
        let drawn: String = drawn.split(" d=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
    }
}
