//! The flags of `inrush wan`.

use std::ffi::OsString;
use std::path::PathBuf;

use ::wan::{BitRate, Changes, Engine, Share};
use base::{Bytes, Nanos, Seed};
use clap::{Args, Subcommand};

use crate::cli::values::number::positive_time;
use crate::cli::values::text_or_json::TextOrJson;

/// Maximum number of probes. The probes of a second fit through any path that is worth a check.
const MOST_PROBES: i64 = 1_000_000;

/// The commands of `inrush wan`.
#[derive(Args, Debug)]
pub struct WanFlags {
    /// The command of the network
    #[command(subcommand)]
    pub command: WanCommand,
}

/// Commands of the network.
#[derive(Debug, Subcommand)]
pub enum WanCommand {
    /// Run a command on the client's side, and a server on the other
    ///
    /// Times are one way: a round trip takes those of both directions. The command keeps its input, output and exit code.
    /// After its end the path's report goes to stderr. Every process that was started on either side ends with the
    /// command.
    Run(WanRunFlags),
    /// Measure with probes how such a path behaves on this machine
    Check(WanCheckFlags),
}

/// Conditions of the path. Times are one way: a round trip takes those of both directions.
#[derive(Args, Debug)]
#[command(next_help_heading = "The path, in both directions")]
pub struct PathFlags {
    /// Time that a packet is under way
    #[arg(long, value_name = "TIME")]
    pub delay: Option<Nanos>,

    /// Deviation of the delay, uniform to both sides; jitter alone does not change the order
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<Nanos>,

    /// Share of lost packets, each lost independently
    #[arg(long, value_name = "PERCENT")]
    pub loss: Option<Share>,

    /// Share of packets that go ahead without the delay
    #[arg(long, value_name = "PERCENT")]
    pub reorder: Option<Share>,

    /// Rate at which the path sends, such as 100Mbit; IP headers count
    #[arg(long, value_name = "RATE")]
    pub rate: Option<BitRate>,

    /// Maximum size of the path's send queue; more is dropped [default: what the rate sends in 100ms, at
    /// least 15KiB]
    #[arg(long, value_name = "SIZE")]
    pub queue: Option<Bytes>,

    /// Different conditions from client to server, such as delay=10ms,loss=0%
    #[arg(long, value_name = "NAME=VALUE,...", default_value = "", hide_default_value = true, value_parser = changes)]
    pub up: Changes,

    /// Different conditions from server to client
    #[arg(long, value_name = "NAME=VALUE,...", default_value = "", hide_default_value = true, value_parser = changes)]
    pub down: Changes,

    /// Engine of the path: router (in user space) or netem (in the kernel, if it has it)
    #[arg(long, default_value = "router", help_heading = "How it is made")]
    pub engine: Engine,

    /// Seed of losses, jitter and reordering
    #[arg(long, value_name = "N", default_value = "1", help_heading = "How it is made")]
    pub seed: Seed,

    /// Tie the router to this processor, and leave the packet work of both sides to the others; needs root
    #[arg(long, value_name = "N", help_heading = "How it is made")]
    pub cpu: Option<usize>,
}

/// Parses changes. The empty text of an absent flag changes nothing.
fn changes(text: &str) -> Result<Changes, String> {
    if text.is_empty() { Ok(Changes::default()) } else { text.parse().map_err(|error| format!("{error}")) }
}

/// The flags of `inrush wan run`.
#[derive(Args, Debug)]
pub struct WanRunFlags {
    #[command(flatten)]
    pub path: PathFlags,

    /// Shell command to run first on the server's side; the client's command begins once a process listens
    /// there
    #[arg(long, value_name = "COMMAND", help_heading = "Both sides")]
    pub server: Option<String>,

    /// Format of the path's report: text goes to stderr, json to stdout after the command's output
    #[arg(long, short, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub output: TextOrJson,

    /// Write the path's report to this file instead
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND", help_heading = "Both sides")]
    pub command: Vec<OsString>,
}

/// Send probes over a path and back, and compare the results with the conditions.
#[derive(Args, Debug)]
pub struct WanCheckFlags {
    #[command(flatten)]
    pub path: PathFlags,

    /// Number of probes
    #[arg(long, value_name = "N", default_value = "500", value_parser = clap::value_parser!(u32).range(1..=MOST_PROBES), help_heading = "Probes")]
    pub probes: u32,

    /// Time between two probes
    #[arg(long, value_name = "TIME", default_value = "4ms", value_parser = positive_time, help_heading = "Probes")]
    pub every: Nanos,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub output: TextOrJson,
}
