//! Connections offered to a listener that never accepts, like an overloaded server. A client that waits cannot offer
//! them (Banga 1997, section 2).
//!
//! The kernel's counters on the client's side give SYNs and retransmissions. Sockets and memory are sampled every 5
//! ms. CPU time is the kernel's account of the program. A last part measures the most that one CPU can offer, with a
//! timeout short enough for the descriptors of one process.

use std::net::SocketAddr;

use anyhow::Context;
use base::{Bytes, Clock};
use report::columns::aligned;
use serde::Serialize;
use stage::memory;
use stage::sockets::SocketCounters;
use statistics::Spread;

use super::{Common, Promise};
use crate::rivals::generators::{self, Generator, INRUSH, REFERENCE, Task};
use crate::test_bed::{TICK, TestBed};

/// The connect timeout of `inrush load` by default.
const CONNECT_TIMEOUT_S: f64 = 0.5;
/// A rate above the capacity of one core.
const MOST_RATE_PER_S: u32 = 120_000;
/// 12,000 connects are pending at that rate: below the hard descriptor limit of small machines.
const SHORT_CONNECT_TIMEOUT: &str = "100ms";

/// The options of the measurement.
#[derive(clap::Args)]
pub struct LoadOptions {
    #[command(flatten)]
    common: Common,
    /// Rounds, in each of which every generator runs once
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The length of one measurement
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Connections a second
    #[arg(long, default_value = "2000", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
}

/// One run of one generator.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    syns_sent: u64,
    syns_resent: u64,
    sockets_peak: u64,
    memory_peak_bytes: u64,
    cpu_s: f64,
}

/// All runs of one generator.
#[derive(Serialize)]
struct Measured {
    generator: &'static str,
    samples: Vec<Sample>,
}

#[derive(Serialize)]
struct Results {
    rate_per_s: u32,
    seconds: u32,
    generators: Vec<Measured>,
    most_syns_per_s: Option<Spread>,
}

/// Measures, prints and writes.
pub fn run(options: &LoadOptions, bed: &TestBed) -> anyhow::Result<()> {
    let mut generators = Vec::new();
    for generator in &generators::ALL {
        match (generator.prepare)(&task(options, bed, "127.0.0.1:1".parse()?)) {
            Some(_) => generators.push(generator),
            None => println!("skipped: {} is not installed", generator.name),
        }
    }
    let mut most = Vec::new();
    let samples = options.common.in_rounds("generators", options.rounds, generators.len(), |index| {
        // Once in each round.
        if index == 0 {
            most.push(measure_most(options, bed)?);
        }
        measure(options, bed, generators[index])
    })?;
    let names = generators.iter().map(|generator| generator.name);
    let generators: Vec<Measured> =
        names.zip(samples).map(|(generator, samples)| Measured { generator, samples }).collect();
    println!(
        "\n{} connections/s for {} s, offered to a listener that never accepts:",
        options.rate, options.seconds
    );
    print!("{}", table(options, &generators));
    let most_syns_per_s = Spread::of(&most);
    if let Some(most) = most_syns_per_s {
        println!(
            "\n{INRUSH}, one core, connect timeout {SHORT_CONNECT_TIMEOUT}: {:.0} SYN/s ({:.0}..{:.0})\n",
            most.median, most.min, most.max
        );
    }
    let results = Results { rate_per_s: options.rate, seconds: options.seconds, generators, most_syns_per_s };
    bed.conclude(&options.common, "load", &results, &promises(&results))
}

fn task<'a>(options: &LoadOptions, bed: &'a TestBed, address: SocketAddr) -> Task<'a> {
    Task { address, rate_per_s: options.rate, seconds: options.seconds, inrush: &bed.inrush }
}

/// One run of one generator against a listener of its own. Blocks.
fn measure(options: &LoadOptions, bed: &TestBed, generator: &Generator) -> anyhow::Result<Sample> {
    let (_listener, address) = bed.silent_listener(1)?;
    let task = task(options, bed, address);
    let line = (generator.prepare)(&task).with_context(|| format!("{} has gone", generator.name))?;
    let mut counters = SocketCounters::of(&bed.topology.client)?;
    let (attempts, sockets) = (counters.attempts()?, counters.sockets()?);
    let child = bed.topology.client.program(line.program).arguments(line.arguments).start()?;
    let (pid, deadline) = (child.id(), bed.clock.now() + generators::patience(&task));
    let (mut sockets_peak, mut memory_peak) = (0, Bytes(0));
    let output = child.output(TICK, || {
        sockets_peak = sockets_peak.max(counters.sockets().unwrap_or(0).saturating_sub(sockets));
        memory_peak = memory::peak_memory(pid).unwrap_or(memory_peak);
        bed.clock.now() < deadline
    })?;
    let after = counters.attempts()?;
    Ok(Sample {
        syns_sent: after.opened - attempts.opened,
        syns_resent: after.resent - attempts.resent,
        sockets_peak,
        memory_peak_bytes: memory_peak.0,
        cpu_s: output.exit.cpu_time.as_secs_f64(),
    })
}

/// Returns the SYNs per second that `inrush load` sends at a rate above its capacity. Blocks.
fn measure_most(options: &LoadOptions, bed: &TestBed) -> anyhow::Result<f64> {
    let (_listener, address) = bed.silent_listener(1)?;
    let task = Task { address, rate_per_s: MOST_RATE_PER_S, seconds: options.seconds, inrush: &bed.inrush };
    let line = generators::inrush(&task);
    let program = bed.topology.client.program(line.program).arguments(line.arguments);
    let program = program.arguments(["--connect-timeout", SHORT_CONNECT_TIMEOUT, "--output", "json"]);
    let mut counters = SocketCounters::of(&bed.topology.client)?;
    let before = counters.attempts()?;
    let deadline = bed.clock.now() + generators::patience(&task);
    let output = program.start()?.output(TICK, || bed.clock.now() < deadline)?;
    let sent = counters.attempts()?.opened - before.opened;
    // The generator's limit is the point of this measurement.
    let result = generators::inrush_result(&output)?;
    Ok(sent as f64 / result.duration_s)
}

fn table(options: &LoadOptions, generators: &[Measured]) -> String {
    let head = ["generator", "SYNs sent", "of", "sent again", "peak sockets", "memory MiB", "CPU s"];
    let mut rows = vec![head.map(str::to_owned)];
    let scheduled = options.rate * options.seconds;
    for Measured { generator, samples } in generators {
        let cell = |of: fn(&Sample) -> f64, digits: usize| {
            median(samples, of).map_or("-".to_owned(), |median| format!("{median:.digits$}"))
        };
        rows.push([
            (*generator).to_owned(),
            cell(|sample| sample.syns_sent as f64, 0),
            scheduled.to_string(),
            cell(|sample| sample.syns_resent as f64, 0),
            cell(|sample| sample.sockets_peak as f64, 0),
            cell(|sample| sample.memory_peak_bytes as f64 / f64::from(1 << 20), 1),
            cell(|sample| sample.cpu_s, 2),
        ]);
    }
    aligned(&rows, &[])
}

fn median(samples: &[Sample], of: fn(&Sample) -> f64) -> Option<f64> {
    Spread::of(samples.iter().map(of)).map(|spread| spread.median)
}

/// The project's promises of offering load.
fn promises(results: &Results) -> Vec<Promise> {
    let of = |name, figure: fn(&Sample) -> f64| {
        let measured = results.generators.iter().find(|measured| measured.generator == name)?;
        median(&measured.samples, figure)
    };
    let scheduled = f64::from(results.rate_per_s * results.seconds);
    let pending = f64::from(results.rate_per_s) * CONNECT_TIMEOUT_S;
    let cpu = of(INRUSH, |sample| sample.cpu_s).zip(of(REFERENCE, |sample| sample.cpu_s));
    let promises = [
        of(INRUSH, |sample| sample.syns_sent as f64)
            .map(|sent| Promise::at_least("scheduled connections that were sent", 1.0, sent / scheduled)),
        of(INRUSH, |sample| sample.sockets_peak as f64)
            .map(|peak| Promise::at_most("peak sockets, x rate x timeout", 1.05, peak / pending)),
        cpu.map(|(own, other)| Promise::at_most("CPU time, x h2load", 1.0, own / other)),
        results.most_syns_per_s.map(|most| Promise::at_least("SYN/s of one core", 100_000.0, most.median)),
    ];
    promises.into_iter().flatten().collect()
}
