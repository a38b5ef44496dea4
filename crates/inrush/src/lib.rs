//! Inrush: a web server that keeps its head when connections rush in, and the instruments that prove it.
//!
//! This crate is only the command line: `cli` defines the flags, `config_file` reads them from a file, and `commands` carries
//! each command out.
//!
//! What the commands share: `output` writes data to stdout, `meters` has the counters of a run for Prometheus and OTLP,
//! `exit` ends the program, `habits` recognises flags of other programs, and `parts` recognises commands that this build
//! leaves out. The program is [`main`]. `reference` holds the sources of the reference manual.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
// Code that several parts share is unused in a build that leaves some of them out. The build with all parts shows dead code.
#![cfg_attr(not(all(feature = "fleet", feature = "lab", feature = "live")), allow(dead_code, unused_imports))]

mod cli;
mod commands;
mod config_file;
mod exit;
mod habits;
#[cfg(feature = "load")]
mod meters;
mod output;
mod parts;
pub mod reference;

/// Runs the command that this process was started with, and returns its exit code.
pub fn main() -> std::process::ExitCode {
    let read = config_file::read(std::env::args_os().collect());
    exit::report(read.and_then(|(arguments, file)| commands::run(arguments, file)))
}
