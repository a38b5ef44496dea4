//! Serving beside thousands of idle connections, by every event mechanism: figures 9 to 11 of the FDM
//! paper on today's kernel.
//!
//! Beside the idle connections sessions come at a constant rate, each a connection that asks [`REQUESTS`]
//! times and thinks between (an open loop: an overloaded server does not slow them down). [`Stand`] says
//! what a cost and a response time are. Cases (a mechanism and a number of idle connections) come in random
//! order in each round, with a new server each; ratios are taken within a round.
//!
//! With a short signal queue (`--signal-queue`, 1024 in the paper's time) the mechanisms on signals show
//! where their queues overflow, and what follows: a reply rate below the offered one.

mod show;

use std::path::Path;

use anyhow::{Context, ensure};
use base::{Nanos, PerSecond};
use rand::seq::SliceRandom;
use serde::Serialize;
use statistics::Spread;

use super::stand::{self, Load, Sample, Stand};
use super::{Common, Mechanisms, Promise};
use crate::test_bed::TestBed;

/// Requests of a session.
const REQUESTS: u32 = 20;
/// Between a reply and the session's next request, uniformly; 50 ms on average.
const THINK: &str = "20ms..80ms";
/// Sessions last a second: after twice that as many end as begin.
const WARMUP: Nanos = Nanos::from_secs(2);
/// Room for the connections of sessions: at 10,000 requests/s 500 are open, and overload adds 500 a second.
const SESSIONS_MAX: u32 = 4000;
/// A server that replies to a smaller part of what is offered has collapsed.
const COLLAPSED: f64 = 0.9;

/// How to measure.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Idle connections, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "0,6000,15000", value_parser = clap::value_parser!(u32).range(..=15_000))]
    idle: Vec<u32>,
    /// Requests a second, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "1k,4k,10k")]
    rates: Vec<PerSecond>,
    /// Mechanisms, comma-separated
    #[arg(long, default_value = "all")]
    mechanisms: Mechanisms,
    /// The length of one measurement
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// How often each case is measured
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The length of signal queues (RLIMIT_SIGPENDING); as it is, if not given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    signal_queue: Option<u32>,
}

/// All runs of one mechanism with so many idle connections at one rate.
#[derive(Clone, Debug, Serialize)]
struct Point {
    mechanism: &'static str,
    idle: u32,
    rate_per_s: f64,
    samples: Vec<Sample>,
}

#[derive(Serialize)]
struct Results {
    points: Vec<Point>,
    /// The length of signal queues, where it was changed.
    signal_queue: Option<u32>,
    /// Points whose median reply rate is below 90 % of the offered one.
    collapsed: Vec<show::Collapsed>,
    /// Cases that could not be measured, and why.
    failed: Vec<String>,
}

impl Point {
    fn spread(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(of))
    }

    fn replies_per_s(&self) -> Option<Spread> {
        self.spread(|sample| Some(sample.replies_per_s))
    }

    fn response_ms(&self) -> Option<Spread> {
        self.spread(|sample| Some(sample.response_ms_p50))
    }

    fn cpu_us(&self) -> Option<Spread> {
        self.spread(|sample| sample.cpu_us_per_request)
    }

    fn process_us(&self) -> Option<Spread> {
        self.spread(|sample| sample.process_us_per_request)
    }

    fn overflows(&self) -> Option<Spread> {
        self.spread(|sample| Some(sample.overflows as f64))
    }

    /// The part of what was offered that was replied to.
    fn share(&self) -> Option<f64> {
        self.replies_per_s().map(|replies| replies.median / self.rate_per_s)
    }
}

/// Measures, prints, draws and writes.
pub fn run(options: &Options, bed: &TestBed) -> anyhow::Result<()> {
    let most = options.idle.iter().max().context("no idle connections are given")?;
    stand::allow("--idle", *most, SESSIONS_MAX)?;
    if let Some(length) = options.signal_queue {
        stand::shorten_signal_queue(length)?;
    }
    let folder = stand::folder()?;
    let mut points = points(options);
    let failed = measure(options, bed, folder.path(), &mut points)?;
    let signal_queue = options.signal_queue;
    let results = Results { collapsed: show::collapsed(&points), points, signal_queue, failed };
    let text = show::text(&results);
    print!("\n{text}\n");
    show::draw(&options.common, &results, &text)?;
    bed.conclude(&options.common, "idle", &results, &promises(&results.points))?;
    ensure!(!options.common.check || results.failed.is_empty(), "some cases could not be measured");
    Ok(())
}

/// Everything that is to be measured, in the order it is shown.
fn points(options: &Options) -> Vec<Point> {
    let mut points = Vec::new();
    for mechanism in options.mechanisms.available() {
        for idle in &options.idle {
            points.extend(options.rates.iter().map(|rate| Point {
                mechanism,
                idle: *idle,
                rate_per_s: rate.0,
                samples: Vec::new(),
            }));
        }
    }
    points
}

/// All rounds; returns what could not be measured.
fn measure(
    options: &Options,
    bed: &TestBed,
    root: &Path,
    points: &mut [Point],
) -> anyhow::Result<Vec<String>> {
    let mut rng = options.common.seed.child("order of cases").rng();
    // One after another, the points of a case are its rates.
    let mut cases: Vec<&mut [Point]> = points.chunks_mut(options.rates.len()).collect();
    let mut failed = Vec::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        cases.shuffle(&mut rng);
        for case in &mut cases {
            let (mechanism, idle) = (case[0].mechanism, case[0].idle);
            if let Err(error) = measure_case(options, bed, root, round, case) {
                let failure = format!("round {round}, {mechanism}, {idle} idle: {error:#}");
                eprintln!("{failure}");
                failed.push(failure);
            }
        }
    }
    Ok(failed)
}

/// Every rate at one server, one after another. Blocks.
fn measure_case(
    options: &Options,
    bed: &TestBed,
    root: &Path,
    round: u32,
    case: &mut [Point],
) -> anyhow::Result<()> {
    let (mechanism, idle) = (case[0].mechanism, case[0].idle);
    let mut stand = Stand::start(bed, root, (idle, SESSIONS_MAX), &[("--dispatch", mechanism)])?;
    for point in case {
        let load = Load {
            flags: vec![
                format!("--rate={}", point.rate_per_s / f64::from(REQUESTS)),
                format!("--requests-per-connection={REQUESTS}"),
                format!("--think={THINK}"),
            ],
            warmup: WARMUP,
            seconds: options.seconds,
        };
        point.samples.push(stand.measure(&load, round)?);
    }
    stand.end()
}

/// What the project promises; a promise without its points is not judged.
fn promises(points: &[Point]) -> Vec<Promise> {
    let at = |mechanism, idle, rate_per_s: f64| {
        let same = move |point: &&Point| (point.mechanism, point.idle) == (mechanism, idle);
        points.iter().filter(same).find(move |point| point.rate_per_s == rate_per_s)
    };
    let mut rates: Vec<f64> = points.iter().map(|point| point.rate_per_s).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let at_each_rate = rates.into_iter().flat_map(|rate| {
        let fdm = at("fdm", 6000, rate).zip(at("poll", 6000, rate)).and_then(|(own, other)| {
            let text = format!("CPU a request at {}, 6000 idle, fdm x poll", PerSecond(rate));
            Some(Promise::at_most(&text, 0.8, ratio(own, other)?))
        });
        let epoll = at("epoll", 15_000, rate).zip(at("epoll", 0, rate)).and_then(|(many, none)| {
            let text = format!("CPU a request at {}, epoll, 15,000 idle x none", PerSecond(rate));
            Some(Promise::at_most(&text, 1.05, ratio(many, none)?))
        });
        [fdm, epoll]
    });
    at_each_rate.flatten().collect()
}

/// The median of the ratios of the CPU time of a request, each within a round.
fn ratio(own: &Point, other: &Point) -> Option<f64> {
    let ratios = own.samples.iter().filter_map(|sample| {
        let same = other.samples.iter().find(|other| other.round == sample.round)?;
        Some(sample.cpu_us_per_request? / same.cpu_us_per_request?)
    });
    Spread::of(ratios).map(|ratio| ratio.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(mechanism: &'static str, idle: u32, rate_per_s: f64, cpu_us: &[f64]) -> Point {
        let sample = |(round, cpu_us): (u32, &f64)| Sample {
            round,
            replies_per_s: rate_per_s * 0.8,
            response_ms_p50: 1.0,
            response_ms_mean: 1.0,
            cpu_us_per_request: Some(*cpu_us),
            process_us_per_request: None,
            overflows: 0,
            generator_limited: false,
        };
        Point { mechanism, idle, rate_per_s, samples: (1..).zip(cpu_us).map(sample).collect() }
    }

    #[test]
    fn promises_compare_the_same_rate_within_a_round() {
        let points = [
            point("fdm", 6000, 1e3, &[10.0, 50.0, 8.0]),
            point("poll", 6000, 1e3, &[20.0, 100.0, 10.0]),
            point("poll", 6000, 4e3, &[1.0]),
            point("epoll", 0, 4e3, &[10.0]),
            point("epoll", 15_000, 4e3, &[11.0]),
        ];
        let promises = promises(&points);
        let judged: Vec<(f64, bool)> = promises.iter().map(|one| (one.measured, one.kept)).collect();
        assert_eq!(judged, [(0.5, true), (1.1, false)]);
    }

    #[test]
    fn a_reply_rate_well_below_the_offered_one_is_a_collapse() {
        let points = [point("rt-signals", 6000, 4e3, &[1.0])];
        assert_eq!(show::collapsed(&points).len(), 1);
        let mut fine = points;
        fine[0].samples[0].replies_per_s = 3900.0;
        assert!(show::collapsed(&fine).is_empty());
    }
}
