//! The flags of `inrush import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Print a config file that does the work of another server's.
#[derive(Args, Debug)]
pub struct ImportFlags {
    /// The other server.
    #[command(subcommand)]
    pub from: ImportCommand,
}

/// The servers whose files are understood.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Read an nginx configuration, with the files that it includes
    ///
    /// Each directive that has no equal gets a comment with the reason. Check the result: inrush serve --config FILE --check
    Nginx {
        /// The file, such as /etc/nginx/nginx.conf
        file: PathBuf,
    },
}
