//! The flags of `inrush demo`.

use std::path::PathBuf;

use base::Seed;
use clap::Args;

/// Overload nginx over TLS, alone and guarded, and Inrush, and write a report.
///
/// nginx runs in the configuration of its package. Without nginx, Inrush without overload control stands in for it.
#[derive(Args, Debug)]
pub struct DemoFlags {
    /// Directory to serve [default: a new SPECweb99-like file set]
    pub dir: Option<PathBuf>,

    /// Take 1 minute instead of 4, with less certainty
    #[arg(long)]
    pub quick: bool,

    /// Folder for the records and the report; an interrupted demonstration in it is resumed
    #[arg(long, value_name = "FOLDER", default_value = "inrush-demo")]
    pub out: PathBuf,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,
}
