//! `cargo xtask campaign faults|fuzz|mutants|sanitize|suite`: a server's losses while something around it fails, inputs that
//! nobody thought of, and what the tests are worth: beside busy CPUs, under a sanitizer, and on a program that was changed.
//!
//! Owns the order of the trials, the judgement and the table. A trial is one architecture under a steady load
//! in one protocol, while one fault happens again and again. The load's ledger has the losses by outcome, and the fault has
//! the accepted losses.
//!
//! Leaves out rates past saturation and rivals: those are benchmarks and experiments.
//!
//! Invariants: the seed decides the order of the trials and every random choice of a fault. A trial holds on five
//! conditions. The fault allows every outcome, the server's own books balance, no descriptor stays, the server ends with
//! exit code 0 at SIGTERM, and in a long trial without an act its memory does not grow.

mod faults;
mod fuzz;
mod mutants;
mod peers;
mod sanitize;
mod server;
mod suite;
mod usage;

use std::fmt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use base::{Clock, Nanos, RealClock, Seed};
use clap::{Args, Subcommand, ValueEnum};
use rand::seq::SliceRandom;
use report::columns::aligned;
use serde_json::Value;
use sys::process::Program;

use crate::test_bed::{TICK, build_inrush};
use faults::{FAULTS, Fault, Scene};
use server::{Protocol, Server};
use usage::Usage;

/// Every architecture of `inrush serve`.
const ARCHITECTURES: [&str; 10] =
    ["per-core", "sped", "tux", "amped", "mp", "smped", "mt", "knot-c", "knot-a", "seda"];
/// Requests a second. Every architecture can serve many times this rate, so a loss is the fault's doing.
const RATE: u32 = 300;
/// Load before the first fault. Every worker has started by its end.
const WARMUP: Nanos = Nanos::from_millis(500);
/// Time of a trial outside its load: the server starts and ends.
const OVERHEAD: Nanos = Nanos::from_millis(2_500);
const SHORTEST: Nanos = Nanos::from_secs(2);
/// Load after the last fault. The server answers the requests that the fault has delayed in this time.
const CALM_END: Nanos = Nanos::from_millis(500);

/// The kinds of campaign.
#[derive(Subcommand)]
pub enum Campaign {
    /// Kill, stop, reread, truncate, fill, starve: every architecture under every fault, in every protocol; an hour
    Faults(FaultOptions),
    /// Give every parser inputs that nobody thought of; needs a nightly compiler and cargo-fuzz
    Fuzz(fuzz::FuzzOptions),
    /// Change the program at one place after the other and count the changes that no test notices; hours for all crates
    Mutants(mutants::MutantOptions),
    /// The tests of crates with unsafe code or shared memory under a sanitizer; needs a nightly compiler
    Sanitize(sanitize::SanitizeOptions),
    /// The whole test suite again and again beside a busy loop on every CPU
    Suite(suite::SuiteOptions),
}

/// Flags of `campaign faults`.
#[derive(Args)]
pub struct FaultOptions {
    /// Seed of the order of the trials and of the random choices in them
    #[arg(long, default_value = "1")]
    seed: Seed,
    /// Minutes for all trials together; each trial gets an equal part
    #[arg(long, default_value = "60")]
    minutes: f64,
    /// Only this architecture; repeatable
    #[arg(long = "arch", value_parser = ARCHITECTURES)]
    architectures: Vec<String>,
    /// Only this fault; repeatable
    #[arg(long = "fault", value_parser = FAULTS.map(|fault| fault.name))]
    faults: Vec<String>,
    /// Only this protocol of the load; repeatable
    #[arg(long = "protocol", value_enum)]
    protocols: Vec<Protocol>,
}

/// The fault, the architecture and the protocol of a trial.
#[derive(Clone, Copy)]
struct Case {
    fault: &'static Fault,
    architecture: &'static str,
    protocol: Protocol,
}

/// The result of one trial.
struct Trial {
    case: Case,
    /// Number of times that the fault happened.
    times: u64,
    offered: u64,
    answered: u64,
    p99: String,
    /// Memory after the beginning and at the end, of a trial without an act that lasted.
    memory: String,
    /// Outcomes other than a correct reply, with their counts.
    lost: Vec<(String, u64)>,
    /// Reasons why the trial does not hold; empty if it holds.
    objections: Vec<String>,
}

/// Runs the campaign. Blocks.
///
/// # Errors
/// A trial or a run of the suite failed, or could not be carried out.
pub fn run(campaign: &Campaign) -> anyhow::Result<()> {
    match campaign {
        Campaign::Faults(options) => faults(options),
        Campaign::Fuzz(options) => fuzz::run(options),
        Campaign::Mutants(options) => mutants::run(options),
        Campaign::Sanitize(options) => sanitize::run(options),
        Campaign::Suite(options) => suite::run(options),
    }
}

fn faults(options: &FaultOptions) -> anyhow::Result<()> {
    let inrush = build_inrush()?;
    let mut rng = options.seed.rng();
    let mut trials: Vec<Case> = Vec::new();
    for fault in FAULTS.iter().filter(|fault| is_wanted(fault.name, &options.faults)) {
        if let Some(act) = fault.needs_root.filter(|_| !rustix::process::geteuid().is_root()) {
            println!("skipped: {} {act}, which needs root", fault.name);
            continue;
        }
        for architecture in ARCHITECTURES.into_iter().filter(|name| is_wanted(*name, &options.architectures))
        {
            let protocols =
                Protocol::value_variants().iter().filter(|one| is_wanted(*one, &options.protocols));
            let cases = protocols.filter(|protocol| fault.concerns(architecture, **protocol));
            trials.extend(cases.map(|protocol| Case { fault, architecture, protocol: *protocol }));
        }
    }
    ensure!(!trials.is_empty(), "these faults do not concern these architectures or protocols");
    trials.shuffle(&mut rng);
    let each = Nanos((options.minutes * 60e9 / trials.len() as f64) as u64);
    let duration = Nanos(each.0.saturating_sub(OVERHEAD.0 + WARMUP.0)).max(SHORTEST);
    println!("seed {}: {} trials of {duration} at {RATE} requests a second", options.seed, trials.len());
    let mut done = Vec::new();
    for (number, case) in trials.iter().enumerate() {
        let seed = options.seed.child(&format!("trial {number}"));
        let trial = carry_out(&inrush, *case, duration, seed).with_context(|| case.to_string())?;
        eprintln!("{:>4}/{} {}", number + 1, trials.len(), trial.line());
        done.push(trial);
    }
    done.sort_by_key(|trial| (trial.case.fault.name, trial.case.architecture, trial.case.protocol));
    conclude(&done)
}

/// Tells whether the options name it, or nothing of its kind.
fn is_wanted<T: PartialEq<U>, U: ?Sized>(one: &U, only: &[T]) -> bool {
    only.is_empty() || only.iter().any(|other| other == one)
}

fn conclude(done: &[Trial]) -> anyhow::Result<()> {
    let heading = [
        "fault", "server", "protocol", "times", "offered", "answered", "p99", "memory", "lost", "allowed", "",
    ];
    let rows = done.iter().map(Trial::row);
    println!("\n{}", aligned(&[heading.map(str::to_owned)].into_iter().chain(rows).collect::<Vec<_>>(), &[]));
    let failed: Vec<&Trial> = done.iter().filter(|trial| !trial.objections.is_empty()).collect();
    for trial in &failed {
        println!("{}", trial.line());
    }
    if failed.is_empty() {
        println!("all {} trials hold", done.len());
        return Ok(());
    }
    bail!("{} of {} trials do not hold", failed.len(), done.len())
}

/// Runs one architecture under one fault, in one protocol.
fn carry_out(inrush: &Path, case: Case, duration: Nanos, seed: Seed) -> anyhow::Result<Trial> {
    let Case { fault, architecture, protocol } = case;
    let clock = RealClock::new();
    let mut server = Server::start(inrush, architecture, protocol, fault.setup)?;
    let (scheme, flags) = protocol.of_load();
    let url = format!("{scheme}://{}/{}", server.address, server::SMALL);
    let (warmup, seconds) = (WARMUP.to_string(), duration.to_string());
    let load = Program::new(inrush)
        .arguments(["load", &url, "--rate", &RATE.to_string(), "--seed", &seed.to_string()])
        .arguments(["--warmup", &warmup, "--duration", &seconds, "--output", "json"])
        .arguments(flags);
    let before = server.sockets()?;
    let started = clock.now();
    let mut scene = Scene::new(&mut server, seed.child("faults").rng());
    let (mut failure, mut usage) = (None, Usage::default());
    let output = load.start().context("cannot start inrush load")?.output(TICK, || {
        let since = clock.now() - started;
        if since > WARMUP && failure.is_none() {
            let calm = since + CALM_END >= WARMUP + duration;
            if !fault.happens() {
                usage.sample(since, || scene.processes());
            }
            let done = if calm { scene.calm_down() } else { scene.advance(fault, since - WARMUP) };
            failure = done.err();
        }
        true
    })?;
    let times = scene.end()?;
    if let Some(error) = failure {
        return Err(error.context("the fault could not be made"));
    }
    let result: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("no result: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    let mut trial = Trial::of(case, times, &result)?;
    if let Some((memory, objections)) = usage.judge() {
        trial.memory = memory;
        trial.objections.extend(objections);
    }
    trial.objections.extend(server.objections(fault.ends_the_server, before, &clock)?);
    Ok(trial)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.architecture, self.protocol, self.fault.name)
    }
}

impl Trial {
    fn of(case: Case, times: u64, result: &Value) -> anyhow::Result<Trial> {
        let fault = case.fault;
        let outcomes = result["outcomes"].as_object().context("the result has no outcomes")?;
        let counts = outcomes.iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0)));
        let (answered, mut lost): (Vec<_>, Vec<_>) = counts.partition(|(name, _)| name == "ok");
        lost.push(("unanswered".to_owned(), result["in_flight_at_end"].as_u64().unwrap_or(0)));
        lost.retain(|(_, count)| *count > 0);
        let not_allowed = lost.iter().filter(|(name, count)| *count > fault.allows(name, times));
        let mut objections: Vec<String> =
            not_allowed.map(|(name, count)| format!("{count} {name} are not allowed")).collect();
        let offered = result["offered"].as_u64().context("the result has no offered")?;
        if offered == 0 {
            objections.push("nothing was offered".to_owned());
        }
        if fault.happens() && times == 0 {
            objections.push("the fault did not happen".to_owned());
        }
        let p99 = result["latency_sent_ns"]["answered"]["p99"].as_u64();
        Ok(Trial {
            case,
            times,
            offered,
            answered: answered.iter().map(|(_, count)| count).sum(),
            p99: p99.map_or_else(String::new, |ns| Nanos(ns).approximate().to_string()),
            memory: String::new(),
            lost,
            objections,
        })
    }

    fn row(&self) -> [String; 11] {
        let Case { fault, architecture, protocol } = self.case;
        let lost: Vec<String> = self.lost.iter().map(|(name, count)| format!("{count} {name}")).collect();
        [
            fault.name.to_owned(),
            architecture.to_owned(),
            protocol.to_string(),
            self.times.to_string(),
            self.offered.to_string(),
            self.answered.to_string(),
            self.p99.clone(),
            self.memory.clone(),
            if lost.is_empty() { "0".to_owned() } else { lost.join(" ") },
            fault.allowance(),
            if self.objections.is_empty() { "holds" } else { "FAILS" }.to_owned(),
        ]
    }

    fn line(&self) -> String {
        let verdict = match self.objections.is_empty() {
            true => format!("holds, {} of {} answered", self.answered, self.offered),
            false => self.objections.join("; "),
        };
        format!("{}: {verdict}", self.case)
    }
}
