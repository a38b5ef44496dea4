//! The short table for the terminal.

use record::Study;

use super::summary::{LoadPoint, ServerSummary, summarise};
use super::wording;
use crate::columns::aligned;
use crate::format::{multiple, percent, printable, rate, time};

const HEAD: [&str; 7] = ["server", "capacity", "best", "kept", "median", "p99", "drops"];
/// A name longer than this pushes the table past eighty columns.
const NAME_MAX: usize = 24;

/// The study as a table of plain text, a line a server, followed by its warnings.
pub fn text(study: &Study) -> String {
    let servers = summarise(study);
    let heaviest = servers.iter().filter_map(ServerSummary::heaviest).map(|point| point.factor);
    let heaviest = heaviest.fold(0.0, f64::max);
    let mut out = format!("{}\n\n", printable(&study.title));
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(servers.iter().filter_map(row));
    if rows.len() > 1 {
        out.push_str(&aligned(&rows, &[]));
        out.push_str(&format!(
            "\ncapacity: the highest load answered in full, from short runs before the trials. best: the highest goodput \
             of all loads, which can be above the capacity: more is answered there, but not in full. kept (of the best), \
             response time and kernel drops: at {} the capacity.\n",
            multiple(heaviest)
        ));
        if servers.iter().filter_map(ServerSummary::heaviest).any(|point| point.limited > 0) {
            out.push_str("(!): there the load generator was the limit, so that the truth may be higher.\n");
        }
    }
    for server in servers.iter().filter(|server| server.points.is_empty()) {
        out.push_str(&format!(
            "{}: {}\n",
            printable(&server.entry.name),
            printable(&wording::verdict(server))
        ));
    }
    for warning in wording::warnings(study, &servers) {
        out.push_str(&format!("warning: {}\n", printable(&warning)));
    }
    out
}

fn row(server: &ServerSummary<'_>) -> Option<[String; 7]> {
    let (best, heaviest) = (server.best()?, server.heaviest()?);
    let duration = |of: fn(&LoadPoint) -> Option<f64>| of(heaviest).map_or("no reply".to_owned(), time);
    let name: String = printable(&server.entry.name);
    let name = if name.chars().count() > NAME_MAX {
        name.chars().take(NAME_MAX - 1).chain(['…']).collect()
    } else {
        name
    };
    let doubt = if heaviest.limited > 0 { " (!)" } else { "" };
    Some([
        name,
        rate(server.entry.capacity_per_s),
        rate(best.goodput.median),
        format!("{}{doubt}", server.kept().map_or("-".to_owned(), percent)),
        duration(|point| point.p50.map(|spread| spread.median)),
        duration(|point| point.p99.map(|spread| spread.median)),
        rate(heaviest.drops.median),
    ])
}
