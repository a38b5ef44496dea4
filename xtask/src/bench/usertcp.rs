//! The costs of the TCP client in user space apart from requests: SYNs and idle connections.
//!
//! - *SYNs* of `inrush load` at a rate, to a listener that never accepts and whose queue is full: each is dropped. The
//!   ledger has to account for each, and the kernel's count of dropped packets shows that they arrived.
//! - *Idle* connections, established by the stack alone and then left alone.
//!
//! Over TUN the device is in the server's namespace, over AF_XDP the client's end of the link between both
//! sides carries the packets. Receive work of the server's kernel is steered to the server's CPUs either way.
//! `requests` measures complete connections and requests.
//!
//! A cost is the busy time of a side's CPU, so it means nothing if another program runs on that CPU.

pub mod idle;

use std::os::fd::AsFd;

use anyhow::{Context, ensure};
use base::{Nanos, PerSecond};
use experiment::Stack as Carrier;
use report::columns::aligned;
use serde::Serialize;
use stage::kernel::Observer;
use statistics::Spread;
use sys::process::this_program;

use super::{Common, Promise};
use crate::rivals::generators::inrush_result;
use crate::test_bed::{TICK, TestBed};

/// Connections in the queue of a listener that never accepts.
const IDLE_BACKLOG: i32 = 1 << 17;

/// The settings of the benchmark.
#[derive(clap::Args)]
pub struct UserTcpOptions {
    #[command(flatten)]
    common: Common,
    /// Runs of each play over each link
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Length of a run
    #[arg(long, default_value = "2s")]
    duration: Nanos,
    /// SYNs a second over TUN
    #[arg(long, default_value = "200k")]
    tun_rate: PerSecond,
    /// SYNs a second over AF_XDP
    #[arg(long, default_value = "500k")]
    af_xdp_rate: PerSecond,
    /// Idle connections
    #[arg(long, default_value = "100000", value_parser = clap::value_parser!(u32).range(1..=120_000))]
    idle: u32,
}

/// One play over one link, run several times.
#[derive(Serialize)]
struct Measured {
    link: &'static str,
    play: &'static str,
    samples: Vec<Sample>,
}

/// One run.
#[derive(Clone, Debug, Default, Serialize)]
struct Sample {
    /// SYNs offered, or connections held.
    done: u64,
    done_per_s: f64,
    /// The share of the SYNs that the server's kernel saw.
    arrived: f64,
    /// SYNs without an outcome in the ledger.
    unaccounted: u64,
    late_ms_p99: f64,
    /// Busy time of each side's CPU for a SYN, packet work included.
    client_us: f64,
    server_us: f64,
    /// CPU time of the client per second, for all idle connections.
    client_cores: f64,
    /// Memory of the stack for each idle connection.
    bytes_each: f64,
}

/// Measures, prints and writes.
pub fn run(options: &UserTcpOptions, bed: &TestBed) -> anyhow::Result<()> {
    let links = links(bed)?;
    let cases: Vec<_> = links.iter().flat_map(|link| ["SYNs", "idle"].map(|play| (*link, play))).collect();
    let samples = options.common.in_rounds("plays", options.rounds, cases.len(), |index| {
        let (link, play) = cases[index];
        let measured = if play == "SYNs" { syns(options, bed, link) } else { idle(options, bed, link) };
        measured.with_context(|| format!("{play} over {}", name(link)))
    })?;
    let measured: Vec<Measured> = cases
        .iter()
        .zip(samples)
        .map(|((link, play), samples)| Measured { link: name(*link), play, samples })
        .collect();
    print!("\n{}", show(&measured));
    bed.conclude(&options.common, "usertcp", &measured, &promises(options, &measured))
}

/// The links to the server's side that this user may open; prints the reason against each other one.
///
/// # Errors
/// There is no port on the server's side.
pub fn links(bed: &TestBed) -> anyhow::Result<Vec<Carrier>> {
    let (server, sides) = (bed.topology.server.addresses[0].into(), &bed.topology);
    let tun = sides.server.enter(|| Ok(idle::open_tun(server).map(drop)))?;
    let af_xdp = sides.client.enter(|| Ok(idle::open_af_xdp(server).map(drop)))?;
    let opened = [(Carrier::User, tun), (Carrier::AfXdp, af_xdp)];
    let usable = opened.into_iter().filter_map(|(link, opened)| match opened {
        Ok(()) => Some(link),
        Err(error) => {
            println!("skipped: {}: {error}", name(link));
            None
        }
    });
    Ok(usable.collect())
}

fn name(link: Carrier) -> &'static str {
    if link == Carrier::User { "TUN" } else { "AF_XDP" }
}

fn rate(options: &UserTcpOptions, link: &str) -> f64 {
    if link == "TUN" { options.tun_rate.0 } else { options.af_xdp_rate.0 }
}

/// Offers SYNs at a rate by the program, and compares its ledger with the kernel's count.
fn syns(options: &UserTcpOptions, bed: &TestBed, link: Carrier) -> anyhow::Result<Sample> {
    let (listener, address) = bed.silent_listener(1)?;
    let times =
        [("--rate", rate(options, name(link)).to_string()), ("--duration", milliseconds(options.duration))];
    let program = bed
        .topology
        .generator(&bed.inrush, link)
        .arguments(["load", &format!("http://{address}/"), "--warmup", "0s", "--output", "json"])
        .arguments(times.iter().flat_map(|(flag, value)| [*flag, value]))
        .arguments(bed.topology.place_of_connections(link));
    let mut observer = Observer::of(&bed.topology)?;
    let before = observer.read(&bed.clock)?;
    let result = inrush_result(&program.start()?.output(TICK, || true)?)?;
    let elapsed = observer.read(&bed.clock)?.since(&before);
    let arrived = sys::socket::accept_queue(listener.as_fd())?;
    let offered = result.offered;
    let us_each = |cores: f64| cores * elapsed.drops.over_s * 1e6 / offered as f64;
    Ok(Sample {
        done: offered,
        done_per_s: offered as f64 / result.duration_s,
        arrived: f64::from(arrived.drops + arrived.depth) / offered as f64,
        unaccounted: offered.abs_diff(result.outcomes.total() + result.in_flight_at_end),
        late_ms_p99: result.lateness_ns.p99 as f64 / 1e6,
        client_us: us_each(elapsed.client_cpu),
        server_us: us_each(elapsed.server_cpu),
        ..Sample::default()
    })
}

/// Holds idle connections in a process of its own.
fn idle(options: &UserTcpOptions, bed: &TestBed, link: Carrier) -> anyhow::Result<Sample> {
    let (_listener, address) = bed.silent_listener(IDLE_BACKLOG)?;
    let (connections, duration) = (options.idle.to_string(), milliseconds(options.duration));
    let program = bed
        .topology
        .generator(this_program()?, link)
        .arguments(["idle", &address.to_string(), &connections, &duration])
        .arguments((link == Carrier::AfXdp).then_some("--af-xdp"));
    let output = program.start()?.output(TICK, || true)?;
    ensure!(output.exit.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let idle::Costs { bytes_each, cores } = serde_json::from_slice(&output.stdout)?;
    Ok(Sample { done: options.idle.into(), bytes_each, client_cores: cores, ..Sample::default() })
}

fn milliseconds(duration: Nanos) -> String {
    format!("{}ms", duration.0 / Nanos::MILLISECOND.0)
}

fn median(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    Spread::of(samples.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
}

fn show(measured: &[Measured]) -> String {
    let head = [
        "",
        "each second",
        "arrived",
        "unaccounted",
        "late ms p99",
        "client us",
        "server us",
        "cores",
        "bytes",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for Measured { link, play, samples } in measured {
        let of = |of: fn(&Sample) -> f64, digits: usize| format!("{:.digits$}", median(samples, of));
        rows.push([
            format!("{play} over {link}"),
            of(|sample| sample.done_per_s, 0),
            of(|sample| sample.arrived, 4),
            of(|sample| sample.unaccounted as f64, 0),
            of(|sample| sample.late_ms_p99, 2),
            of(|sample| sample.client_us, 2),
            of(|sample| sample.server_us, 2),
            of(|sample| sample.client_cores, 4),
            of(|sample| sample.bytes_each, 0),
        ]);
    }
    aligned(&rows, &[])
}

/// The project's promises for the client in user space.
fn promises(options: &UserTcpOptions, measured: &[Measured]) -> Vec<Promise> {
    let mut promises = Vec::new();
    for Measured { link, play, samples } in measured {
        let name = |what: &str| format!("{play} over {link}, {what}");
        let of = |of: fn(&Sample) -> f64| median(samples, of);
        promises.extend(match *play {
            "SYNs" => [
                Promise::at_least(
                    &name("a second"),
                    0.99 * rate(options, link),
                    of(|sample| sample.done_per_s),
                ),
                Promise::at_most(&name("ms late, p99"), 10.0, of(|sample| sample.late_ms_p99)),
                Promise::at_most(&name("unaccounted"), 0.0, of(|sample| sample.unaccounted as f64)),
            ]
            .to_vec(),
            _ => [
                Promise::at_most(&name("share of a CPU"), 0.03, of(|sample| sample.client_cores)),
                Promise::at_most(&name("bytes each"), 128.0, of(|sample| sample.bytes_each)),
            ]
            .to_vec(),
        });
    }
    promises
}
