//! `inrush load compare`: two results side by side.

use std::path::Path;

use analysis::load_runs::compare;
use base::Seed;
use record::LoadResult;

use crate::cli::LoadCompareFlags;
use crate::exit::Exit;
use crate::output;

/// Seed of the drawn blocks: the same two files give the same comparison.
const SEED: Seed = Seed(1);

/// Reads two results, compares them, and prints the comparison.
pub fn run(flags: &LoadCompareFlags) -> Result<(), Exit> {
    let (first, second) = (read(&flags.first)?, read(&flags.second)?);
    let names = [&flags.first, &flags.second].map(|path| path.display().to_string());
    let comparison = compare([(&names[0], &first), (&names[1], &second)], SEED)
        .map_err(|error| Exit::Usage(error.to_string()))?;
    output::result("the comparison", flags.output, &comparison, || report::load_runs::text(&comparison))
}

fn read(path: &Path) -> Result<LoadResult, Exit> {
    let result: LoadResult = record::file::read(path)
        .map_err(|error| Exit::Usage(format!("{error}; expected what inrush load --output json writes")))?;
    if result.schema == record::load::SCHEMA {
        return Ok(result);
    }
    let (path, schema, known) = (path.display(), &result.schema, record::load::SCHEMA);
    Err(Exit::Usage(format!("{path} has the schema '{schema}'; expected {known}")))
}
