//! The flags of `inrush guard`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use base::{Nanos, Network};
use clap::{Args, ValueEnum};
use guard::Address;

use crate::cli::values::address::listen_address;
use crate::cli::values::text_or_json::TextOrJson;

/// Signals of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuardSignal {
    /// Requests and the accept queue if this machine allows it, else the queue
    Auto,
    /// Requests and the accept queue
    Requests,
    /// The accept queue alone
    Queue,
}

/// Hooks of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuardHook {
    /// The cgroup if this machine allows it, else a sink
    Auto,
    /// The cgroup of the listener
    Cgroup,
    /// Traffic control on the devices that bring packets
    Tc,
    /// XDP on the devices that bring packets
    Xdp,
    /// A socket beside the listener, without BPF
    Sink,
}

/// Answers of the guard to a refused connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuardRefusal {
    /// None: the client tries again after a second
    Drop,
    /// A reset: the client, or its load balancer, fails at once; hook tc
    Rst,
}

/// Formats of the guard's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuardOutput {
    /// Lines to read, and a live table on a terminal
    Text,
    /// One JSON object at the end
    Json,
    /// A JSON object each second
    Ndjson,
}

impl GuardOutput {
    /// The format of a command that prints one result.
    pub fn of_one_result(self) -> TextOrJson {
        if self == GuardOutput::Text { TextOrJson::Text } else { TextOrJson::Json }
    }
}

/// The flags of `inrush guard`.
#[derive(Args, Debug)]
pub struct GuardFlags {
    /// Address of the listener: :PORT or ADDR:PORT; may be left out if the server has one port
    #[arg(value_name = "ADDRESS")]
    pub address: Option<Address>,

    /// Only watch: refuse nothing, and say what would be refused; without a server, list every listener
    #[arg(long)]
    pub observe: bool,

    /// The server, by one of its processes
    #[arg(long, value_name = "PID", help_heading = "The server", group = "server", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,

    /// The server, by its systemd unit, such as nginx.service
    #[arg(long, value_name = "NAME", help_heading = "The server", group = "server")]
    pub unit: Option<String>,

    /// The server, by its cgroup: a path, absolute or from the root of the hierarchy
    #[arg(long, value_name = "PATH", help_heading = "The server", group = "server")]
    pub cgroup: Option<PathBuf>,

    /// The server, by the identifier of its container or the first digits of it
    #[arg(long, value_name = "ID", help_heading = "The server", group = "server")]
    pub container: Option<String>,

    /// Longest wait of a client for its turn that the guard aims at
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = server::queue_target, help_heading = "Refusing")]
    pub queue_target: Nanos,

    /// What tells how much waits
    #[arg(long, value_name = "SIGNAL", default_value = "auto", help_heading = "Refusing")]
    pub signal: GuardSignal,

    /// Where connections are refused
    #[arg(long, value_name = "HOOK", default_value = "auto", help_heading = "Refusing")]
    pub hook: GuardHook,

    /// The answer to a refused connection
    #[arg(long, value_name = "ANSWER", default_value = "drop", help_heading = "Refusing")]
    pub refuse: GuardRefusal,

    /// Never refuse clients of this network, such as health checks; repeatable
    #[arg(long, value_name = "NET", help_heading = "Refusing")]
    pub allow: Vec<Network>,

    /// Never refuse clients that connect at a steady pace, as health checks do: a guess; not with a sink
    #[arg(long, help_heading = "Refusing")]
    pub allow_probe: bool,

    /// Show the figures at this address: /metrics for Prometheus, /status as JSON
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address, help_heading = "Output")]
    pub admin: Option<SocketAddr>,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub output: GuardOutput,

    /// Start this server first, and end with it; needs the address
    #[arg(
        last = true,
        value_name = "COMMAND",
        help_heading = "The server",
        group = "server",
        requires = "address"
    )]
    pub command: Vec<OsString>,
}
