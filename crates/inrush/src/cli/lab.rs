//! The flags of the laboratory's commands, which are [`Instrument`]s.
//!
//! `experiments` has the flags of `inrush lab`, and each of the others the flags of the command of its name.

mod capacity;
mod demo;
mod experiments;
mod fileset;
mod herd;
mod wan;

use clap::Subcommand;

pub use capacity::{CapacityFlags, CapacityOutput};
pub use demo::DemoFlags;
pub use experiments::{CompareFlags, LabCommand, LabFlags, LabRunFlags};
pub use fileset::FilesetFlags;
pub use herd::{CountBy, HerdFlags, HerdTasks, HerdWaiterArguments};
pub use wan::{PathFlags, WanCheckFlags, WanCommand, WanFlags, WanRunFlags};

/// The commands that measure, and those that make what they measure.
#[derive(Debug, Subcommand)]
pub enum Instrument {
    /// Find the capacity of a server, its behaviour past it, and its recovery
    ///
    /// The load overloads the server on purpose. A target outside this machine and private networks needs
    /// --i-own-this-server.
    Capacity(Box<CapacityFlags>),
    /// Write a set of files like SPECweb99's
    Fileset(FilesetFlags),
    /// Overload servers on this machine and write a report
    Demo(DemoFlags),
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
    /// A waiter of the herd measurement
    #[command(hide = true)]
    HerdWaiter(HerdWaiterArguments),
}
