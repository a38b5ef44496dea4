//! The load generators, each asked for the same rate of connections, for the same time.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, ensure};
use base::Nanos;
use record::LoadResult;
use sys::process::{Output, find_program};

use super::CommandLine;

/// The load that a generator is to offer.
pub struct Task<'a> {
    /// The listener.
    pub address: SocketAddr,
    /// Connections a second.
    pub rate_per_s: u32,
    /// The length of the run, in seconds.
    pub seconds: u32,
    /// The inrush program.
    pub inrush: &'a Path,
}

impl Task<'_> {
    /// All connections of the run.
    pub fn connections(&self) -> u32 {
        self.rate_per_s * self.seconds
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// A generator with its start; no command line if it is not installed.
pub struct Generator {
    /// Short, for a table.
    pub name: &'static str,
    /// Returns its command line.
    pub prepare: fn(&Task<'_>) -> Option<CommandLine>,
}

/// The name of our generator.
pub const INRUSH: &str = "inrush load";
/// The generator that ours must undercut in CPU time.
pub const REFERENCE: &str = "h2load";

/// The exit code of `inrush load` if it could not offer its load.
const GENERATOR_LIMITED: i32 = 5;

/// All generators, in the order they are shown.
pub const ALL: [Generator; 4] = [
    Generator { name: INRUSH, prepare: |task| Some(inrush(task)) },
    Generator { name: REFERENCE, prepare: h2load },
    Generator { name: "httperf", prepare: httperf },
    Generator { name: "wrk", prepare: wrk },
];

/// Leaves everything but rate and length at its default.
pub fn inrush(task: &Task<'_>) -> CommandLine {
    let (rate, duration) = (task.rate_per_s.to_string(), format!("{}s", task.seconds));
    let url = task.url();
    let arguments = ["load", &url, "--rate", &rate, "--duration", &duration, "--warmup", "0s"];
    CommandLine::new(task.inrush, arguments)
}

/// Reads the result of `inrush load --output json`, even if the generator was the limit.
///
/// # Errors
/// It failed, or was broken off.
pub fn inrush_result(output: &Output) -> anyhow::Result<LoadResult> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        matches!(output.exit.status.code(), Some(0 | GENERATOR_LIMITED)),
        "{INRUSH} failed: {}",
        said.trim()
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("{INRUSH} wrote no result"))
}

/// A second without activity ends a connection; otherwise h2load waits for ever.
fn h2load(task: &Task<'_>) -> Option<CommandLine> {
    let (rate, connections) = (format!("-r{}", task.rate_per_s), task.connections());
    let (clients, requests) = (format!("-c{connections}"), format!("-n{connections}"));
    let arguments = ["--h1", &rate, &clients, &requests, "-N1s", &task.url()];
    find_program("h2load").map(|program| CommandLine::new(program, arguments))
}

fn httperf(task: &Task<'_>) -> Option<CommandLine> {
    let arguments = [
        "--hog".to_owned(),
        format!("--server={}", task.address.ip()),
        format!("--port={}", task.address.port()),
        format!("--rate={}", task.rate_per_s),
        format!("--num-conns={}", task.connections()),
        "--timeout=0.5".to_owned(),
    ];
    find_program("httperf").map(|program| CommandLine::new(program, arguments))
}

/// A closed client has no rate, so it gets the connections of one second.
fn wrk(task: &Task<'_>) -> Option<CommandLine> {
    let (clients, duration) = (format!("-c{}", task.rate_per_s), format!("-d{}s", task.seconds));
    let arguments = ["-t1", &clients, &duration, "--timeout", "1s", &task.url()];
    find_program("wrk").map(|program| CommandLine::new(program, arguments))
}

/// Returns the time after which a generator is stopped: twice the length of its run.
pub fn patience(task: &Task<'_>) -> Nanos {
    Nanos::from_secs(u64::from(task.seconds) * 2 + 2)
}
