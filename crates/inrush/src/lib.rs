//! Inrush: a web server that keeps its head when connections rush in, and the instruments that prove it.
//!
//! This crate is only the command line. Each command turns flags into a checked configuration, calls the
//! crate that does the work, and turns the result into output and an exit code.
//!
//! The modules: `serve`, `guard`, `load`, `fleet`, `capacity`, `demo`, `doctor`, `lab`, `herd` and `wan` are one command
//! each. `prepare` has the commands that make what `serve` reads, and `manual` is completions and manual pages. `cli`
//! defines the flags and `config_file` reads them from a file. `output` writes data to stdout, `meters` has the counters
//! of a run for Prometheus and OTLP, `exit` ends the program, and `habits` recognises flags of other programs. The program
//! is [`main`].
//! `reference` holds the sources of the reference manual.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod capacity;
mod cli;
mod config_file;
mod demo;
mod doctor;
mod exit;
mod fleet;
mod guard;
mod habits;
mod herd;
mod lab;
mod load;
mod manual;
mod meters;
mod output;
mod prepare;
pub mod reference;
mod serve;
mod wan;

use std::ffi::OsString;

use clap::Parser;

use cli::{Cli, Command};
use exit::Exit;

/// Runs the command that this process was started with, and returns its exit code.
pub fn main() -> std::process::ExitCode {
    exit::report(config_file::expand(std::env::args_os().collect()).and_then(run))
}

fn run(arguments: Vec<OsString>) -> Result<(), Exit> {
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
        Command::Demo(flags) => demo::run(flags),
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
