//! The points of a herd as a page of charts, beside the paper's numbers.

use ::herd::{PAPER, PaperLine, Point, Wait, text};
use report::page::charts::{Chart, html};
use report::svg::{AxisKind, AxisSpec, LineChart, Look, Mark, Series, Unit};

const SIZE: (f64, f64) = (840.0, 430.0);

/// The page with all charts.
pub fn page(points: &[Point]) -> String {
    let settle = chart("settle", "settle time", Unit::Time, points, settle_mark, &PAPER);
    let wakeups = chart("wake-ups", "wake-ups for one connection", Unit::Count, points, wakeups_mark, &[]);
    let cpu = chart("cpu", "CPU time for one connection", Unit::Time, points, cpu_mark, &[]);
    let lede = format!(
        "N tasks wait for one connection: how long until the last that woke sleeps again, how many wake, and what it \
         costs. Each point is the median (settle time) or the mean of {}; the band of a settle time reaches up to its \
         95th percentile, the others' is a 95 % confidence interval. Hollow marks are the paper's own table, in which \
         each point was measured once.",
        connections(points)
    );
    let charts = [
        (
            "Settle time",
            "From just before connect() until the last woken waiter sleeps again; lower is better.",
            settle,
        ),
        ("Wake-ups", "How often a waiter woke for one connection; 1 is enough.", wakeups),
        ("CPU time", "Of all waiters, the acceptor, and connect() itself.", cpu),
    ]
    .map(|(heading, caption, lines)| Chart {
        heading: heading.to_owned(),
        caption: caption.to_owned(),
        lines,
    });
    html("The thundering herd", &lede, &charts, &text(points))
}

fn connections(points: &[Point]) -> String {
    let least = points.iter().map(|point| point.samples).min().unwrap_or(0);
    format!("{least} connections")
}

fn chart(
    id: &str,
    quantity: &str,
    unit: Unit,
    points: &[Point],
    mark: fn(&Point) -> Mark,
    paper: &[PaperLine],
) -> LineChart {
    let measured = Wait::ALL.iter().enumerate().filter_map(|(index, wait)| {
        let marks: Vec<Mark> = points.iter().filter(|point| point.wait == *wait).map(mark).collect();
        (!marks.is_empty()).then(|| Series { name: wait.to_string(), index, look: Look::Measured, marks })
    });
    let paper = paper.iter().enumerate().map(|(index, line)| Series {
        name: line.name.to_owned(),
        index: Wait::ALL.len() + index,
        look: Look::Published { like: Some(Wait::ALL.len() + index) },
        marks: line.points.iter().map(paper_mark).collect(),
    });
    LineChart {
        id: id.to_owned(),
        class: String::new(),
        title: quantity.to_owned(),
        size: SIZE,
        x: axis("waiters", Unit::Count),
        y: axis(quantity, unit),
        series: measured.chain(paper).collect(),
        guide: None,
        direct_labels: true,
        columns: None,
    }
}

fn axis(title: &str, unit: Unit) -> AxisSpec {
    AxisSpec::new(title, AxisKind::Log, unit)
}

fn settle_mark(point: &Point) -> Mark {
    let ns = |us: f64| us * 1e3;
    let (p50, p95) = (ns(point.settle_us.p50), ns(point.settle_us.p95));
    marked(point.waiters as f64, p50, (p50, p95), Unit::Time)
}

fn wakeups_mark(point: &Point) -> Mark {
    let interval = point.wakeups_per_connection_ci95;
    marked(point.waiters as f64, point.wakeups_per_connection, (interval.low, interval.high), Unit::Count)
}

fn cpu_mark(point: &Point) -> Mark {
    let interval = point.cpu_us_per_connection_ci95;
    let band = (interval.low * 1e3, interval.high * 1e3);
    marked(point.waiters as f64, point.cpu_us_per_connection * 1e3, band, Unit::Time)
}

fn paper_mark((waiters, ms): &(f64, f64)) -> Mark {
    let ns = ms * 1e6;
    Mark { hollow: true, ..marked(*waiters, ns, (ns, ns), Unit::Time) }
}

fn marked(waiters: f64, y: f64, band: (f64, f64), unit: Unit) -> Mark {
    let range = if band.0 < band.1 {
        format!("{} to {}", unit.show(band.0), unit.show(band.1))
    } else {
        String::new()
    };
    let (at, value) = (format!("{waiters} waiters"), unit.show(y));
    Mark { x: waiters, y, band, at, value, range, ..Mark::default() }
}
