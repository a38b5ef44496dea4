//! The flags of `inrush wan`.

use std::ffi::OsString;
use std::path::PathBuf;

use ::wan::{BitRate, Changes, Engine, Share};
use base::{Bytes, Nanos, Seed};
use clap::{Args, Subcommand, ValueEnum};

/// A second's worth of probes fits through any path worth checking.
const MOST_PROBES: i64 = 1_000_000;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WanOutput {
    /// A table to read
    Text,
    /// One object, on one line
    Json,
}

/// A wide-area network on this machine: two networks of their own, and between them a path with delay, jitter,
/// loss, a rate, and reordering. The client is at 10.79.0.2, the server at 10.79.0.1. Needs root.
#[derive(Args, Debug)]
#[command(arg_required_else_help = false)]
pub struct WanFlags {
    /// What to do with it
    #[command(subcommand)]
    pub command: WanCommand,
}

/// What can be done with such a network.
#[derive(Debug, Subcommand)]
pub enum WanCommand {
    /// Run a command on the client's side, and a server on the other
    Run(WanRunFlags),
    /// Measure with probes what such a path really does here
    Check(WanCheckFlags),
}

/// What the path is like. Times are one way: a round trip has those of both directions.
#[derive(Args, Debug)]
#[command(next_help_heading = "The path, in both directions")]
pub struct PathFlags {
    /// How long a packet is on its way
    #[arg(long, value_name = "TIME")]
    pub delay: Option<Nanos>,

    /// How far the delay varies, to both sides, uniformly; by itself it changes no order
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<Nanos>,

    /// The share of packets that is lost, independently of each other
    #[arg(long, value_name = "PERCENT")]
    pub loss: Option<Share>,

    /// The share of packets that goes ahead, without the delay
    #[arg(long, value_name = "PERCENT")]
    pub reorder: Option<Share>,

    /// How fast the path sends, such as 100Mbit; IP headers count
    #[arg(long, value_name = "RATE")]
    pub rate: Option<BitRate>,

    /// How much may wait to be sent at that rate; more is dropped [default: what it sends in 100ms, at least 15KiB]
    #[arg(long, value_name = "SIZE")]
    pub queue: Option<Bytes>,

    /// What differs from client to server, such as delay=10ms,loss=0%
    #[arg(long, value_name = "NAME=VALUE,...", default_value = "", hide_default_value = true, value_parser = changes)]
    pub up: Changes,

    /// What differs from server to client
    #[arg(long, value_name = "NAME=VALUE,...", default_value = "", hide_default_value = true, value_parser = changes)]
    pub down: Changes,

    /// What makes the path: router (in user space) or netem (in the kernel, where it has it)
    #[arg(long, default_value = "router", help_heading = "How it is made")]
    pub engine: Engine,

    /// What losses, jitter and reordering are drawn from
    #[arg(long, value_name = "N", default_value = "1", help_heading = "How it is made")]
    pub seed: Seed,

    /// Tie the router to this processor, and leave the packet work of both sides to the others
    #[arg(long, value_name = "N", help_heading = "How it is made")]
    pub cpu: Option<usize>,
}

/// Nothing at all is what a flag that is not given changes.
fn changes(text: &str) -> Result<Changes, String> {
    if text.is_empty() { Ok(Changes::default()) } else { text.parse().map_err(|error| format!("{error}")) }
}

/// Run a command on the client's side of a path. Its input, output and exit code are its own; what the path did
/// is told on stderr when it has ended. Everything that was started on either side ends with it.
#[derive(Args, Debug)]
pub struct WanRunFlags {
    #[command(flatten)]
    pub path: PathFlags,

    /// What the shell runs on the server's side first; the command begins when somebody listens there
    #[arg(long, value_name = "COMMAND", help_heading = "Both sides")]
    pub server: Option<String>,

    /// How the path's account is written: text goes to stderr, json to stdout after what the command wrote
    #[arg(long, short, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub output: WanOutput,

    /// Write the account to this file instead
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND", help_heading = "Both sides")]
    pub command: Vec<OsString>,
}

/// Send probes over a path and back, and compare what was asked for with what came of it.
#[derive(Args, Debug)]
pub struct WanCheckFlags {
    #[command(flatten)]
    pub path: PathFlags,

    /// How many probes
    #[arg(long, value_name = "N", default_value = "500", value_parser = clap::value_parser!(u32).range(1..=MOST_PROBES), help_heading = "Probes")]
    pub probes: u32,

    /// The time from one to the next
    #[arg(long, value_name = "TIME", default_value = "4ms", help_heading = "Probes")]
    pub every: Nanos,

    /// What to write to stdout
    #[arg(long, short, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub output: WanOutput,
}
