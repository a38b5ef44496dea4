//! Simulated servers, with a generator whose limit a test sets.
//!
//! A server answers its load up to its capacity. Past it, the server loses `collapse` of the capacity for every
//! capacity of excess load. Overload leaves `debt`: seconds of full work before the server serves as before. While in
//! debt it answers little and slowly. Latency grows towards the capacity as a queue's does, and past it a full queue
//! adds `full_queue_ns`. The latencies of a load are evenly spread from 0 to twice their median.

use std::convert::Infallible;

use base::{Nanos, Rng, Seed};
use rand::RngExt;
use record::{Distribution, Outcome, Outcomes, Point, Step};

use super::{Level, Offer, Target};

/// Latency of an idle server.
const UNLOADED_NS: f64 = 1e6;
/// Latency that a short full queue adds.
const FULL_QUEUE_NS: f64 = 20e6;
/// The share of its capacity that a server in debt answers.
const IN_DEBT: f64 = 0.3;

pub struct Simulated {
    pub capacity: f64,
    pub collapse: f64,
    pub noise: f64,
    /// Seconds of debt for every second of overload, for each capacity too much; pays back a second a second.
    pub debt_per_s: f64,
    pub debt_s: f64,
    pub generator_most: f64,
    pub full_queue_ns: f64,
    /// The outcome of the excess.
    pub excess: Outcome,
    /// A later reply is not goodput.
    pub deadline: Nanos,
    /// The highest 99th percentile that is allowed.
    pub p99_most_ns: f64,
    pub offers: Vec<Offer>,
    pub time_s: f64,
    /// The time that a session takes. The replies of a run begin with its sessions, and so come evenly after it.
    pub session_s: f64,
    rng: Rng,
}

impl Simulated {
    pub fn new(capacity: f64, seed: Seed) -> Simulated {
        Simulated {
            capacity,
            collapse: 0.0,
            noise: 0.0,
            debt_per_s: 0.0,
            debt_s: 0.0,
            generator_most: f64::INFINITY,
            full_queue_ns: FULL_QUEUE_NS,
            excess: Outcome::Shed,
            deadline: Nanos::SECOND,
            p99_most_ns: f64::INFINITY,
            offers: Vec::new(),
            time_s: 0.0,
            session_s: 0.0,
            rng: seed.rng(),
        }
    }

    fn noisy(&mut self) -> f64 {
        1.0 + self.rng.random_range(-1.0..=1.0) * self.noise
    }

    /// Serves a load for a while: replies a second and their latency.
    fn serve(&mut self, per_s: f64, seconds: f64) -> (f64, f64) {
        self.time_s += seconds;
        let beyond = (per_s / self.capacity - 1.0).max(0.0);
        let indebted = self.debt_s > 0.0;
        self.debt_s = (self.debt_s + (beyond * self.debt_per_s - 1.0) * seconds).max(0.0);
        let left = if indebted { IN_DEBT } else { (1.0 - self.collapse * beyond).max(0.05) };
        let goodput = per_s.min(self.capacity * left * self.noisy());
        let utilisation = (per_s / self.capacity).min(0.999);
        let queue = if beyond > 0.0 || indebted {
            self.full_queue_ns
        } else {
            UNLOADED_NS * utilisation / (1.0 - utilisation)
        };
        (goodput, UNLOADED_NS + queue)
    }

    /// The share of the load for which the sessions of a run ask in its measured time.
    fn asked(&self, offer: Offer) -> f64 {
        // The seconds of full load that the run has asked for until then.
        let full_s = |until_s: f64| match until_s < self.session_s {
            true => until_s * until_s / (2.0 * self.session_s),
            false => until_s - self.session_s / 2.0,
        };
        let (from_s, time_s) = (offer.warmup.as_secs_f64(), offer.time.as_secs_f64());
        (full_s(from_s + time_s) - full_s(from_s)) / time_s
    }

    /// The share of replies that meet the deadline.
    fn in_time(&self, latency_ns: f64) -> f64 {
        (self.deadline.0 as f64 / (2.0 * latency_ns)).min(1.0)
    }

    fn latency(ns: f64, count: u64) -> Distribution {
        let (p50, p99) = (ns as u64, 3 * ns as u64);
        Distribution { count, mean: ns, p50, p90: 2 * p50, p95: 2 * p50, p99, p999: p99, max: p99 }
    }
}

impl Target for Simulated {
    type Error = Infallible;

    fn offer(&mut self, offer: Offer) -> Result<Step, Infallible> {
        self.offers.push(offer);
        self.serve(offer.per_s, offer.warmup.as_secs_f64());
        let seconds = offer.time.as_secs_f64();
        let sent_per_s = offer.per_s.min(self.generator_most);
        let asked_per_s = sent_per_s * self.asked(offer);
        let (answered_per_s, latency_ns) = self.serve(asked_per_s, seconds);
        let count = |per_s: f64| (per_s * seconds).round() as u64;
        let mut outcomes = Outcomes::default();
        outcomes.add(Outcome::Ok, count(answered_per_s));
        outcomes.add(self.excess, count(asked_per_s - answered_per_s));
        outcomes.add(Outcome::NoDescriptor, count(offer.per_s - sent_per_s));
        let not_due = count(sent_per_s - asked_per_s);
        let latency = Simulated::latency(latency_ns, count(answered_per_s));
        let generator_limited = offer.per_s > self.generator_most;
        Ok(Step {
            asked_per_s: offer.per_s,
            offered_per_s: (outcomes.total() + not_due) as f64 / seconds,
            goodput_per_s: latency.count as f64 / seconds * self.in_time(latency_ns),
            duration_s: seconds,
            latency_intended_ns: latency,
            outcomes,
            in_flight_at_end: not_due,
            slo_held: latency.p99 as f64 <= self.p99_most_ns,
            generator_limited,
            reasons: if generator_limited { vec!["No descriptor.".to_owned()] } else { Vec::new() },
        })
    }

    fn watch(
        &mut self,
        levels: &[Level],
        enough: &mut dyn FnMut(&[Point]) -> bool,
    ) -> Result<Vec<Point>, Infallible> {
        const INTERVAL_S: f64 = 0.1;
        let mut points = Vec::new();
        let loads = levels.iter().flat_map(|level| {
            std::iter::repeat_n(level.per_s, (level.time.as_secs_f64() / INTERVAL_S).round() as usize)
        });
        // Whole requests in a tenth of a second; the remainder goes into the next.
        let mut so_far = [0.0; 4];
        for per_s in loads {
            let sent_per_s = per_s.min(self.generator_most);
            let (answered_per_s, latency_ns) = self.serve(sent_per_s, INTERVAL_S);
            let rates = [per_s, answered_per_s, sent_per_s - answered_per_s, per_s - sent_per_s];
            let mut counts = [0; 4];
            for ((sum, rate), count) in so_far.iter_mut().zip(rates).zip(&mut counts) {
                let before = f64::floor(*sum + 1e-9);
                *sum += rate * INTERVAL_S;
                *count = (f64::floor(*sum + 1e-9) - before) as u64;
            }
            let [offered, answered, lost, unsent] = counts;
            let mut point = Point {
                at_s: (points.len() + 1) as f64 * INTERVAL_S,
                interval_s: INTERVAL_S,
                offered,
                good: (answered as f64 * self.in_time(latency_ns)).round() as u64,
                latency_intended_ns: Simulated::latency(latency_ns, answered).into(),
                ..Point::default()
            };
            point.outcomes.add(Outcome::Ok, answered);
            point.outcomes.add(self.excess, lost);
            point.outcomes.add(Outcome::NoDescriptor, unsent);
            points.push(point);
            if enough(&points) {
                break;
            }
        }
        Ok(points)
    }

    fn slo_held(&self, step: &Step) -> bool {
        step.latency_intended_ns.p99 as f64 <= self.p99_most_ns
    }
}
