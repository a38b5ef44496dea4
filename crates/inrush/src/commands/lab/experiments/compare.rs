//! `inrush lab compare`: two runs of an experiment, as a table or as JSON.

use report::experiment_runs::{of_folders, text};

use crate::cli::CompareFlags;
use crate::exit::Exit;
use crate::output;

/// Compares two runs and prints the result. Returns exit code 4 if a measure got worse.
pub fn run(flags: &CompareFlags) -> Result<(), Exit> {
    let matters = flags.matters.probability();
    let comparisons = of_folders(&flags.first, &flags.second, matters)
        .map_err(|error| Exit::Usage(format!("{error:#}")))?;
    let tables = || comparisons.iter().map(text).collect::<Vec<_>>().join("\n");
    output::result("the rows", flags.output, &comparisons, tables)?;
    let worse: usize = comparisons.iter().map(|comparison| comparison.worse().count()).sum();
    match worse {
        0 => Ok(()),
        1 => Err(Exit::Threshold("1 measure got worse".to_owned())),
        _ => Err(Exit::Threshold(format!("{worse} measures got worse"))),
    }
}
