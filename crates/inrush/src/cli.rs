//! Every flag, its default and its help, defined once.
//!
//! The modules: `serve`, `guard`, `load`, `fleet`, `capacity`, `doctor`, `lab`, `herd`, `wan` and `manual` have the flags of
//! one command each, and `lab` has the flags of `demo` too. `prepare` has the flags of the commands that make files for `serve`.
//! `values` has the values that flags of several commands take.
// Doc comments here are help texts, in which brackets enclose optional parts.
#![allow(rustdoc::broken_intra_doc_links)]

#[cfg(test)]
mod bounds;
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
mod values;
mod wan;

use clap::{Parser, Subcommand};

pub use capacity::{CapacityFlags, CapacityOutput};
pub use doctor::DoctorFlags;
pub use fleet::{FleetAgentFlags, FleetCalibrateFlags, FleetCommand, FleetFlags, FleetRunFlags, NatsFlags};
pub use guard::{GuardFlags, GuardHook, GuardOutput, GuardRefusal, GuardSignal};
pub use herd::{CountBy, HerdFlags, HerdTasks, HerdWaiterArguments};
pub use lab::{CompareFlags, DemoFlags, LabCommand, LabFlags, LabRunFlags};
pub use load::{
    Client, LoadCommand, LoadCompareFlags, LoadFlags, LoadReportFlags, Output, OutputTo, RequestFlags, Stack,
    WatchFlags,
};
pub use manual::{CompletionsFlags, ManFlags};
pub use prepare::{FilesetFlags, ImportCommand, ImportFlags, PasswordFlags, PrecompressFlags};
pub use serve::{HostFlags, LiveFlags, LogFormat, MECHANISMS, ServeFlags};
pub use values::cpus::CpuList;
pub use values::text_or_json::TextOrJson;
pub use wan::{PathFlags, WanCheckFlags, WanCommand, WanFlags, WanRunFlags};

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
    Guard(Box<GuardFlags>),
    /// Offer load to an HTTP server at a rate that does not depend on the server
    Load(Box<LoadFlags>),
    /// Offer one load from many machines, over NATS
    Fleet(Box<FleetFlags>),
    /// Find the capacity of a server, its behaviour past it, and its recovery
    ///
    /// The load overloads the server on purpose. A target outside this machine and private networks needs
    /// --i-own-this-server.
    Capacity(Box<CapacityFlags>),
    /// Write a set of files like SPECweb99's
    Fileset(FilesetFlags),
    /// Overload servers on this machine and write a report
    Demo(DemoFlags),
    /// Check what this machine and kernel support, and name the limits
    Doctor(DoctorFlags),
    /// Run controlled experiments: servers under loads, with records and a report
    Lab(LabFlags),
    /// Measure the thundering herd: how many tasks wake for one connection
    ///
    /// N waiters wait on one listener. A sample is one connection, and ends when all waiters sleep again.
    Herd(HerdFlags),
    /// Run a command over a path with delay, jitter and loss
    ///
    /// The path joins two networks of their own on this machine. The client is at 10.79.0.2, the server at 10.79.0.1.
    /// Needs root, or the right to make user namespaces.
    Wan(Box<WanFlags>),
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
    /// A waiter of the herd measurement
    #[command(hide = true)]
    HerdWaiter(HerdWaiterArguments),
    /// A worker process of a server
    #[command(hide = true, alias = "helper")]
    Worker {
        /// Number of its slot
        place: u32,
    },
    /// The process of a guard that decides, without rights
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
