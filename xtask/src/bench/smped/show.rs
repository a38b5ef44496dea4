//! How architectures do under more and more clients, as a text table and as a page of plots.

use report::columns::aligned;
use report::svg::{AxisKind, Unit};
use statistics::Spread;

use super::{Knee, Point, Results};
use crate::bench::Common;
use crate::bench::plot::{self, Along, Figure};

const LEDE: &str = "Servers on one CPU, their event loops waiting by select; clients in a closed loop on another. \
                    Points are medians over the rounds, bands reach from the least to the largest.";
const CLIENTS: Along = ("clients", AxisKind::Log, Unit::Count);

/// The table, the knees, and what could not be measured.
pub fn text(results: &Results) -> String {
    let head = ["server", "cold %", "clients", "replies/s", "min..max", "median ms", "generator limited"];
    let mut rows = vec![head.map(str::to_owned)];
    for point in &results.points {
        let rate = point.replies_per_s();
        let limited = point.samples.iter().filter(|sample| sample.generator_limited).count();
        rows.push([
            point.server.to_owned(),
            point.cold_percent.to_string(),
            point.clients.to_string(),
            rate.map_or("-".to_owned(), |rate| format!("{:.0}", rate.median)),
            rate.map_or("-".to_owned(), |rate| format!("{:.0}..{:.0}", rate.min, rate.max)),
            point.response_ms().map_or("-".to_owned(), |response| format!("{:.2}", response.median)),
            if limited == 0 { "-".to_owned() } else { format!("{limited} of {}", point.samples.len()) },
        ]);
    }
    let knees: String = results.knees.iter().map(line).collect();
    let failed = results.failed.iter().map(|failure| format!("not measured: {failure}\n"));
    format!("{}\n{knees}{}", aligned(&rows, &[]), failed.collect::<String>())
}

fn line(knee: &Knee) -> String {
    let Knee { server, cold_percent, clients, best_replies_per_s, kept_at_tenfold } = knee;
    let kept = kept_at_tenfold.map_or("not measured".to_owned(), |kept| format!("{:.0} %", kept * 100.0));
    format!(
        "{server}, {cold_percent} % cold: best {best_replies_per_s:.0} replies/s, knee at {clients} clients, \
         kept at ten times as many: {kept}\n"
    )
}

/// Writes the page: reply rate and response time against clients, for each mixture.
pub fn draw(common: &Common, results: &Results, text: &str) -> anyhow::Result<()> {
    let mut mixtures: Vec<u32> = results.points.iter().map(|point| point.cold_percent).collect();
    mixtures.dedup();
    let mut figures = Vec::new();
    for cold in mixtures {
        figures.push(Figure {
            heading: format!("Reply rate, {cold} % of the clients cold"),
            caption: "A server that is overloaded keeps its level, or falls.",
            x: CLIENTS,
            y: ("replies/s", AxisKind::Linear, Unit::Count),
            lines: lines(results, cold, Point::replies_per_s),
        });
        figures.push(Figure {
            heading: format!("Response time of hot clients, {cold} % of the clients cold"),
            caption: "From when a request was sent; lower is better.",
            x: CLIENTS,
            y: ("median response time", AxisKind::Log, Unit::Time),
            lines: lines(results, cold, |point| point.response_ms().map(in_ns)),
        });
    }
    plot::write(common, "smped", "Architectures under many clients", LEDE, &figures, text)
}

fn in_ns(ms: Spread) -> Spread {
    Spread { median: ms.median * 1e6, min: ms.min * 1e6, max: ms.max * 1e6 }
}

/// A line for each server.
fn lines(
    results: &Results,
    cold_percent: u32,
    value: impl Fn(&Point) -> Option<Spread>,
) -> Vec<(&'static str, Vec<(f64, Spread)>)> {
    let of = results.points.iter().filter(|point| point.cold_percent == cold_percent);
    let mut lines: Vec<(&'static str, Vec<(f64, Spread)>)> = Vec::new();
    for point in of {
        let Some(value) = value(point) else { continue };
        let place = (f64::from(point.clients), value);
        match lines.last_mut().filter(|(server, _)| *server == point.server) {
            Some((_, places)) => places.push(place),
            None => lines.push((point.server, vec![place])),
        }
    }
    lines
}
