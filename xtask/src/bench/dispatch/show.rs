//! The costs of the mechanisms as text tables and as a page of plots.

use report::columns::aligned;
use report::svg::{AxisKind, Unit};
use statistics::Spread;

use super::{READY, Results, Wait};
use crate::bench::Common;
use crate::bench::plot::{self, Along, Figure};

const LEDE: &str = "CPU time of the waiting thread, on Unix socket pairs in one process. A turn is as many \
                    waits that do not block as it takes until every ready descriptor is reported. Points are \
                    medians over the rounds, bands reach from the least to the largest.";
const CAPTION: &str = "Lower is better; a level line does not care.";
const COST: Along = ("CPU time of a turn", AxisKind::Log, Unit::Time);

/// Two tables: turns, and changes of interest.
pub fn text(results: &Results) -> String {
    let mut rows =
        vec![["a turn, ns", "registered", "0 ready", "1 ready", "10 ready", "100 ready"].map(str::to_owned)];
    let mut seen: Vec<(&str, usize)> =
        results.waits.iter().map(|wait| (wait.mechanism, wait.registered)).collect();
    seen.dedup();
    for (mechanism, registered) in seen {
        let [none, one, ten, hundred] = READY.map(|ready| {
            let same = |wait: &&Wait| {
                (wait.mechanism, wait.registered, wait.ready) == (mechanism, registered, ready)
            };
            results.waits.iter().find(same).map_or("-".to_owned(), |wait| whole(wait.ns))
        });
        rows.push([mechanism.to_owned(), registered.to_string(), none, one, ten, hundred]);
    }
    let mut changes = vec![["a change, ns", "register", "modify", "deregister"].map(str::to_owned)];
    for change in &results.changes {
        let costs = [change.register_ns, change.modify_ns, change.deregister_ns];
        let [register, modify, deregister] = costs.map(whole);
        changes.push([change.mechanism.to_owned(), register, modify, deregister]);
    }
    format!("{}\n{}", aligned(&rows, &[]), aligned(&changes, &[]))
}

fn whole(spread: Spread) -> String {
    format!("{:.0}", spread.median)
}

/// Writes the page: against what is registered, with none and with one ready, and against what is ready.
pub fn draw(common: &Common, results: &Results, text: &str) -> anyhow::Result<()> {
    let registered = ("registered descriptors", AxisKind::Log, Unit::Count);
    let against_registered = |heading: &str, ready: usize| Figure {
        heading: heading.to_owned(),
        caption: CAPTION,
        x: registered,
        y: COST,
        lines: lines(results, |wait| (wait.ready == ready).then_some(wait.registered)),
    };
    let most = results.waits.iter().map(|wait| wait.registered).max().unwrap_or(0);
    let figures = [
        against_registered("Nothing ready", 0),
        against_registered("One descriptor ready", 1),
        Figure {
            heading: format!("{most} descriptors registered"),
            caption: CAPTION,
            x: ("ready descriptors", AxisKind::Log, Unit::Count),
            y: COST,
            lines: lines(results, |wait| (wait.registered == most && wait.ready > 0).then_some(wait.ready)),
        },
    ];
    plot::write(common, "dispatch", "What event mechanisms cost", LEDE, &figures, text)
}

/// A line for each mechanism, of the waits that have a place along x.
fn lines(results: &Results, x: impl Fn(&Wait) -> Option<usize>) -> Vec<(&'static str, Vec<(f64, Spread)>)> {
    let point = |wait: &Wait| x(wait).map(|x| (x as f64, wait.ns));
    let of = |mechanism| {
        let waits = results.waits.iter().filter(move |wait| wait.mechanism == mechanism);
        (mechanism, waits.filter_map(point).collect())
    };
    results.changes.iter().map(|change| of(change.mechanism)).collect()
}
