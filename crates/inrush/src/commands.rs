//! The commands: each turns flags into a checked configuration, calls the crate that does the work, and turns the result
//! into output and an exit code.
//!
//! `serve`, `guard`, `load`, `fleet` and `doctor` are one command each, and `lab` has the laboratory's. `prepare` has the
//! commands that make what `serve` reads, and `manual` is completions and manual pages.
//!
//! Leaves out the flags, which are [`cli`](crate::cli)'s, and the work, which other crates do.

mod doctor;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(feature = "guard")]
mod guard;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "load")]
mod load;
mod manual;
mod prepare;
mod serve;

use std::ffi::OsString;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::config_file::ConfigFile;
use crate::exit::Exit;

/// Carries out the command that these arguments name. `file` is the config file, whose settings are among them.
pub fn run(arguments: Vec<OsString>, file: Option<ConfigFile>) -> Result<(), Exit> {
    match Cli::try_parse_from(&arguments)?.command {
        Command::Serve(flags) => serve::run(*flags, &arguments, file),
        #[cfg(feature = "guard")]
        Command::Guard(flags) => guard::run(*flags),
        #[cfg(feature = "load")]
        Command::Load(flags) => load::run(*flags, &arguments),
        #[cfg(feature = "fleet")]
        Command::Fleet(flags) => fleet::run(*flags),
        #[cfg(feature = "lab")]
        Command::Instrument(instrument) => lab::run(instrument),
        Command::Doctor(flags) => doctor::run(flags),
        Command::Import(flags) => prepare::import::run(&flags.from),
        Command::Precompress(flags) => prepare::precompress::run(&flags),
        Command::Password(flags) => prepare::password::run(&flags),
        Command::Completions(flags) => manual::completions(&flags),
        Command::Man(flags) => manual::pages(&flags),
        Command::Worker { place: _ } => serve::run_worker(),
        #[cfg(feature = "guard")]
        Command::GuardController(flags) => guard::run_controller(*flags),
        Command::Starter { arguments } => serve::run_starter(&arguments),
    }
}
