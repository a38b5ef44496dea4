//! The flags of `inrush demo`.

use std::path::PathBuf;

use base::Seed;
use clap::Args;

/// Serve, overload, and write a report: the accept-limit at 1, 10 and inf, and nginx if it is installed.
#[derive(Args, Debug)]
pub struct DemoFlags {
    /// The directory to serve; a SPECweb99-like file set is made if not given
    pub dir: Option<PathBuf>,

    /// Within 25 s instead of 2 minutes, with less certainty
    #[arg(long)]
    pub quick: bool,

    /// Where records and report go
    #[arg(long, value_name = "FOLDER", default_value = "inrush-demo")]
    pub out: PathBuf,

    /// What all random draws come from
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,
}
