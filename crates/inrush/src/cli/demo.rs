//! The flags of `inrush demo`.

use std::path::PathBuf;

use base::Seed;
use clap::Args;

/// Serve, overload, and write a report: the accept-limits 1, 10 and inf, and nginx if it is installed.
#[derive(Args, Debug)]
pub struct DemoFlags {
    /// Directory to serve [default: a new SPECweb99-like file set]
    pub dir: Option<PathBuf>,

    /// Take 25 s instead of 2 minutes, with less certainty
    #[arg(long)]
    pub quick: bool,

    /// Folder for the records and the report
    #[arg(long, value_name = "FOLDER", default_value = "inrush-demo")]
    pub out: PathBuf,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,
}
