//! What serving beside idle connections cost, as a text table and as a page of plots.

use report::columns::aligned;
use report::svg::{AxisKind, Unit};
use serde::Serialize;
use statistics::Spread;

use super::{COLLAPSED, Point, Results};
use crate::bench::Common;
use crate::bench::plot::{self, Along, Figure};

const LEDE: &str = "One event loop on one CPU serves a file of 1 KiB on persistent connections, beside others \
                    that are idle. Points are medians over the rounds, bands reach from the least to the \
                    largest.";
const RATE: Along = ("requests/s offered", AxisKind::Linear, Unit::Count);
const CPU: Along = ("CPU time a request", AxisKind::Linear, Unit::Time);

/// A mechanism that did not keep up.
#[derive(Clone, Debug, Serialize)]
pub struct Collapsed {
    mechanism: &'static str,
    idle: u32,
    rate_per_s: f64,
    /// The part of what was offered that was replied to.
    share: f64,
    /// The generator could not offer everything in one of the runs, so the server may not be to blame.
    generator_limited: bool,
}

/// The points at which the server replied to less than it had to.
pub fn collapsed(points: &[Point]) -> Vec<Collapsed> {
    let collapsed = points.iter().filter_map(|point| {
        let share = point.share().filter(|share| *share < COLLAPSED)?;
        let Point { mechanism, idle, rate_per_s, .. } = *point;
        let generator_limited = point.samples.iter().any(|sample| sample.generator_limited);
        Some(Collapsed { mechanism, idle, rate_per_s, share, generator_limited })
    });
    collapsed.collect()
}

/// The table, where each mechanism collapsed, and what could not be measured.
pub fn text(results: &Results) -> String {
    let head = [
        "mechanism",
        "idle",
        "offered/s",
        "replies/s",
        "median ms",
        "CPU us/request",
        "min..max",
        "process us",
        "overflows",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for point in &results.points {
        let cell = |value: Option<Spread>, digits: usize| {
            value.map_or("-".to_owned(), |spread| format!("{:.digits$}", spread.median))
        };
        let range = point.cpu_us().map(|cpu| format!("{:.1}..{:.1}", cpu.min, cpu.max));
        rows.push([
            point.mechanism.to_owned(),
            point.idle.to_string(),
            format!("{:.0}", point.rate_per_s),
            cell(point.replies_per_s(), 0),
            cell(point.response_ms(), 2),
            cell(point.cpu_us(), 1),
            range.unwrap_or("-".to_owned()),
            cell(point.process_us(), 1),
            cell(point.overflows(), 0),
        ]);
    }
    let failed = results.failed.iter().map(|failure| format!("not measured: {failure}\n"));
    let queue = results.signal_queue.map_or(String::new(), |length| format!("signal queues: {length}\n"));
    let failed: String = failed.collect();
    format!("{}\n{queue}{}{}{failed}", aligned(&rows, &[]), overflows(results), collapses(results))
}

/// A line for each mechanism whose queue was full: from which rate on, with so many idle connections.
fn overflows(results: &Results) -> String {
    let mut lines = String::new();
    for mechanism in mechanisms(results) {
        for idle in distinct(results, |point| f64::from(point.idle)) {
            let full = results.points.iter().filter(|point| {
                let often = point.overflows().is_some_and(|overflows| overflows.median > 0.0);
                point.mechanism == mechanism && f64::from(point.idle) == idle && often
            });
            let Some(first) = full.map(|point| point.rate_per_s).min_by(f64::total_cmp) else { continue };
            lines.push_str(&format!(
                "{mechanism}: its queue overflows from {first:.0}/s on with {idle} idle\n"
            ));
        }
    }
    lines
}

/// A line for each mechanism: where its reply rate fell below 90 % of the offered one.
fn collapses(results: &Results) -> String {
    let line = |mechanism: &str| {
        let mut places: Vec<String> = Vec::new();
        for at in results.collapsed.iter().filter(|at| at.mechanism == mechanism) {
            let blame = if at.generator_limited { ", generator limited" } else { "" };
            let (rate, share) = (at.rate_per_s, at.share * 100.0);
            places.push(format!("{rate:.0}/s with {} idle ({share:.0} %{blame})", at.idle));
        }
        match places.is_empty() {
            true => format!("{mechanism}: keeps up everywhere\n"),
            false => format!("{mechanism}: below {:.0} % at {}\n", COLLAPSED * 100.0, places.join(", ")),
        }
    };
    mechanisms(results).into_iter().map(line).collect()
}

fn mechanisms(results: &Results) -> Vec<&'static str> {
    let measured = results.points.iter().filter(|point| !point.samples.is_empty());
    let mut names: Vec<&'static str> = measured.map(|point| point.mechanism).collect();
    names.dedup();
    names
}

/// Writes the page: for each number of idle connections cost, reply rate and response time against the
/// rate, and for each rate the cost against idle connections.
pub fn draw(common: &Common, results: &Results, text: &str) -> anyhow::Result<()> {
    let cpu_ns = |point: &Point| point.cpu_us().map(|spread| spread.map(|us| us * 1e3));
    let mut figures = Vec::new();
    for idle in distinct(results, |point| f64::from(point.idle)) {
        let figure = |what: &str, caption, y, value: fn(&Point) -> Option<Spread>| Figure {
            heading: format!("{what}, {idle} idle connections"),
            caption,
            x: RATE,
            y,
            lines: lines(results, |point| {
                (f64::from(point.idle) == idle).then_some(point.rate_per_s).zip(value(point))
            }),
        };
        figures.push(figure("CPU time a request", "Lower is better.", CPU, cpu_ns));
        let replies = ("replies/s", AxisKind::Linear, Unit::Count);
        let caption = "What is offered and not replied to is lost.";
        figures.push(figure("Reply rate", caption, replies, Point::replies_per_s));
        let response = ("median response time", AxisKind::Log, Unit::Time);
        let caption = "From when a request was meant to be sent; lower is better.";
        figures.push(figure("Response time", caption, response, |point| {
            point.response_ms().map(|spread| spread.map(|ms| ms * 1e6))
        }));
    }
    for rate in distinct(results, |point| point.rate_per_s) {
        figures.push(Figure {
            heading: format!("CPU time a request, {rate} requests/s"),
            caption: "A level line does not care how many connections are idle.",
            x: ("idle connections", AxisKind::Linear, Unit::Count),
            y: CPU,
            lines: lines(results, |point| {
                (point.rate_per_s == rate).then_some(f64::from(point.idle)).zip(cpu_ns(point))
            }),
        });
    }
    plot::write(common, "idle", "Serving beside idle connections", LEDE, &figures, text)
}

fn distinct(results: &Results, of: impl Fn(&Point) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = results.points.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// A line for each mechanism, of the points that have a place in the figure.
fn lines(
    results: &Results,
    place: impl Fn(&Point) -> Option<(f64, Spread)>,
) -> Vec<(&'static str, Vec<(f64, Spread)>)> {
    let of = |mechanism| {
        let points = results.points.iter().filter(move |point| point.mechanism == mechanism);
        let mut places: Vec<(f64, Spread)> = points.filter_map(&place).collect();
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        (mechanism, places)
    };
    mechanisms(results).into_iter().map(of).collect()
}
