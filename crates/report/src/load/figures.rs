//! The figures of a run over time: rates, latency, outcomes, lateness.

use base::Nanos;
use record::{Distribution, LoadResult, Outcome, Point};

use crate::format::{count, number, percent, rate, time};
use crate::load::ending::Ending;
use crate::page::figure::{Figure, Key};
use crate::page::line_figure::LineFigure;
use crate::page::table::Table;
use crate::svg::{AxisKind, AxisSpec, Bar, BarChart, Guide, LineChart, Look, Mark, Segment, Series, Unit};

/// The forms of a chart: class, width and height, and how many bars have room.
const FORMS: [(&str, (f64, f64), usize); 2] = [("wide", (840.0, 330.0), 30), ("narrow", (400.0, 280.0), 10)];

/// The number of points above which a line is drawn without its marks.
const MARKS_MOST: usize = 60;

/// A line: its name, and its value at a point, if it has one.
type Line = (&'static str, fn(&Point) -> Option<f64>);

const RATES: [Line; 3] = [
    ("offered", |point| per_s(point, point.offered)),
    ("replies", |point| per_s(point, point.replies)),
    ("goodput", |point| per_s(point, point.good)),
];

const LATENCIES: [Line; 4] = [
    ("median", |point| point.latency_intended_ns.p50.map(|ns| ns as f64)),
    ("p90", |point| point.latency_intended_ns.p90.map(|ns| ns as f64)),
    ("p99", |point| point.latency_intended_ns.p99.map(|ns| ns as f64)),
    ("p99.9", |point| point.latency_intended_ns.p999.map(|ns| ns as f64)),
];

const LATENESS: [Line; 3] = [
    ("median", |point| of(&point.lateness_ns, |times| times.p50)),
    ("p99", |point| of(&point.lateness_ns, |times| times.p99)),
    ("largest", |point| of(&point.lateness_ns, |times| times.max)),
];

fn per_s(point: &Point, count: u64) -> Option<f64> {
    (point.interval_s > 0.0).then(|| count as f64 / point.interval_s)
}

fn of(times: &Distribution, value: fn(&Distribution) -> u64) -> Option<f64> {
    (times.count > 0).then(|| value(times) as f64)
}

const RATE_FIGURE: LineFigure = LineFigure {
    id: "rates",
    heading: "Offered and answered",
    caption: "Requests offered, replies of any status, and goodput: correct replies in time.",
    title: "requests/s",
    unit: Unit::Count,
    kind: AxisKind::Linear,
    show: rate,
};

const LATENCY_FIGURE: LineFigure = LineFigure {
    id: "latency",
    heading: "Latency",
    caption: "From the time a request was meant to be sent until its correct reply was complete, of all requests that \
              ended in each interval. A percentile that falls among requests without a correct reply has no mark. \
              The axis of time is logarithmic.",
    title: "latency from the intended time",
    unit: Unit::Time,
    kind: AxisKind::Log,
    show: time,
};

const LATENESS_FIGURE: LineFigure = LineFigure {
    id: "lateness",
    heading: "Lateness of the generator",
    caption: "How much later than meant sessions were begun. This is the generator's own doing, and it is in the latency \
              above.",
    title: "lateness",
    unit: Unit::Time,
    kind: AxisKind::Log,
    show: time,
};

/// All figures; none of a run without a series.
pub fn figures(result: &LoadResult) -> Vec<Figure> {
    if result.series.is_empty() {
        return Vec::new();
    }
    let mut figures: Vec<Figure> = [(&RATE_FIGURE, &RATES[..]), (&LATENCY_FIGURE, &LATENCIES)]
        .into_iter()
        .filter_map(|(about, of)| lines(result, about, of))
        .collect();
    figures.push(outcomes(result));
    figures.extend(lines(result, &LATENESS_FIGURE, &LATENESS));
    figures
}

/// Returns `None` if no point has a value.
fn lines(result: &LoadResult, about: &LineFigure, lines: &[Line]) -> Option<Figure> {
    let points = &result.series;
    let series: Vec<Series> =
        lines.iter().enumerate().map(|(index, line)| series(points, about, index, *line)).collect();
    if series.iter().all(|series| series.marks.is_empty()) {
        return None;
    }
    let forms = FORMS.iter().map(|(form, size, _)| {
        let dense = if points.len() > MARKS_MOST { " dense" } else { "" };
        let mut x = AxisSpec::new("time since the run began (s)", AxisKind::Tight, Unit::Count);
        x.also.extend(points.last().map(|point| point.at_s));
        LineChart {
            id: format!("chart-{}-{form}", about.id),
            class: format!("{form}{dense}"),
            title: format!("{} over time", about.heading),
            size: *size,
            x,
            y: about.axis(),
            guide: end_of_warmup(result, about.kind, &series),
            series: series.clone(),
            direct_labels: *form == "wide",
            columns: Some("after".to_owned()),
        }
        .draw()
    });
    let keys = lines.iter().enumerate().map(|(index, (name, _))| Key::of_line(index, name));
    Some(about.figure(forms.collect(), keys.collect(), table(points, about, lines)))
}

fn series(points: &[Point], about: &LineFigure, index: usize, (name, value): Line) -> Series {
    let mark = |point: &Point| {
        let y = value(point)?;
        let at = format!("{} s", number(point.at_s));
        Some(Mark { x: point.at_s, y, band: (y, y), at, value: (about.show)(y), ..Mark::default() })
    };
    Series {
        name: name.to_owned(),
        index,
        look: Look::Measured,
        marks: points.iter().filter_map(mark).collect(),
    }
}

/// A line where measuring began, as high as the others.
fn end_of_warmup(result: &LoadResult, kind: AxisKind, series: &[Series]) -> Option<Guide> {
    let warmup: Nanos = result.manifest.config.get("warmup")?.parse().ok()?;
    let values = || series.iter().flat_map(|series| &series.marks).map(|mark| mark.y).filter(|y| *y > 0.0);
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let at = warmup.as_secs_f64();
    // Zero has no place on a logarithmic axis.
    let foot = if kind == AxisKind::Log { low } else { 0.0 };
    let label = "measured from here".to_owned();
    (warmup > Nanos::ZERO).then(|| Guide { corners: vec![(at, foot), (at, high)], label })
}

fn table(points: &[Point], about: &LineFigure, lines: &[Line]) -> Table {
    let cell = |value: Option<f64>| value.map_or("–".to_owned(), about.show);
    let row = |point: &Point| {
        let place = format!("{} s", number(point.at_s));
        [place].into_iter().chain(lines.iter().map(|(_, value)| cell(value(point)))).collect()
    };
    Table {
        head: ["until"].into_iter().chain(lines.iter().map(|(name, _)| *name)).map(str::to_owned).collect(),
        rows: points.iter().map(row).collect(),
    }
}

fn outcomes(result: &LoadResult) -> Figure {
    let points = &result.series;
    let seen: Vec<Outcome> = Outcome::ALL
        .into_iter()
        .filter(|outcome| points.iter().any(|point| point.outcomes.get(*outcome) > 0))
        .collect();
    let forms = FORMS.iter().map(|(form, size, most)| {
        let bars: Vec<Bar> =
            points.chunks(points.len().div_ceil(*most)).map(|points| bar(points, &seen)).collect();
        let height = |bar: &Bar| bar.segments.iter().map(|segment| segment.height).sum();
        BarChart {
            id: format!("chart-outcomes-{form}"),
            class: (*form).to_owned(),
            title: "What became of requests over time".to_owned(),
            size: *size,
            y_title: "requests/s".to_owned(),
            unit: Unit::Count,
            legend: Vec::new(),
            y_max: bars.iter().map(height).fold(0.0, f64::max),
            column: "until".to_owned(),
            bars,
        }
        .draw()
    });
    let endings = || seen.iter().map(|outcome| Ending::Ended(*outcome));
    Figure {
        id: "outcomes",
        heading: "What became of requests",
        caption: "Each request that was offered ends in one way; this is when they ended. Below each bar stands the time since the \
                  run began, in seconds.".to_owned(),
        forms: forms.collect(),
        keys: endings()
            .map(|ending| Key {
                name: ending.name().to_owned(),
                series: None,
                class: ending.class().to_owned(),
                swatch: String::new(),
            })
            .collect(),
        table: outcome_table(points, &seen),
    }
}

/// Neighbouring points as one bar.
fn bar(points: &[Point], seen: &[Outcome]) -> Bar {
    let seconds: f64 = points.iter().map(|point| point.interval_s).sum();
    let ended = |outcome| points.iter().map(|point| point.outcomes.get(outcome)).sum::<u64>() as f64;
    let all: f64 = seen.iter().map(|outcome| ended(*outcome)).sum();
    let segment = |outcome: &Outcome| {
        let per_s = if seconds > 0.0 { ended(*outcome) / seconds } else { 0.0 };
        let share = if all > 0.0 { ended(*outcome) / all } else { 0.0 };
        Segment {
            name: Ending::Ended(*outcome).name().to_owned(),
            class: Ending::Ended(*outcome).class(),
            height: per_s,
            value: format!("{} ({})", rate(per_s), percent(share)),
        }
    };
    let until_s = points.last().map_or(0.0, |point| point.at_s);
    Bar {
        label: count(until_s),
        detail: String::new(),
        at: format!("{} s", number(until_s)),
        segments: seen.iter().map(segment).collect(),
    }
}

fn outcome_table(points: &[Point], seen: &[Outcome]) -> Table {
    let row = |point: &Point| {
        let counts = seen.iter().map(|outcome| point.outcomes.get(*outcome).to_string());
        [format!("{} s", number(point.at_s))].into_iter().chain(counts).collect()
    };
    Table {
        head: ["until"]
            .into_iter()
            .chain(seen.iter().map(|outcome| Ending::Ended(*outcome).name()))
            .map(str::to_owned)
            .collect(),
        rows: points.iter().map(row).collect(),
    }
}
