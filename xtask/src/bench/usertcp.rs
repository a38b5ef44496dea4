//! The costs of the TCP client in user space by itself: a SYN, a connection, a request and an idle connection.
//!
//! Over TUN the device is in the server's namespace, over AF_XDP the client's end of the link between both
//! sides carries the packets. Receive work of the server's kernel is steered to the server's CPUs either way.
//! The client runs here, on one of the client's CPUs, in four plays:
//!
//! - *SYNs* at a rate, to a listener that never accepts and whose queue is full: each is dropped.
//! - *Connections* with one request of 1 KiB each, 64 at a time, at the readiness limit; *requests* on 64
//!   that stay.
//! - *Idle* connections, established and then left alone.
//!
//! The client looks for packets all the time, as an engine at full speed does. Its cost is the time of the turns with
//! work, so it means nothing if another program runs on that CPU.

mod rush;

use std::net::SocketAddr;

use anyhow::Context;
use base::{Clock, Nanos, PerSecond};
use lab::stage::kernel::Observer;
use lab::stage::topology::{CLIENT_NET, LINK};
use report::columns::aligned;
use serde::Serialize;
use statistics::Spread;
use usertcp::link::{AfXdp, Tun};
use usertcp::{Config, Link, SourceNet, Stack};

use super::{Common, Promise};
use crate::responder::{self, AfterReply};
use crate::rivals::servers::LIMIT;
use crate::test_bed::{TestBed, folder_to_serve};
use rush::{Figures, Play};

/// The addresses of connections over TUN. The topology has others for AF_XDP.
const TUN_NET: &str = "10.94.0.0/16";
/// Connections at a time.
const CONNECTIONS: u32 = 64;
/// An abandoned SYN's time.
const CONNECT_TIMEOUT: Nanos = Nanos::from_millis(500);
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
#[derive(Clone, Debug, Serialize)]
struct Sample {
    /// SYNs, complete connections, replies, or connections held.
    done: u64,
    done_per_s: f64,
    /// Of the client's CPU, for each; of an idle connection a second.
    client_us: f64,
    /// Of the server's CPU, packet work included.
    server_us: f64,
    /// The lateness of SYNs.
    late_ms_p99: f64,
    /// Memory for each connection held.
    bytes_each: f64,
    failed: u64,
    counts: std::collections::BTreeMap<&'static str, u64>,
}

/// Measures, prints and writes.
pub fn run(options: &UserTcpOptions, bed: &TestBed) -> anyhow::Result<()> {
    let mut links = vec!["TUN"];
    match af_xdp(bed, server_address(bed)?) {
        Ok(_) => links.push("AF_XDP"),
        Err(error) => println!("skipped: AF_XDP: {error:#}"),
    }
    let plays = ["SYNs", "connections", "requests", "idle"];
    let cases: Vec<_> = links.iter().flat_map(|link| plays.map(|play| (*link, play))).collect();
    let samples = options.common.in_rounds("plays", options.rounds, cases.len(), |index| {
        let (link, play) = cases[index];
        measure(options, bed, link, play).with_context(|| format!("{play} over {link}"))
    })?;
    let measured = cases.iter().zip(samples).map(|((link, play), samples)| Measured { link, play, samples });
    let measured: Vec<Measured> = measured.collect();
    print!("\n{}", show(&measured));
    bed.conclude(&options.common, "usertcp", &measured, &promises(options, &measured))
}

fn server_address(bed: &TestBed) -> anyhow::Result<SocketAddr> {
    bed.topology.server.free_port().context("no port on the server's side")
}

fn tun(bed: &TestBed, server: SocketAddr) -> anyhow::Result<Tun> {
    let cpus = &bed.topology.server.cpus;
    let opened = bed.topology.server.enter(|| {
        let tun = Tun::open(server.ip(), net("TUN")).map_err(std::io::Error::other)?;
        sys::netns::steer_receive(tun.name(), cpus)?;
        Ok(tun)
    });
    opened.context("cannot open the link over TUN")
}

fn af_xdp(bed: &TestBed, server: SocketAddr) -> anyhow::Result<AfXdp> {
    let open = || AfXdp::open(LINK, server.ip(), net("AF_XDP"), true, &bed.clock);
    Ok(bed.topology.client.enter(|| open().map_err(std::io::Error::other))?)
}

fn net(link: &str) -> SourceNet {
    let (address, length) = CLIENT_NET;
    let net = if link == "TUN" { TUN_NET.to_owned() } else { format!("{address}/{length}") };
    net.parse().expect("the constant is a net")
}

fn measure(options: &UserTcpOptions, bed: &TestBed, link: &str, play: &str) -> anyhow::Result<Sample> {
    let rate = if link == "TUN" { options.tun_rate } else { options.af_xdp_rate };
    let folder = folder_to_serve(&[])?;
    let mut running = None;
    let mut listener = None;
    let server = match play {
        "connections" | "requests" => {
            let after = if play == "requests" { AfterReply::Keep } else { AfterReply::Close };
            let started =
                LIMIT.start(bed, folder.path(), None, after)?.context("the readiness limit has gone")?;
            running.insert(started).address
        }
        _ => {
            let backlog = if play == "idle" { IDLE_BACKLOG } else { 1 };
            let (socket, address) = bed.silent_listener(backlog)?;
            listener = Some(socket);
            address
        }
    };
    let play = match play {
        "SYNs" => Play::Syns { rate, timeout: CONNECT_TIMEOUT },
        "connections" => Play::Connections { at_a_time: CONNECTIONS },
        "requests" => {
            Play::Requests { connections: CONNECTIONS, reply: responder::reply_length(AfterReply::Keep) }
        }
        _ => Play::Idle { connections: options.idle },
    };
    let sample = match link {
        "TUN" => perform(options, bed, tun(bed, server)?, (server, net(link)), &play),
        _ => perform(options, bed, af_xdp(bed, server)?, (server, net(link)), &play),
    };
    if let Some(running) = running {
        running.stop()?;
    }
    drop(listener);
    sample
}

fn perform<L: Link>(
    options: &UserTcpOptions,
    bed: &TestBed,
    link: L,
    (server, net): (SocketAddr, SourceNet),
    play: &Play,
) -> anyhow::Result<Sample> {
    let clock = &bed.clock;
    let config = Config { server, net, seed: options.common.seed, epoch: Nanos::ZERO };
    let mut stack = Stack::new(link, config, clock.now());
    let mut observer = Observer::of(&bed.topology)?;
    let before = observer.read(clock)?;
    let figures = rush::perform(&mut stack, clock, play, options.duration)?;
    let elapsed = observer.read(clock)?.since(&before);
    let Figures { done, failed, busy, span, late_p99, bytes_each } = figures;
    let per = |time_s: f64| time_s * 1e6 / done.max(1) as f64;
    Ok(Sample {
        done,
        done_per_s: done as f64 / span.as_secs_f64(),
        client_us: per(busy.as_secs_f64()),
        server_us: per(elapsed.server_cpu * span.as_secs_f64()),
        late_ms_p99: late_p99.as_secs_f64() * 1e3,
        bytes_each,
        failed,
        counts: stack.counts().named().filter(|(_, count)| *count > 0).collect(),
    })
}

fn median(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    Spread::of(samples.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
}

fn show(measured: &[Measured]) -> String {
    let head = ["", "each second", "client us", "server us", "late ms p99", "bytes", "failed"];
    let mut rows = vec![head.map(str::to_owned)];
    for Measured { link, play, samples } in measured {
        rows.push([
            format!("{play} over {link}"),
            format!("{:.0}", median(samples, |sample| sample.done_per_s)),
            format!("{:.2}", median(samples, |sample| sample.client_us)),
            format!("{:.2}", median(samples, |sample| sample.server_us)),
            format!("{:.2}", median(samples, |sample| sample.late_ms_p99)),
            format!("{:.0}", median(samples, |sample| sample.bytes_each)),
            format!("{:.0}", median(samples, |sample| sample.failed as f64)),
        ]);
    }
    aligned(&rows, &[])
}

/// The project's promises for the client in user space.
fn promises(options: &UserTcpOptions, measured: &[Measured]) -> Vec<Promise> {
    let mut promises = Vec::new();
    for Measured { link, play, samples } in measured {
        let is_tun = *link == "TUN";
        let rate = if is_tun { options.tun_rate } else { options.af_xdp_rate };
        let name = |what: &str| format!("{play} over {link}, {what}");
        match *play {
            "SYNs" => {
                let offered = median(samples, |sample| sample.done_per_s);
                promises.push(Promise::at_least(&name("a second"), 0.99 * rate.0, offered));
                let late = median(samples, |sample| sample.late_ms_p99);
                promises.push(Promise::at_most(&name("ms late, p99"), 10.0, late));
            }
            "connections" => {
                let cost = median(samples, |sample| sample.client_us);
                let most = if is_tun { 18.0 } else { 12.0 };
                promises.push(Promise::at_most(&name("us of the client"), most, cost));
            }
            "idle" => {
                let share = median(samples, |sample| sample.client_us * sample.done as f64 / 1e6);
                promises.push(Promise::at_most(&name("share of a CPU"), 0.03, share));
                let bytes = median(samples, |sample| sample.bytes_each);
                promises.push(Promise::at_most(&name("bytes each"), 128.0, bytes));
            }
            _ => {}
        }
    }
    promises
}
