//! The law alone, and three servers of unequal speed behind weighted round-robin.

use base::{Rng, Seed};
use rand::RngExt;

use super::*;

/// A step of the simulated world.
const STEP: Nanos = Nanos::from_millis(50);
/// Requests per second that the servers can serve.
const SPEEDS: [f64; 3] = [1_000.0, 2_000.0, 4_000.0];
/// The longest wait in an accept queue, in seconds; the server refuses the rest.
const LONGEST_WAIT_S: f64 = 0.05;

/// A simulated server: a queue, and its measurements since its last report.
struct Simulated {
    speed: f64,
    waiting: f64,
    weight: Weight,
    /// The weight that the load balancer knows.
    known: u32,
    next_report: Nanos,
    up: bool,
    served: f64,
    offered: f64,
    refused: f64,
    since: Nanos,
}

/// The servers' figures in a second.
#[derive(Clone, Copy, Default)]
struct Second {
    busy: [f64; 3],
    weights: [u32; 3],
}

struct World {
    servers: Vec<Simulated>,
    rate: f64,
    every: Nanos,
    now: Nanos,
    rng: Rng,
}

impl World {
    /// Makes servers whose requests take `share` of their joint capacity. The load balancer asks each for its weight
    /// at intervals of `every`.
    fn new(law: Law, share: f64, every: Nanos, seed: u64) -> World {
        let mut rng = Seed(seed).rng();
        let now = Nanos::SECOND;
        let server = |speed: f64| Simulated {
            speed,
            waiting: 0.0,
            weight: Weight { law, ..Weight::new(now) },
            known: 1,
            // The load balancer asks each server at a different moment.
            next_report: now + Nanos::from_secs_f64(every.as_secs_f64() * rng.random::<f64>()),
            up: true,
            served: 0.0,
            offered: 0.0,
            refused: 0.0,
            since: now,
        };
        let servers = SPEEDS.map(server).into();
        World { servers, rate: share * SPEEDS.iter().sum::<f64>(), every, now, rng }
    }

    fn seconds(&mut self, count: usize) -> Vec<Second> {
        (0..count).map(|_| self.second()).collect()
    }

    fn second(&mut self) -> Second {
        let steps = Nanos::SECOND.0 / STEP.0;
        let mut second = Second::default();
        for _ in 0..steps {
            let busy = self.step();
            for (sum, busy) in second.busy.iter_mut().zip(busy) {
                *sum += busy / steps as f64;
            }
        }
        second.weights = std::array::from_fn(|index| self.servers[index].known);
        second
    }

    /// Moves one step on. Returns the used part of each server's time.
    fn step(&mut self) -> [f64; 3] {
        self.now += STEP;
        let up = |server: &&Simulated| server.up;
        let weights: f64 = self.servers.iter().filter(up).map(|server| f64::from(server.known)).sum();
        let (rate, now, every, rng) = (self.rate, self.now, self.every, &mut self.rng);
        let mut busy = [0.0; 3];
        for (server, busy) in self.servers.iter_mut().zip(&mut busy).filter(|(server, _)| server.up) {
            let mean = rate * STEP.as_secs_f64() * f64::from(server.known) / weights;
            *busy = server.serve(mean, rng);
            if now >= server.next_report {
                server.next_report += every;
                server.report(now);
            }
        }
        busy
    }
}

impl Simulated {
    /// Serves for a step in which about `mean` requests come. Returns the used part of its time.
    fn serve(&mut self, mean: f64, rng: &mut Rng) -> f64 {
        // The sum of twelve uniform numbers is close enough to the noise of Poisson arrivals.
        let noise = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        let offered = (mean + noise * mean.sqrt()).max(0.0);
        let capacity = self.speed * STEP.as_secs_f64();
        let served = capacity.min(self.waiting + offered);
        self.waiting += offered - served;
        let refused = (self.waiting - self.speed * LONGEST_WAIT_S).max(0.0);
        self.waiting -= refused;
        self.served += served;
        self.offered += offered;
        self.refused += refused;
        served / capacity
    }

    fn report(&mut self, now: Nanos) {
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        let refused = if self.offered > 0.0 { self.refused / self.offered } else { 0.0 };
        let wait = self.waiting / self.speed / LONGEST_WAIT_S;
        let signals = Signals {
            busy: (self.served / (self.speed * seconds)).min(1.0),
            connections: 0.0,
            queue: refused.max(wait / 2.0),
        };
        (self.served, self.offered, self.refused, self.since) = (0.0, 0.0, 0.0, now);
        self.known = self.weight.report(now, &signals);
    }
}

/// The largest ratio of two weights of one server.
fn swing(seconds: &[Second]) -> f64 {
    let of = |index: usize| {
        let weights = || seconds.iter().map(|second| f64::from(second.weights[index]));
        weights().fold(0.0, f64::max) / weights().fold(f64::MAX, f64::min)
    };
    (0..SPEEDS.len()).map(of).fold(0.0, f64::max)
}

fn mean_busy(seconds: &[Second], index: usize) -> f64 {
    seconds.iter().map(|second| second.busy[index]).sum::<f64>() / seconds.len() as f64
}

#[test]
fn three_servers_of_unequal_speed_settle_and_stay() {
    for every in [Nanos::from_millis(500), Nanos::SECOND, Nanos::from_secs(2)] {
        for (share, seed) in
            [0.3, 0.5, 0.7, 0.8, 0.9].into_iter().flat_map(|share| (1..=5).map(move |seed| (share, seed)))
        {
            let mut world = World::new(CHOSEN, share, every, seed);
            world.seconds(90);
            let settled = world.seconds(300);
            let told = format!("seed {seed}, share {share}, every {every}");
            assert!(swing(&settled) < 2.0, "{told}: the weights swing by {}", swing(&settled));
            for index in 0..3 {
                let all = mean_busy(&settled, index);
                for part in settled.chunks(20) {
                    let busy = mean_busy(part, index);
                    assert!((busy - all).abs() < 0.08, "{told}: server {index} is busy {busy}, else {all}");
                }
                assert!(all < 0.96, "{told}: server {index} is busy {all}");
            }
        }
    }
}

#[test]
fn equal_weights_flood_and_hasty_laws_oscillate() {
    let hasty = Law { rate_per_s: 20.0, step_per_s: 1e6, ..CHOSEN };
    let mut world = World::new(hasty, 0.7, Nanos::SECOND, 1);
    world.seconds(90);
    assert!(swing(&world.seconds(300)) > 20.0);
    let level = Law { rate_per_s: 0.0, ..CHOSEN };
    let mut world = World::new(level, 0.7, Nanos::SECOND, 1);
    world.seconds(90);
    assert!(mean_busy(&world.seconds(100), 0) > 0.999);
}

#[test]
fn servers_past_their_capacity_stay_in_order() {
    let mut world = World::new(CHOSEN, 1.2, Nanos::SECOND, 3);
    world.seconds(120);
    let settled = world.seconds(200);
    for index in 0..3 {
        assert!(mean_busy(&settled, index) > 0.95, "server {index} has work to do");
    }
    assert!(settled.iter().all(|second| second.weights.iter().all(|weight| (1..=20).contains(weight))));
}

#[test]
fn dead_server_leaves_its_load_and_returns_gently() {
    let mut world = World::new(CHOSEN, 0.5, Nanos::SECOND, 2);
    world.seconds(90);
    world.servers[1].up = false;
    world.seconds(60);
    let without = world.seconds(60);
    // 3500 requests a second are 70 % of the capacity of the two servers that are left.
    assert!(mean_busy(&without, 0) < 0.9 && mean_busy(&without, 2) < 0.75);
    let now = world.now;
    let server = &mut world.servers[1];
    (server.up, server.known, server.waiting, server.since) = (true, 1, 0.0, now);
    server.weight = Weight::new(now);
    server.next_report = now + Nanos::SECOND;
    let joining = world.seconds(60);
    assert!(joining.iter().all(|second| second.busy[1] < 0.95), "the newcomer is not flooded");
    assert!((mean_busy(&world.seconds(60), 1) - 0.69).abs() < 0.08);
}

#[test]
fn the_weight_is_bounded_for_any_signals_and_times() {
    let mut rng = Seed(7).rng();
    let mut now = Nanos::SECOND;
    let mut weight = Weight::new(now);
    let mut before = 1.0_f64;
    for _ in 0..20_000 {
        let pause = Nanos((rng.random::<f64>().powi(4) * 5e9) as u64);
        now += pause;
        let mut some = || rng.random::<f64>();
        let signals = Signals { busy: some(), connections: some(), queue: some() };
        let percent = f64::from(weight.report(now, &signals));
        assert!((1.0..=100.0).contains(&percent));
        // Both weights are rounded.
        let factor = 1.5_f64.powf(pause.as_secs_f64().min(LONGEST_STEP_S));
        let bounds = (before - 0.5) / factor - 0.5..=(before + 0.5) * factor + 0.5;
        assert!(bounds.contains(&percent), "{before} to {percent}");
        before = percent;
    }
}

#[test]
fn idle_server_reaches_full_weight_in_13_seconds() {
    let mut weight = Weight::new(Nanos::ZERO);
    let mut after = |from: u64, to: u64, signals: Signals| {
        (from..=to).map(|second| weight.report(Nanos::from_secs(second), &signals)).last().unwrap()
    };
    assert_eq!(after(0, 13, Signals::default()), 100);
    assert_eq!(after(14, 200, Signals { connections: 1.0, ..Signals::default() }), 6);
    assert_eq!(after(201, 300, Signals { busy: 1.0, connections: 0.2, queue: 1.0 }), 1);
    assert_eq!(after(301, 400, Signals { busy: 0.4, ..Signals::default() }), 100);
}
