//! Contestants with the same task one after another, in rounds of random order. A drift of the machine so affects all
//! alike, and a ratio is taken within a round.

use std::path::PathBuf;

use anyhow::{Context, Result};
use report::columns::aligned;
use serde::Serialize;
use stage::kernel::{Elapsed, Observer};
use statistics::Spread;

use super::Common;
use crate::responder::AfterReply;
use crate::rivals::readers::{self, Read, Reader, Task};
use crate::test_bed::TestBed;

/// The options of the measurement.
#[derive(clap::Args)]
pub struct RaceOptions {
    #[command(flatten)]
    pub common: Common,
    /// Rounds, in each of which every contestant runs once
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// The length of one measurement
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Connections that a client holds
    #[arg(long, default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Speak HTTP/2 in cleartext, with 32 streams on each connection
    #[arg(long)]
    pub http2: bool,
    /// Measure another build of inrush beside this one
    #[arg(long, value_name = "PROGRAM")]
    pub before: Option<PathBuf>,
}

impl RaceOptions {
    /// The streams of each connection over HTTP/2.
    pub fn streams(&self) -> Option<u32> {
        self.http2.then_some(32)
    }

    /// The fates of a connection; over HTTP/2 it is kept, because h2load does not connect again.
    pub fn modes(&self) -> &'static [(&'static str, AfterReply)] {
        if self.http2 { &MODES[..1] } else { &MODES }
    }

    /// The base of comparisons between clients, and the reader of servers.
    pub fn reader(&self) -> &'static Reader {
        if self.http2 { &readers::HTTP2_REFERENCE } else { &readers::REFERENCE }
    }
}

/// The fates of a connection that has its reply, in words.
const MODES: [(&str, AfterReply); 2] =
    [("keep-alive", AfterReply::Keep), ("a connection per request", AfterReply::Close)];

/// All contestants, with connections kept or one for each request.
#[derive(Serialize)]
pub struct Mode {
    /// The mode's name.
    pub connections: &'static str,
    /// In the order they are shown.
    pub contestants: Vec<Measured>,
}

/// One run of one contestant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Requests answered a second.
    pub requests_per_s: f64,
    /// Busy time of the observed CPUs over the requests answered; absent if they have other work too.
    pub cpu_us_per_request: Option<f64>,
    /// Replies that were no success, and socket errors.
    pub errors: u64,
}

/// All runs of one contestant.
#[derive(Serialize)]
pub struct Measured {
    /// Short, for a table.
    pub name: &'static str,
    /// In the order of the rounds.
    pub samples: Vec<Sample>,
    /// Requests answered a second.
    pub requests_per_s: Option<Spread>,
    /// As in a [`Sample`].
    pub cpu_us_per_request: Option<Spread>,
    /// Requests per second over the reference's in the same round; absent without a reference.
    pub ratio: Option<Spread>,
}

/// Runs each contestant for a second that does not count, and then once in each round. Blocks.
///
/// # Errors
/// The errors of a run.
pub fn race(
    options: &RaceOptions,
    title: &str,
    names: &[&'static str],
    reference: &str,
    mut run: impl FnMut(usize, u32) -> Result<Sample>,
) -> Result<Vec<Measured>> {
    for index in 0..names.len() {
        run(index, 1)?;
    }
    let RaceOptions { common, rounds, seconds, .. } = options;
    let samples = common.in_rounds(title, *rounds, names.len(), |index| run(index, *seconds))?;
    Ok(summarise(names, reference, samples))
}

/// Lets a client read for the time of its task, and observes the CPUs. Blocks.
///
/// # Errors
/// The client is not installed, or fails.
pub fn sample(
    bed: &TestBed,
    observer: &mut Observer,
    client: &Reader,
    task: &Task<'_>,
    busy_cores: fn(&Elapsed) -> f64,
) -> Result<Sample> {
    let read = || client.read(bed, task)?.with_context(|| format!("{} is not installed", client.name));
    observed(bed, observer, busy_cores, read)
}

/// Observes the CPUs while a client reads. Blocks.
///
/// # Errors
/// Those of the client.
pub fn observed(
    bed: &TestBed,
    observer: &mut Observer,
    busy_cores: fn(&Elapsed) -> f64,
    read: impl FnOnce() -> Result<Read>,
) -> Result<Sample> {
    let before = observer.read(&bed.clock)?;
    let read = read()?;
    let elapsed = observer.read(&bed.clock)?.since(&before);
    let cpu_us = busy_cores(&elapsed) * elapsed.drops.over_s * 1e6;
    Ok(Sample {
        requests_per_s: read.requests_per_s,
        cpu_us_per_request: bed.topology.sides_have_own_cpus().then(|| cpu_us / read.requests.max(1) as f64),
        errors: read.errors,
    })
}

fn summarise(names: &[&'static str], reference: &str, samples: Vec<Vec<Sample>>) -> Vec<Measured> {
    let reference = names.iter().position(|name| *name == reference);
    let ratios: Vec<Option<Spread>> = samples.iter().map(|own| ratio(own, &samples[reference?])).collect();
    let summaries = names.iter().zip(samples).zip(ratios).map(|((name, samples), ratio)| Measured {
        name,
        requests_per_s: Spread::of(samples.iter().map(|sample| sample.requests_per_s)),
        cpu_us_per_request: Spread::of(samples.iter().filter_map(|sample| sample.cpu_us_per_request)),
        ratio,
        samples,
    });
    summaries.collect()
}

/// The ratios of requests per second, `own` over `other`, of the same rounds.
fn ratio(own: &[Sample], other: &[Sample]) -> Option<Spread> {
    Spread::of(own.iter().zip(other).map(|(own, other)| own.requests_per_s / other.requests_per_s))
}

/// Writes the ratio of a contestant to its build before, within each round; `None` without one of the two.
pub fn change(own: &str, before: &str, measured: &[Measured]) -> Option<String> {
    let samples = |name| Some(&measured.iter().find(|one| one.name == name)?.samples);
    let Spread { median, min, max } = ratio(samples(own)?, samples(before)?)?;
    Some(format!("over the build before: {median:.3} ({min:.3} to {max:.3})\n"))
}

/// Writes a line for each. `what` names their kind, and `reference` the base of the ratios.
pub fn table(what: &str, reference: &str, measured: &[Measured]) -> String {
    let head = [what, "requests/s", "CPU us/request", &format!("x {reference}"), "min..max", "errors"];
    let mut rows = vec![head.map(str::to_owned)];
    for one in measured {
        let cell = |value: Option<Spread>, digits: usize| {
            value.map_or("-".to_owned(), |spread| format!("{:.digits$}", spread.median))
        };
        let range = one.ratio.map_or("-".to_owned(), |ratio| format!("{:.2}..{:.2}", ratio.min, ratio.max));
        let errors: u64 = one.samples.iter().map(|sample| sample.errors).sum();
        rows.push([
            one.name.to_owned(),
            cell(one.requests_per_s, 0),
            cell(one.cpu_us_per_request, 1),
            cell(one.ratio, 2),
            range,
            errors.to_string(),
        ]);
    }
    aligned(&rows, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Seed;

    fn sample(requests_per_s: f64) -> Sample {
        Sample { requests_per_s, cpu_us_per_request: None, errors: 0 }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let samples = vec![vec![sample(20.0), sample(90.0)], vec![sample(10.0), sample(30.0)]];
        let measured = summarise(&["us", "them"], "them", samples);
        assert_eq!(measured[0].ratio, Some(Spread { median: 2.5, min: 2.0, max: 3.0 }));
        assert_eq!(measured[1].ratio, Some(Spread { median: 1.0, min: 1.0, max: 1.0 }));
        let alone = summarise(&["us"], "them", vec![vec![sample(20.0)]]);
        assert_eq!(alone[0].ratio, None);
    }

    #[test]
    fn everybody_runs_once_in_each_round() {
        let common = Common { seed: Seed(1), out: PathBuf::new(), check: false };
        let options =
            RaceOptions { common, rounds: 4, seconds: 2, connections: 1, http2: false, before: None };
        let (mut runs, mut lengths) = (Vec::new(), Vec::new());
        let measured = race(&options, "a race", &["a", "b", "c"], "a", |index, seconds| {
            runs.push(index);
            lengths.push(seconds);
            Ok(sample(1.0))
        });
        assert_eq!(lengths, [[1; 3].as_slice(), &[2; 12]].concat());
        assert!(measured.unwrap().iter().all(|one| one.samples.len() == 4));
        for round in runs.chunks_mut(3) {
            round.sort_unstable();
            assert_eq!(round, [0, 1, 2]);
        }
    }
}
