//! Many connections to a model server over a link that loses, duplicates and reorders packets, in simulated
//! time.
//!
//! The property, for any behaviour of the link: no byte is wrong, every connection has exactly one outcome,
//! and no connection is left.

mod support;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use base::{Nanos, Rng, Seed};
use rand::RngExt;
use support::client::{Client, Outcome};
use support::impaired::Conditions;
use support::model::Model;
use support::{ClientEnd, Wire, packet, stack};
use usertcp::frame::Segment;
use usertcp::{Failure, Stack};

const CONNECTIONS: usize = 20;

/// A packet on its way: its arrival time, a number that keeps the order of equal times, and true for a packet
/// to the client.
type Travelling = Reverse<(Nanos, u64, bool, Vec<u8>)>;

struct World {
    wire: Wire,
    stack: Stack<ClientEnd>,
    model: Model,
    rng: Rng,
    conditions: Conditions,
    travelling: BinaryHeap<Travelling>,
    number: u64,
    now: Nanos,
}

impl World {
    fn new(seed: Seed, conditions: Conditions) -> World {
        let wire = Wire::default();
        // Timestamps wrap during the run.
        let epoch = Nanos::from_millis(u64::from(u32::MAX) - 1000);
        World {
            stack: stack(&wire, seed, epoch),
            wire,
            model: Model::default(),
            rng: seed.child("link").rng(),
            conditions,
            travelling: BinaryHeap::new(),
            number: 0,
            now: Nanos::ZERO,
        }
    }

    /// Puts a packet on its way: perhaps lost, perhaps duplicated; each copy has its own delay.
    fn post(&mut self, to_client: bool, bytes: Vec<u8>) {
        let Conditions { lost, doubled, reordered } = self.conditions;
        if self.rng.random::<f64>() < lost {
            return;
        }
        let copies = 1 + u32::from(self.rng.random::<f64>() < doubled);
        for _ in 0..copies {
            let late = if self.rng.random::<f64>() < reordered { self.rng.random_range(1..30) } else { 0 };
            self.number += 1;
            let at = self.now + Nanos::from_millis(5 + late);
            self.travelling.push(Reverse((at, self.number, to_client, bytes.clone())));
        }
    }

    fn post_all(&mut self, segments: Vec<(SocketAddr, Segment, Vec<u8>)>) {
        for (client, segment, payload) in segments {
            self.post(true, packet(client, &segment, &payload));
        }
    }

    /// Handles everything that is due at the current time, once.
    fn turn(&mut self, client: &mut Client) {
        while let Some(Reverse((_, _, to_client, bytes))) = self
            .travelling
            .peek_mut()
            .filter(|next| next.0.0 <= self.now)
            .map(std::collections::binary_heap::PeekMut::pop)
        {
            if to_client {
                self.wire.0.borrow_mut().to_client.push_back(bytes);
            } else {
                self.wire.0.borrow_mut().to_server.push_back(bytes);
                let (received, payload) = self.wire.take().unwrap();
                let answers = self.model.receive(&received, &payload, self.now);
                self.post_all(answers);
            }
        }
        let repeated = self.model.expire(self.now);
        self.post_all(repeated);
        self.stack.expire(self.now);
        client.attend(&mut self.stack, self.now);
        self.stack.flush(self.now).unwrap();
        let sent: Vec<Vec<u8>> = self.wire.0.borrow_mut().to_server.drain(..).collect();
        sent.into_iter().for_each(|bytes| self.post(false, bytes));
    }

    /// Advances to the next due time, but at most by 100 ms, for clients that read slowly.
    fn advance(&mut self) {
        let due = [
            self.travelling.peek().map(|next| next.0.0),
            self.stack.next_due(),
            self.model.next_due(),
            Some(self.now + Nanos::from_millis(100)),
        ];
        let next = due.into_iter().flatten().min().unwrap();
        self.now = next.max(self.now + Nanos(1));
    }
}

/// Runs all connections to their ends and returns their outcomes.
fn simulate(seed: Seed, conditions: Conditions, drops_every: u32) -> Vec<Outcome> {
    let mut world = World::new(seed, conditions);
    world.model.drops_every = drops_every;
    let mut client = Client::new(seed.child("client").rng(), 40_000);
    let mut begun = 0;
    while begun < CONNECTIONS || !client.is_done() || !world.stack.is_empty() {
        if begun < CONNECTIONS && world.rng.random_ratio(1, 3) {
            client.begin(&mut world.stack, world.now);
            begun += 1;
        }
        world.turn(&mut client);
        world.advance();
        assert!(world.now < Nanos::from_secs(10_000), "seed {seed}: it does not end");
    }
    assert_eq!((world.stack.stored(), world.model.wrong), (0, 0), "seed {seed}");
    assert_eq!(client.outcomes.len(), CONNECTIONS, "seed {seed}");
    client.outcomes
}

#[test]
fn every_exchange_completes_over_a_good_link() {
    let conditions = Conditions { lost: 0.0, doubled: 0.0, reordered: 0.0 };
    for seed in (0..50).map(Seed) {
        let outcomes = simulate(seed, conditions, 0);
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Complete), "seed {seed}: {outcomes:?}");
    }
}

#[test]
fn faulty_link_corrupts_no_byte_and_leaks_nothing() {
    for seed in (0..200).map(Seed) {
        let mut rng = seed.child("conditions").rng();
        let mut share = |most: f64| rng.random::<f64>() * most;
        let conditions = Conditions { lost: share(0.3), doubled: share(0.3), reordered: share(0.5) };
        let outcomes = simulate(seed, conditions, 0);
        // A segment is repeated so often that a loss of 30 % each way ends no connection.
        let all_complete = outcomes.iter().all(|outcome| *outcome == Outcome::Complete);
        assert!(all_complete, "seed {seed}, {conditions:?}: {outcomes:?}");
    }
}

#[test]
fn only_connections_dropped_by_the_server_time_out() {
    let conditions = Conditions { lost: 0.0, doubled: 0.0, reordered: 0.2 };
    for seed in (0..10).map(Seed) {
        let outcomes = simulate(seed, conditions, 4);
        let timed_out =
            outcomes.iter().filter(|outcome| **outcome == Outcome::Failed(Failure::TimedOut)).count();
        let complete = outcomes.iter().filter(|outcome| **outcome == Outcome::Complete).count();
        assert_eq!(
            (timed_out, complete),
            (CONNECTIONS / 4, CONNECTIONS - CONNECTIONS / 4),
            "seed {seed}: {outcomes:?}"
        );
    }
}
