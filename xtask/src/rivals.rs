//! The rivals: each is one small function that returns its command line.

pub mod generators;
pub mod readers;
pub mod servers;

use std::ffi::OsString;
use std::path::PathBuf;

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl CommandLine {
    fn new<T: Into<OsString>>(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = T>,
    ) -> CommandLine {
        CommandLine { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }
}
