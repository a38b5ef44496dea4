//! The flags of `inrush capacity`.

use std::num::{NonZeroU32, NonZeroUsize};

use ::load::{Length, SourceRange, Spec, Threshold, Url};
use base::{Nanos, Seed};
use clap::{Args, ValueEnum};

use super::load::positive_time;

/// Steps shorter than this have too few tenths of a second, and measure the scheduler and not the server.
const SHORTEST_STEP: Nanos = Nanos::from_millis(400);
/// More than this is a flood, and shows nothing that less does not.
const MOST_PAST: f64 = 20.0;

/// What is written to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CapacityOutput {
    /// A table, and what it means in plain words
    Text,
    /// One object: the result
    Json,
    /// A page that needs no network: the survey in figures and tables
    Html,
}

fn multiple(text: &str) -> Result<f64, String> {
    match text.strip_suffix('x').unwrap_or(text).parse::<f64>() {
        Ok(multiple) if multiple > 1.0 && multiple <= MOST_PAST => Ok(multiple),
        _ => Err(format!("accepted are multiples of the capacity above 1x, up to {MOST_PAST}x, such as 3x")),
    }
}

fn step_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(time) if time >= SHORTEST_STEP => Ok(time),
        Ok(_) => Err(format!("accepted are times from {SHORTEST_STEP} up")),
        Err(error) => Err(error.to_string()),
    }
}

/// Find out how much a server takes, what it does past that, and how it comes back. The server is overloaded
/// on purpose; a target that is neither this machine nor on a private network needs --i-own-this-server.
#[derive(Args, Debug)]
pub struct CapacityFlags {
    /// What to ask for: one or more URLs of one server, chosen uniformly
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Url>,

    /// What must hold for a load to count as served, such as 'p99<100ms'; the names are those of load --fail-if
    #[arg(long, value_name = "OBJECTIVE")]
    pub slo: Option<Threshold>,

    /// The largest load, as a multiple of the capacity
    #[arg(long, value_name = "MULTIPLE", default_value = "3x", value_parser = multiple)]
    pub past: f64,

    /// How long each load is offered; the search offers them for a quarter of it
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = step_time)]
    pub step_time: Nanos,

    /// How often each load around the capacity is offered
    #[arg(long, value_name = "N", default_value = "3")]
    pub trials: NonZeroUsize,

    /// When a connect is abandoned; above the round trip
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = positive_time)]
    pub connect_timeout: Nanos,

    /// When a request without a complete reply is abandoned
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_time)]
    pub request_timeout: Nanos,

    /// What sessions ask for: one-packet (the URLs) or specweb99[:DIRECTORIES] (its files under the URL)
    #[arg(long, value_name = "WORKLOAD", default_value = "one-packet")]
    pub workload: Spec,

    /// Requests a session: 1, N or LO..HI; the workload's if not given
    #[arg(long, value_name = "N|LO..HI")]
    pub requests_per_connection: Option<Length>,

    /// Engine threads, each with its share of the load
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroU32,

    /// Addresses to connect from: A.B.C.D, A.B.C.D-E or A.B.C.D/LEN
    #[arg(long, value_name = "RANGE")]
    pub source_ip: Option<SourceRange>,

    /// What all random draws come from, the order of the loads among them
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,

    /// The target is mine: overload it although its address is public
    #[arg(long)]
    pub i_own_this_server: bool,

    /// What to write to stdout
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: CapacityOutput,

    /// The same settings as TOML; flags win
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,
}
