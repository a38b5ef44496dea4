//! Clients: their intended connects and their retransmissions.

use std::collections::VecDeque;

use base::{Nanos, Rng};
use rand::RngExt;
use rand_distr::Exp1;

use super::Scenario;

/// The delay of each SYN retransmission after the try before it: 1, 3 and 7 s after the first SYN.
const RETRANSMISSIONS: [u64; 3] = [1_000_000_000, 2_000_000_000, 4_000_000_000];

/// Groups of connections within a short time.
#[derive(Clone, Copy, Debug)]
pub struct Bursts {
    /// The time between the beginnings of two bursts.
    pub every: Nanos,
    /// The connections of a burst, spread evenly.
    pub connections: u32,
    /// The length of a burst.
    pub within: Nanos,
}

/// One connection and its client's remaining requests.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The intended time of the connect.
    pub intended: u64,
    /// Requests not yet answered.
    pub requests: u16,
    /// SYNs that were dropped.
    pub tries: u8,
    /// First requests that were repeated because the final ACK was dropped.
    pub repeated: u8,
    /// The identity's position among all SYNs, from 0 to 1; the same for each retransmission.
    pub identity: f64,
    /// The time at which the connection entered the accept queue.
    pub queued: u64,
    /// The time of the pending request; `None` before the first reply.
    pub asked: Option<u64>,
}

/// All clients that are not connected.
pub struct Clients {
    draws: Rng,
    load: Vec<(Nanos, f64)>,
    capacity: f64,
    step: usize,
    fresh: Option<u64>,
    bursts: Option<Bursts>,
    /// The number of the next connection, counted over all bursts.
    in_burst: u64,
    end: u64,
    /// Retransmissions, by the number of earlier tries.
    again: [VecDeque<(u64, Client)>; 3],
    patience: u64,
    sessions: bool,
}

impl Clients {
    pub fn new(scenario: &Scenario) -> Clients {
        let mut clients = Clients {
            draws: scenario.seed.child("clients").rng(),
            load: scenario.load.clone(),
            capacity: scenario.capacity(),
            step: 0,
            fresh: Some(0),
            bursts: scenario.bursts,
            in_burst: 0,
            end: scenario.end().0,
            again: Default::default(),
            patience: scenario.patience.0,
            sessions: scenario.sessions,
        };
        clients.draw();
        clients
    }

    /// The time of the next SYN.
    pub fn next(&self) -> u64 {
        let again = self.again.iter().filter_map(|queue| queue.front()).map(|(at, _)| *at);
        again.chain(self.fresh).chain(self.next_of_burst()).min().unwrap_or(u64::MAX)
    }

    /// Takes the next SYN.
    pub fn take(&mut self) -> Client {
        let at = self.next();
        for queue in &mut self.again {
            if queue.front().is_some_and(|(when, _)| *when == at) {
                return queue.pop_front().expect("it has a front").1;
            }
        }
        if self.fresh == Some(at) {
            self.draw();
        } else {
            self.in_burst += 1;
        }
        let requests = if self.sessions { self.draws.random_range(5..=15) } else { 1 };
        let identity = self.draws.random();
        Client { intended: at, requests, tries: 0, repeated: 0, identity, queued: 0, asked: None }
    }

    /// Returns true for a client that no longer tries.
    pub fn gave_up(&self, client: &Client, now: u64) -> bool {
        now > client.intended + self.patience
    }

    /// Handles a dropped SYN: its client retransmits, or gives up.
    pub fn dropped(&mut self, mut client: Client, now: u64) {
        let tries = usize::from(client.tries);
        let Some(again) = RETRANSMISSIONS.get(tries).map(|after| now + after) else { return };
        if !self.gave_up(&client, again) {
            client.tries += 1;
            self.again[tries].push_back((again, client));
        }
    }

    /// Draws the next arrival of the Poisson process, whose rate changes with the steps of the load.
    fn draw(&mut self) {
        let mut at = self.fresh.expect("it has not ended");
        while let Some((until, times)) = self.load.get(self.step) {
            let gap: f64 = self.draws.sample(Exp1);
            let next = at.saturating_add((gap * 1e9 / (self.capacity * times)) as u64);
            if next < until.0 {
                self.fresh = Some(next);
                return;
            }
            at = until.0;
            self.step += 1;
        }
        self.fresh = None;
    }

    fn next_of_burst(&self) -> Option<u64> {
        let bursts = self.bursts?;
        let (burst, of_it) =
            (self.in_burst / u64::from(bursts.connections), self.in_burst % u64::from(bursts.connections));
        let at = (burst + 1) * bursts.every.0 + of_it * bursts.within.0 / u64::from(bursts.connections);
        (at < self.end).then_some(at)
    }
}
