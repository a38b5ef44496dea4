//! The flags of `inrush fileset`.

use std::path::PathBuf;

use base::Seed;
use clap::Args;

/// Write a SPECweb99-like set of files to serve.
#[derive(Args, Debug)]
pub struct FilesetFlags {
    /// Folder to write to: absent, empty, or with such a set, which is written anew
    pub dir: PathBuf,

    /// Number of directories, each with 36 files of 5,119,484 bytes in all
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub directories: u32,

    /// Seed of the contents; the same seed gives the same files
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,
}
