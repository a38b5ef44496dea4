//! The sources of the reference manual: the definitions of the flags and the metrics themselves.
//!
//! Owns no texts. The crate `manual` turns them into pages.

use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// The commands with their flags and help texts.
pub fn command() -> Command {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    program
}

/// The metrics pages of servers that have served nothing yet, each after the flags that its metrics need. The first page
/// is every server's.
pub fn server_metrics() -> impl IntoIterator<Item = (&'static str, String)> {
    server::sample_metrics()
}

/// The metrics page of a load run that has not begun.
#[cfg(feature = "load")]
pub fn load_metrics() -> String {
    crate::meters::page(&crate::meters::Meters::sample())
}
