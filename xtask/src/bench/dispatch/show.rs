//! The costs of the mechanisms as text tables.

use report::columns::aligned;
use statistics::Spread;

use super::{READY, Results, Wait};

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
