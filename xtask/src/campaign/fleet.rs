//! `inrush fleet run` again and again, each machine of the fleet a network namespace.
//!
//! Owns the judgement. Leaves out agents that fail: the tests of `inrush fleet` end them.
//!
//! Invariant: a run holds if it is valid, offers what was asked to within 0.5 %, and is exactly the sum of its parts.

use anyhow::{bail, ensure};
use base::Nanos;
use record::{LoadResult, Verdict};

use super::machines::{Machines, page};
use crate::test_bed::build_inrush;

/// Flags of `campaign fleet`.
#[derive(clap::Args)]
pub struct FleetOptions {
    /// Runs of the fleet
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Agents, each in a namespace of its own
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u32).range(1..=100))]
    agents: u32,
}

/// Requests a second of the whole fleet.
const RATE: u32 = 2_000;
/// Measured time of a run, in seconds.
const SECONDS: u32 = 5;
/// The greatest difference between the asked and the offered rate, as a part of the asked one.
const TOLERANCE: f64 = 0.005;

/// Carries out the runs. Blocks.
///
/// # Errors
/// A run does not hold, or the errors of [`Machines::start`].
pub fn run(options: &FleetOptions) -> anyhow::Result<()> {
    let inrush = build_inrush()?;
    let machines = Machines::start(&inrush, options.agents)?;
    let (page, rate, duration) = (page(), RATE.to_string(), format!("{SECONDS}s"));
    let load = [page.as_str(), "--rate", &rate, "--warmup", "1s", "--duration", &duration];
    let (mut skews, mut failed) = (Vec::new(), 0);
    for number in 1..=options.runs {
        let result = machines.offer(&inrush, options.agents, &load)?;
        let objections = objections(&result, options.agents);
        let starts = result.agents.iter().filter_map(|agent| Some(agent.part.as_ref()?.start_late_ns));
        skews.extend(starts);
        failed += u32::from(!objections.is_empty());
        let verdict = if objections.is_empty() { "holds".to_owned() } else { objections.join("; ") };
        println!("run {number} of {}: {} offered, {verdict}", options.runs, result.offered);
    }
    ensure!(!skews.is_empty(), "no agent has taken part");
    skews.sort_unstable();
    let at = |part: f64| Nanos(skews[((skews.len() - 1) as f64 * part).round() as usize]).approximate();
    println!("start skew of {} starts: p50 {}, p99 {}, most {}", skews.len(), at(0.5), at(0.99), at(1.0));
    if failed > 0 {
        bail!("{failed} of {} runs do not hold", options.runs);
    }
    Ok(())
}

/// The reasons why a run does not hold.
fn objections(result: &LoadResult, agents: u32) -> Vec<String> {
    let parts: Vec<_> = result.agents.iter().filter_map(|agent| agent.part.as_ref()).collect();
    let asked = f64::from(RATE * SECONDS);
    let offered: u64 = parts.iter().map(|part| part.offered).sum();
    let samples: u64 = parts.iter().map(|part| part.latency_intended_ns.answered.count).sum();
    let merged = result.latency_intended_ns.answered.count;
    let conditions = [
        (result.verdict == Verdict::Valid, format!("the verdict is {}", result.verdict.name())),
        (parts.len() == agents as usize, format!("{} of {agents} agents have a part", parts.len())),
        ((result.offered as f64 / asked - 1.0).abs() <= TOLERANCE, format!("{asked} were asked for")),
        (result.offered == offered, format!("the parts offered {offered}")),
        (merged == samples, format!("{merged} of {samples} samples are merged")),
    ];
    conditions.into_iter().filter(|(holds, _)| !holds).map(|(_, otherwise)| otherwise).collect()
}
