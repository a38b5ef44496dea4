//! The flags of `inrush completions` and `inrush man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Print the completions of a shell, for the file it reads them from.
///
/// bash: inrush completions bash > ~/.local/share/bash-completion/completions/inrush
#[derive(Args, Debug)]
pub struct CompletionsFlags {
    /// Whose
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Write the manual pages: inrush(1) and one for each command, such as inrush-load(1).
#[derive(Args, Debug)]
pub struct ManFlags {
    /// The directory to write to, made if it is not there; one of MANPATH's man1 is where man finds them
    #[arg(long, value_name = "DIR", default_value = "man/man1")]
    pub out: PathBuf,
}
