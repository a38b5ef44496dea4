//! The commands: each turns flags into a checked configuration, calls the crate that does the work, and turns the result
//! into output and an exit code.
//!
//! `serve`, `guard`, `load`, `fleet`, `capacity`, `doctor`, `lab`, `herd` and `wan` are one command each; `demo` is in `lab`,
//! which carries its experiment out. `prepare` has the commands that make what `serve` reads, and `manual` is completions
//! and manual pages.
//!
//! Leaves out the flags, which are [`cli`](crate::cli)'s, and the work, which other crates do.

mod capacity;
mod doctor;
mod fleet;
mod guard;
mod herd;
mod lab;
mod load;
mod manual;
mod prepare;
mod serve;
mod wan;

use std::ffi::OsString;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::exit::Exit;

/// Carries out the command that these arguments name.
pub fn run(arguments: Vec<OsString>) -> Result<(), Exit> {
    let command = Cli::try_parse_from(&arguments)?.command;
    if matches!(command, Command::Demo(_) | Command::Doctor(_) | Command::Lab(_) | Command::Wan(_)) {
        // Without a user namespace these commands still run, and report the missing privileges.
        let _ = sys::network::userns::enter_unless_privileged();
    }
    match command {
        Command::Serve(flags) => serve::run(*flags, &arguments),
        Command::Guard(flags) => guard::run(*flags),
        Command::Load(flags) => load::run(*flags, &arguments),
        Command::Fleet(flags) => fleet::run(*flags),
        Command::Capacity(flags) => capacity::run(*flags),
        Command::Fileset(flags) => prepare::fileset::run(flags),
        Command::Demo(flags) => lab::demo::run(flags),
        Command::Doctor(flags) => doctor::run(flags),
        Command::Lab(flags) => lab::run(flags),
        Command::Herd(flags) => herd::run(flags),
        Command::Wan(flags) => wan::run(*flags),
        Command::Import(flags) => prepare::import::run(&flags.from),
        Command::Precompress(flags) => prepare::precompress::run(&flags),
        Command::Password(flags) => prepare::password::run(&flags),
        Command::Completions(flags) => manual::completions(&flags),
        Command::Man(flags) => manual::pages(&flags),
        Command::HerdWaiter(arguments) => herd::run_waiter(&arguments),
        Command::GuardController(flags) => guard::run_controller(*flags),
        Command::Worker { place: _ } => serve::run_worker(),
        Command::Starter { arguments } => serve::run_starter(&arguments),
    }
}
