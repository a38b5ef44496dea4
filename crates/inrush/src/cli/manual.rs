//! The flags of `inrush completions` and `inrush man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Print the completions of a shell, to be stored where the shell reads them.
///
/// bash: inrush completions bash > ~/.local/share/bash-completion/completions/inrush
#[derive(Args, Debug)]
pub struct CompletionsFlags {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Print the manual, with a page for the program and one for each command; read it with `inrush man | man -l
/// -`.
///
/// With --out, write each page to a file of its own, such as inrush-load.1: inrush man --out
/// ~/.local/share/man/man1
#[derive(Args, Debug)]
pub struct ManFlags {
    /// Directory for the pages, created if it does not exist; man finds them in a man1 directory of its
    /// MANPATH
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
