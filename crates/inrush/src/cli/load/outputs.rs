//! `--output`: the formats of a result, and where each goes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;

/// Formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A summary
    Text,
    /// One JSON object: the result
    Json,
    /// A JSON object for each interval during the run, then the result
    Ndjson,
    /// A row for each interval
    Csv,
    /// A self-contained page with figures and tables
    Html,
    /// A JUnit report: a test case for each threshold
    Junit,
    /// Markdown for a comment: the conclusion, the thresholds, and a table
    Markdown,
}

/// A format, and the file that it goes to; standard output without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputTo {
    pub form: Output,
    pub file: Option<PathBuf>,
}

impl FromStr for OutputTo {
    type Err = String;

    fn from_str(text: &str) -> Result<OutputTo, String> {
        let (form, file) = match text.split_once('=') {
            Some((_, "")) => return Err("the file is missing behind the =".to_owned()),
            Some((form, file)) => (form, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let names = || {
            let names = Output::value_variants().iter().filter_map(Output::to_possible_value);
            names.map(|value| value.get_name().to_owned()).collect::<Vec<_>>().join(", ")
        };
        let form = Output::from_str(form, false);
        Ok(OutputTo {
            form: form.map_err(|_| format!("expected FORMAT or FORMAT=FILE, of {}", names()))?,
            file,
        })
    }
}

impl fmt::Display for OutputTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.form.to_possible_value();
        f.write_str(name.as_ref().map_or("", |value| value.get_name()))?;
        self.file.as_ref().map_or(Ok(()), |file| write!(f, "={}", file.display()))
    }
}
