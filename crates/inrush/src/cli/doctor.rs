//! The flags of `inrush doctor`.

use clap::Args;

use crate::cli::values::text_or_json::TextOrJson;

/// Show the capabilities of this machine and kernel, and the limits that will bite.
#[derive(Args, Debug)]
pub struct DoctorFlags {
    /// Show the event mechanisms instead: their properties, and which of them work here
    #[arg(long)]
    pub mechanisms: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: TextOrJson,
}
