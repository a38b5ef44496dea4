//! How true `inrush load` is: the latencies it reports of a server that holds each reply for a known time, and the
//! rate it sends at against the one it was asked for.
//!
//! The server is a thread a connection in this process, on the server's CPU. It notes how long it really held each
//! reply, which is what the median that is reported has to be near: within 2 % and the 50 us that two trips through
//! the network and two wake-ups may take. Connections are kept, so that nothing but the requests is timed.
//!
//! The rate is that of a thousand and more sessions a second against inrush itself, one request a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use base::Nanos;
use record::LoadResult;
use rustix::thread::set_current_timer_slack;
use serde::Serialize;
use statistics::Spread;
use sys::clock::monotonic;

use super::{Common, FILE_LENGTH, Ground, Promise, TICK};
use crate::rivals::servers::{self, CONNECTIONS};
use crate::table;

/// What replies are held for.
const HOLDS_MS: [u64; 4] = [1, 5, 20, 100];
/// What sessions a second are asked for.
const RATES: [u32; 3] = [500, 1000, 2000];
/// Clients that ask the holding server.
const CLIENTS: usize = 4;
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const FILE_NAME: &str = "1k.html";

/// How to measure.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// The length of one measurement
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// What was reported of a server that held its replies.
#[derive(Serialize)]
struct Held {
    asked_ns: u64,
    held_p50_ns: u64,
    reported_p50_ns: u64,
}

impl Held {
    /// How far the report is off, in times of what it may be.
    fn error(&self) -> f64 {
        let off = self.reported_p50_ns.abs_diff(self.held_p50_ns) as f64;
        off / (0.02 * self.held_p50_ns as f64 + 50_000.0)
    }
}

/// What was sent when a rate was asked for.
#[derive(Serialize)]
struct Rate {
    asked_per_s: u32,
    sent_per_s: f64,
}

impl Rate {
    /// How far off it is, as a share.
    fn error(&self) -> f64 {
        (self.sent_per_s / f64::from(self.asked_per_s) - 1.0).abs()
    }
}

#[derive(Serialize)]
struct Results {
    held: Vec<Held>,
    rates: Vec<Rate>,
}

/// Measures, prints and writes.
pub fn run(options: &Options, ground: &Ground) -> anyhow::Result<()> {
    let held = HOLDS_MS.map(Nanos::from_millis).map(|hold| held(options, ground, hold));
    let held = held.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let results = Results { held, rates: rates(options, ground)? };
    print!("{}", table(&results));
    let worst = |errors: &mut dyn Iterator<Item = f64>| errors.fold(0.0, f64::max);
    let promises = [
        Promise::at_most(
            "reported latency off the real one, x (2 % + 50 us)",
            1.0,
            worst(&mut results.held.iter().map(Held::error)),
        ),
        Promise::at_most(
            "rate sent off the one asked for, as a share",
            0.005,
            worst(&mut results.rates.iter().map(Rate::error)),
        ),
    ];
    ground.conclude(&options.common, "accuracy", &results, &promises)
}

/// One hold. Blocks.
fn held(options: &Options, ground: &Ground, hold: Nanos) -> anyhow::Result<Held> {
    let times = Arc::default();
    let address = holding_server(ground, hold, &times)?;
    let clients = CLIENTS.to_string();
    let flags =
        ["--client", "closed", "--sockets", &clients, "--requests-per-connection", "10000", "--warmup", "0"];
    let result = load(options, ground, address, "", &flags)?;
    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    let median = Spread::of(times.iter()).context("nobody asked the server")?.median;
    Ok(Held { asked_ns: hold.0, held_p50_ns: median as u64, reported_p50_ns: result.latency_sent_ns.p50 })
}

/// A server that holds each reply, and notes for how many nanoseconds. Its threads end with this process.
fn holding_server(ground: &Ground, hold: Nanos, times: &Arc<Mutex<Vec<f64>>>) -> anyhow::Result<SocketAddr> {
    let address = ground.topology.server.free_port()?;
    let listener = ground.topology.server.enter(|| TcpListener::bind(address))?;
    for _ in 0..CLIENTS {
        let (listener, times) = (listener.try_clone()?, Arc::clone(times));
        let cpus = ground.topology.server.cpus.clone();
        std::thread::spawn(move || {
            sys::cpu::pin(&cpus)?;
            set_current_timer_slack(NonZeroU64::new(1))?;
            loop {
                // A client that goes away has had what it wanted.
                let _ = answer(listener.accept()?.0, hold, &times);
            }
            #[expect(unreachable_code, reason = "says what the question marks return")]
            anyhow::Ok(())
        });
    }
    Ok(address)
}

fn answer(mut client: TcpStream, hold: Nanos, times: &Mutex<Vec<f64>>) -> std::io::Result<()> {
    let mut request = [0; 1024];
    // Requests of a few dozen bytes come whole.
    while client.read(&mut request)? > 0 {
        let asked = monotonic();
        sys::poll::wait(&mut [], Some(hold))?;
        let held = monotonic() - asked;
        client.write_all(REPLY)?;
        times.lock().unwrap_or_else(PoisonError::into_inner).push(held.0 as f64);
    }
    Ok(())
}

/// What is sent at each rate. Blocks.
fn rates(options: &Options, ground: &Ground) -> anyhow::Result<Vec<Rate>> {
    let folder = servers::open_folder().context("cannot make a folder to serve")?;
    std::fs::write(folder.path().join(FILE_NAME), vec![b'x'; FILE_LENGTH])?;
    let server = servers::start_inrush(ground, folder.path(), CONNECTIONS, &[])?;
    let mut rates = Vec::new();
    for asked in RATES {
        let rate = asked.to_string();
        let flags = ["--rate", &rate, "--warmup", "200ms"];
        let result = load(options, ground, server.address, FILE_NAME, &flags)?;
        rates.push(Rate { asked_per_s: asked, sent_per_s: result.sent_per_s });
    }
    server.stop()?;
    Ok(rates)
}

fn load(
    options: &Options,
    ground: &Ground,
    address: SocketAddr,
    path: &str,
    flags: &[&str],
) -> anyhow::Result<LoadResult> {
    let program = ground.topology.generator(&ground.inrush);
    let program = program
        .arguments(["load".to_owned(), format!("http://{address}/{path}")])
        .arguments(["--output", "json", "--duration"])
        .arguments([format!("{}s", options.seconds)])
        .arguments(flags.iter().copied());
    let output = program.start()?.output(TICK, || true)?;
    ensure!(output.exit.status.success(), "inrush load: {}", String::from_utf8_lossy(&output.stderr).trim());
    serde_json::from_slice(&output.stdout).context("inrush load wrote no result")
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
    for rate in &results.rates {
        rows.push([
            format!("{}/s", rate.asked_per_s),
            format!("{:.1}/s", rate.sent_per_s),
            String::new(),
            format!("{:.2} %", 100.0 * rate.error()),
        ]);
    }
    table::aligned(&rows)
}
