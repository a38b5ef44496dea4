//! The formats of commands that print one result.

use clap::ValueEnum;

/// Formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextOrJson {
    /// Text to read
    Text,
    /// JSON for programs
    Json,
}
