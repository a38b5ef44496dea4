//! Every flag, its default and its help: the one definition.

mod serve;

use clap::{Parser, Subcommand};

pub use serve::{LogFormat, MECHANISMS, ServeFlags};

/// A web server that keeps its head when connections rush in, and the instruments that prove it.
#[derive(Debug, Parser)]
#[command(name = "inrush", version, subcommand_required = true, arg_required_else_help = false)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory over HTTP/1.1
    Serve(ServeFlags),
}
