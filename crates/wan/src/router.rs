//! The router: packets from one TUN device through an [`Impairment`] to the other, both ways, on one thread.
//!
//! Owns the loop, the buffers, and how late packets leave. What happens to a packet is `impairment`'s.
//!
//! The loop reads like its recipe: take in what has come, let out what is due, and when nothing has come
//! sleep until something comes or is due. It adds no hop: packets are not looked into.
//!
//! Whoever runs it may make its thread real-time: it sleeps whenever nothing is due for
//! [`SHORTEST_SLEEP`].
//!
//! *Lateness* is the time from when a packet was due until just before it is written. Not in it: how long a
//! packet lay in the device's queue before it was read, for a TUN device does not say; that is
//! at most a round of the loop, [`BATCH`] packets each way, and what `check` measures from outside
//! includes it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Clock, Nanos, Seed};
use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sys::tun::Tun;

use crate::conditions::{Conditions, MTU};
use crate::impairment::{Counts, Impairment};

/// Packets taken in, or let out, of one direction before the other has its turn: at some 2 us each, so
/// that neither waits much longer than a timer is late anyway.
const BATCH: usize = 32;
/// A sleep is never shorter: setting the timer and waking up take as long.
const SHORTEST_SLEEP: Nanos = Nanos::from_micros(20);
/// Lateness is told apart up to here.
const LATEST: Nanos = Nanos::from_secs(60);

type Buffer = Box<[u8; MTU as usize]>;

/// A packet on its way.
struct Packet {
    buffer: Buffer,
    length: usize,
}

/// Ends a router, from any thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<(AtomicBool, OwnedFd)>);

impl Stop {
    fn new() -> io::Result<Stop> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stop(Arc::new((AtomicBool::new(false), wake))))
    }

    /// The router returns within a round.
    pub fn request(&self) {
        self.0.0.store(true, Ordering::Relaxed);
        // It can only fail when it has been written to 2^64 times, and then it is awake.
        let _ = rustix::io::write(&self.0.1, &1_u64.to_ne_bytes());
    }

    fn is_requested(&self) -> bool {
        self.0.0.load(Ordering::Relaxed)
    }
}

/// What one direction did.
pub struct Passed {
    /// What became of the packets.
    pub counts: Counts,
    /// Packets that the receiving side's kernel refused.
    pub undelivered: u64,
    /// Packets still on their way at the end.
    pub on_their_way: u64,
    /// Bytes of the packets forwarded.
    pub bytes: u64,
    /// In nanoseconds, of every packet forwarded.
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

    /// Reads what has come, at most a batch. Returns how much.
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

    /// Writes what is due, at most a batch.
    fn let_out(&mut self, to: &Tun, clock: &impl Clock, spare: &mut Vec<Buffer>) {
        for _ in 0..BATCH {
            let now = clock.now();
            let Some(due) = self.impairment.take_due(now) else { return };
            self.lateness.saturating_record((now - due.at).0);
            let Packet { buffer, length } = due.packet;
            match to.write(&buffer[..length]) {
                Ok(()) => self.bytes += length as u64,
                // The receiving side has no memory, or somebody there took the link down: to the packet it
                // is all one.
                Err(_) => self.undelivered += 1,
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

/// Two devices and what happens between them.
pub struct Router<C> {
    clock: C,
    client: Tun,
    server: Tun,
    up: Direction,
    down: Direction,
    /// Buffers that no packet is in; as many as were ever in use at once.
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

    /// What ends it.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Routes until it is stopped; then says what went up and what went down. Blocks.
    ///
    /// # Errors
    /// Those of reading a device, none of which one that is up gives, and of poll(2).
    pub fn run(mut self) -> io::Result<(Passed, Passed)> {
        // A sleep may otherwise last 50 us longer than it should.
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

/// Sleeps until a packet comes, at most so long, or until it is stopped.
fn wait(tuns: [&Tun; 2], stop: &Stop, timeout: Option<Nanos>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: (timeout.0 / Nanos::SECOND.0) as i64,
        tv_nsec: (timeout.0 % Nanos::SECOND.0) as i64,
    });
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
