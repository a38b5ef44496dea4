//! The figures of a study: goodput, response time, outcomes, drops, accept phases.
//!
//! Lines are drawn twice, over the offered rate and over multiples of each server's own capacity; the
//! page shows one of the two. The main figure is also drawn in a narrow form, for text that stays
//! readable on a small screen.

use record::Outcome;
use statistics::Spread;

use super::summary::{LoadPoint, ServerSummary};
use crate::ending::Ending;
use crate::figure::{Figure, Key, Panel};
use crate::format::{count, multiple, number, percent, rate, time};
use crate::svg::{AxisKind, AxisSpec, Bar, BarChart, Guide, LineChart, Look, Mark, Segment, Series, Unit};
use crate::table::Table;

/// What the x axis counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    /// Requests a second.
    Rate,
    /// Multiples of each server's own capacity.
    Times,
}

/// A quantity to draw as lines.
struct Quantity {
    title: &'static str,
    unit: Unit,
    kind: AxisKind,
    of: fn(&ServerSummary<'_>, &LoadPoint) -> Option<Spread>,
    show: fn(f64) -> String,
}

const GOODPUT: Quantity = Quantity {
    title: "goodput (correct replies/s)",
    unit: Unit::Count,
    kind: AxisKind::Linear,
    of: |_, point| Some(point.goodput),
    show: rate,
};
const GOODPUT_SHARE: Quantity = Quantity {
    title: "goodput (share of own capacity)",
    unit: Unit::Share,
    kind: AxisKind::Linear,
    of: |server, point| {
        let capacity = server.entry.capacity_per_s;
        (capacity > 0.0).then(|| point.goodput.map(|per_s| per_s / capacity))
    },
    show: percent,
};
const MEDIAN: Quantity = Quantity {
    title: "response time from the intended time",
    unit: Unit::Time,
    kind: AxisKind::Log,
    of: |_, point| point.p50,
    show: time,
};
const P99: Quantity = Quantity { of: |_, point| point.p99, ..MEDIAN };
const DROPS: Quantity = Quantity {
    title: "dropped at the listener (segments/s)",
    unit: Unit::Count,
    kind: AxisKind::Linear,
    of: |_, point| Some(point.drops),
    show: rate,
};
const PER_PHASE: Quantity = Quantity {
    title: "connections accepted per accept phase",
    unit: Unit::Count,
    kind: AxisKind::Log,
    of: |_, point| point.per_phase,
    show: number,
};

const WIDE: (f64, f64) = (840.0, 430.0);
const NARROW: (f64, f64) = (400.0, 340.0);
const PANEL: (f64, f64) = (440.0, 310.0);
/// For three beside each other.
const SLIM: (f64, f64) = (310.0, 290.0);

/// The figures, in the order of the page; what the study has nothing on is left out.
pub fn figures(servers: &[ServerSummary<'_>]) -> Vec<Figure> {
    if servers.iter().all(|server| server.points.is_empty()) {
        return Vec::new();
    }
    let mut figures = vec![goodput(servers), response(servers), outcomes(servers), drops(servers)];
    figures.extend(phases(servers));
    figures
}

fn goodput(servers: &[ServerSummary<'_>]) -> Figure {
    let mut forms = Vec::new();
    for (view, quantity) in [(View::Rate, &GOODPUT), (View::Times, &GOODPUT_SHARE)] {
        for (form, size) in [("wide", WIDE), ("narrow", NARROW)] {
            let mut chart = line_chart("goodput", form, view, quantity, servers, size);
            chart.direct_labels = form == "wide";
            let guide = ideal(view, servers);
            chart.x.also.extend(guide.corners.iter().map(|(x, _)| *x));
            chart.y.also.extend(guide.corners.iter().map(|(_, y)| *y));
            chart.guide = Some(guide);
            forms.push(chart.draw());
        }
    }
    Figure {
        id: "goodput",
        heading: "Goodput",
        caption: goodput_caption(servers),
        width: "full",
        panels: vec![Panel { heading: String::new(), class: String::new(), forms }],
        keys: keys(servers, |_| true),
        table: pivot(servers, &[("", &GOODPUT)]),
    }
}

fn goodput_caption(servers: &[ServerSummary<'_>]) -> String {
    let mut caption =
        "Correct replies a second against requests offered a second. A server that keeps its head \
                       stays at its capacity however much more arrives."
            .to_owned();
    let points = || servers.iter().flat_map(|server| &server.points);
    if points().any(|point| point.trials > 1) {
        caption.push_str(
            " Lines join medians over the repetitions; the band behind a line reaches from the least to the \
             largest.",
        );
    }
    if points().any(|point| point.limited > 0) {
        caption.push_str(
            " A hollow point is one where the load generator was the limit: the truth may be higher.",
        );
    }
    caption
}

/// Every request answered, up to capacity.
fn ideal(view: View, servers: &[ServerSummary<'_>]) -> Guide {
    let label = "every request answered".to_owned();
    match view {
        View::Rate => {
            let measured = servers.iter().filter(|server| !server.points.is_empty());
            let capacity = measured.map(|server| server.entry.capacity_per_s).fold(0.0, f64::max);
            Guide { corners: vec![(0.0, 0.0), (capacity, capacity)], label }
        }
        View::Times => {
            let points = servers.iter().flat_map(|server| &server.points);
            let end = points.map(|point| point.factor).fold(1.0, f64::max);
            Guide { corners: vec![(0.0, 0.0), (1.0, 1.0), (end, 1.0)], label }
        }
    }
}

fn response(servers: &[ServerSummary<'_>]) -> Figure {
    let both: Vec<f64> = [&MEDIAN, &P99]
        .into_iter()
        .flat_map(|quantity| {
            let points =
                servers.iter().flat_map(|server| server.points.iter().map(move |point| (server, point)));
            points.filter_map(|(server, point)| (quantity.of)(server, point))
        })
        .flat_map(|spread| [spread.min, spread.max])
        .collect();
    let panel = |id: &str, heading: &str, quantity: &Quantity| {
        let form = |view| {
            let mut chart = line_chart(id, "panel", view, quantity, servers, PANEL);
            chart.title = format!("{heading} of the response time");
            chart.y.also.clone_from(&both);
            chart.draw()
        };
        let forms = vec![form(View::Rate), form(View::Times)];
        Panel { heading: heading.to_owned(), class: String::new(), forms }
    };
    Figure {
        id: "response",
        heading: "Response time",
        caption:
            "From the time a request was meant to be sent until its reply was complete, so that waiting \
                  for a connection counts. Only requests that were answered have one: where many fail, the \
                  time of the others says little. Both axes of time are the same, and logarithmic."
                .to_owned(),
        width: "full",
        panels: vec![panel("median", "Median", &MEDIAN), panel("p99", "99th percentile", &P99)],
        keys: keys(servers, |_| true),
        table: pivot(servers, &[("median", &MEDIAN), ("p99", &P99)]),
    }
}

fn drops(servers: &[ServerSummary<'_>]) -> Figure {
    let any = servers.iter().flat_map(|server| &server.points).any(|point| point.drops.max > 0.0);
    let caption = if any {
        "What the kernel threw away before the server saw it, because a queue of the listener was full. \
         The client tries a dropped connection again, so there can be more drops than connections."
    } else {
        "The kernel dropped nothing at the listener, at any load."
    };
    Figure {
        id: "drops",
        heading: "Queue drops",
        caption: caption.to_owned(),
        width: "half",
        panels: if any { vec![plain_panel("drops", &DROPS, servers)] } else { Vec::new() },
        keys: if any { keys(servers, |_| true) } else { Vec::new() },
        table: pivot(servers, &[("", &DROPS)]),
    }
}

/// Absent where no server reports its accept phases.
fn phases(servers: &[ServerSummary<'_>]) -> Option<Figure> {
    let reports = |server: &ServerSummary<'_>| server.points.iter().any(|point| point.per_phase.is_some());
    servers.iter().any(reports).then(|| Figure {
        id: "phases",
        heading: "Accept phases",
        caption: "How many connections the server takes each time it turns to its listener. Accept rate is \
                  accept phases a second times this."
            .to_owned(),
        width: "half",
        panels: vec![plain_panel("phases", &PER_PHASE, servers)],
        keys: keys(servers, reports),
        table: pivot(servers, &[("", &PER_PHASE)]),
    })
}

fn plain_panel(id: &str, quantity: &Quantity, servers: &[ServerSummary<'_>]) -> Panel {
    let form = |view| line_chart(id, "panel", view, quantity, servers, PANEL).draw();
    Panel { heading: String::new(), class: String::new(), forms: vec![form(View::Rate), form(View::Times)] }
}

fn line_chart(
    id: &str,
    form: &str,
    view: View,
    quantity: &Quantity,
    servers: &[ServerSummary<'_>],
    size: (f64, f64),
) -> LineChart {
    let (suffix, x_title, x_unit) = match view {
        View::Rate => ("rate", "offered load (requests/s)", Unit::Count),
        View::Times => ("times", "offered load (multiples of own capacity)", Unit::Multiple),
    };
    let series = servers.iter().enumerate().map(|(index, server)| Series {
        name: server.entry.name.clone(),
        index,
        look: Look::Measured,
        marks: server.points.iter().filter_map(|point| mark(server, point, view, quantity)).collect(),
    });
    LineChart {
        id: format!("chart-{id}-{form}-{suffix}"),
        class: format!("{form} x-{suffix}"),
        title: format!("{} against offered load", quantity.title),
        size,
        x: AxisSpec::new(x_title, AxisKind::Tight, x_unit),
        y: AxisSpec::new(quantity.title, quantity.kind, quantity.unit),
        series: series.filter(|series| !series.marks.is_empty()).collect(),
        guide: None,
        direct_labels: false,
        columns: (view == View::Times).then(|| "offered".to_owned()),
    }
}

fn mark(server: &ServerSummary<'_>, point: &LoadPoint, view: View, quantity: &Quantity) -> Option<Mark> {
    let spread = (quantity.of)(server, point)?;
    let limited = if point.limited > 0 { ", generator-limited" } else { "" };
    let (x, at) = match view {
        View::Rate => {
            (point.offered.median, format!("{} ({})", rate(point.offered.median), multiple(point.factor)))
        }
        View::Times => (point.factor, multiple(point.factor)),
    };
    Some(Mark {
        x,
        y: spread.median,
        band: (spread.min, spread.max),
        hollow: point.limited > 0,
        at,
        value: format!("{}{limited}", (quantity.show)(spread.median)),
        range: range(spread, quantity.show).unwrap_or_default(),
        ..Mark::default()
    })
}

/// `11.8k/s (11.2k/s–12k/s)`.
fn with_range(spread: Spread, show: fn(f64) -> String) -> String {
    match range(spread, show) {
        Some(range) => format!("{} ({range})", show(spread.median)),
        None => show(spread.median),
    }
}

/// From the least to the largest, unless both round to the median.
fn range(spread: Spread, show: fn(f64) -> String) -> Option<String> {
    let (median, min, max) = (show(spread.median), show(spread.min), show(spread.max));
    (min != median || max != median).then(|| format!("{min}–{max}"))
}

fn outcomes(servers: &[ServerSummary<'_>]) -> Figure {
    let totals = servers.iter().flat_map(|server| &server.points);
    let tallest = totals.map(|point| point.ended.iter().map(|(_, per_s)| per_s).sum()).fold(0.0, f64::max);
    let seen: Vec<Ending> = Outcome::ALL
        .map(Ending::Ended)
        .into_iter()
        .chain([Ending::InFlight])
        .filter(|ending| {
            let points = servers.iter().flat_map(|server| &server.points);
            points.flat_map(|point| &point.ended).any(|(kind, per_s)| kind == ending && *per_s > 0.0)
        })
        .collect();
    let measured = || servers.iter().enumerate().filter(|(_, server)| !server.points.is_empty());
    let size = if measured().count() == 3 { SLIM } else { PANEL };
    let chart = |index: usize, server: &ServerSummary<'_>| BarChart {
        id: format!("chart-outcomes-{index}"),
        class: "panel".to_owned(),
        title: format!("Outcomes of {}", server.entry.name),
        size,
        y_title: "requests/s".to_owned(),
        unit: Unit::Count,
        legend: Vec::new(),
        y_max: tallest,
        column: "offered".to_owned(),
        bars: server.points.iter().map(|point| outcome_bar(point, &seen)).collect(),
    };
    let panels = measured().map(|(index, server)| Panel {
        heading: server.entry.name.clone(),
        class: format!("s{index}"),
        forms: vec![chart(index, server).draw()],
    });
    Figure {
        id: "outcomes",
        heading: "Outcomes",
        caption: "What became of every request offered. A bar is as high as the load; its lowest part is \
                  goodput. Means over the repetitions, so that the parts add up to what was offered."
            .to_owned(),
        width: "full",
        panels: panels.collect(),
        keys: seen
            .iter()
            .map(|ending| Key {
                name: ending.name().to_owned(),
                series: None,
                class: ending.class().to_owned(),
                swatch: String::new(),
            })
            .collect(),
        table: outcome_table(servers, &seen),
    }
}

fn outcome_bar(point: &LoadPoint, seen: &[Ending]) -> Bar {
    let offered: f64 = point.ended.iter().map(|(_, per_s)| per_s).sum();
    let share = |per_s: f64| if offered > 0.0 { per_s / offered } else { 0.0 };
    let segment = |(ending, per_s): &(Ending, f64)| Segment {
        name: ending.name().to_owned(),
        class: ending.class(),
        height: *per_s,
        value: format!("{} ({})", rate(*per_s), percent(share(*per_s))),
    };
    Bar {
        label: multiple(point.factor),
        detail: count(offered),
        at: format!("{} ({})", rate(offered), multiple(point.factor)),
        segments: point.ended.iter().filter(|(ending, _)| seen.contains(ending)).map(segment).collect(),
    }
}

fn keys(servers: &[ServerSummary<'_>], shown: impl Fn(&ServerSummary<'_>) -> bool) -> Vec<Key> {
    let measured =
        servers.iter().enumerate().filter(|(_, server)| !server.points.is_empty() && shown(server));
    measured.map(|(index, server)| Key::of_line(index, &server.entry.name)).collect()
}

/// Loads down, servers (and quantities) across.
fn pivot(servers: &[ServerSummary<'_>], quantities: &[(&str, &Quantity)]) -> Table {
    let measured: Vec<&ServerSummary<'_>> =
        servers.iter().filter(|server| !server.points.is_empty()).collect();
    let mut factors: Vec<f64> =
        measured.iter().flat_map(|server| &server.points).map(|point| point.factor).collect();
    factors.sort_by(f64::total_cmp);
    factors.dedup();
    let columns =
        || measured.iter().flat_map(|server| quantities.iter().map(move |quantity| (server, quantity)));
    let head =
        columns().map(|(server, (name, _))| format!("{} {name}", server.entry.name).trim_end().to_owned());
    let row = |factor: f64| {
        let cell = |server: &ServerSummary<'_>, quantity: &Quantity| {
            let point = server.points.iter().find(|point| point.factor == factor)?;
            Some(with_range((quantity.of)(server, point)?, quantity.show))
        };
        let cells = columns().map(|(server, (_, quantity))| cell(server, quantity).unwrap_or("–".to_owned()));
        [multiple(factor)].into_iter().chain(cells).collect()
    };
    Table {
        head: ["load".to_owned()].into_iter().chain(head).collect(),
        rows: factors.into_iter().map(row).collect(),
    }
}

fn outcome_table(servers: &[ServerSummary<'_>], seen: &[Ending]) -> Table {
    let names = seen.iter().map(|ending| ending.name().to_owned());
    let points = servers.iter().flat_map(|server| server.points.iter().map(move |point| (server, point)));
    let row = |(server, point): (&ServerSummary<'_>, &LoadPoint)| {
        let parts = point.ended.iter().filter(|(ending, _)| seen.contains(ending));
        let first = [server.entry.name.clone(), multiple(point.factor), rate(point.offered.median)];
        first.into_iter().chain(parts.map(|(_, per_s)| rate(*per_s))).collect()
    };
    Table {
        head: ["server", "load", "offered"].map(str::to_owned).into_iter().chain(names).collect(),
        rows: points.map(row).collect(),
    }
}
