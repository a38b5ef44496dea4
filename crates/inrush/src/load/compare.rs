//! `inrush load compare`: two results side by side.

use std::io::{self, Write};
use std::path::Path;

use base::Seed;
use lab::analysis::two_runs::{Comparison, compare};
use record::LoadResult;

use crate::cli::{LoadCompareFlags, LoadCompareOutput};
use crate::exit::Exit;

/// What blocks are drawn by: the same two files give the same comparison.
const SEED: Seed = Seed(1);

/// Reads both, compares them, and prints it.
pub fn run(flags: &LoadCompareFlags) -> Result<(), Exit> {
    let (first, second) = (read(&flags.first)?, read(&flags.second)?);
    let names = [&flags.first, &flags.second].map(|path| path.display().to_string());
    let comparison = compare([(&names[0], &first), (&names[1], &second)], SEED)
        .map_err(|error| Exit::Usage(error.to_string()))?;
    print(&comparison, flags.output)
        .map_err(|error| Exit::Failed(format!("cannot write the comparison: {error}")))
}

fn read(path: &Path) -> Result<LoadResult, Exit> {
    let result: LoadResult = record::file::read(path).map_err(|error| {
        Exit::Usage(format!("{error}; accepted is what inrush load --output json writes"))
    })?;
    if result.schema == record::load::SCHEMA {
        return Ok(result);
    }
    let (path, schema, known) = (path.display(), &result.schema, record::load::SCHEMA);
    Err(Exit::Usage(format!("{path} has the schema '{schema}'; accepted is {known}")))
}

fn print(comparison: &Comparison, output: LoadCompareOutput) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match output {
        LoadCompareOutput::Text => stdout.write_all(lab::report::two_runs::text(comparison).as_bytes()),
        LoadCompareOutput::Json => {
            serde_json::to_writer_pretty(&mut stdout, comparison)?;
            stdout.write_all(b"\n")
        }
    }
}
