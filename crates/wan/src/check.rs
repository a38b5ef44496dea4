//! Measures the behaviour of a path from outside: datagrams to the server's side and back, like ping.
//!
//! One thread is both ends, so that only the path lies between sending and receiving. The round trip includes
//! the time to send a datagram back.

use std::fmt::Write;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;

use ::report::format::time;
use base::{Clock, Nanos, RealClock};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use sys::readiness::poll::timespec;

use crate::conditions::{Bottleneck, Conditions};
use crate::error::{WanError, system};
use crate::network::{CLIENT_ADDRESS, SERVER_ADDRESS};
use crate::path::{Path, PathConfig};
use crate::report::Report;

/// The payload of a probe.
const PAYLOAD_LENGTH: usize = 72;
/// The length of a probe as an IP packet.
const PROBE_LENGTH: u64 = PAYLOAD_LENGTH as u64 + 28;
/// The largest round trip that the histogram holds: twice the longest delay, jitter, and a queue.
const LONGEST: Nanos = Nanos::from_secs(600);
/// The wait for probes beyond the time that they should take.
const GRACE: Nanos = Nanos::SECOND;

/// The configuration of a check.
#[derive(Clone, Debug)]
pub struct CheckConfig {
    /// The path.
    pub path: PathConfig,
    /// The number of probes.
    pub probes: u32,
    /// The time between two probes.
    pub interval: Nanos,
}

/// Round trips, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct RoundTrip {
    /// The minimum.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The maximum.
    pub max: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// Probes sent.
    pub sent: u64,
    /// Probes that came back.
    pub returned: u64,
    /// The sum of the configured delays there and back, in nanoseconds.
    pub round_trip_asked_ns: u64,
    /// The configured share of lost probes, for both directions together.
    pub loss_asked: f64,
    /// The measured round trips; `None` if no probe came back.
    pub round_trip_ns: Option<RoundTrip>,
    /// The report of the path.
    pub path: Report,
}

impl Checked {
    /// The result as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let lost = (self.sent - self.returned) as f64 / self.sent as f64 * 100.0;
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            out,
            "{} probes, {} came back: {lost:.2} % lost, asked {:.2} %",
            self.sent,
            self.returned,
            self.loss_asked * 100.0
        );
        let _ = write!(out, "round trip asked {}", Nanos(self.round_trip_asked_ns));
        if let Some(RoundTrip { min, p50, p99, max }) = self.round_trip_ns {
            let [min, p50, p99, max] = [min, p50, p99, max].map(|ns| time(ns as f64));
            let _ = write!(out, "; measured min {min}, p50 {p50}, p99 {p99}, max {max}");
        }
        let _ = write!(out, "\n\n{}", self.path.text());
        out
    }
}

struct Probes {
    clock: RealClock,
    client: UdpSocket,
    server: UdpSocket,
    /// The time at which each probe was sent.
    sent: Vec<Nanos>,
    round_trips: Histogram<u64>,
}

/// Sends probes over a path and measures the replies. Blocks until all have come back, or should have.
///
/// # Errors
/// The errors of [`Path::start`], and `System`.
pub fn check(config: CheckConfig) -> Result<Checked, WanError> {
    let CheckConfig { path: asked, probes, interval } = config;
    let (up, down) = (asked.up.clone(), asked.down.clone());
    let path = Path::start(asked)?;
    let longest = longest_way(&up).saturating_add(longest_way(&down)).saturating_add(GRACE);
    let mut measured = Probes::new(&path).map_err(system("open the probes' sockets"))?;
    measured.run(probes, interval, longest).map_err(system("send probes"))?;
    let returned = measured.round_trips.len();
    let quantile = |share| measured.round_trips.value_at_quantile(share);
    Ok(Checked {
        sent: measured.sent.len() as u64,
        returned,
        round_trip_asked_ns: (up.delay + down.delay).0,
        loss_asked: 1.0 - (1.0 - up.loss.probability()) * (1.0 - down.loss.probability()),
        round_trip_ns: (returned > 0).then(|| RoundTrip {
            min: measured.round_trips.min(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: measured.round_trips.max(),
        }),
        path: path.end()?,
    })
}

/// The longest time that a direction takes for a probe: a full queue, the probe itself, and the delay.
fn longest_way(conditions: &Conditions) -> Nanos {
    let Conditions { delay, jitter, bottleneck, .. } = conditions;
    let sent = bottleneck.map_or(0, |Bottleneck { rate, queue }| {
        let bits = (u128::from(queue.0) + u128::from(PROBE_LENGTH)) * 8;
        let ns = (bits * u128::from(Nanos::SECOND.0)).div_ceil(u128::from(rate.bits_per_second()));
        u64::try_from(ns).unwrap_or(u64::MAX)
    });
    (*delay + *jitter).saturating_add(Nanos(sent))
}

impl Probes {
    fn new(path: &Path) -> io::Result<Probes> {
        let server = path.network.server.namespace.enter(|| UdpSocket::bind((SERVER_ADDRESS, 0)))??;
        let client = path.network.client.namespace.enter(|| UdpSocket::bind((CLIENT_ADDRESS, 0)))??;
        client.connect(server.local_addr()?)?;
        server.set_nonblocking(true)?;
        client.set_nonblocking(true)?;
        let round_trips = Histogram::new_with_bounds(1, LONGEST.0, 3).expect("the bounds are in order");
        Ok(Probes { clock: RealClock::new(), client, server, sent: Vec::new(), round_trips })
    }

    /// Sends `count` probes, one every `interval`, and waits for the last of them.
    fn run(&mut self, count: u32, interval: Nanos, longest: Nanos) -> io::Result<()> {
        let start = self.clock.now();
        loop {
            self.receive()?;
            let now = self.clock.now();
            let number = self.sent.len();
            let until = if number < count as usize {
                let at = start + interval * number as u64;
                if at <= now {
                    self.send(number as u32)?;
                    continue;
                }
                at
            } else {
                let last = self.sent.last().copied().unwrap_or(start).saturating_add(longest);
                if last <= now || self.round_trips.len() == u64::from(count) {
                    return Ok(());
                }
                last
            };
            self.wait(until - now)?;
        }
    }

    fn send(&mut self, number: u32) -> io::Result<()> {
        let mut payload = [0; PAYLOAD_LENGTH];
        payload[..4].copy_from_slice(&number.to_ne_bytes());
        self.sent.push(self.clock.now());
        self.client.send(&payload).map(drop)
    }

    /// Returns datagrams from the server's side, and records those that came back to the client.
    fn receive(&mut self) -> io::Result<()> {
        let mut payload = [0; PAYLOAD_LENGTH];
        while let Some((length, from)) = unless_empty(self.server.recv_from(&mut payload))? {
            self.server.send_to(&payload[..length], from)?;
        }
        while let Some(length) = unless_empty(self.client.recv(&mut payload))? {
            let number = u32::from_ne_bytes([payload[0], payload[1], payload[2], payload[3]]);
            if let (PAYLOAD_LENGTH, Some(sent)) = (length, self.sent.get(number as usize)) {
                self.round_trips.saturating_record((self.clock.now() - *sent).0);
            }
        }
        Ok(())
    }

    fn wait(&self, timeout: Nanos) -> io::Result<()> {
        let mut polled = [PollFd::new(&self.client, PollFlags::IN), PollFd::new(&self.server, PollFlags::IN)];
        match poll(&mut polled, Some(&timespec(timeout))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn unless_empty<T>(received: io::Result<T>) -> io::Result<Option<T>> {
    match received {
        Ok(received) => Ok(Some(received)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Changes;

    #[test]
    fn a_way_is_as_long_as_its_delay_and_its_full_queue() {
        let longest = |text: &str| longest_way(&text.parse::<Changes>().unwrap().check().unwrap());
        assert_eq!(longest("delay=50ms,jitter=5ms"), Nanos::from_millis(55));
        // 1500 bytes wait and the probe's 100 follow, at 100 bytes in a millisecond.
        assert_eq!(longest("delay=50ms,jitter=5ms,rate=800kbit,queue=1500"), Nanos::from_millis(55 + 16));
        assert_eq!(longest("rate=1bit,queue=1000000MiB"), Nanos::MAX);
    }
}
