//! The flags of `inrush capacity`.

use std::num::{NonZeroU32, NonZeroUsize};

use ::load::{SourceRange, Threshold, Url};
use base::{Nanos, Seed};
use clap::{Args, ValueEnum};

use crate::cli::load::reach::{ReachFlags, TlsFlags};
use crate::cli::load::request::RequestFlags;
use crate::cli::values::number::from_one_up;

/// Shortest step: a shorter one has too few tenths of a second, and measures the scheduler and not the
/// server.
const SHORTEST_STEP: Nanos = Nanos::from_millis(400);
/// Largest multiple of the capacity: a larger load is a flood and shows nothing new.
const MOST_PAST: f64 = 20.0;

/// Formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CapacityOutput {
    /// A table and an explanation in plain words
    Text,
    /// One object: the result
    Json,
    /// A self-contained page with figures and tables
    Html,
}

fn multiple(text: &str) -> Result<f64, String> {
    match text.strip_suffix('x').unwrap_or(text).parse::<f64>() {
        Ok(multiple) if multiple > 1.0 && multiple <= MOST_PAST => Ok(multiple),
        _ => Err(format!("expected a multiple of the capacity above 1x, up to {MOST_PAST}x, such as 3x")),
    }
}

fn step_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(time) if time >= SHORTEST_STEP => Ok(time),
        Ok(_) => Err(format!("expected a time from {SHORTEST_STEP} up")),
        Err(error) => Err(error.to_string()),
    }
}

/// The flags of `inrush capacity`.
#[derive(Args, Debug)]
pub struct CapacityFlags {
    /// URLs to request, all of one server; each request takes one at random
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Url>,

    /// Objective that a served load must meet, such as 'p99<100ms', with the names of load --fail-if
    #[arg(long, value_name = "OBJECTIVE", value_parser = Threshold::objective)]
    pub slo: Option<Threshold>,

    /// Largest load, as a multiple of the capacity
    #[arg(long, value_name = "MULTIPLE", default_value = "3x", value_parser = multiple)]
    pub past: f64,

    /// Time to offer each load; the search takes a quarter of it per load
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = step_time)]
    pub step_time: Nanos,

    /// Number of times to offer each load around the capacity
    #[arg(long, value_name = "N", default_value = "3", value_parser = from_one_up::<NonZeroUsize>)]
    pub trials: NonZeroUsize,

    /// The requests and the correct replies.
    #[command(flatten)]
    pub request: RequestFlags,

    /// The way to the server.
    #[command(flatten)]
    pub reach: ReachFlags,

    /// TLS settings.
    #[command(flatten)]
    pub tls: TlsFlags,

    /// Number of engine threads; each offers its share of the load
    #[arg(long, value_name = "N", default_value = "1", value_parser = from_one_up::<NonZeroU32>)]
    pub threads: NonZeroU32,

    /// Source addresses: A.B.C.D, A.B.C.D-E or A.B.C.D/LEN
    #[arg(long, value_name = "RANGE")]
    pub source_ip: Option<SourceRange>,

    /// Seed of all random choices, such as the order of the loads
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,

    /// Allow overloading a public address
    #[arg(long)]
    pub i_own_this_server: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: CapacityOutput,

    /// Read settings from a TOML file; flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,
}
