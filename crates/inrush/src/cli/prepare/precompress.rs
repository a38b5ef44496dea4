//! The flags of `inrush precompress`.

use std::path::PathBuf;

use clap::Args;

/// Write compressed files beside the text files of a folder.
#[derive(Args, Debug)]
pub struct PrecompressFlags {
    /// Folder with the files, and the folders in it
    pub folder: PathBuf,
}
