//! Inrush: a web server that keeps its head when connections rush in, and the instruments that prove it.
//!
//! This crate is only the command line: `cli` defines the flags, `config_file` reads them from a file, and `commands` carries
//! each command out.
//!
//! What the commands share: `output` writes data to stdout, `meters` has the counters of a run for Prometheus and OTLP,
//! `exit` ends the program, and `habits` recognises flags of other programs. The program is [`main`].
//! `reference` holds the sources of the reference manual.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod cli;
mod commands;
mod config_file;
mod exit;
mod habits;
mod meters;
mod output;
pub mod reference;

/// Runs the command that this process was started with, and returns its exit code.
pub fn main() -> std::process::ExitCode {
    exit::report(config_file::expand(std::env::args_os().collect()).and_then(commands::run))
}
