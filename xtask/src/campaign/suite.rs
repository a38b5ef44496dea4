//! The whole test suite, repeated beside a busy loop on every CPU.
//!
//! A test that relies on an idle machine fails here.

use anyhow::{Context, bail};
use base::Nanos;
use sys::process::{Child, Program};

use crate::test_bed::{TICK, cargo};

/// Flags of `campaign suite`.
#[derive(clap::Args)]
pub struct SuiteOptions {
    /// Runs of the suite
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Runs the suite. Blocks.
///
/// # Errors
/// A run failed. All runs are carried out first, and the output of each failed run is printed.
pub fn run(options: &SuiteOptions) -> anyhow::Result<()> {
    let test = |more: &[&str]| -> anyhow::Result<Option<String>> {
        let arguments = ["test", "--workspace", "--quiet", "--no-fail-fast"].iter().chain(more);
        let child = cargo().arguments(arguments).start().context("cannot start cargo")?;
        let output = child.output(TICK, || true)?;
        let said = || [output.stdout.as_slice(), &output.stderr].concat();
        Ok((!output.exit.status.success()).then(|| String::from_utf8_lossy(&said()).into_owned()))
    };
    if let Some(errors) = test(&["--no-run"])? {
        bail!("the tests do not build:\n{errors}");
    }
    let mut busy = busy_loops()?;
    let mut failed = 0;
    for number in 1..=options.runs {
        let failure = test(&[])?;
        println!("run {number} of {}: {}", options.runs, if failure.is_some() { "FAILED" } else { "passed" });
        if let Some(output) = failure {
            failed += 1;
            println!("{output}");
        }
    }
    for child in &mut busy {
        child.terminate(Nanos::SECOND)?;
    }
    if failed > 0 {
        bail!("{failed} of {} runs failed", options.runs);
    }
    Ok(())
}

fn busy_loops() -> anyhow::Result<Vec<Child>> {
    let cpus = sys::cpu::allowed().context("cannot read the CPUs")?;
    let start =
        |cpu: &usize| Program::new("sh").arguments(["-c", "while :; do :; done"]).on_cpus(&[*cpu]).start();
    cpus.iter().map(|cpu| start(cpu).context("cannot start a busy loop")).collect()
}
