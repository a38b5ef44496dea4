//! A link that loses, duplicates and reorders packets in both directions, by a seed.

use std::collections::VecDeque;
use std::io;

use base::{Nanos, Rng, Seed};
use rand::RngExt;
use usertcp::Link;
use usertcp::frame::{Arriving, Leaving};
use usertcp::link::Packet;

/// Shares of all packets, from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub lost: f64,
    pub doubled: f64,
    /// Packets held back until a few others have passed.
    pub reordered: f64,
}

/// The packets of one direction, and their fate.
struct Direction<P> {
    conditions: Conditions,
    rng: Rng,
    /// Packets held back, each with the number of packets that pass before it.
    held: Vec<(u32, P)>,
    passed: VecDeque<P>,
}

impl<P: Clone> Direction<P> {
    fn new(conditions: Conditions, seed: Seed) -> Direction<P> {
        Direction { conditions, rng: seed.rng(), held: Vec::new(), passed: VecDeque::new() }
    }

    fn offer(&mut self, packet: P) {
        let Conditions { lost, doubled, reordered } = self.conditions;
        if self.rng.random::<f64>() < lost {
            return;
        }
        if self.rng.random::<f64>() < doubled {
            self.pass_or_hold(packet.clone(), reordered);
        }
        self.pass_or_hold(packet, reordered);
    }

    fn pass_or_hold(&mut self, packet: P, reordered: f64) {
        if self.rng.random::<f64>() < reordered {
            return self.held.push((self.rng.random_range(1..6), packet));
        }
        self.passed.push_back(packet);
        for (behind, _) in &mut self.held {
            *behind -= 1;
        }
        for (_, packet) in self.held.extract_if(.., |(behind, _)| *behind == 0) {
            self.passed.push_back(packet);
        }
    }

    /// Releases packets held back when no other packet comes.
    fn release(&mut self) {
        self.passed.extend(self.held.drain(..).map(|(_, packet)| packet));
    }
}

/// The impaired link.
pub struct Impaired<L> {
    inner: L,
    out: Direction<Vec<u8>>,
    unfinished: Vec<Vec<u8>>,
    input: Direction<(Vec<u8>, Arriving)>,
    current: (Vec<u8>, Arriving),
}

impl<L: Link> Impaired<L> {
    pub fn new(inner: L, conditions: Conditions, seed: Seed) -> Impaired<L> {
        Impaired {
            inner,
            out: Direction::new(conditions, seed.child("out")),
            unfinished: Vec::new(),
            input: Direction::new(conditions, seed.child("in")),
            current: (Vec::new(), Arriving::Whole),
        }
    }
}

impl<L: Link> Link for Impaired<L> {
    fn mtu(&self) -> usize {
        self.inner.mtu()
    }

    fn leaving(&self) -> Leaving {
        self.inner.leaving()
    }

    fn packet_out(&mut self, length: usize) -> Option<&mut [u8]> {
        self.unfinished.push(vec![0; length]);
        self.unfinished.last_mut().map(Vec::as_mut_slice)
    }

    fn flush(&mut self) -> io::Result<u64> {
        if self.unfinished.is_empty() {
            self.out.release();
        }
        self.unfinished.drain(..).for_each(|packet| self.out.offer(packet));
        for packet in self.out.passed.drain(..) {
            if let Some(buffer) = self.inner.packet_out(packet.len()) {
                buffer.copy_from_slice(&packet);
            }
        }
        self.inner.flush()
    }

    fn receive(&mut self) -> io::Result<bool> {
        let mut came = false;
        while self.input.passed.is_empty() && self.inner.receive()? {
            came = true;
            let packet = self.inner.packet();
            self.input.offer((packet.bytes.to_vec(), packet.checksum));
        }
        if !came && self.input.passed.is_empty() {
            self.input.release();
        }
        match self.input.passed.pop_front() {
            Some(packet) => {
                self.current = packet;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn packet(&self) -> Packet<'_> {
        Packet { bytes: &self.current.0, checksum: self.current.1 }
    }

    fn wait(&mut self, timeout: Nanos) -> io::Result<()> {
        // Packets held back leave soon.
        self.inner.wait(timeout.min(Nanos::from_millis(2)))
    }
}
