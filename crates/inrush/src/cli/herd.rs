//! The flags of `inrush herd`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use ::herd::Wait;
use base::Seed;
use clap::{Args, ValueEnum};

/// More waiters than this are more than the default limits of any system let start.
const MOST_WAITERS: usize = 10_000;

/// What waiters run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HerdTasks {
    /// Threads of one process
    Threads,
    /// Processes that inherit the listener
    Processes,
}

/// What wake-ups are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CountBy {
    /// Trace points where they can be had (root), context switches otherwise
    Auto,
    /// The scheduler's sched_wakeup and sched_switch
    TracePoints,
    /// The change of each task's voluntary context switches
    ContextSwitches,
}

/// What is written to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HerdOutput {
    /// A table to read, with the paper's numbers
    Text,
    /// An array of points
    Json,
}

fn waiters(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=MOST_WAITERS).contains(&count) => Ok(count),
        _ => Err(format!("accepted are whole numbers from 1 to {MOST_WAITERS}")),
    }
}

fn plot_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => Ok(path),
        _ => Err("accepted are names that end in .html".to_owned()),
    }
}

/// How many tasks wake for one connection, and for how long: N waiters on one listener, one connection at
/// a time, until all of them sleep again.
#[derive(Args, Debug)]
pub struct HerdFlags {
    /// How many wait: a point for each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "100,1000", value_parser = waiters)]
    pub waiters: Vec<usize>,

    /// How they wait: accept, poll, epoll, epoll-exclusive, epoll-shared, reuseport, steered, wake-all, wake-one or mutex; all of them if not given
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub wait: Vec<Wait>,

    /// What they run in
    #[arg(long = "as", value_name = "TASKS", default_value = "threads")]
    pub tasks: HerdTasks,

    /// Connections a point
    #[arg(long, value_name = "N", default_value = "200")]
    pub samples: NonZeroUsize,

    /// What wake-ups are counted by
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    pub count_by: CountBy,

    /// What the order of points and the confidence intervals come from
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: Seed,

    /// What to write to stdout
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: HerdOutput,

    /// Also write a page with plots beside the paper's numbers
    #[arg(long, value_name = "FILE.html", value_parser = plot_file)]
    pub plot: Option<PathBuf>,
}

/// What `inrush herd` hands to a waiter that is a process.
#[derive(Args, Debug)]
pub struct HerdWaiterArguments {
    /// As the herd writes them
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    pub words: Vec<OsString>,
}
