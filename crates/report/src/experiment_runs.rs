//! Two runs of one experiment side by side, as one table for the terminal.

use std::path::Path;

use analysis::Analysed;
use analysis::experiment_runs::{Change, Comparison, Lost, Row, compare};
use anyhow::bail;
use base::printable;

use crate::columns::aligned;
use crate::format::{multiple, number, percent};
use crate::paper::runs_in;

const HEAD: [&str; 9] =
    ["server", "load", "metric", "first", "second", "ratio", "95 % interval", "chance", "change"];

/// The columns that hold words.
const WORDS: [usize; 4] = [0, 1, 2, HEAD.len() - 1];

/// Compares the run in a second folder with that in a first one, or all runs with the same names in both. Changes
/// below the share `matters` do not count.
///
/// # Errors
/// A record cannot be read, or the folders have nothing in common.
pub fn of_folders(first: &Path, second: &Path, matters: f64) -> anyhow::Result<Vec<Comparison>> {
    let pair = |first: &Path, second: &Path| -> anyhow::Result<Comparison> {
        let (before, after) = (Analysed::read(first)?, Analysed::read(second)?);
        Ok(compare(&before.experiment, (&before.run, &after.run), matters))
    };
    let is_run = |folder: &Path| folder.join("experiment.json").exists();
    let comparisons = match (is_run(first), is_run(second)) {
        (true, true) => vec![pair(first, second)?],
        (false, false) => {
            let others = runs_in(second)?;
            let both = runs_in(first)?.into_iter().filter(|name| others.contains(name));
            both.map(|name| pair(&first.join(&name), &second.join(&name))).collect::<Result<_, _>>()?
        }
        _ => {
            bail!("one folder holds a run, the other does not: {} and {}", first.display(), second.display())
        }
    };
    if comparisons.iter().all(|comparison| comparison.rows.is_empty() && comparison.lost.is_empty()) {
        bail!(
            "{} and {} have no point in common: nothing can be compared",
            first.display(),
            second.display()
        );
    }
    Ok(comparisons)
}

/// Writes the table, its findings and its warnings.
pub fn text(comparison: &Comparison) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(comparison.rows.iter().map(cells));
    let mut out = format!("{}: second over first\n\n", printable(&comparison.experiment));
    out.push_str(&aligned(&rows, &WORDS));
    out.push_str(&format!(
        "\nchance: that a difference like this comes about by itself, corrected for {} rows. A change has at most 5 %, \
         an interval without 1, and is at least {}.\n",
        comparison.rows.len(),
        percent(comparison.matters)
    ));
    for row in comparison.rows.iter().filter(|row| row.change != Change::Same) {
        if let Some((point, ratio)) = &row.most_at {
            let (server, metric) = (printable(&row.server), &row.metric);
            out.push_str(&format!(
                "{server}, {metric}: most at {}: {}\n",
                printable(point),
                multiple(*ratio)
            ));
        }
    }
    for Lost { server, load, points, of } in &comparison.lost {
        let load = load.as_ref().map_or(String::new(), |load| format!(", {}", printable(load)));
        out.push_str(&format!(
            "warning: {}{load}: the second run has no valid trial at {points} of the first run's {of} points.\n",
            printable(server)
        ));
    }
    for warning in &comparison.warnings {
        out.push_str(&format!("warning: {}\n", printable(warning)));
    }
    out
}

fn cells(row: &Row) -> Vec<String> {
    let [low, high] = row.interval;
    vec![
        printable(&row.server).into_owned(),
        printable(row.load.as_deref().unwrap_or("-")).into_owned(),
        row.metric.clone(),
        number(row.first),
        number(row.second),
        multiple(row.ratio),
        format!("{} to {}", multiple(low), multiple(high)),
        percent(row.chance),
        match row.change {
            Change::Better => "better",
            Change::Worse => "WORSE",
            Change::Different => "different",
            Change::Same => "-",
        }
        .to_owned(),
    ]
}
