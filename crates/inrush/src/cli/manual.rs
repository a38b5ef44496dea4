//! The flags of `inrush completions` and `inrush man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// The flags of `inrush completions`.
#[derive(Args, Debug)]
pub struct CompletionsFlags {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// The flags of `inrush man`.
#[derive(Args, Debug)]
pub struct ManFlags {
    /// Directory for the pages, created if it does not exist; man finds them in a man1 directory of its
    /// MANPATH
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
