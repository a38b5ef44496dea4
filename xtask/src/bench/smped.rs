//! The architectures of the SMPED paper beside each other: its figures 5 and 6 on today's kernel.
//!
//! Clients are a closed loop, on one CPU: *hot* ones think for 0 to 20 ms between the five requests of a
//! connection, *cold* ones for 5 s between twenty. The server is confined to another CPU; event loops wait by
//! select, as the paper's do, because that is what makes many connections cost something. The file is in memory.
//!
//! The *knee* of a server is the fewest clients with which it reaches 90 % of its best reply rate. The numbers
//! of clients grow by the cube root of ten, so that ten times the knee is always three steps on. A point is
//! measured on a new server, servers in random order within a round; ratios are taken within a round.

mod show;

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use base::{Bytes, Clock, Nanos};
use lab::stage::owner::temporary_folder;
use rand::seq::SliceRandom;
use record::load::Verdict;
use serde::Serialize;
use statistics::Spread;

use super::{Common, Promise};
use crate::rivals::generators::inrush_result;
use crate::rivals::servers::{CONNECTIONS, start_architecture};
use crate::test_bed::{TICK, TestBed, allow_descriptors};

const FILE_NAME: &str = "page.html";
/// Sessions of hot clients last some 60 ms.
const WARMUP: Nanos = Nanos::from_secs(1);
/// What starting and stopping a server and a generator takes, for the forecast.
const AROUND_A_RUN: Nanos = Nanos::from_millis(800);
/// How long after its time a load generator may end.
const PATIENCE: Nanos = Nanos::from_secs(30);
/// What we and the server have open beside connections.
const OTHER_DESCRIPTORS: u32 = 1024;
/// The part of the best reply rate that makes a knee.
const KNEE: f64 = 0.9;
/// Steps of the grid to ten times as many clients.
const STEPS_TO_TENFOLD: usize = 3;
/// Numbers of clients.
const GRID: [u32; 9] = [20, 43, 93, 200, 431, 928, 2000, 4309, 9283];

/// A server that is compared: our own program with one architecture and its settings.
struct Contender {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const SMPED: &str = "smped";
const AMPED: &str = "amped";
const CONTENDERS: [Contender; 4] = [
    Contender { name: "mp, 150", settings: &[("--arch", "mp"), ("--workers", "150")] },
    Contender { name: AMPED, settings: &[("--arch", "amped"), ("--dispatch", "select")] },
    Contender { name: SMPED, settings: &[("--arch", "smped"), ("--dispatch", "select")] },
    Contender {
        name: "smped, least-connections",
        settings: &[("--arch", "smped"), ("--dispatch", "select"), ("--schedule", "least-connections")],
    },
];

/// How to measure.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// The fewest clients; their numbers are 20, 43, 93, 200 and so on
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(..=9283))]
    from: u32,
    /// The most clients
    #[arg(long, default_value = "4309", value_parser = clap::value_parser!(u32).range(20..=9283))]
    to: u32,
    /// Percentages of cold clients, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "0,50", value_parser = clap::value_parser!(u32).range(..=90))]
    cold: Vec<u32>,
    /// Size of the file
    #[arg(long, default_value = "1KiB")]
    file: Bytes,
    /// The length of one measurement, after a second of warm-up
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// How often each point is measured
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// What one run found.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    round: u32,
    /// Of hot and cold clients together.
    replies_per_s: f64,
    /// Of hot clients.
    response_ms_p50: f64,
    /// The generator could not offer what it was asked to.
    generator_limited: bool,
}

/// All runs of one server with so many clients, of which so many percent are cold.
#[derive(Clone, Debug, Serialize)]
struct Point {
    server: &'static str,
    cold_percent: u32,
    clients: u32,
    samples: Vec<Sample>,
}

/// Where a server does best, and what it still does with ten times the clients.
#[derive(Clone, Debug, Serialize)]
struct Knee {
    server: &'static str,
    cold_percent: u32,
    clients: u32,
    best_replies_per_s: f64,
    /// The reply rate at ten times the knee, as a part of the best; absent where that was not measured.
    kept_at_tenfold: Option<f64>,
}

#[derive(Serialize)]
struct Results {
    points: Vec<Point>,
    knees: Vec<Knee>,
    /// What could not be measured, and why.
    failed: Vec<String>,
}

impl Point {
    fn replies_per_s(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| sample.replies_per_s))
    }

    fn response_ms(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| sample.response_ms_p50))
    }
}

/// Measures, prints, draws and writes.
pub fn run(options: &Options, bed: &TestBed) -> anyhow::Result<()> {
    ensure!(options.from <= options.to, "--from {} is more than --to {}", options.from, options.to);
    allow_descriptors("--to", (options.to + OTHER_DESCRIPTORS) as usize)?;
    let mut points = points(options);
    let each = WARMUP + Nanos::from_secs(u64::from(options.seconds)) + AROUND_A_RUN;
    let runs = points.len() as u64 * u64::from(options.rounds);
    println!("{runs} runs, about {:.0} minutes", (each * runs).as_secs_f64() / 60.0);
    let folder = temporary_folder().context("cannot make a folder to serve")?;
    fs::write(folder.path().join(FILE_NAME), vec![b'x'; options.file.0 as usize])?;
    let failed = measure(options, bed, folder.path(), &mut points);
    let results = Results { knees: knees(&points), points, failed };
    let text = show::text(&results);
    print!("\n{text}\n");
    show::draw(&options.common, &results, &text)?;
    bed.conclude(&options.common, "smped", &results, &promises(&results))?;
    ensure!(!options.common.check || results.failed.is_empty(), "some points could not be measured");
    Ok(())
}

/// Everything that is to be measured, in the order it is shown.
fn points(options: &Options) -> Vec<Point> {
    let mut points = Vec::new();
    for cold_percent in &options.cold {
        for Contender { name: server, .. } in &CONTENDERS {
            let grid = GRID.into_iter().filter(|clients| (options.from..=options.to).contains(clients));
            points.extend(grid.map(|clients| Point {
                server,
                cold_percent: *cold_percent,
                clients,
                samples: Vec::new(),
            }));
        }
    }
    points
}

/// All rounds; returns what could not be measured.
fn measure(options: &Options, bed: &TestBed, root: &Path, points: &mut [Point]) -> Vec<String> {
    let mut rng = options.common.seed.child("order of points").rng();
    let mut order: Vec<usize> = (0..points.len()).collect();
    let mut failed = Vec::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        order.shuffle(&mut rng);
        for index in &order {
            let point = &mut points[*index];
            match measure_point(options, bed, root, round, point) {
                Ok(sample) => point.samples.push(sample),
                Err(error) => {
                    let Point { server, cold_percent, clients, .. } = point;
                    let failure = format!(
                        "round {round}, {server}, {clients} clients, {cold_percent} % cold: {error:#}"
                    );
                    eprintln!("{failure}");
                    failed.push(failure);
                }
            }
        }
    }
    failed
}

/// One run of the load generator at a new server. Blocks for its length.
fn measure_point(
    options: &Options,
    bed: &TestBed,
    root: &Path,
    round: u32,
    point: &Point,
) -> anyhow::Result<Sample> {
    let contender = CONTENDERS.iter().find(|contender| contender.name == point.server);
    let settings = contender.context("it is not among the contenders")?.settings;
    let server = start_architecture(bed, root, CONNECTIONS, settings)?;
    let cold = point.clients * point.cold_percent / 100;
    let mut program = bed.topology.client.program(&bed.inrush).arguments([
        "load".to_owned(),
        format!("http://{}/{FILE_NAME}", server.address),
        "--client=closed".to_owned(),
        "--workload=hot".to_owned(),
        format!("--sockets={}", point.clients - cold),
        format!("--warmup={}ns", WARMUP.0),
        format!("--duration={}s", options.seconds),
        format!("--seed={round}"),
        "--output=json".to_owned(),
    ]);
    if cold > 0 {
        program = program.arguments([format!("--population=cold:{cold}")]);
    }
    let child = program.start().context("cannot start inrush load")?;
    let until = bed.clock.now() + WARMUP + Nanos::from_secs(u64::from(options.seconds)) + PATIENCE;
    let output = child.output(TICK, || bed.clock.now() < until)?;
    server.stop()?;
    let result = inrush_result(&output)?;
    let of_cold: f64 = result.populations.values().map(|population| population.replies_per_s).sum();
    Ok(Sample {
        round,
        replies_per_s: result.replies_per_s + of_cold,
        response_ms_p50: result.latency_sent_ns.answered.p50 as f64 / 1e6,
        generator_limited: result.verdict == Verdict::GeneratorLimited,
    })
}

/// The knee of every server under every mixture.
fn knees(points: &[Point]) -> Vec<Knee> {
    // Points of one server under one mixture stand together, by clients.
    let curves =
        points.chunk_by(|one, next| (one.server, one.cold_percent) == (next.server, next.cold_percent));
    curves.filter_map(knee).collect()
}

fn knee(curve: &[Point]) -> Option<Knee> {
    let rates: Vec<f64> =
        curve.iter().map(|point| point.replies_per_s().map_or(0.0, |rate| rate.median)).collect();
    let best = rates.iter().copied().fold(0.0, f64::max);
    let at = rates.iter().position(|rate| *rate > 0.0 && *rate >= KNEE * best)?;
    let tenfold = curve.get(at + STEPS_TO_TENFOLD).filter(|point| !point.samples.is_empty());
    Some(Knee {
        server: curve[at].server,
        cold_percent: curve[at].cold_percent,
        clients: curve[at].clients,
        best_replies_per_s: best,
        kept_at_tenfold: tenfold.map(|_| rates[at + STEPS_TO_TENFOLD] / best),
    })
}

/// What the project promises; a promise without its points is not judged.
fn promises(results: &Results) -> Vec<Promise> {
    let hot = results.knees.iter().find(|knee| (knee.server, knee.cold_percent) == (SMPED, 0));
    let Some(knee) = hot else { return Vec::new() };
    let below = |server: &'static str| {
        let points =
            results.points.iter().filter(move |point| (point.server, point.cold_percent) == (server, 0));
        points.filter(|point| point.clients <= knee.clients)
    };
    let ratios = below(SMPED).filter_map(|own| {
        let other = below(AMPED).find(|other| other.clients == own.clients)?;
        ratio(own, other)
    });
    let least = ratios.min_by(f64::total_cmp).map(|least| {
        let text = format!("replies/s of hot clients up to the knee ({}), smped x amped", knee.clients);
        Promise::at_least(&text, 0.9, least)
    });
    let kept = knee.kept_at_tenfold.map(|kept| {
        let text = format!("replies/s of ten times {} hot clients, smped x its best", knee.clients);
        Promise::at_least(&text, 0.8, kept)
    });
    [least, kept].into_iter().flatten().collect()
}

/// The median of the ratios of reply rates, each within a round.
fn ratio(own: &Point, other: &Point) -> Option<f64> {
    let ratios = own.samples.iter().filter_map(|sample| {
        let same = other.samples.iter().find(|other| other.round == sample.round)?;
        Some(sample.replies_per_s / same.replies_per_s)
    });
    Spread::of(ratios).map(|ratio| ratio.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(server: &'static str, rates: &[f64]) -> Vec<Point> {
        let sample = |replies_per_s| Sample {
            round: 1,
            replies_per_s,
            response_ms_p50: 1.0,
            generator_limited: false,
        };
        let point = |(clients, rate)| Point { server, cold_percent: 0, clients, samples: vec![sample(rate)] };
        GRID.into_iter().zip(rates.iter().copied()).map(point).collect()
    }

    #[test]
    fn three_steps_of_the_grid_are_tenfold() {
        for (few, many) in GRID.iter().zip(&GRID[STEPS_TO_TENFOLD..]) {
            assert!((f64::from(*many) / f64::from(*few) - 10.0).abs() < 0.05, "{few}, {many}");
        }
    }

    #[test]
    fn a_knee_is_where_the_best_begins() {
        let points = curve(SMPED, &[10.0, 50.0, 95.0, 100.0, 90.0, 70.0]);
        let knees = knees(&points);
        assert_eq!((knees[0].clients, knees[0].best_replies_per_s), (GRID[2], 100.0));
        assert_eq!(knees[0].kept_at_tenfold, Some(0.7));
        let short = super::knees(&points[..4]);
        assert_eq!(short[0].kept_at_tenfold, None);
    }

    #[test]
    fn promises_are_judged_up_to_the_knee_and_at_ten_times_its_clients() {
        let mut points = curve(SMPED, &[10.0, 50.0, 95.0, 100.0, 90.0, 70.0]);
        points.extend(curve(AMPED, &[10.0, 50.0, 100.0, 500.0]));
        let results = Results { knees: knees(&points), points, failed: Vec::new() };
        let judged: Vec<(f64, bool)> =
            promises(&results).iter().map(|promise| (promise.measured, promise.kept)).collect();
        assert_eq!(judged, [(0.95, true), (0.7, false)]);
    }
}
