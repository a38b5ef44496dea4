//! The fdm mechanism tuning itself beside fixed live counters N, in the settings of figures 8, 9 and 11 of
//! the FDM paper.
//!
//! ```text
//!   figure 8    1000 persistent connections, each asks about every 2 s
//!   figure 9    1000 requests/s beside 0, 1000, 3000, 6000 idle connections
//!   figure 11   6000 idle connections beside 1000, 4000, 10,000 requests/s
//! ```
//!
//! A large N saves processor time and costs delay, so neither alone has a best N. Compared is what the
//! controller minimises: the CPU time of a request plus [`PRICE`] of its mean response time. It is compared
//! with the fixed N that does best in that very setting, which nobody can know before. Fixed counters have the
//! paper's sleep threshold; the adaptive one tunes that as well.
//!
//! Contenders take turns in random order in each round, each at a server of its own for each figure and number
//! of idle connections; ratios are taken within a round. [`Stand`] says what is measured how.

mod show;

use std::path::Path;

use anyhow::ensure;
use base::Nanos;
use dispatch::locality::PRICE;
use rand::seq::SliceRandom;
use serde::Serialize;
use statistics::Spread;

use super::stand::{self, Load, Sample, Stand};
use super::{Common, Promise};
use crate::test_bed::TestBed;

/// Requests of a session where connections come and go.
const REQUESTS: u32 = 20;
/// Room for the connections of sessions, or for the persistent ones.
const OTHERS: u32 = 4000;
/// Persistent clients have spoken two or three times, and the controller has seen enough.
const WARMUP: Nanos = Nanos::from_secs(6);
/// A run of the generator takes so much longer than it measures and warms up.
const AROUND_A_RUN: Nanos = Nanos::from_millis(500);
/// What the adaptive one may cost more, and reply less, than the best: 5 %.
const COST_AT_MOST: f64 = 1.05;
const REPLIES_AT_LEAST: f64 = 0.95;

/// How to measure.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Live counters to compare with, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "2,3,10,100,1000,10000", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    fixed: Vec<u32>,
    /// The length of one measurement
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// How often each contender is measured in each setting
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One setting a figure, N = 3 and 10, one round of a second: only to see that it works
    #[arg(long, conflicts_with_all = ["fixed", "seconds", "rounds"])]
    quick: bool,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// So many connections that stay, each asking about every 2 s.
    Persistent(u32),
    /// So many requests a second, on connections that come and go.
    Sessions(u32),
}

/// Where contenders are compared.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// In the paper.
    figure: u32,
    idle: u32,
    traffic: Traffic,
    /// The one that stands for its figure in a quick run.
    quick: bool,
}

const SETTINGS: [Setting; 8] = [
    Setting { figure: 8, idle: 0, traffic: Traffic::Persistent(1000), quick: true },
    Setting { figure: 9, idle: 0, traffic: Traffic::Sessions(1000), quick: false },
    Setting { figure: 9, idle: 1000, traffic: Traffic::Sessions(1000), quick: true },
    Setting { figure: 9, idle: 3000, traffic: Traffic::Sessions(1000), quick: false },
    Setting { figure: 9, idle: 6000, traffic: Traffic::Sessions(1000), quick: false },
    Setting { figure: 11, idle: 6000, traffic: Traffic::Sessions(1000), quick: false },
    Setting { figure: 11, idle: 6000, traffic: Traffic::Sessions(4000), quick: true },
    Setting { figure: 11, idle: 6000, traffic: Traffic::Sessions(10_000), quick: false },
];

/// How N is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Counter {
    Fixed(u32),
    Adaptive,
}

/// All runs of one contender in one setting.
#[derive(Clone, Debug, Serialize)]
struct Point {
    counter: Counter,
    figure: u32,
    idle: u32,
    /// As the table has it.
    traffic: String,
    samples: Vec<Sample>,
    #[serde(skip)]
    setting: Setting,
}

/// The adaptive one beside the best of the fixed ones in one setting.
#[derive(Clone, Debug, Serialize)]
struct Comparison {
    figure: u32,
    setting: String,
    best_fixed: u32,
    /// Cost of the adaptive one over that of the best, within a round.
    cost: Spread,
    /// The same of replies a second.
    replies: Spread,
}

#[derive(Serialize)]
struct Results {
    points: Vec<Point>,
    comparisons: Vec<Comparison>,
    /// Cases that could not be measured, and why.
    failed: Vec<String>,
}

impl Setting {
    fn name(&self) -> String {
        let traffic = match self.traffic {
            Traffic::Persistent(connections) => format!("{connections} x 0.5/s"),
            Traffic::Sessions(rate) => format!("{rate}/s"),
        };
        format!("{traffic}, {} idle", self.idle)
    }

    fn load(&self, seconds: u32) -> Load {
        let flags = match self.traffic {
            // They think first thing in the warm-up, too: longer sessions than any run.
            Traffic::Persistent(connections) => vec![
                "--client=closed".to_owned(),
                format!("--sockets={connections}"),
                "--requests-per-connection=1000000".to_owned(),
                "--think=1s..3s".to_owned(),
            ],
            Traffic::Sessions(rate) => vec![
                format!("--rate={}", f64::from(rate) / f64::from(REQUESTS)),
                format!("--requests-per-connection={REQUESTS}"),
                "--think=20ms..80ms".to_owned(),
            ],
        };
        Load { flags, warmup: WARMUP, seconds }
    }
}

impl Counter {
    fn flags(self) -> Vec<(&'static str, String)> {
        let mut flags = vec![("--dispatch", "fdm".to_owned())];
        match self {
            Counter::Fixed(n) => flags.push(("--fdm-live-counter", n.to_string())),
            Counter::Adaptive => {
                flags.push(("--fdm-live-counter", "adaptive".to_owned()));
                flags.push(("--sleep-threshold", "adaptive".to_owned()));
            }
        }
        flags
    }
}

/// What a request cost, in microseconds of CPU time, its delay included at its price.
fn cost(sample: &Sample) -> Option<f64> {
    let cpu_us = sample.cpu_us_per_request.or(sample.process_us_per_request)?;
    Some(cpu_us + PRICE * sample.response_ms_mean * 1e3)
}

impl Point {
    fn spread(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(of))
    }

    fn cost(&self) -> Option<Spread> {
        self.spread(cost)
    }

    /// Ours over another's in the same setting, within a round.
    fn ratio(&self, other: &Point, of: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        let ratios = self.samples.iter().filter_map(|sample| {
            let same = other.samples.iter().find(|other| other.round == sample.round)?;
            Some(of(sample)? / of(same)?)
        });
        Spread::of(ratios)
    }
}

/// Measures, prints and writes.
pub fn run(options: &Options, bed: &TestBed) -> anyhow::Result<()> {
    let (fixed, seconds, rounds) = match options.quick {
        true => (vec![3, 10], 1, 1),
        false => (options.fixed.clone(), options.seconds, options.rounds),
    };
    let settings: Vec<Setting> =
        SETTINGS.into_iter().filter(|setting| setting.quick || !options.quick).collect();
    let mut points = points(&fixed, &settings);
    let most = settings.iter().map(|setting| setting.idle).max().unwrap_or(0);
    stand::allow("figure 11", most, OTHERS)?;
    let minutes = (duration(&points, seconds, rounds).as_secs_f64() / 60.0).ceil();
    eprintln!("takes about {minutes:.0} min");
    let folder = stand::folder()?;
    let failed = measure(bed, options, folder.path(), &mut points, (seconds, rounds))?;
    let results = Results { comparisons: comparisons(&points), points, failed };
    print!("\n{}\n", show::text(&results));
    bed.conclude(&options.common, "adaptive", &results, &promises(&results.comparisons))?;
    ensure!(!options.common.check || results.failed.is_empty(), "some cases could not be measured");
    Ok(())
}

/// Everything that is to be measured: those of one contender in one figure with one number of idle connections,
/// which share a server, are one after another.
fn points(fixed: &[u32], settings: &[Setting]) -> Vec<Point> {
    let counters = fixed.iter().map(|n| Counter::Fixed(*n)).chain([Counter::Adaptive]);
    let of = |counter| {
        settings.iter().map(move |setting| Point {
            counter,
            figure: setting.figure,
            idle: setting.idle,
            traffic: setting.name(),
            samples: Vec::new(),
            setting: *setting,
        })
    };
    counters.flat_map(of).collect()
}

/// Splits them into those that share a server.
fn cases(points: &mut [Point]) -> Vec<&mut [Point]> {
    let server = |point: &Point| (point.counter, point.figure, point.idle);
    points.chunk_by_mut(|one, next| server(one) == server(next)).collect()
}

/// How long it will take, about.
fn duration(points: &[Point], seconds: u32, rounds: u32) -> Nanos {
    let run = WARMUP + Nanos::from_secs(u64::from(seconds)) + AROUND_A_RUN;
    let mut points = points.to_vec();
    let of_case = |case: &mut [Point]| stand::preparation(case[0].idle) + run * case.len() as u64;
    let round = cases(&mut points).into_iter().map(of_case).fold(Nanos::ZERO, |sum, case| sum + case);
    round * u64::from(rounds)
}

/// All rounds; returns what could not be measured.
fn measure(
    bed: &TestBed,
    options: &Options,
    root: &Path,
    points: &mut [Point],
    (seconds, rounds): (u32, u32),
) -> anyhow::Result<Vec<String>> {
    let mut rng = options.common.seed.child("order of cases").rng();
    let mut cases = cases(points);
    let mut failed = Vec::new();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        cases.shuffle(&mut rng);
        for case in &mut cases {
            let (counter, idle) = (case[0].counter, case[0].idle);
            if let Err(error) = measure_case(bed, root, round, seconds, case) {
                let failure = format!("round {round}, {}, {idle} idle: {error:#}", show::name(counter));
                eprintln!("{failure}");
                failed.push(failure);
            }
        }
    }
    Ok(failed)
}

/// Every setting of one server, one after another. Blocks.
fn measure_case(
    bed: &TestBed,
    root: &Path,
    round: u32,
    seconds: u32,
    case: &mut [Point],
) -> anyhow::Result<()> {
    let flags = case[0].counter.flags();
    let flags: Vec<(&str, &str)> = flags.iter().map(|(flag, value)| (*flag, value.as_str())).collect();
    let mut stand = Stand::start(bed, root, (case[0].idle, OTHERS), &flags)?;
    for point in case {
        point.samples.push(stand.measure(&point.setting.load(seconds), round)?);
    }
    stand.end()
}

/// The adaptive one beside the best of the fixed ones, in each setting where both were measured.
fn comparisons(points: &[Point]) -> Vec<Comparison> {
    let adaptive = points.iter().filter(|point| point.counter == Counter::Adaptive);
    let compare = |adaptive: &Point| {
        let (best, best_fixed, _) = in_the_setting_of(adaptive, points)
            .filter_map(|point| match point.counter {
                Counter::Fixed(n) => Some((point, n, point.cost()?.median)),
                Counter::Adaptive => None,
            })
            .min_by(|one, other| one.2.total_cmp(&other.2))?;
        Some(Comparison {
            figure: adaptive.figure,
            setting: adaptive.traffic.clone(),
            best_fixed,
            cost: adaptive.ratio(best, cost)?,
            replies: adaptive.ratio(best, |sample| Some(sample.replies_per_s))?,
        })
    };
    adaptive.filter_map(compare).collect()
}

/// All contenders in the setting of one.
fn in_the_setting_of<'a>(one: &Point, points: &'a [Point]) -> impl Iterator<Item = &'a Point> {
    let setting = (one.figure, one.traffic.clone());
    points.iter().filter(move |point| (point.figure, &point.traffic) == (setting.0, &setting.1))
}

/// At most 5 % behind in each setting.
fn promises(comparisons: &[Comparison]) -> Vec<Promise> {
    let of = |comparison: &Comparison| {
        let Comparison { figure, setting, best_fixed, cost, replies } = comparison;
        let text = |what| format!("figure {figure}, {setting}: {what}, adaptive x N = {best_fixed}");
        [
            Promise::at_most(&text("cost"), COST_AT_MOST, cost.median),
            Promise::at_least(&text("replies"), REPLIES_AT_LEAST, replies.median),
        ]
    };
    comparisons.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests;
