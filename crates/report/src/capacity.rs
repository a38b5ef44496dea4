//! A survey of a server: as a page with goodput and latency at each load, and as a table for the terminal.
//!
//! Owns the figures, their captions and the sentences of the verdict. The verdict itself is the analysis's. A pure
//! function of the result.
//!
//! A line joins the loads that were asked for, so it never runs backwards. The table lists loads that the generator
//! failed to offer. The figures leave them out, because they say nothing about the server.

mod text;

use analysis::capacity::{answered_share, by_load, is_brought_about};
use record::{CapacityResult, CapacityVerdict, Step};

use crate::format::{percent, rate, time};
use crate::page::figure::{Figure, Key};
use crate::page::frame::render;
use crate::page::line_figure::LineFigure;
use crate::page::record::{Part, RecordPage};
use crate::page::table::{Table, command_line, machine};
use crate::svg::{AxisKind, AxisSpec, Guide, LineChart, Look, Mark, Series, Unit};

pub use text::{paragraph, table};

/// The forms of a chart: class, width and height.
const FORMS: [(&str, (f64, f64)); 2] = [("wide", (840.0, 380.0)), ("narrow", (400.0, 320.0))];

/// A line: its name, its steps with loads ascending, and the value of a step, if the step has one.
type Line<'a> = (&'static str, Vec<&'a Step>, fn(&Step) -> Option<f64>);

const GOODPUT: LineFigure = LineFigure {
    id: "goodput",
    heading: "Goodput",
    caption: "Correct replies in time a second against requests offered a second: around the capacity, past it, and on the way \
              back. A reply counts in the step it arrives in, even if its request belongs to an earlier one.",
    title: "goodput (correct replies/s)",
    unit: Unit::Count,
    kind: AxisKind::Linear,
    show: rate,
};

const LATENCY: LineFigure = LineFigure {
    id: "latency",
    heading: "Latency",
    caption: "Of correct replies, from the time a request was meant to be sent until its reply was complete. The axis of time is \
              logarithmic.",
    title: "latency from the intended time",
    unit: Unit::Time,
    kind: AxisKind::Log,
    show: time,
};

/// The survey as one self-contained HTML file.
pub fn html(result: &CapacityResult) -> String {
    let manifest = &result.manifest;
    let figures: Vec<Figure> = figures(result);
    let urls = manifest.config.get("urls").map_or("a server", String::as_str);
    let page = RecordPage {
        title: format!("Capacity of {urls}"),
        version: manifest.version.clone(),
        verdict: verdict(result.verdict),
        lede: result.text.clone(),
        tiles: Vec::new(),
        thresholds: Vec::new(),
        warnings: Vec::new(),
        lines_most: figures.iter().map(|figure| figure.keys.len()).max().unwrap_or(0),
        figures,
        tables: vec![Part { heading: "All steps", table: steps(result) }],
        folded: vec![Part { heading: "Where this comes from", table: machine(&result.schema, manifest) }],
        again: command_line(&manifest.command),
    };
    render("record.html", &page)
}

fn verdict(verdict: CapacityVerdict) -> &'static str {
    match verdict {
        CapacityVerdict::Holds => "The server holds.",
        CapacityVerdict::Drops => "The server drops requests.",
        CapacityVerdict::Sags => "The server sags.",
        CapacityVerdict::Collapses => "The server collapses.",
        CapacityVerdict::GeneratorLimited => "The generator was the limit.",
        CapacityVerdict::Unreachable => "Nothing was answered.",
        CapacityVerdict::Interrupted => "Interrupted.",
    }
}

fn figures(result: &CapacityResult) -> Vec<Figure> {
    let up = || by_load(&result.knee).into_iter().filter_map(middle).collect::<Vec<&Step>>();
    let past = || result.past.iter().filter(|step| is_brought_about(step)).collect();
    let back = || result.back.iter().rev().filter(|step| is_brought_about(step)).collect();
    let goodput = |step: &Step| Some(step.goodput_per_s);
    let p50 = |step: &Step| latency(step, step.latency_intended_ns.p50);
    let p99 = |step: &Step| latency(step, step.latency_intended_ns.p99);
    let capacity = result.capacity_per_s;
    let ideal =
        Guide { corners: vec![(0.0, 0.0), (capacity, capacity)], label: "every request answered".to_owned() };
    let rates =
        [("around", up(), goodput as fn(&Step) -> _), ("past", past(), goodput), ("back", back(), goodput)];
    let times = [
        ("median, around", up(), p50 as fn(&Step) -> _),
        ("median, past", past(), p50),
        ("p99, around", up(), p99),
        ("p99, past", past(), p99),
        ("p99, back", back(), p99),
    ];
    [figure(&GOODPUT, &rates, (capacity > 0.0).then_some(ideal)), figure(&LATENCY, &times, None)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the trial with the median goodput at a load; `None` if the generator did not reach the load.
fn middle(mut trials: Vec<&Step>) -> Option<&Step> {
    trials.retain(|step| is_brought_about(step));
    trials.sort_by(|one, other| one.goodput_per_s.total_cmp(&other.goodput_per_s));
    trials.get(trials.len() / 2).copied()
}

fn latency(step: &Step, ns: u64) -> Option<f64> {
    (step.latency_intended_ns.count > 0).then_some(ns as f64)
}

/// Returns `None` if no step has a value.
fn figure(about: &LineFigure, lines: &[Line<'_>], guide: Option<Guide>) -> Option<Figure> {
    let series: Vec<Series> = lines
        .iter()
        .enumerate()
        .map(|(index, line)| series(about, index, line))
        .filter(|series| !series.marks.is_empty())
        .collect();
    if series.is_empty() {
        return None;
    }
    let forms = FORMS.iter().map(|(form, size)| {
        LineChart {
            id: format!("chart-{}-{form}", about.id),
            class: (*form).to_owned(),
            title: format!("{} against offered load", about.heading),
            size: *size,
            x: AxisSpec::new("offered load (requests/s)", AxisKind::Tight, Unit::Count),
            y: about.axis(),
            series: series.clone(),
            guide: guide.clone(),
            direct_labels: *form == "wide",
            columns: None,
        }
        .draw()
    });
    let keys = series.iter().map(|series| Key::of_line(series.index, &series.name));
    Some(about.figure(forms.collect(), keys.collect(), points(about, &series)))
}

fn series(about: &LineFigure, index: usize, (name, steps, value): &Line<'_>) -> Series {
    let mark = |step: &&Step| {
        let y = value(step)?;
        let limited = if step.generator_limited { ", generator-limited" } else { "" };
        Some(Mark {
            x: step.asked_per_s,
            y,
            band: (y, y),
            hollow: step.generator_limited,
            at: rate(step.asked_per_s),
            value: format!("{}{limited}", (about.show)(y)),
            ..Mark::default()
        })
    };
    let marks = steps.iter().filter_map(mark).collect();
    Series { name: (*name).to_owned(), index, look: Look::Measured, marks }
}

fn points(about: &LineFigure, series: &[Series]) -> Table {
    let row = |series: &Series, mark: &Mark| vec![series.name.clone(), mark.at.clone(), mark.value.clone()];
    let rows = series.iter().flat_map(|series| series.marks.iter().map(move |mark| row(series, mark)));
    Table::new(&["line", "offered", about.title], rows.collect())
}

/// Every step, in the order they were made.
fn steps(result: &CapacityResult) -> Table {
    let parts =
        [("search", &result.search), ("knee", &result.knee), ("past", &result.past), ("back", &result.back)];
    let row = |name: &str, step: &Step| {
        let shown = |ns: u64| latency(step, ns).map_or("–".to_owned(), time);
        vec![
            name.to_owned(),
            rate(step.asked_per_s),
            rate(step.offered_per_s),
            rate(step.goodput_per_s),
            percent(answered_share(step)),
            shown(step.latency_intended_ns.p50),
            shown(step.latency_intended_ns.p99),
            if step.generator_limited { "generator-limited" } else { "valid" }.to_owned(),
        ]
    };
    let rows = parts.into_iter().flat_map(|(name, steps)| steps.iter().map(move |step| row(name, step)));
    let head = ["", "asked", "offered", "goodput", "in time", "median", "p99", "verdict"];
    Table::new(&head, rows.collect())
}
