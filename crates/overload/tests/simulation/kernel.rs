//! The server's kernel: the fate of packets, and their cost.

use std::collections::VecDeque;

use base::{Nanos, Rng};
use overload::Admission;
use rand::RngExt;

use super::clients::{Client, Clients};
use super::{Hook, Ledger, Scenario};

/// The processor's time for a SYN that a sink or a full queue drops, in nanoseconds.
pub const SINK_DROP: u64 = 800;
/// The processor's time for a SYN that a token bucket in tc drops, in nanoseconds.
pub const BUCKET_DROP: u64 = 250;
/// The processor's time for a SYN cookie, in nanoseconds.
const COOKIE: u64 = 5000;
/// The processor's time for a final ACK that finds the queue full, in nanoseconds.
const ACK_DROP: u64 = 2000;
/// The processor's time for a new program of a sink, in nanoseconds.
const ATTACH: u64 = 100_000;
/// The time after which a client repeats its request for the first time, in nanoseconds; later ones double it. The client
/// of a dropped final ACK believes that it is connected, and its request takes the place of the ACK.
const REQUEST_AGAIN: u64 = 200_000_000;
/// Packets that wait for the kernel: net.core.netdev_max_backlog.
const RING: usize = 1000;
/// The smallest relative change of a share that justifies a new program.
const WORTH: f64 = 0.07;
/// The part of the burst that a retransmission may use.
const AGAIN: f64 = 0.25;
/// The part of new SYNs that the program on a device takes for retransmissions.
const MISTAKEN: f64 = 0.02;

#[derive(Clone, Copy)]
enum Packet {
    Syn(Client),
    Ack(Client),
}

/// The network and the listener.
pub struct Kernel {
    draws: Rng,
    hook: Hook,
    handshake: u64,
    round_trip: u64,
    clients: Clients,
    ring: VecDeque<(u64, Packet)>,
    /// Final ACKs on their way.
    acks: VecDeque<(u64, Client)>,
    /// Requests that take the place of dropped ACKs, by the number of earlier ones.
    acks_again: [VecDeque<(u64, Client)>; 3],
    /// The accept queue.
    pub queue: VecDeque<Client>,
    /// The listener's backlog.
    pub backlog: u32,
    share: f64,
    /// Nanoseconds between two tokens; 0 without a bucket.
    interval: f64,
    depth: f64,
    new_are_free: bool,
    /// The time at which the bucket is full again (GCRA).
    full_at: f64,
}

impl Kernel {
    pub fn new(scenario: &Scenario) -> Kernel {
        Kernel {
            draws: scenario.seed.child("kernel").rng(),
            hook: scenario.hook,
            handshake: scenario.costs.handshake as u64,
            round_trip: scenario.round_trip.0,
            clients: Clients::new(scenario),
            ring: VecDeque::new(),
            acks: VecDeque::new(),
            acks_again: Default::default(),
            queue: VecDeque::new(),
            backlog: scenario.settings.backlog,
            share: 1.0,
            interval: 0.0,
            depth: 0.0,
            new_are_free: true,
            full_at: 0.0,
        }
    }

    /// The time of the next packet.
    pub fn next(&self) -> u64 {
        let acks = self.acks_again.iter().chain([&self.acks]).filter_map(|queue| queue.front());
        acks.map(|(at, _)| *at).chain([self.clients.next()]).min().unwrap_or(u64::MAX)
    }

    /// Returns true while packets wait for the kernel.
    pub fn pending(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Takes the packets that have arrived by `until` into the ring.
    pub fn receive(&mut self, until: u64, ledger: &mut Ledger) {
        loop {
            let at = self.next();
            if at > until {
                return;
            }
            let packet = self.arriving(at, ledger);
            if self.ring.len() < RING {
                self.ring.push_back((at, packet));
                continue;
            }
            ledger.lost += 1;
            match packet {
                Packet::Syn(client) => self.clients.dropped(client, at),
                Packet::Ack(client) => self.ack_again(client, at),
            }
        }
    }

    /// Handles the first packet of the ring. Returns the processor time.
    pub fn work(&mut self, now: u64, ledger: &mut Ledger) -> u64 {
        match self.ring.pop_front() {
            Some((at, Packet::Ack(client))) => self.complete(Client { queued: now, ..client }, at, ledger),
            Some((at, Packet::Syn(client))) => self.open(client, at, now, ledger),
            None => 0,
        }
    }

    /// Applies a hook's admission. Returns the processor time.
    pub fn admit(&mut self, admission: &Admission) -> u64 {
        self.interval = admission.interval().0 as f64;
        self.depth = admission.burst_time().0 as f64;
        self.new_are_free = admission.new_are_free;
        let opens_or_closes = (self.share >= 1.0) != (admission.share >= 1.0);
        if !opens_or_closes && (admission.share - self.share).abs() <= WORTH * self.share {
            return 0;
        }
        self.share = admission.share;
        match self.hook {
            Hook::Sink | Hook::RandomSink => ATTACH,
            Hook::None | Hook::Bucket | Hook::Device => 0,
        }
    }

    /// Returns true if a client that waited in the queue is still there.
    pub fn still_there(&self, client: &Client, now: u64) -> bool {
        !self.clients.gave_up(client, now)
    }

    fn arriving(&mut self, at: u64, ledger: &mut Ledger) -> Packet {
        for queue in self.acks_again.iter_mut().chain([&mut self.acks]) {
            if queue.front().is_some_and(|(when, _)| *when == at) {
                return Packet::Ack(queue.pop_front().expect("it has a front").1);
            }
        }
        let client = self.clients.take();
        if client.tries == 0 {
            ledger.offered(at);
        }
        Packet::Syn(client)
    }

    /// The kernel drops arrivals while the queue holds more than the backlog.
    fn full(&self) -> bool {
        self.queue.len() > self.backlog as usize
    }

    fn open(&mut self, client: Client, at: u64, now: u64, ledger: &mut Ledger) -> u64 {
        ledger.syns += 1;
        if let Some(cost) = self.refused(&client, now) {
            ledger.refused += 1;
            self.clients.dropped(client, at);
            return cost;
        }
        if self.full() {
            ledger.dropped += 1;
            self.clients.dropped(client, at);
            return SINK_DROP;
        }
        // The backlog also bounds the handshakes in progress, beyond which a SYN is answered with a cookie.
        let without_memory = self.acks.len() > self.backlog as usize;
        self.acks.push_back((now + self.round_trip, client));
        if without_memory { COOKIE } else { self.handshake / 2 }
    }

    fn complete(&mut self, client: Client, at: u64, ledger: &mut Ledger) -> u64 {
        if self.full() {
            ledger.dropped += 1;
            self.ack_again(client, at);
            return ACK_DROP;
        }
        self.queue.push_back(client);
        self.handshake / 2
    }

    fn ack_again(&mut self, mut client: Client, at: u64) {
        let sent = usize::from(client.repeated);
        let again = at + (REQUEST_AGAIN << sent);
        if sent < self.acks_again.len() && !self.clients.gave_up(&client, again) {
            client.repeated += 1;
            self.acks_again[sent].push_back((again, client));
        }
    }

    /// The processor time of refusing a SYN; `None` if the hook admits it.
    fn refused(&mut self, client: &Client, now: u64) -> Option<u64> {
        match self.hook {
            Hook::None => None,
            Hook::Sink => (client.identity >= self.share).then_some(SINK_DROP),
            Hook::RandomSink => (self.draws.random::<f64>() >= self.share).then_some(SINK_DROP),
            Hook::Bucket => {
                (self.without_token(now, self.depth) && !self.new_are_free).then_some(BUCKET_DROP)
            }
            Hook::Device => {
                let again = client.tries > 0 || self.draws.random::<f64>() < MISTAKEN;
                let without = self.without_token(now, if again { self.depth * AGAIN } else { self.depth });
                (without && (again || !self.new_are_free)).then_some(BUCKET_DROP)
            }
        }
    }

    /// Takes a token, at most this time ahead of the rate. Returns true if there is none.
    fn without_token(&mut self, now: u64, ahead: f64) -> bool {
        // A time further ahead can only come from a slower rate.
        self.full_at = self.full_at.clamp(now as f64, now as f64 + self.depth + self.interval);
        let without = self.interval > 0.0 && self.full_at - now as f64 > ahead;
        if !without {
            self.full_at += self.interval;
        }
        without
    }
}

/// The longest time that a packet may be on its way after the end of the load.
pub fn settles_within(scenario: &Scenario) -> Nanos {
    scenario.patience + Nanos::SECOND
}
