//! The controller against fixed live counters, in a simulation of a server on the polling sets: virtual
//! time, the cost model's prices, requests that arrive whatever the server does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::RawFd;

use base::{Rng, Seed};
use rand::RngExt;

use super::super::sets::{Member, Sets};
use super::*;

/// Nanoseconds of processor for one request.
const SERVICE: f64 = 25_000.0;
const NAP: f64 = 500_000.0;
const DURATION: f64 = 2e9;
/// The controller has found its place by then.
const WARM_UP: f64 = 5e8;

/// Connections that send requests, and connections that are idle.
#[derive(Clone, Copy, Debug)]
struct Load {
    connections: i32,
    idle: i32,
    requests_per_s: f64,
}

struct Simulation {
    sets: Sets,
    rng: Rng,
    load: Load,
    now: f64,
    /// When which connection sends next.
    arrivals: BinaryHeap<Reverse<(u64, RawFd)>>,
    /// The unanswered requests of each connection: number, and sum of arrival times.
    waiting: Vec<(u32, f64)>,
    processor: f64,
    delay: f64,
}

impl Simulation {
    fn new(load: Load, tuning: Tuning) -> Simulation {
        let mut sets = Sets::new(3, tuning.live_counter);
        for fd in 0..load.connections + load.idle {
            sets.insert(fd, 1, Member::new(0, false));
        }
        let mut this = Simulation {
            sets,
            rng: Seed(11).rng(),
            load,
            now: 0.0,
            arrivals: BinaryHeap::new(),
            waiting: vec![(0, 0.0); (load.connections + load.idle) as usize],
            processor: 0.0,
            delay: 0.0,
        };
        (0..load.connections).for_each(|fd| this.schedule(fd, 0.0));
        this
    }

    /// The next request of a connection: a Poisson process.
    fn schedule(&mut self, fd: RawFd, after: f64) {
        let uniform = 1.0 - self.rng.random::<f64>();
        let mean = 1e9 * f64::from(self.load.connections) / self.load.requests_per_s;
        self.arrivals.push(Reverse(((after - mean * uniform.ln()) as u64, fd)));
    }

    /// Lets requests arrive up to a time; true as soon as one is in the first `sets`, if that ends it.
    fn arrive(&mut self, until: f64, ends_with: Option<usize>) -> bool {
        while let Some(Reverse((at, fd))) = self.arrivals.peek().copied() {
            if at as f64 > until {
                break;
            }
            self.arrivals.pop();
            self.schedule(fd, at as f64);
            let (count, sum) = &mut self.waiting[fd as usize];
            (*count, *sum) = (*count + 1, *sum + at as f64);
            if ends_with.is_some_and(|sets| self.sets.set_of_member(fd) < sets) {
                self.now = self.now.max(at as f64);
                return true;
            }
        }
        self.now = self.now.max(until);
        false
    }

    /// One call: polls, perhaps naps or sleeps, and serves. True where it found something.
    fn call(&mut self, sets: usize, longest: f64, mut found: impl FnMut(usize)) -> bool {
        let polled = self.sets.fds(sets).len();
        let cost = 1e9 * (CALL + DESCRIPTOR * polled as f64);
        self.processor += cost;
        self.arrive(self.now + cost, None);
        let ready = (0..self.load.connections)
            .any(|fd| self.waiting[fd as usize].0 > 0 && self.sets.set_of_member(fd) < sets);
        if !ready {
            self.arrive(self.now + longest, Some(sets));
        }
        let mut served = Vec::new();
        let waiting = &self.waiting;
        let happened = |polled: &sys::poll::PollFd| i16::from(waiting[polled.fd() as usize].0 > 0);
        self.sets.settle(sets, happened, |set, fd, _, _| {
            found(set);
            served.push(fd);
        });
        for fd in &served {
            let (count, sum) = std::mem::take(&mut self.waiting[*fd as usize]);
            self.delay += f64::from(count) * self.now - sum;
            self.processor += SERVICE * f64::from(count);
            self.now += SERVICE * f64::from(count);
        }
        !served.is_empty()
    }
}

/// What a run cost a second, in the cost model's currency, and where N ended.
fn run(load: Load, mut tuning: Tuning, adaptive: bool) -> (f64, Tuning) {
    let mut simulation = Simulation::new(load, tuning);
    let mut controller = Controller::new(3, tuning, Adapts::BOTH, Nanos::ZERO);
    let (mut calls, mut empty, mut warm) = (0, 0, false);
    while simulation.now < DURATION {
        if !warm && simulation.now > WARM_UP {
            (simulation.processor, simulation.delay, warm) = (0.0, 0.0, true);
        }
        let (began, sleeps) = (simulation.now, empty >= tuning.sleep_threshold);
        calls += u64::from(!sleeps);
        let sets = if sleeps { 3 } else { simulation.sets.due(calls) };
        let longest = if sleeps { DURATION } else { NAP };
        let found = simulation.call(sets, longest, |set| controller.event(set));
        empty = if found { 0 } else { empty + 1 };
        if sleeps {
            controller.slept(Nanos((simulation.now - began) as u64));
        } else if controller.call() && adaptive {
            let members: Vec<usize> = simulation.sets.lengths().collect();
            tuning = controller.decide(Nanos(simulation.now as u64), &members);
            simulation.sets.set_live_counter(tuning.live_counter);
        }
    }
    let seconds = (simulation.now - WARM_UP) / 1e9;
    ((simulation.processor + PRICE * simulation.delay) / 1e9 / seconds, tuning)
}

const PAPER: Tuning = Tuning { live_counter: 3, sleep_threshold: 100 };

/// The controller is at most 5 % behind the best fixed N with the paper's sleep threshold.
fn as_good_as_the_best_fixed(load: Load) {
    let fixed = [2, 3, 4, 5, 7, 10].map(|live_counter| run(load, Tuning { live_counter, ..PAPER }, false).0);
    let best = fixed.into_iter().reduce(f64::min).expect("some");
    let (adaptive, tuning) = run(load, PAPER, true);
    println!("{load:?}: fixed {fixed:.4?}, adaptive {adaptive:.4} with {tuning:?}");
    assert!(adaptive <= 1.05 * best, "{load:?}: {adaptive} against {best} of {fixed:?}");
}

#[test]
fn in_the_setting_of_figure_8() {
    as_good_as_the_best_fixed(Load { connections: 1000, idle: 0, requests_per_s: 500.0 });
}

#[test]
fn in_the_setting_of_figure_9() {
    for idle in [0, 1000, 3000, 6000] {
        as_good_as_the_best_fixed(Load { connections: 100, idle, requests_per_s: 1000.0 });
    }
}

#[test]
fn in_the_setting_of_figure_11() {
    for requests_per_s in [1e3, 4e3, 1e4] {
        as_good_as_the_best_fixed(Load { connections: 100, idle: 6000, requests_per_s });
    }
}

#[test]
fn more_idle_members_make_n_larger_and_more_events_there_make_it_smaller() {
    let settled = |members: [usize; 3], events_of_idle: u64| {
        let mut controller = Controller::new(3, PAPER, Adapts::BOTH, Nanos::ZERO);
        let mut tuning = PAPER;
        for window in 1..=20 {
            while !controller.call() {}
            (0..events_of_idle).for_each(|_| controller.event(2));
            tuning = controller.decide(Nanos::from_millis(100 * window), &members);
        }
        tuning.live_counter
    };
    assert!(settled([10, 0, 6000], 1) > settled([10, 0, 6000], 100));
    assert!(settled([10, 0, 6000], 100) > settled([10, 0, 100], 100));
    assert_eq!(settled([10, 0, 100_000], 0), *LIVE_COUNTERS.end());
    assert_eq!(settled([10, 0, 1], 1000), *LIVE_COUNTERS.start());
}

#[test]
fn few_descriptors_are_slept_on_soon_and_many_late() {
    let few = sleep_threshold(3, &[10, 0, 0]);
    let many = sleep_threshold(3, &[10, 0, 6000]);
    assert!(few <= 2 && many > 10 && many < 100, "{few} {many}");
    assert_eq!(sleep_threshold(10, &[0, 0, usize::MAX / 2]), 200);
}

#[test]
fn a_window_without_time_or_events_changes_nothing_wildly() {
    let mut controller = Controller::new(3, PAPER, Adapts::BOTH, Nanos::SECOND);
    let tuning = controller.decide(Nanos::SECOND, &[0, 0, 0]);
    assert_eq!(tuning, Tuning { live_counter: 3, sleep_threshold: 2 });
}

#[test]
fn what_is_fixed_stays_fixed() {
    for adapts in [
        Adapts { live_counter: true, ..Adapts::default() },
        Adapts { sleep_threshold: true, ..Adapts::default() },
    ] {
        let mut controller = Controller::new(3, PAPER, adapts, Nanos::ZERO);
        while !controller.call() {}
        // All members idle and nothing happening: both would change.
        let tuning = controller.decide(Nanos::from_millis(100), &[0, 0, 6000]);
        assert_eq!(tuning.live_counter != PAPER.live_counter, adapts.live_counter);
        assert_eq!(tuning.sleep_threshold != PAPER.sleep_threshold, adapts.sleep_threshold);
    }
}
