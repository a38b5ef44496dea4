//! The flags of `inrush fileset`.

use std::path::PathBuf;

use base::Seed;
use clap::Args;

/// Write a SPECweb99-like set of files to serve.
#[derive(Args, Debug)]
pub struct FilesetFlags {
    /// Where: a folder that is absent, empty, or holds such a set, which is written anew
    pub dir: PathBuf,

    /// Directories of 36 files, 5,119,484 bytes each
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub directories: u32,

    /// What the contents come from: the same seed gives the same files
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,
}
