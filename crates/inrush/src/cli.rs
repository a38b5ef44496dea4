//! Every flag, its default and its help: the one definition.
// Doc comments here are help texts, where brackets mean what may be left out.
#![allow(rustdoc::broken_intra_doc_links)]

mod address;
mod capacity;
mod demo;
mod doctor;
mod fileset;
mod habits;
mod herd;
mod lab;
mod load;
mod manual;
mod serve;
mod wan;

use clap::{Parser, Subcommand};

pub use capacity::{CapacityFlags, CapacityOutput};
pub use demo::DemoFlags;
pub use doctor::{DoctorFlags, DoctorOutput};
pub use fileset::FilesetFlags;
pub use habits::habit;
pub use herd::{CountBy, HerdFlags, HerdOutput, HerdTasks, HerdWaiterArguments};
pub use lab::{CompareFlags, CompareOutput, LabCommand, LabFlags, LabRunFlags};
pub use load::{
    Client, Close, HandshakeKind, LoadCommand, LoadCompareFlags, LoadCompareOutput, LoadFlags, Output,
    WatchFlags,
};
pub use manual::{CompletionsFlags, ManFlags};
pub use serve::{LiveFlags, LogFormat, MECHANISMS, ServeFlags, Tunable};
pub use wan::{PathFlags, WanCheckFlags, WanCommand, WanFlags, WanOutput, WanRunFlags};

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
    /// Offer load to an HTTP server, whether it takes it or not
    Load(Box<LoadFlags>),
    /// How much a server takes, what it does past that, and how it comes back
    Capacity(CapacityFlags),
    /// Write a SPECweb99-like set of files to serve
    Fileset(FilesetFlags),
    /// Serve, overload, and write a report
    Demo(DemoFlags),
    /// What this machine and kernel can do, and which limits will bite
    Doctor(DoctorFlags),
    /// Experiments: servers under loads, repeated, with records and a report
    Lab(LabFlags),
    /// How many tasks wake for one connection, and for how long
    Herd(HerdFlags),
    /// A path with delay, jitter and loss between two networks on this machine
    Wan(WanFlags),
    /// Print the completions of a shell
    Completions(CompletionsFlags),
    /// Print the manual, or write its pages to files
    Man(ManFlags),
    /// A waiter in a process of its own
    #[command(hide = true)]
    HerdWaiter(HerdWaiterArguments),
    /// A worker process of a server, called by what it is so that ps shows it
    #[command(hide = true, alias = "helper")]
    Worker {
        /// The number of its place
        place: u32,
    },
}
