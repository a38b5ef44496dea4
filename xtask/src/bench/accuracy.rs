//! The accuracy of `inrush load`: the latencies that it reports of a server with known ones, and its sending rate
//! beside the wanted one.
//!
//! The server is a thread of this process that never sleeps, on the server's CPU. It sees a request as soon as the
//! kernel has it, and its replies leave when they are due. It notes the real hold of each reply, and the reported
//! median must be near the real one. The tolerance is 2 % and 50 us, for two trips through the network and the
//! generator's wake-up. Connections are kept, so that only the requests are timed.
//!
//! The rate is that of the connections attempted, at an inrush server that can serve at most a tenth of them. Each
//! request costs it ten times the interval between two requests. So the generator must not wait for the server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow, ensure};
use base::{Clock, Nanos, RealClock};
use experiment::Stack;
use record::LoadResult;
use report::columns::aligned;
use serde::Serialize;
use statistics::Spread;

use super::{Common, Promise};
use crate::rivals::generators::inrush_result;
use crate::rivals::servers::{self, CONNECTIONS};
use crate::test_bed::{FILE_LENGTH, TICK, TestBed, folder_to_serve};

/// The times for which replies are held.
const HOLDS_MS: [u64; 4] = [1, 5, 20, 100];
/// The wanted rates of sessions, one request each.
const RATES: [u32; 3] = [1000, 4000, 16_000];
/// The least multiple of the server's capacity that is offered.
const OVERLOAD: u64 = 10;
/// Clients of the holding server.
const CLIENTS: usize = 4;
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const FILE_NAME: &str = "1k.html";

/// The options of the measurement.
#[derive(clap::Args)]
pub struct AccuracyOptions {
    #[command(flatten)]
    common: Common,
    /// The length of one measurement
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// The report about a server that held its replies.
#[derive(Serialize)]
struct Held {
    asked_ns: u64,
    held_p50_ns: u64,
    reported_p50_ns: u64,
}

impl Held {
    /// Returns the error of the report, in multiples of the tolerance.
    fn error(&self) -> f64 {
        let off = self.reported_p50_ns.abs_diff(self.held_p50_ns) as f64;
        off / (0.02 * self.held_p50_ns as f64 + 50_000.0)
    }
}

/// The attempted connections at a wanted rate.
#[derive(Serialize)]
struct Rate {
    asked_per_s: u32,
    attempted_per_s: f64,
    answered_per_s: f64,
}

impl Rate {
    /// Returns the error of the rate, as a share.
    fn error(&self) -> f64 {
        (self.attempted_per_s / f64::from(self.asked_per_s) - 1.0).abs()
    }
}

#[derive(Serialize)]
struct Results {
    held: Vec<Held>,
    rates: Vec<Rate>,
}

/// Measures, prints and writes.
pub fn run(options: &AccuracyOptions, bed: &TestBed) -> anyhow::Result<()> {
    let held = HOLDS_MS.map(Nanos::from_millis).map(|hold| held(options, bed, hold));
    let held = held.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let results = Results { held, rates: rates(options, bed)? };
    print!("{}", table(&results));
    let worst = |errors: &mut dyn Iterator<Item = f64>| errors.fold(0.0, f64::max);
    let promises = [
        Promise::at_most(
            "reported latency off the real one, x (2 % + 50 us)",
            1.0,
            worst(&mut results.held.iter().map(Held::error)),
        ),
        Promise::at_most(
            "rate offered off the one asked for, as a share",
            0.005,
            worst(&mut results.rates.iter().map(Rate::error)),
        ),
    ];
    bed.conclude(&options.common, "accuracy", &results, &promises)
}

/// One hold. Blocks.
fn held(options: &AccuracyOptions, bed: &TestBed, hold: Nanos) -> anyhow::Result<Held> {
    let side = &bed.topology.server;
    let address = side.free_port()?;
    let listener = side.enter(|| TcpListener::bind(address))?;
    let clients = CLIENTS.to_string();
    let flags =
        ["--client", "closed", "--sockets", &clients, "--requests-per-connection", "10000", "--warmup", "0"];
    let over = AtomicBool::new(false);
    let (result, times) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            sys::cpu::pin(&side.cpus)?;
            hold_replies(&listener, hold, &over)
        });
        let result = load(options, bed, address, "", &flags);
        over.store(true, Ordering::Relaxed);
        (result, server.join())
    });
    let times = times.map_err(|_| anyhow!("the holding server panicked"))?.context("cannot hold replies")?;
    let median = Spread::of(times.iter()).context("nobody asked the server")?.median;
    let reported = result?.latency_sent_ns.answered.p50;
    Ok(Held { asked_ns: hold.0, held_p50_ns: median as u64, reported_p50_ns: reported })
}

/// Serves until `over`. Returns the hold of each reply, in nanoseconds.
fn hold_replies(listener: &TcpListener, hold: Nanos, over: &AtomicBool) -> io::Result<Vec<f64>> {
    listener.set_nonblocking(true)?;
    let (mut clients, mut times) = (Vec::new(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        if let Some((stream, _)) = unless_it_would_block(listener.accept())? {
            stream.set_nonblocking(true)?;
            clients.push(Client { stream, asked: None });
        }
        // A client that leaves has all its replies.
        clients.retain_mut(|client| client.turn(hold).map(|held| times.extend(held)).is_ok());
    }
    Ok(times)
}

/// A connection to the holding server.
struct Client {
    stream: TcpStream,
    /// The arrival of the request that waits for its reply.
    asked: Option<Nanos>,
}

impl Client {
    /// Replies when it is time, or looks for a request. Returns the hold of a reply, in nanoseconds.
    fn turn(&mut self, hold: Nanos) -> io::Result<Option<f64>> {
        if let Some(asked) = self.asked {
            let held = RealClock.now() - asked;
            if held < hold {
                return Ok(None);
            }
            self.stream.write_all(REPLY)?;
            self.asked = None;
            return Ok(Some(held.0 as f64));
        }
        // Requests of a few dozen bytes come whole.
        let read = unless_it_would_block(self.stream.read(&mut [0; 1024]))?;
        if read == Some(0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.asked = read.map(|_| RealClock.now());
        Ok(None)
    }
}

fn unless_it_would_block<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Measures the sending at each rate. Blocks.
fn rates(options: &AccuracyOptions, bed: &TestBed) -> anyhow::Result<Vec<Rate>> {
    let folder = folder_to_serve(&[(FILE_NAME, FILE_LENGTH)])?;
    let rates = RATES.map(|asked| {
        let burn = format!("{}us", OVERLOAD * 1_000_000 / u64::from(asked));
        let server = servers::start_inrush(bed, folder.path(), CONNECTIONS, &[("--burn", &burn)])?;
        let flags = ["--rate", &asked.to_string(), "--warmup", "0"];
        let result = load(options, bed, server.address, FILE_NAME, &flags)?;
        server.stop()?;
        let why = result.reasons.join(" ");
        ensure!(result.verdict.is_valid(), "inrush load was the limit at {asked}/s: {why}");
        Ok(Rate {
            asked_per_s: asked,
            attempted_per_s: result.connections.attempted as f64 / result.duration_s,
            answered_per_s: result.goodput_per_s,
        })
    });
    rates.into_iter().collect()
}

fn load(
    options: &AccuracyOptions,
    bed: &TestBed,
    address: SocketAddr,
    path: &str,
    flags: &[&str],
) -> anyhow::Result<LoadResult> {
    let program = bed.topology.generator(&bed.inrush, Stack::Kernel);
    let program = program
        .arguments(["load".to_owned(), format!("http://{address}/{path}")])
        .arguments(["--output", "json", "--duration"])
        .arguments([format!("{}s", options.seconds)])
        .arguments(flags.iter().copied());
    let output = program.start()?.output(TICK, || true)?;
    inrush_result(&output)
}

fn table(results: &Results) -> String {
    let mut rows = vec![["asked for", "real", "reported", "off"].map(str::to_owned)];
    let us = |ns: u64| format!("{:.0} us", ns as f64 / 1e3);
    for held in &results.held {
        let off = held.reported_p50_ns as f64 - held.held_p50_ns as f64;
        rows.push([
            us(held.asked_ns),
            us(held.held_p50_ns),
            us(held.reported_p50_ns),
            format!("{:+.0} us", off / 1e3),
        ]);
    }
    let mut rates = vec![["asked for", "offered", "answered", "off"].map(str::to_owned)];
    for rate in &results.rates {
        rates.push([
            format!("{}/s", rate.asked_per_s),
            format!("{:.1}/s", rate.attempted_per_s),
            format!("{:.1}/s", rate.answered_per_s),
            format!("{:.2} %", 100.0 * rate.error()),
        ]);
    }
    format!("{}\n{}", aligned(&rows, &[]), aligned(&rates, &[]))
}
