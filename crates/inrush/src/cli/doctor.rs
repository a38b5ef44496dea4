//! The flags of `inrush doctor`.

use clap::{Args, ValueEnum};

/// Formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DoctorOutput {
    /// A list to read
    Text,
    /// A JSON array
    Json,
}

/// Show the capabilities of this machine and kernel, and the limits that will bite.
#[derive(Args, Debug)]
pub struct DoctorFlags {
    /// Show the event mechanisms instead: their properties, and which of them work here
    #[arg(long)]
    pub mechanisms: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: DoctorOutput,
}
