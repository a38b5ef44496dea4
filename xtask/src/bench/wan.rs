//! Packets per second that the router of `inrush wan` forwards without loss, on one processor.
//!
//! Small datagrams go from the client's side to the server's, over a path with delay and jitter that holds thousands
//! of them. Rates rise by steps, in rounds of random order. The router has a processor to itself; the others do the
//! sending and the receiving kernel's work. The sender hands the kernel several datagrams per call (UDP_SEGMENT),
//! because it must be cheaper than the router. They are cut apart before they reach the link. No program reads the
//! arriving packets: a packet that the server's link has received has crossed the path. Without loss means that every
//! packet did.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use anyhow::Context;
use base::{Clock, Nanos, PerSecond, RealClock};
use report::columns::aligned;
use rustix::event::{Timespec, poll};
use serde::Serialize;
use wan::{Changes, Engine, Path, PathConfig, Report, SERVER_ADDRESS};

use super::{Common, Promise};
use crate::test_bed::TestBed;

/// Packets a second, each way of trying.
const RATES: [u32; 10] =
    [50_000, 100_000, 150_000, 200_000, 225_000, 250_000, 275_000, 300_000, 350_000, 400_000];
/// A typical path of an experiment.
const CONDITIONS: &str = "delay=10ms,jitter=1ms";
/// Of a datagram: 100 bytes as an IP packet.
const PAYLOAD_LENGTH: usize = 72;
/// Datagrams a call.
const BURST: usize = 16;
/// A sender that is further behind than this starts its schedule anew.
const MOST_BEHIND: Nanos = Nanos::from_micros(200);
/// The wait for the last packets.
const PATIENCE: Nanos = Nanos::SECOND;
/// The promise.
const PROMISED_PER_S: f64 = 200_000.0;

/// The options of the measurement.
#[derive(clap::Args)]
pub struct WanOptions {
    #[command(flatten)]
    common: Common,
    /// Rounds, in each of which every rate is tried once
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The length of an attempt
    #[arg(long, default_value = "1s")]
    duration: Nanos,
}

/// One rate, tried once.
#[derive(Clone, Debug, Serialize)]
struct Attempt {
    asked_per_s: u32,
    sent: u64,
    sent_per_s: f64,
    lost: u64,
    router_cpu_share: f64,
    late_p50_ns: u64,
    late_p99_ns: u64,
    late_max_ns: u64,
}

/// Measures, prints and writes.
pub fn run(options: &WanOptions, bed: &TestBed) -> anyhow::Result<()> {
    let expected = options.duration.as_secs_f64() * f64::from(options.rounds) * RATES.len() as f64;
    eprintln!("{} rates, {} rounds: about {:.0} s", RATES.len(), options.rounds, expected * 1.1);
    let attempts = options.common.in_rounds("rates", options.rounds, RATES.len(), |index| {
        let rate = RATES[index];
        attempt(rate, options, bed).with_context(|| format!("{rate} packets/s"))
    })?;
    let attempts: Vec<Attempt> = attempts.into_iter().flatten().collect();
    print!("\n{}", show(&attempts));
    let best = best(&attempts);
    let promises = [Promise::at_least("packets/s without loss on one processor", PROMISED_PER_S, best)];
    bed.conclude(&options.common, "wan", &attempts, &promises)
}

/// Returns the rate that was really sent at the highest rate without loss, below which no attempt lost a packet
/// either.
fn best(attempts: &[Attempt]) -> f64 {
    let clean = |rate: &&u32| attempts.iter().all(|one| one.asked_per_s > **rate || one.lost == 0);
    let Some(highest) = RATES.iter().rfind(clean) else { return 0.0 };
    let sent = attempts.iter().filter(|one| one.asked_per_s == *highest).map(|one| one.sent_per_s);
    sent.fold(f64::INFINITY, f64::min)
}

fn attempt(rate: u32, options: &WanOptions, bed: &TestBed) -> anyhow::Result<Attempt> {
    let conditions = CONDITIONS.parse::<Changes>()?.check()?;
    let config = PathConfig {
        up: conditions.clone(),
        down: conditions,
        engine: Engine::Router,
        seed: options.common.seed,
        router_cpu: bed.topology.sides_have_own_cpus().then(|| bed.topology.server.cpus[0]),
    };
    let mut path = Path::start(config)?;
    // Bound, so that the kernel answers no packet with an error, and never read.
    let receiver = path.network.server.namespace.enter(|| UdpSocket::bind((SERVER_ADDRESS, 0)))??;
    let sender = path.network.client.namespace.enter(|| UdpSocket::bind("0.0.0.0:0"))??;
    sender.connect(receiver.local_addr()?)?;
    sys::socket::set_udp_segment(sender.as_fd(), PAYLOAD_LENGTH as u16)?;
    let (sent, took) = send(&sender, rate, options.duration, &bed.clock)?;
    let deadline = bed.clock.now() + PATIENCE;
    let crossed = loop {
        let counted = path.network.server.statistics()?;
        if counted.received >= sent || bed.clock.now() > deadline {
            break counted.received.saturating_sub(counted.received_dropped);
        }
        nap(Nanos::from_millis(5))?;
    };
    let Report { up, router_cpu_s, duration_s, .. } = path.end()?;
    let late = up.lateness_ns.context("no packet came through")?;
    Ok(Attempt {
        asked_per_s: rate,
        sent,
        sent_per_s: sent as f64 / took.as_secs_f64(),
        lost: sent.saturating_sub(crossed),
        router_cpu_share: router_cpu_s.unwrap_or(0.0) / duration_s,
        late_p50_ns: late.p50,
        late_p99_ns: late.p99,
        late_max_ns: late.max,
    })
}

/// Sends at a rate, in bursts. Returns the number of packets and the time that it took.
fn send(socket: &UdpSocket, rate: u32, duration: Nanos, clock: &RealClock) -> anyhow::Result<(u64, Nanos)> {
    let payload = [0; PAYLOAD_LENGTH * BURST];
    let interval = PerSecond(f64::from(rate) / BURST as f64).interval();
    let start = clock.now();
    let (mut next, mut sent) = (start, 0);
    loop {
        let now = clock.now();
        if now - start >= duration {
            return Ok((sent, now - start));
        }
        if now < next {
            std::hint::spin_loop();
            continue;
        }
        socket.send(&payload)?;
        sent += BURST as u64;
        // A sender that lost its processor does not catch up by a flood, because the reached rate is the reported
        // one.
        next = (next + interval).max(now.saturating_sub(MOST_BEHIND));
    }
}

fn nap(time: Nanos) -> io::Result<()> {
    poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: time.0 as i64 }))?;
    Ok(())
}

fn show(attempts: &[Attempt]) -> String {
    let headings =
        ["asked/s", "sent/s", "sent", "lost", "router CPU", "late p50 us", "late p99 us", "late max us"];
    let mut rows = vec![headings.map(str::to_owned)];
    let micros = |nanos: u64| format!("{:.0}", nanos as f64 / 1e3);
    rows.extend(attempts.iter().map(|one| {
        [
            one.asked_per_s.to_string(),
            format!("{:.0}", one.sent_per_s),
            one.sent.to_string(),
            one.lost.to_string(),
            format!("{:.0} %", one.router_cpu_share * 100.0),
            micros(one.late_p50_ns),
            micros(one.late_p99_ns),
            micros(one.late_max_ns),
        ]
    }));
    aligned(&rows, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_rate_has_no_loss_at_any_lower_one() {
        let one = |asked_per_s, lost| Attempt {
            asked_per_s,
            sent: 1,
            sent_per_s: f64::from(asked_per_s) - 10.0,
            lost,
            router_cpu_share: 0.5,
            late_p50_ns: 1,
            late_p99_ns: 1,
            late_max_ns: 1,
        };
        assert_eq!(best(&[one(50_000, 0), one(100_000, 0), one(150_000, 1), one(200_000, 0)]), 99_990.0);
        assert_eq!(best(&[one(50_000, 3)]), 0.0);
    }
}
