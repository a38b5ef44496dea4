//! The server: a turn loop on one processor.

use std::collections::VecDeque;

use base::{Nanos, Rng};
use overload::{AdaptiveLimit, Controller, Signals, State};
use rand::RngExt;
use rand_distr::Exp1;

use super::clients::Client;
use super::kernel::{Kernel, settles_within};
use super::{Disturbance, Hook, Ledger, Scenario};

/// The processor's time for a wait for events, in nanoseconds.
const GET_EVENTS: f64 = 1500.0;
/// The processor's time for a 503, in nanoseconds.
const REFUSAL: f64 = 25_000.0;
/// The most time that packets take from the server's work, as a multiple of that: softirqs come before the process.
const PACKETS_FIRST: u64 = 9;

struct Server<'a> {
    scenario: &'a Scenario,
    now: u64,
    draws: Rng,
    kernel: Kernel,
    ledger: Ledger,
    /// Connections accepted in the last turn.
    accepted: Vec<Client>,
    /// Requests of open connections, on their way or arrived, with their arrival times.
    requests: VecDeque<(u64, Client)>,
    total_accepted: u64,
    emptied: bool,
    /// The longest turn since the last tick.
    lag: u64,
    next_stall: u64,
    limit: AdaptiveLimit,
    controller: Option<Controller>,
}

/// Runs a scenario until the last client has been served or has given up.
pub fn run(scenario: &Scenario) -> Ledger {
    let end = scenario.end() + settles_within(scenario);
    let settings = scenario.settings;
    let mut server = Server {
        scenario,
        now: 0,
        draws: scenario.seed.child("server").rng(),
        kernel: Kernel::new(scenario),
        ledger: Ledger::new(end, scenario.end()),
        accepted: Vec::new(),
        requests: VecDeque::new(),
        total_accepted: 0,
        emptied: true,
        lag: 0,
        next_stall: 500_000_000,
        limit: AdaptiveLimit::new(settings.target),
        controller: scenario.control.map(|constants| Controller::with(constants, settings, Nanos::ZERO)),
    };
    while server.now < end.0 {
        let ready = server.get_events(end.0);
        let began = server.now;
        server.work(ready);
        server.control();
        server.accept();
        server.lag = server.lag.max(server.now - began);
    }
    server.ledger
}

impl Server<'_> {
    /// Sleeps if there is nothing to do, and returns the connections that are ready.
    fn get_events(&mut self, end: u64) -> Vec<Client> {
        let request = self.requests.front().map_or(u64::MAX, |(at, _)| *at);
        if self.accepted.is_empty() && self.kernel.queue.is_empty() && request > self.now {
            let due = self.controller.as_ref().filter(|control| control.decision().state == State::Shedding);
            self.idle_until(request.min(end).min(due.map_or(end, |control| control.due().0)));
        }
        self.spend(GET_EVENTS);
        let mut ready = std::mem::take(&mut self.accepted);
        while self.requests.front().is_some_and(|(at, _)| *at <= self.now) {
            ready.extend(self.requests.pop_front().map(|(_, client)| client));
        }
        ready
    }

    fn work(&mut self, ready: Vec<Client>) {
        let (began, turns) = (self.now, ready.len() as u32);
        let open: Vec<Client> = ready.into_iter().filter_map(|client| self.serve(client)).collect();
        let closed = turns - open.len() as u32;
        let next = open.into_iter().filter_map(|client| client.asked.map(|asked| (asked, client)));
        self.requests.extend(next);
        self.limit.worked(turns, closed, Nanos(self.now - began));
    }

    fn control(&mut self) {
        let now = Nanos(self.now);
        let Some(controller) = self.controller.as_mut().filter(|control| now >= control.due()) else {
            return;
        };
        let signals = Signals {
            queued: self.kernel.queue.len() as u32,
            accepted: self.total_accepted,
            emptied: std::mem::take(&mut self.emptied),
            syns: matches!(self.scenario.hook, Hook::Bucket | Hook::Device).then_some(self.ledger.syns),
            refused: self.ledger.refused,
            dropped: self.ledger.dropped,
            late: self.ledger.late,
            lag: Nanos(std::mem::take(&mut self.lag)),
            cost: self.limit.connection_cost(),
            ..Signals::default()
        };
        self.ledger.changes += u32::from(controller.tick(now, &signals).is_some());
        self.kernel.backlog = controller.decision().backlog;
        let cost = self.kernel.admit(&controller.decision().admission);
        self.spend(cost as f64);
    }

    fn accept(&mut self) {
        let began = self.now;
        let limit = self.scenario.accept_limit.unwrap_or_else(|| self.limit.limit());
        let mut taken = 0;
        while taken < limit {
            let Some(client) = self.kernel.queue.pop_front() else {
                self.emptied = true;
                break;
            };
            self.spend(self.scenario.costs.accept);
            taken += 1;
            // The server notices at once that a client has gone.
            if self.kernel.still_there(&client, self.now) {
                self.accepted.push(client);
            }
        }
        self.total_accepted += u64::from(taken);
        self.limit.accepted(taken, Nanos(self.now - began));
    }

    /// Answers a request. Returns the connection if another request will come.
    fn serve(&mut self, mut client: Client) -> Option<Client> {
        let costs = self.scenario.costs;
        if client.asked.is_none() && self.is_late(&client) {
            self.ledger.late += 1;
            self.spend(REFUSAL);
            return None;
        }
        let random: f64 = self.draws.sample(Exp1);
        self.spend(costs.serve * (1.0 - costs.variation + costs.variation * random));
        match client.asked {
            None => self.ledger.answered_first(client.intended, self.now),
            Some(asked) => self.ledger.answered_later(asked, self.now),
        }
        client.requests -= 1;
        client.asked = Some(self.now + self.scenario.round_trip.0);
        self.ledger.later_sent += u64::from(client.requests > 0);
        (client.requests > 0).then_some(client)
    }

    /// Returns true for a first request that has waited too long. Those of sessions are always answered here.
    fn is_late(&self, client: &Client) -> bool {
        let sessions = self.controller.as_ref().map(|controller| controller.decision().sessions);
        let late_after = sessions.and_then(|all| all.for_requests(self.limit.connection_cost()).late_after);
        late_after.is_some_and(|late| self.now - client.queued > late.0)
    }

    /// Spends processor time on the server. Packets that arrive in that time take their part of the processor.
    fn spend(&mut self, cost: f64) {
        let cost = (cost * self.slowness()) as u64 + self.stalled();
        let mut end = self.now + cost;
        let mut for_packets = 0;
        loop {
            self.kernel.receive(end, &mut self.ledger);
            if !self.kernel.pending() || for_packets > PACKETS_FIRST * cost {
                break;
            }
            let packet = (self.kernel.work(end, &mut self.ledger) as f64 * self.slowness()) as u64;
            end += packet;
            for_packets += packet;
        }
        self.now = end;
    }

    /// Handles packets only, until a connection is queued or `wake` has come.
    fn idle_until(&mut self, wake: u64) {
        loop {
            if !self.kernel.pending() {
                let next = self.kernel.next();
                if next > wake {
                    self.now = self.now.max(wake);
                    return;
                }
                self.now = self.now.max(next);
                self.kernel.receive(self.now, &mut self.ledger);
            }
            self.now += (self.kernel.work(self.now, &mut self.ledger) as f64 * self.slowness()) as u64;
            self.kernel.receive(self.now, &mut self.ledger);
            if !self.kernel.queue.is_empty() {
                return;
            }
        }
    }

    fn slowness(&self) -> f64 {
        match self.scenario.disturbance {
            Disturbance::Slower { period, times } if (self.now / period.0) % 2 == 1 => times,
            _ => 1.0,
        }
    }

    /// The length of a stall that begins now; 0 without a stall.
    fn stalled(&mut self) -> u64 {
        match self.scenario.disturbance {
            Disturbance::Stalls { length, every } if self.now >= self.next_stall => {
                let gap: f64 = self.draws.sample(Exp1);
                self.next_stall = self.now + length.0 + (gap * every.0 as f64) as u64;
                length.0
            }
            _ => 0,
        }
    }
}
