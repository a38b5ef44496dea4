//! The benchmarks, one file each, with their common options, results and promises.
//!
//! No time decides whether a benchmark succeeds: it prints its measurements. `--check` compares them with the
//! project's promises, and is for a machine that does nothing else.

mod accuracy;
mod dispatch;
mod load;
mod memory;
mod race;
mod requests;
mod serve;
pub mod usertcp;
mod wan;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use base::{Clock, Seed};
use clap::{Args, Subcommand};
use rand::seq::SliceRandom;
use record::Manifest;
use serde::Serialize;

use crate::test_bed::TestBed;

/// The benchmarks.
#[derive(Subcommand)]
pub enum Bench {
    /// Requests a second on one CPU, beside other servers and the readiness limit
    Serve(serve::ServeOptions),
    /// Requests a second that one CPU asks for, beside other closed clients; a minute
    Requests(race::RaceOptions),
    /// Connections offered to a listener that never accepts, beside other generators
    Load(load::LoadOptions),
    /// Latencies and rates that `inrush load` reports, beside the real ones; half a minute
    Accuracy(accuracy::AccuracyOptions),
    /// Memory of an idle keep-alive connection, beside other servers
    Memory(memory::MemoryOptions),
    /// CPU time of the event mechanisms by themselves: waits and changes of interest
    Dispatch(dispatch::DispatchOptions),
    /// Packets a second that the router of `inrush wan` forwards without loss on one processor; half a minute
    Wan(wan::WanOptions),
    /// TCP in user space: SYNs into a full queue, and idle connections; a minute
    Usertcp(usertcp::UserTcpOptions),
}

/// The options of all benchmarks.
#[derive(Args)]
pub struct Common {
    /// Decides the order of the runs
    #[arg(long, default_value = "1")]
    seed: Seed,
    /// The folder for the results as JSON
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Fail if a measurement falls short of a promise
    #[arg(long)]
    check: bool,
}

impl Common {
    /// Runs each of `count` contestants once in every round, in random order. Returns the samples of each contestant.
    fn in_rounds<T>(
        &self,
        title: &str,
        rounds: u32,
        count: usize,
        mut run: impl FnMut(usize) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<Vec<T>>> {
        let mut samples: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
        let mut rng = self.seed.child(title).rng();
        let mut order: Vec<usize> = (0..count).collect();
        for round in 1..=rounds {
            eprintln!("{title}: round {round} of {rounds}");
            order.shuffle(&mut rng);
            for index in &order {
                samples[*index].push(run(*index)?);
            }
        }
        Ok(samples)
    }
}

/// One of the project's promises, with its measurement.
#[derive(Clone, Debug, Serialize)]
struct Promise {
    text: String,
    measured: f64,
    kept: bool,
}

impl Promise {
    fn at_least(text: &str, wanted: f64, measured: f64) -> Promise {
        Promise { text: format!("{text}: at least {wanted}"), measured, kept: measured >= wanted }
    }

    fn at_most(text: &str, wanted: f64, measured: f64) -> Promise {
        Promise { text: format!("{text}: at most {wanted}"), measured, kept: measured <= wanted }
    }
}

/// A result in its file: its origin, the figures, and the promises.
#[derive(Serialize)]
struct Results<'a, T> {
    schema: &'a str,
    manifest: Manifest,
    topology: record::Topology,
    results: &'a T,
    promises: &'a [Promise],
}

/// Runs one of the benchmarks. Blocks.
///
/// # Errors
/// The benchmark cannot run, or with `--check` a promise is not kept.
pub fn run(bench: &Bench) -> anyhow::Result<()> {
    let before = match bench {
        Bench::Serve(options) => options.before(),
        Bench::Requests(options) => options.before.as_ref(),
        Bench::Memory(options) => options.before.as_ref(),
        _ => None,
    };
    if let Some(program) = before.filter(|program| !program.is_file()) {
        bail!("--before: no program {}; expected another build of inrush", program.display());
    }
    let bed = TestBed::prepare(before.cloned())?;
    match bench {
        Bench::Serve(options) => serve::run(options, &bed),
        Bench::Requests(options) => requests::run(options, &bed),
        Bench::Load(options) => load::run(options, &bed),
        Bench::Accuracy(options) => accuracy::run(options, &bed),
        Bench::Memory(options) => memory::run(options, &bed),
        Bench::Dispatch(options) => dispatch::run(options, &bed),
        Bench::Wan(options) => wan::run(options, &bed),
        Bench::Usertcp(options) => usertcp::run(options, &bed),
    }
}

impl TestBed {
    /// Writes the results, prints the promises, and judges them if asked to.
    fn conclude<T: Serialize>(
        &self,
        common: &Common,
        name: &str,
        results: &T,
        promises: &[Promise],
    ) -> anyhow::Result<()> {
        std::fs::create_dir_all(&common.out)
            .with_context(|| format!("cannot make {}", common.out.display()))?;
        let path = common.out.join(format!("{name}.json"));
        let manifest = Manifest::of_this_machine(self.clock.wall(), BTreeMap::new(), Some(common.seed));
        let schema = &format!("inrush.bench.{name}/1");
        let topology = self.topology.record();
        record::file::write(&path, &Results { schema, manifest, topology, results, promises })?;
        for Promise { text, measured, kept } in promises {
            println!("{}  {text}, measured {measured:.2}", if *kept { "kept " } else { "short" });
        }
        println!("results: {}", path.display());
        if common.check && promises.iter().any(|promise| !promise.kept) {
            bail!("a measurement falls short of a promise");
        }
        Ok(())
    }
}
