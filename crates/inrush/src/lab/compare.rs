//! `inrush lab compare`: two runs of an experiment, as a table or as JSON.

use report::experiment_runs::{of_folders, text};

use crate::cli::{CompareFlags, CompareOutput};
use crate::exit::Exit;
use crate::output;

/// Compares two runs and prints the result. Returns exit code 4 if a measure got worse.
pub fn run(flags: &CompareFlags) -> Result<(), Exit> {
    let matters = flags.matters.probability();
    let comparisons = of_folders(&flags.first, &flags.second, matters)
        .map_err(|error| Exit::Failed(format!("{error:#}")))?;
    match flags.output {
        CompareOutput::Text => {
            let tables: Vec<String> = comparisons.iter().map(text).collect();
            output::text("the rows", &tables.join("\n"))?;
        }
        CompareOutput::Json => output::json("the rows", &comparisons)?,
    }
    let worse: usize = comparisons.iter().map(|comparison| comparison.worse().count()).sum();
    match worse {
        0 => Ok(()),
        1 => Err(Exit::Threshold("1 measure got worse".to_owned())),
        _ => Err(Exit::Threshold(format!("{worse} measures got worse"))),
    }
}
