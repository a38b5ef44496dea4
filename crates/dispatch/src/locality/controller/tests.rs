//! Compares the controller with fixed live counters in a simulated server. Sets, schedule and controller are
//! the real ones; time and the cost of a poll come from the cost model.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::RawFd;

use base::{Rng, Seed};
use rand::RngExt;
use sys::readiness::poll::PollFd;

use super::super::schedule::{Next, Schedule};
use super::super::sets::{Member, Sets};
use super::model::{block, look, look_at_one};
use super::*;

/// Seconds of processor time for one request.
const SERVICE: f64 = 25e-6;
const NAP: Nanos = Nanos::from_micros(500);
const DURATION: f64 = 10.0;
/// Seconds after which the controller has settled.
const WARM_UP: f64 = 6.0;

/// Connections that alternate between asking and thinking, and idle connections.
#[derive(Clone, Copy, Debug)]
struct Load {
    connections: i32,
    /// Time between a reply and the next request, in seconds.
    think: (f64, f64),
    idle: i32,
}

/// A server: its sets, the requests on their way to it, and its cost since the warm-up.
struct Simulation {
    sets: Sets,
    rng: Rng,
    load: Load,
    /// Simulated time, in seconds.
    now: f64,
    /// Time of each set's last poll.
    polled: [f64; 3],
    /// Time of each connection's next request.
    arrivals: BinaryHeap<Reverse<(Nanos, RawFd)>>,
    /// Time since which each connection waits for its reply.
    waiting: Vec<Option<f64>>,
    processor: f64,
    delay: f64,
    /// Time spent serving after the last poll.
    serving: f64,
}

impl Simulation {
    fn new(load: Load, tuning: Tuning) -> Simulation {
        let mut sets = Sets::new(3, tuning.live_counter);
        let members = load.connections + load.idle;
        for fd in 0..members {
            sets.insert(fd, 1, Member::new(0, false, Nanos::ZERO));
        }
        let mut this = Simulation {
            sets,
            rng: Seed(11).rng(),
            load,
            now: 0.0,
            polled: [0.0; 3],
            arrivals: BinaryHeap::new(),
            waiting: vec![None; members as usize],
            processor: 0.0,
            delay: 0.0,
            serving: 0.0,
        };
        (0..load.connections).for_each(|fd| this.think(fd));
        this
    }

    fn time(&self) -> Nanos {
        Nanos::from_secs_f64(self.now)
    }

    fn think(&mut self, fd: RawFd) {
        let (least, most) = self.load.think;
        let thought = least + (most - least) * self.rng.random::<f64>();
        self.arrivals.push(Reverse((Nanos::from_secs_f64(self.now + thought), fd)));
    }

    /// Lets requests arrive for `longest`, or until one arrives in the first `sets`. Returns true if one is
    /// there.
    fn arrive(&mut self, longest: f64, sets: usize) -> bool {
        let until = self.now + longest;
        let polled = |this: &Simulation, fd: RawFd| this.sets.set_of_member(fd) < sets;
        let mut ready =
            (0..self.load.connections).any(|fd| self.waiting[fd as usize].is_some() && polled(self, fd));
        while let Some(Reverse((at, fd))) = self.arrivals.peek().copied() {
            let at = at.as_secs_f64();
            if at > until || (ready && at > self.now) {
                break;
            }
            self.arrivals.pop();
            self.waiting[fd as usize] = Some(at);
            ready |= polled(self, fd);
            self.now = self.now.max(at);
        }
        self.now = if ready { self.now } else { until };
        ready
    }

    fn spend(&mut self, processor: f64) {
        self.processor += processor;
        self.now += processor;
    }

    /// Seconds of processor time for a look at the first `sets`.
    fn look(&mut self, sets: usize) -> f64 {
        let now = self.now;
        let one = |(members, polled): (usize, &mut f64)| {
            let since = now - std::mem::replace(polled, now);
            look_at_one(since) * members as f64
        };
        look(0.0) + self.sets.lengths().zip(&mut self.polled).take(sets).map(one).sum::<f64>()
    }

    /// Polls, blocks for at most `longest`, and serves. Returns true if it found an event.
    fn poll(
        &mut self,
        (sets, calls): (usize, impl FnOnce(Nanos) -> u64),
        longest: f64,
        gap: &mut dyn FnMut(Nanos),
    ) -> (u64, bool) {
        let began = self.now;
        let polled = self.sets.fds(sets).len() as f64;
        let ready = self.arrive(0.0, sets);
        let looking = self.look(sets);
        self.spend(looking);
        if !ready && longest > 0.0 {
            self.arrive(longest, sets);
            self.spend(block(polled) - look(polled));
        }
        self.arrive(0.0, 0);
        let calls = calls(Nanos::from_secs_f64(self.now - began));
        let (now, waiting) = (self.time(), &self.waiting);
        let happened = |polled: &PollFd| i16::from(waiting[polled.fd() as usize].is_some());
        let mut found = Vec::new();
        self.sets.apply_rules((sets, calls, now), happened, |fd, _, _, silence| {
            gap(silence);
            found.push(fd);
        });
        self.serving = SERVICE * found.len() as f64;
        for fd in &found {
            let since = self.waiting[*fd as usize].take().expect("a request");
            self.spend(SERVICE);
            self.delay += self.now - since;
            self.think(*fd);
        }
        (calls, !found.is_empty())
    }
}

/// Returns the cost of a second, in seconds of processor time, and the tuning at the end.
fn run(load: Load, tuning: Tuning, adapts: Adapts) -> (f64, Tuning) {
    let mut simulation = Simulation::new(load, tuning);
    let mut schedule = Schedule::new(tuning, NAP, Nanos::ZERO);
    let mut controller = Controller::new(tuning, adapts, NAP, Nanos::ZERO);
    let mut warm = false;
    while simulation.now < DURATION {
        if !warm && simulation.now > WARM_UP {
            (simulation.processor, simulation.delay, warm) = (0.0, 0.0, true);
        }
        let began = simulation.time();
        let next = schedule.next(&simulation.sets, began);
        let (sets, longest) = match next {
            Next::Look(sets) => (sets, Nanos::ZERO),
            Next::Nap(longest) => (1, longest),
            Next::Sleep => (simulation.sets.count(), Nanos::SECOND),
        };
        let count = |took| if next == Next::Sleep { 1 } else { schedule.counts_as(took, longest) };
        let all = simulation.sets.are_all(sets);
        let (calls, found) =
            simulation.poll((sets, count), longest.as_secs_f64(), &mut |gap| controller.event(gap));
        if all {
            schedule.all_polled(simulation.time());
        }
        schedule.found(calls, found);
        controller.served(Nanos::from_secs_f64(simulation.serving));
        if next == Next::Sleep {
            controller.slept(simulation.time() - began);
        } else if controller.called(calls, simulation.time()) && adapts.any() {
            let members = simulation.sets.members();
            let tuning = controller.decide(simulation.time(), 3, members);
            schedule.tuning = tuning;
            simulation.sets.tune(tuning.live_counter, tuning.horizon);
        }
    }
    let seconds = simulation.now - WARM_UP;
    ((simulation.processor + PRICE * simulation.delay) / seconds, schedule.tuning)
}

fn fixed(live_counter: u32) -> Tuning {
    Tuning { live_counter, sleep_threshold: 100, longest: Nanos::MAX, horizon: Nanos::ZERO }
}

const START: Tuning =
    Tuning { live_counter: 3, sleep_threshold: 100, longest: LONGEST, horizon: Nanos::ZERO };

/// Asserts that the controller costs at most 5 % more than the best fixed N with the paper's sleep threshold.
fn as_good_as_the_best_fixed(load: Load) {
    let counters = [2, 3, 5, 10, 30, 100, 300, 1000, 10_000];
    let costs = counters.map(|n| run(load, fixed(n), Adapts::default()).0);
    let best = costs.into_iter().reduce(f64::min).expect("some");
    let (adaptive, tuning) = run(load, START, Adapts::BOTH);
    println!("{load:?}: fixed {counters:?} {costs:.4?}, adaptive {adaptive:.4} with {tuning:?}");
    assert!(adaptive <= 1.05 * best, "{load:?}: {adaptive} against {best} of {costs:?}");
}

#[test]
fn in_the_setting_of_figure_8() {
    as_good_as_the_best_fixed(Load { connections: 1000, think: (1.0, 3.0), idle: 0 });
}

#[test]
fn in_the_setting_of_figure_9() {
    for idle in [0, 1000, 3000, 6000] {
        as_good_as_the_best_fixed(Load { connections: 50, think: (0.02, 0.08), idle });
    }
}

#[test]
fn in_the_setting_of_figure_11() {
    for connections in [50, 200, 500] {
        as_good_as_the_best_fixed(Load { connections, think: (0.02, 0.08), idle: 6000 });
    }
}

/// The decision after 20 windows of `events` events with this gap, beside `members` members.
fn settled(events: usize, gap: Nanos, members: usize, adapts: Adapts) -> Tuning {
    let mut controller = Controller::new(START, adapts, NAP, Nanos::ZERO);
    let mut tuning = START;
    for window in 1..=20 {
        assert!(controller.called(1, WINDOW * window));
        (0..events).for_each(|_| controller.event(gap));
        tuning = controller.decide(WINDOW * window, 3, members);
    }
    tuning
}

#[test]
fn polling_follows_the_event_rate_of_members() {
    let busy = settled(100, Nanos::from_millis(50), 6000, Adapts::BOTH);
    assert!(NAP.0 * u64::from(busy.live_counter) > Nanos::from_millis(50).0, "{busy:?}");
    assert!(busy.longest > Nanos::from_millis(100), "{busy:?}");
    let rare = settled(100, Nanos::from_secs(3), 6000, Adapts::BOTH);
    let rarer = settled(10, Nanos::from_secs(3), 6000, Adapts::BOTH);
    assert!(rare.longest < rarer.longest && rarer.longest < LONGEST, "{rare:?} {rarer:?}");
}

#[test]
fn sleep_threshold_follows_call_cost_and_event_rate() {
    let few = settled(0, Nanos::ZERO, 10, Adapts::BOTH);
    let many = settled(0, Nanos::ZERO, 6000, Adapts::BOTH);
    assert_eq!((few.sleep_threshold, many.sleep_threshold), (85, 553));
    // At 1000 events per second, calling until the next event costs less than a sleep.
    let expected = settled(128, Nanos::from_secs(3), 1000, Adapts::BOTH);
    assert!(NAP.0 * u64::from(expected.sleep_threshold) > Nanos::from_millis(6).0, "{expected:?}");
}

#[test]
fn empty_windows_stay_within_the_bounds() {
    for (now, members) in [(Nanos::ZERO, 0), (Nanos::ZERO, usize::MAX), (Nanos::MAX, 0), (Nanos::MAX, 1)] {
        for sets in [1, 2, 3, 255] {
            let mut controller = Controller::new(START, Adapts::BOTH, Nanos::ZERO, Nanos::ZERO);
            let tuning = controller.decide(now, sets, members);
            assert!(LIVE_COUNTERS.contains(&tuning.live_counter), "{tuning:?}");
            assert!(SLEEP_THRESHOLDS.contains(&tuning.sleep_threshold), "{tuning:?}");
            assert!(tuning.longest <= LONGEST, "{tuning:?}");
        }
    }
}

#[test]
fn what_is_fixed_stays_fixed() {
    let gap = Nanos::from_millis(50);
    let threshold = settled(100, gap, 6000, Adapts { sleep_threshold: true, ..Adapts::default() });
    assert_eq!((threshold.live_counter, threshold.longest), (START.live_counter, START.longest));
    assert_ne!(threshold.sleep_threshold, START.sleep_threshold);
    let counter = settled(100, gap, 6000, Adapts { live_counter: true, ..Adapts::default() });
    assert_eq!(counter.sleep_threshold, START.sleep_threshold);
    assert_ne!(counter.live_counter, START.live_counter);
}
