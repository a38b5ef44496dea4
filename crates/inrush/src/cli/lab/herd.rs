//! The flags of `inrush herd`.

use std::ffi::OsString;
use std::path::PathBuf;

use ::herd::Wait;
use base::Seed;
use clap::{Args, ValueEnum};

use crate::cli::values::text_or_json::TextOrJson;

/// Maximum number of waiters. More than that exceed the default limits of any system.
const MOST_WAITERS: usize = 10_000;

/// Maximum number of connections per point. Their measurements stay in memory.
const MOST_SAMPLES: i64 = 1_000_000;

/// Kinds of waiting tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HerdTasks {
    /// Threads of one process
    Threads,
    /// Processes that inherit the listener
    Processes,
}

/// Ways to count wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CountBy {
    /// Trace points if available (root), context switches otherwise
    Auto,
    /// The scheduler's trace points
    TracePoints,
    /// The change of each task's voluntary context switches
    ContextSwitches,
}

fn waiters(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=MOST_WAITERS).contains(&count) => Ok(count),
        _ => Err(format!("expected a whole number from 1 to {MOST_WAITERS}")),
    }
}

fn plot_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => Ok(path),
        _ => Err("expected a name that ends in .html".to_owned()),
    }
}

/// The flags of `inrush herd`.
#[derive(Args, Debug)]
pub struct HerdFlags {
    /// Numbers of waiters; each gives a point
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "100,1000", value_parser = waiters)]
    pub waiters: Vec<usize>,

    /// Ways to wait: accept, poll, epoll, epoll-exclusive, epoll-shared, reuseport, steered, wake-all,
    /// wake-one or mutex [default: all]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub wait: Vec<Wait>,

    /// Kind of the waiting tasks
    #[arg(long = "as", value_name = "TASKS", default_value = "threads")]
    pub tasks: HerdTasks,

    /// Number of connections per point
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u32).range(1..=MOST_SAMPLES))]
    pub samples: u32,

    /// Way to count wake-ups
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    pub count_by: CountBy,

    /// Seed of the order of the points and of the confidence intervals
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: TextOrJson,

    /// Write a page with plots beside the paper's numbers
    #[arg(long, value_name = "FILE.html", value_parser = plot_file)]
    pub plot: Option<PathBuf>,
}

/// Arguments that `inrush herd` gives to a waiter process.
#[derive(Args, Debug)]
pub struct HerdWaiterArguments {
    /// Arguments as the herd writes them
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    pub arguments: Vec<OsString>,
}
