//! Requests a second from one server CPU: inrush, other servers, and the readiness limit, read by wrk.
//!
//! All servers are up at the same time; the runs of a round come in random order, so that what drifts
//! in the machine falls on all alike, and a ratio is taken within a round. The cost of a request is
//! the busy time of the server's CPU, packet work included, over the requests answered: it means nothing
//! where something else runs on that CPU.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, ensure};
use lab::kernel::Observer;
use rand::seq::SliceRandom;
use serde::Serialize;
use statistics::Spread;
use sys::process::find_program;

use super::{Common, FILE_LENGTH, Ground, Promise, TICK};
use crate::responder::AfterReply;
use crate::rivals::servers::{self, INRUSH, LIMIT, REFERENCE, Running};
use crate::table;

const FILE_NAME: &str = "1k.html";
/// "Level with the readiness limit": within what two runs of the limit itself differ by.
const LEVEL: f64 = 0.97;

/// How to measure.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// How often each server is measured
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The length of one measurement
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Connections that wrk holds
    #[arg(long, default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
}

/// One run of wrk against one server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Sample {
    requests_per_s: f64,
    /// Of the server's CPU; absent where the sides share their CPUs.
    cpu_us_per_request: Option<f64>,
    /// Replies that were no success, and socket errors.
    errors: u64,
}

/// All runs of one server.
#[derive(Serialize)]
struct Measured {
    server: &'static str,
    samples: Vec<Sample>,
    requests_per_s: Option<Spread>,
    cpu_us_per_request: Option<Spread>,
    /// Over the reference server in the same round; absent without that.
    ratio: Option<Spread>,
}

/// All servers, with connections kept or one for each request.
#[derive(Serialize)]
struct Mode {
    connections: &'static str,
    servers: Vec<Measured>,
}

/// Measures, prints and writes.
pub fn run(options: &Options, ground: &Ground) -> anyhow::Result<()> {
    let folder = servers::open_folder().context("cannot make a folder to serve")?;
    fs::write(folder.path().join(FILE_NAME), vec![b'x'; FILE_LENGTH])?;
    let modes = [("keep-alive", AfterReply::Keep), ("a connection per request", AfterReply::Close)];
    let mut measured = Vec::new();
    for (connections, after_reply) in modes {
        let servers = measure(options, ground, folder.path(), connections, after_reply)?;
        println!("\n{connections}, {FILE_LENGTH} bytes, wrk -t1 -c{}:", options.connections);
        print!("{}", table(&servers));
        measured.push(Mode { connections, servers });
    }
    println!();
    ground.conclude(&options.common, "serve", &measured, &promises(&measured))
}

/// Measures every server that is installed, in rounds.
fn measure(
    options: &Options,
    ground: &Ground,
    root: &Path,
    connections: &str,
    after_reply: AfterReply,
) -> anyhow::Result<Vec<Measured>> {
    let running = start_all(ground, root, after_reply)?;
    let mut observer = Observer::of(&ground.topology).context("cannot look at the server's side")?;
    let mut samples: Vec<Vec<Sample>> = running.iter().map(|_| Vec::new()).collect();
    let mut rng = options.common.seed.child(connections).rng();
    let mut order: Vec<usize> = (0..running.len()).collect();
    for server in &running {
        run_wrk(options, ground, &mut observer, server.address, after_reply, 1)?;
    }
    for round in 1..=options.rounds {
        eprintln!("{connections}: round {round} of {}", options.rounds);
        order.shuffle(&mut rng);
        for index in &order {
            let address = running[*index].address;
            let sample = run_wrk(options, ground, &mut observer, address, after_reply, options.seconds)?;
            samples[*index].push(sample);
        }
    }
    let names: Vec<&'static str> = running.iter().map(|server| server.name).collect();
    for server in running {
        server.stop()?;
    }
    Ok(summarise(&names, samples))
}

/// Starts what is installed and names what is not.
fn start_all(ground: &Ground, root: &Path, after_reply: AfterReply) -> anyhow::Result<Vec<Running>> {
    let mut running = Vec::new();
    for server in servers::ALL {
        match server.start(ground, root, after_reply)? {
            Some(ready) => running.push(ready),
            None => println!("skipped: {} is not installed", server.name),
        }
    }
    Ok(running)
}

/// One run. Blocks for its length.
fn run_wrk(
    options: &Options,
    ground: &Ground,
    observer: &mut Observer,
    address: SocketAddr,
    after_reply: AfterReply,
    seconds: u32,
) -> anyhow::Result<Sample> {
    let wrk = find_program("wrk").context("wrk is not installed, and it is what reads")?;
    let mut program = ground.topology.client.program(wrk).arguments([
        "-t1".to_owned(),
        format!("-c{}", options.connections),
        format!("-d{seconds}s"),
        format!("http://{address}/{FILE_NAME}"),
    ]);
    if after_reply == AfterReply::Close {
        program = program.arguments(["-H", "Connection: close"]);
    }
    let before = observer.read(&ground.clock)?;
    let output = program.start()?.output(TICK, || true)?;
    let elapsed = observer.read(&ground.clock)?.since(&before);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.exit.status.success(),
        "wrk failed at {address}, {}: {}",
        output.exit.status,
        errors.trim()
    );
    let read = parse(&text).with_context(|| format!("wrk said something else than usual: {text}"))?;
    let cpu_us = elapsed.server_cpu * elapsed.drops.over_s * 1e6;
    Ok(Sample {
        requests_per_s: read.requests_per_s,
        cpu_us_per_request: ground.server_has_own_cpus().then(|| cpu_us / read.requests.max(1) as f64),
        errors: read.errors,
    })
}

/// What wrk found out.
#[derive(Debug, PartialEq)]
struct Read {
    requests: u64,
    requests_per_s: f64,
    errors: u64,
}

fn parse(text: &str) -> Option<Read> {
    let after = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name));
    let requests = text.lines().find(|line| line.contains(" requests in "))?;
    let unsuccessful =
        after("Non-2xx or 3xx responses:").map_or(Some(0), |count| count.trim().parse().ok())?;
    let socket: u64 = after("Socket errors:")
        .map_or(0, |counts| counts.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok()).sum());
    Some(Read {
        requests: requests.split_whitespace().next()?.parse().ok()?,
        requests_per_s: after("Requests/sec:")?.trim().parse().ok()?,
        errors: unsuccessful + socket,
    })
}

fn summarise(names: &[&'static str], samples: Vec<Vec<Sample>>) -> Vec<Measured> {
    let rates: Vec<Vec<f64>> =
        samples.iter().map(|of| of.iter().map(|sample| sample.requests_per_s).collect()).collect();
    let reference = names.iter().position(|name| *name == REFERENCE);
    let summaries = names.iter().zip(samples).zip(&rates).map(|((server, samples), own)| {
        let ratios: Vec<f64> = reference
            .map(|index| own.iter().zip(&rates[index]).map(|(own, other)| own / other).collect())
            .unwrap_or_default();
        let costs: Vec<f64> = samples.iter().filter_map(|sample| sample.cpu_us_per_request).collect();
        Measured {
            server,
            requests_per_s: Spread::of(own),
            cpu_us_per_request: Spread::of(&costs),
            ratio: Spread::of(&ratios),
            samples,
        }
    });
    summaries.collect()
}

fn table(servers: &[Measured]) -> String {
    let mut rows =
        vec![["server", "requests/s", "CPU us/request", "x nginx", "min..max", "errors"].map(str::to_owned)];
    for server in servers {
        let cell = |value: Option<Spread>, digits: usize| {
            value.map_or("-".to_owned(), |spread| format!("{:.digits$}", spread.median))
        };
        let range =
            server.ratio.map_or("-".to_owned(), |ratio| format!("{:.2}..{:.2}", ratio.min, ratio.max));
        let errors: u64 = server.samples.iter().map(|sample| sample.errors).sum();
        rows.push([
            server.server.to_owned(),
            cell(server.requests_per_s, 0),
            cell(server.cpu_us_per_request, 1),
            cell(server.ratio, 2),
            range,
            errors.to_string(),
        ]);
    }
    table::aligned(&rows)
}

/// What the project promises of serving; a promise without its rival is not judged.
fn promises(modes: &[Mode]) -> Vec<Promise> {
    let rates = |mode: &Mode, name| {
        let server = mode.servers.iter().find(|server| server.server == name);
        server.and_then(|server| server.requests_per_s).map(|rate| rate.median)
    };
    let ratio = |mode: &Mode| {
        mode.servers.iter().find(|server| server.server == INRUSH)?.ratio.map(|ratio| ratio.median)
    };
    let [kept, closed] = modes else { return Vec::new() };
    let level = rates(kept, INRUSH).zip(rates(kept, LIMIT)).map(|(own, limit)| own / limit);
    let promises = [
        ratio(kept).map(|ratio| Promise::at_least("keep-alive, x nginx", 1.25, ratio)),
        level.map(|ratio| Promise::at_least("keep-alive, x the readiness limit", LEVEL, ratio)),
        ratio(closed).map(|ratio| Promise::at_least("a connection per request, x nginx", 1.0, ratio)),
    ];
    promises.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRK: &str = "Running 2s test @ http://10.77.0.1:1/1k.html
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   452.85us  157.06us   6.02ms   96.88%
  281702 requests in 2.00s, 341.20MB read
  Socket errors: connect 0, read 3, write 0, timeout 1
  Non-2xx or 3xx responses: 5
Requests/sec: 140784.25
Transfer/sec:    170.52MB
";

    #[test]
    fn what_wrk_prints_is_read() {
        let read = Read { requests: 281_702, requests_per_s: 140_784.25, errors: 9 };
        assert_eq!(parse(WRK), Some(read));
        assert_eq!(parse("unable to connect"), None);
    }

    fn sample(requests_per_s: f64) -> Sample {
        Sample { requests_per_s, cpu_us_per_request: None, errors: 0 }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let samples = vec![vec![sample(20.0), sample(90.0)], vec![sample(10.0), sample(30.0)]];
        let measured = summarise(&[INRUSH, REFERENCE], samples);
        assert_eq!(measured[0].ratio, Some(Spread { median: 2.5, min: 2.0, max: 3.0 }));
        assert_eq!(measured[1].ratio, Some(Spread { median: 1.0, min: 1.0, max: 1.0 }));
        let alone = summarise(&[INRUSH], vec![vec![sample(20.0)]]);
        assert_eq!(alone[0].ratio, None);
        assert!(promises(&[Mode { connections: "", servers: alone }]).is_empty());
    }
}
