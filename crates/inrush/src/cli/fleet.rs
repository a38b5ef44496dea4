//! The flags of `inrush fleet`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use ::fleet::Name;
use base::Nanos;
use clap::{Args, Subcommand};

use crate::cli::values::address::listen_address;
use crate::cli::values::number::positive_time;
use crate::cli::values::text_or_json::TextOrJson;

/// Parses a number of agents.
fn agents(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse::<NonZeroU32>().ok().filter(|number| number.get() <= ::load::AGENTS_MAX);
    number.ok_or_else(|| format!("expected 1 to {}", ::load::AGENTS_MAX))
}

/// Offer one load from many machines, over NATS
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct FleetFlags {
    /// The task.
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// The tasks.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Serve as an agent: offer a share of each run that a coordinator orders
    ///
    /// An agent takes only settings of inrush load, and checks them again. It stops offering load within 2 s after its
    /// coordinator or NATS falls silent.
    Agent(FleetAgentFlags),
    /// Carry out a run of inrush load with the agents of a fleet
    ///
    /// Rate, sockets and populations are those of all agents together; --threads is the number of each agent.
    Run(FleetRunFlags),
    /// Measure the clean rate of an agent's machine against two machines that share the same D
    ///
    /// One agent, and then two that share D, try to connect to a listener of this process that accepts nothing. D grows
    /// until two agents bring more connects than one (Banga and Druschel). The two machines must be alike.
    Calibrate(FleetCalibrateFlags),
}

/// Access to NATS, with the flags of the nats program.
#[derive(Args, Clone, Debug)]
pub struct NatsFlags {
    /// NATS servers with JetStream, such as nats://USER:PASSWORD@HOST:4222 or tls://HOST
    #[arg(long, value_name = "URL", env = "NATS_URL", hide_env_values = true)]
    pub nats: Option<String>,

    /// File of NATS credentials: a JWT and the seed of its key
    #[arg(long, value_name = "FILE")]
    pub creds: Option<PathBuf>,

    /// PEM file of trusted certificates for NATS
    #[arg(long, value_name = "FILE")]
    pub tlsca: Option<PathBuf>,

    /// PEM file of this client's certificate for NATS
    #[arg(long, value_name = "FILE", requires = "tlskey")]
    pub tlscert: Option<PathBuf>,

    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "tlscert")]
    pub tlskey: Option<PathBuf>,
}

/// The flags of `inrush fleet agent`.
#[derive(Args, Debug)]
pub struct FleetAgentFlags {
    /// Access to NATS.
    #[command(flatten)]
    pub nats: NatsFlags,

    /// Name of this agent in the fleet: letters, digits, '-' and '_'
    #[arg(long, value_name = "NAME")]
    pub name: Name,

    /// End after one run
    #[arg(long)]
    pub once: bool,
}

const EXAMPLES: &str = "Examples:
  inrush fleet run --local 4 -- load http://127.0.0.1:8080/ --rate 2k
  inrush fleet run --nats nats://10.0.0.1:4222 --agents 4 -- load http://10.0.0.9/ --rate 400k --i-own-this-server";

/// The flags of `inrush fleet run`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FleetRunFlags {
    /// Access to NATS.
    #[command(flatten)]
    pub nats: NatsFlags,

    /// Number of agents; the run waits up to 30 s for them
    #[arg(long, value_name = "N", value_parser = agents, required_unless_present = "local")]
    pub agents: Option<NonZeroU32>,

    /// Start nats-server and N agents on this machine, for this run
    #[arg(long, value_name = "N", value_parser = agents, conflicts_with_all = ["agents", "creds", "tlsca", "tlscert"])]
    pub local: Option<NonZeroU32>,

    /// The run: load, and its flags
    #[arg(last = true, required = true, value_name = "load URL")]
    pub load: Vec<OsString>,
}

/// The flags of `inrush fleet calibrate`.
#[derive(Args, Debug)]
pub struct FleetCalibrateFlags {
    /// Access to NATS.
    #[command(flatten)]
    pub nats: NatsFlags,

    /// Address of this machine that the agents reach, such as 10.0.0.9:0; port 0 is any free port
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    pub listen: SocketAddr,

    /// Time of a trial
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_time)]
    pub step: Nanos,

    /// Format of the output
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: TextOrJson,
}
