//! The router: moves packets from one TUN device through an [`Impairment`] to the other, both ways, on one
//! thread.
//!
//! Owns the loop, the buffers, and the lateness of packets. `impairment` decides about each packet.
//!
//! The loop takes in arrived packets and lets out due ones. If none arrived, it sleeps until one arrives or
//! is due. The router is not a hop: it does not look into packets.
//!
//! The caller may make its thread real-time: the router sleeps whenever nothing is due for
//! [`SHORTEST_SLEEP`].
//!
//! *Lateness* is the time from when a packet was due until just before it is written. It excludes the time in
//! the device's queue before the read, which a TUN device does not report. A packet waits there one round of
//! the loop for each [`BATCH`] packets in front of it; the round trips of `check` include that time.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Clock, Nanos, Seed};
use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sys::network::tun::Tun;
use sys::readiness::poll::timespec;

use crate::conditions::{Conditions, MTU};
use crate::impairment::{Counts, Impairment};

/// Packets of one direction taken in or let out before the other direction's turn. At about 2 us each,
/// neither direction waits much longer than a timer is late anyway.
const BATCH: usize = 32;
/// The shortest sleep: setting the timer and waking up take as long.
const SHORTEST_SLEEP: Nanos = Nanos::from_micros(20);
/// The largest lateness that the histogram holds.
const LATEST: Nanos = Nanos::from_secs(60);

type Buffer = Box<[u8; MTU as usize]>;

/// A packet on its way.
struct Packet {
    buffer: Buffer,
    length: usize,
}

/// Stops a router, from any thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<(AtomicBool, OwnedFd)>);

impl Stop {
    fn new() -> io::Result<Stop> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stop(Arc::new((AtomicBool::new(false), wake))))
    }

    /// Stops the router within one round.
    pub fn request(&self) {
        self.0.0.store(true, Ordering::Relaxed);
        // The write fails only after 2^64 - 1 requests, and then the router is awake.
        let _ = rustix::io::write(&self.0.1, &1_u64.to_ne_bytes());
    }

    fn is_requested(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }
}

/// The result of one direction.
pub struct Passed {
    /// The packets, by their fate.
    pub counts: Counts,
    /// Packets that found no room in the receiving device. What the device drops, it counts itself.
    pub undelivered: u64,
    /// Packets still on their way at the end.
    pub on_their_way: u64,
    /// Bytes of the packets forwarded.
    pub bytes: u64,
    /// Lateness of every packet forwarded, in nanoseconds.
    pub lateness: Histogram<u64>,
}

struct Direction {
    impairment: Impairment<Packet>,
    lateness: Histogram<u64>,
    undelivered: u64,
    bytes: u64,
}

impl Direction {
    fn new(conditions: Conditions, seed: Seed) -> Direction {
        let lateness = Histogram::new_with_bounds(1, LATEST.0, 3).expect("the bounds are in order");
        Direction { impairment: Impairment::new(conditions, seed), lateness, undelivered: 0, bytes: 0 }
    }

    /// Reads arrived packets, at most a batch. Returns their number.
    fn take_in(&mut self, from: &Tun, clock: &impl Clock, spare: &mut Vec<Buffer>) -> io::Result<usize> {
        for taken in 0..BATCH {
            let mut buffer = spare.pop().unwrap_or_else(|| Box::new([0; MTU as usize]));
            let length = match from.read(&mut buffer[..]) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    spare.push(buffer);
                    return Ok(taken);
                }
                Err(error) => return Err(error),
            };
            let dropped = self.impairment.offer(clock.now(), length, Packet { buffer, length });
            spare.extend(dropped.map(|packet| packet.buffer));
        }
        Ok(BATCH)
    }

    /// Writes due packets, at most a batch.
    fn let_out(&mut self, to: &Tun, clock: &impl Clock, spare: &mut Vec<Buffer>) {
        for _ in 0..BATCH {
            let now = clock.now();
            let Some(due) = self.impairment.take_due(now) else { return };
            self.lateness.saturating_record((now - due.at).0);
            let Packet { buffer, length } = due.packet;
            match to.write(&buffer[..length]) {
                Ok(()) => self.bytes += length as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.undelivered += 1,
                // The receiving side has no memory, or its link was taken down. Its device counts the packet as dropped.
                Err(_) => {}
            }
            spare.push(buffer);
        }
    }

    fn passed(self) -> Passed {
        Passed {
            counts: self.impairment.counts().clone(),
            undelivered: self.undelivered,
            on_their_way: self.impairment.on_their_way() as u64,
            bytes: self.bytes,
            lateness: self.lateness,
        }
    }
}

/// Two devices and the path between them.
pub struct Router<C> {
    clock: C,
    client: Tun,
    server: Tun,
    up: Direction,
    down: Direction,
    /// Empty buffers; their number is at most the largest number ever in use.
    spare: Vec<Buffer>,
    stop: Stop,
}

impl<C: Clock> Router<C> {
    /// A router between the client's and the server's device. Equal seeds treat equal packets equally.
    ///
    /// # Errors
    /// EMFILE and ENFILE.
    pub fn new(
        clock: C,
        client: Tun,
        server: Tun,
        up: Conditions,
        down: Conditions,
        seed: Seed,
    ) -> io::Result<Router<C>> {
        Ok(Router {
            clock,
            client,
            server,
            up: Direction::new(up, seed.child("up")),
            down: Direction::new(down, seed.child("down")),
            spare: Vec::new(),
            stop: Stop::new()?,
        })
    }

    /// A handle that stops the router.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Routes until it is stopped; returns the results of both directions, up first. Blocks.
    ///
    /// # Errors
    /// Errors of reading a device, which a device that is up does not return, and of poll(2).
    pub fn run(mut self) -> io::Result<(Passed, Passed)> {
        // Without this a sleep may last 50 us too long.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
        let Router { clock, client, server, up, down, spare, stop } = &mut self;
        while !stop.is_requested() {
            let taken = up.take_in(client, clock, spare)? + down.take_in(server, clock, spare)?;
            up.let_out(server, clock, spare);
            down.let_out(client, clock, spare);
            if taken == 0 {
                let next = [up.impairment.next_due(), down.impairment.next_due()].into_iter().flatten().min();
                let sleep = next.map(|at| at.saturating_sub(clock.now()));
                if sleep.is_none_or(|sleep| sleep >= SHORTEST_SLEEP) {
                    wait([client, server], stop, sleep)?;
                }
            }
        }
        Ok((self.up.passed(), self.down.passed()))
    }
}

/// Sleeps until a packet arrives, the timeout passes, or the router is stopped.
fn wait(tuns: [&Tun; 2], stop: &Stop, timeout: Option<Nanos>) -> io::Result<()> {
    let timeout = timeout.map(timespec);
    let mut polled = [
        PollFd::new(tuns[0], PollFlags::IN),
        PollFd::new(tuns[1], PollFlags::IN),
        PollFd::new(&stop.0.1, PollFlags::IN),
    ];
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
