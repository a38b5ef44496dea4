//! The flags of `inrush doctor`.

use clap::{Args, ValueEnum};

/// What is written to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DoctorOutput {
    /// To read
    Text,
    /// An array
    Json,
}

/// What this machine and kernel can do, and which limits will bite.
#[derive(Args, Debug)]
pub struct DoctorFlags {
    /// The event mechanisms instead: what each can do, and whether it works here
    #[arg(long)]
    pub mechanisms: bool,

    /// What to write to stdout
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: DoctorOutput,
}
