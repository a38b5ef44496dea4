//! The formats of commands that print one result.

use clap::ValueEnum;

/// Formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextOrJson {
    /// A table to read
    Text,
    /// One JSON object
    Json,
}
