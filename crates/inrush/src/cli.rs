//! Every flag, its default and its help, defined once.
//!
//! The modules: `serve`, `guard`, `load`, `fleet`, `doctor` and `manual` have the flags of one command each, and `lab` those
//! of the laboratory's commands. `prepare` has the flags of the commands that make files for `serve`. `values` has the values
//! that flags of several commands take.
//!
//! A part that a build may leave out is a module and a variant here, and the same in `commands`: behind them nothing asks for
//! features.
// Doc comments here are help texts, in which brackets enclose optional parts.
#![allow(rustdoc::broken_intra_doc_links)]

#[cfg(test)]
mod bounds;
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
mod values;

use clap::{Parser, Subcommand};

pub use doctor::DoctorFlags;
#[cfg(feature = "fleet")]
pub use fleet::{FleetAgentFlags, FleetCalibrateFlags, FleetCommand, FleetFlags, FleetRunFlags, NatsFlags};
#[cfg(feature = "guard")]
pub use guard::{GuardFlags, GuardHook, GuardOutput, GuardRefusal, GuardSignal};
#[cfg(feature = "lab")]
pub use lab::{
    CapacityFlags, CapacityOutput, CompareFlags, CountBy, DemoFlags, FilesetFlags, HerdFlags, HerdTasks,
    HerdWaiterArguments, Instrument, LabCommand, LabFlags, LabRunFlags, PathFlags, WanCheckFlags, WanCommand,
    WanFlags, WanRunFlags,
};
#[cfg(feature = "load")]
pub use load::{
    Client, LoadCalibrateFlags, LoadCommand, LoadCompareFlags, LoadFlags, LoadReportFlags, Output, OutputTo,
    Stack, WatchFlags,
};
pub use manual::{CompletionsFlags, ManFlags};
pub use prepare::{ImportCommand, ImportFlags, PasswordFlags, PrecompressFlags};
pub use serve::{HostFlags, LiveFlags, LogFormat, MECHANISMS, ServeFlags};
#[cfg(feature = "load")]
pub use values::cpus::CpuList;
pub use values::text_or_json::TextOrJson;

/// A web server that keeps its head when connections rush in, and the instruments that prove it.
#[derive(Debug, Parser)]
#[command(name = "inrush", version)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory over HTTP/1.1 and HTTP/2
    Serve(Box<ServeFlags>),
    /// Keep another program's server answering in time when more arrives than it can take
    ///
    /// Watches the listener, and refuses the new connections that would wait too long. The server runs unchanged. Connections
    /// are admitted as soon as the guard ends, however it ends.
    #[cfg(feature = "guard")]
    Guard(Box<GuardFlags>),
    /// Offer load to an HTTP server at a rate that does not depend on the server
    #[cfg(feature = "load")]
    Load(Box<LoadFlags>),
    /// Offer one load from many machines, over NATS
    #[cfg(feature = "fleet")]
    Fleet(Box<FleetFlags>),
    /// The laboratory's commands.
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Instrument(Instrument),
    /// Check what this machine and kernel support, and name the limits
    Doctor(DoctorFlags),
    /// Print a config file for serve that does the work of another server's
    Import(ImportFlags),
    /// Print a line for a file with passwords, which serve --auth names
    ///
    /// Reads the password from standard input. The line has the name and a bcrypt hash: inrush password ann >> passwords
    Password(PasswordFlags),
    /// Write compressed files beside the text files of a folder, which serve then sends
    ///
    /// Each text file of 1000 bytes or more gets .br, .zst and .gz beside it, unless one would be hardly smaller. A second
    /// run compresses only edited files.
    Precompress(PrecompressFlags),
    /// Print a script of shell completions
    ///
    /// bash: inrush completions bash > ~/.local/share/bash-completion/completions/inrush
    Completions(CompletionsFlags),
    /// Print the manual, or write its pages to files
    ///
    /// The manual has a page for the program and one for each command: inrush man | man -l -
    ///
    /// With --out, each page gets a file of its own, such as inrush-load.1: inrush man --out ~/.local/share/man/man1
    Man(ManFlags),
    /// A worker process of a server
    #[command(hide = true, alias = "helper")]
    Worker {
        /// Number of its slot
        place: u32,
    },
    /// The process of a guard that decides, without rights
    #[cfg(feature = "guard")]
    #[command(hide = true)]
    GuardController(Box<GuardFlags>),
    /// The process that starts the successor of a server
    #[command(hide = true)]
    Starter {
        /// The program, its name and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}
