//! The outputs of a result: several formats in one run, each to standard output or to a file of its own.

mod csv;

use std::path::Path;

use record::LoadResult;

use super::summary;
use super::watch::{self, Line};
use crate::cli::{LoadReportFlags, Output, OutputTo};
use crate::exit::Exit;
use crate::output;

/// Checks before a run that each output can be written, and that at most one goes to standard output.
///
/// # Errors
/// [`Exit::Usage`].
pub fn check(outputs: &[OutputTo]) -> Result<(), Exit> {
    let mut to_stdout = outputs.iter().filter(|output| output.file.is_none());
    if let (Some(one), Some(other)) = (to_stdout.next(), to_stdout.next()) {
        return Err(Exit::Usage(format!(
            "--output {one} and --output {other} both go to standard output; give one a file, such as {other}=FILE"
        )));
    }
    for output in outputs {
        let Some(file) = &output.file else { continue };
        let wrong =
            |error: std::io::Error| Exit::Usage(format!("--output {output}: cannot write the file: {error}"));
        // The file is written when the result is complete.
        if let (_, true) = output::open_early(file).map_err(wrong)? {
            std::fs::remove_file(file).map_err(wrong)?;
        }
    }
    Ok(())
}

/// Writes a result in every format that is asked for. An output that cannot be written keeps no other from being written.
///
/// # Errors
/// [`Exit::Failed`] if an output cannot be written: the first of them.
pub fn write(result: &LoadResult, outputs: &[OutputTo]) -> Result<(), Exit> {
    let written: Vec<_> = outputs.iter().map(|output| write_one(result, output)).collect();
    written.into_iter().collect()
}

fn write_one(result: &LoadResult, OutputTo { form, file }: &OutputTo) -> Result<(), Exit> {
    let Some(file) = file else { return print(result, *form) };
    let written = bytes(result, *form)
        .and_then(|bytes| record::file::write_whole(file, &bytes).map_err(|error| error.to_string()));
    written.map_err(|error| Exit::Failed(format!("cannot write {}: {error}", file.display())))
}

fn print(result: &LoadResult, form: Output) -> Result<(), Exit> {
    const WHAT: &str = "the result";
    match form {
        Output::Text => output::text(WHAT, &summary::text(result)),
        Output::Json => output::json(WHAT, result),
        Output::Csv => output::write(WHAT, |out| csv::write(out, result)),
        Output::Html => output::text(WHAT, &report::load::html(result)),
        Output::Ndjson => output::write(WHAT, |out| watch::line(out, &Line::Result(result))),
        Output::Junit => output::text(WHAT, &report::load::junit(result)),
        Output::Markdown => output::text(WHAT, &report::load::markdown(result)),
    }
}

/// The content of a file. A file of NDJSON has the points of the series, which a run on a terminal tells as they come.
fn bytes(result: &LoadResult, form: Output) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let written = match form {
        Output::Text => return Ok(summary::text(result).into_bytes()),
        Output::Html => return Ok(report::load::html(result).into_bytes()),
        Output::Junit => return Ok(report::load::junit(result).into_bytes()),
        Output::Markdown => return Ok(report::load::markdown(result).into_bytes()),
        Output::Json => serde_json::to_writer_pretty(&mut bytes, result).map_err(Into::into),
        Output::Csv => csv::write(&mut bytes, result),
        Output::Ndjson => {
            let points = result.series.iter().map(Line::Point);
            points.chain([Line::Result(result)]).try_for_each(|line| watch::line(&mut bytes, &line))
        }
    };
    written.map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Writes a stored result again, in other formats.
///
/// # Errors
/// [`Exit::Usage`] for a file that is no result.
pub fn report(flags: &LoadReportFlags) -> Result<(), Exit> {
    check(&flags.output)?;
    write(&read(&flags.file)?, &flags.output)
}

/// Reads a result.
///
/// # Errors
/// [`Exit::Usage`] for a file that is no result of this version.
pub fn read(path: &Path) -> Result<LoadResult, Exit> {
    let result: LoadResult = record::file::read(path)
        .map_err(|error| Exit::Usage(format!("{error}; expected what inrush load --output json writes")))?;
    if result.schema == record::load::SCHEMA {
        return Ok(result);
    }
    let (path, schema, known) = (path.display(), &result.schema, record::load::SCHEMA);
    Err(Exit::Usage(format!("{path} has the schema '{schema}'; expected {known}")))
}
