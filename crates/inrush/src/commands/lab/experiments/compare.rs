//! `inrush lab compare`: two runs of an experiment, as a table or as JSON.

use report::experiment_runs::{of_folders, text};

use crate::cli::CompareFlags;
use crate::exit::Exit;
use crate::output;

/// Compares two runs and prints the result. Returns exit code 4 if a measure got worse, or the second run has lost
/// points.
pub fn run(flags: &CompareFlags) -> Result<(), Exit> {
    let matters = flags.matters.probability();
    let comparisons = of_folders(&flags.first, &flags.second, matters)
        .map_err(|error| Exit::Usage(format!("{error:#}")))?;
    let tables = || comparisons.iter().map(text).collect::<Vec<_>>().join("\n");
    output::result("the rows", flags.output, &comparisons, tables)?;
    let worse: usize = comparisons.iter().map(|comparison| comparison.worse().count()).sum();
    let lost: usize =
        comparisons.iter().flat_map(|comparison| &comparison.lost).map(|lost| lost.points).sum();
    let said =
        [(worse, "measure", "got worse"), (lost, "point", "of the first run not measured in the second")];
    let said = said.into_iter().filter(|(count, ..)| *count > 0);
    let said: Vec<String> = said
        .map(|(count, what, how)| format!("{count} {what}{} {how}", if count == 1 { "" } else { "s" }))
        .collect();
    if said.is_empty() { Ok(()) } else { Err(Exit::Threshold(said.join(", "))) }
}
