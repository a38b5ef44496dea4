//! The controller on artificial readings. The simulation in `tests/law.rs` has realistic ones.

mod steps;

use base::Seed;
use rand::RngExt;

use super::*;

const TICK: Nanos = Nanos::from_millis(5);

/// A controller and its readings.
struct Bench {
    controller: Controller,
    now: Nanos,
    signals: Signals,
}

impl Bench {
    fn new() -> Bench {
        let controller = Controller::new(Settings::default(), Nanos::SECOND);
        Bench { controller, now: Nanos::SECOND, signals: Signals::default() }
    }

    /// A tick with this number of accepts, in which the queue was never empty.
    fn tick(&mut self, accepted: u64, queued: u32) -> Option<Change> {
        self.now += TICK;
        self.signals.accepted += accepted;
        self.signals.queued = queued;
        self.controller.tick(self.now, &self.signals)
    }

    /// A server with a measured rate of 28,000 connections per second.
    fn measured() -> Bench {
        let mut bench = Bench::new();
        (0..10).for_each(|_| assert!(bench.tick(140, 100).is_none()));
        bench
    }

    /// The same server past its capacity.
    fn shedding() -> (Bench, Change) {
        let mut bench = Bench::measured();
        let change = [900, 1700, 2500].into_iter().find_map(|queued| bench.tick(140, queued));
        (bench, change.expect("89 ms of work are too much"))
    }

    fn decision(&self) -> &Decision {
        self.controller.decision()
    }
}

#[test]
fn changed_target_counts_as_if_from_the_start() {
    let settings = |target| Settings { target: Nanos::from_millis(target), ..Settings::default() };
    let mut changed = Controller::new(settings(20), Nanos::ZERO);
    changed.set_target(Nanos::from_millis(8));
    let new = Controller::new(settings(8), Nanos::ZERO);
    assert_eq!(format!("{changed:?}"), format!("{new:?}"));
    assert_eq!(changed.due(), Nanos::from_millis(2));
}

#[test]
fn every_allowed_target_gives_possible_decisions() {
    let seed = Seed(6);
    println!("seed {seed}");
    let mut draws = seed.rng();
    let (least, most) = (Settings::TARGETS.start().0, Settings::TARGETS.end().0);
    for _ in 0..2000 {
        let target = match draws.random_range(0..4) {
            0 => Nanos(least),
            1 => Nanos(most),
            _ => Nanos(draws.random_range(least..=most)),
        };
        let mut controller = Controller::new(Settings { target, ..Settings::default() }, Nanos::SECOND);
        let mut signals = Signals { occupancy: 0.9, lag: target + Nanos(1), ..Signals::default() };
        for ticks in 1..50 {
            signals.accepted += 1;
            signals.queued = 80 * ticks;
            controller.tick(Nanos::SECOND + TICK * u64::from(ticks), &signals);
        }
        let Decision { sessions, queueing_delay, .. } = *controller.decision();
        assert!(sessions.late_after.is_some_and(|late| late > target), "{target}: {sessions:?}");
        assert!(sessions.idle_timeout.is_none_or(|idle| idle > target), "{target}: {sessions:?}");
        let must_refuse = queueing_delay > target * 5;
        assert!(!must_refuse || controller.decision().state == State::Shedding, "{target}");
        // A queue that is nearly as long as its backlog begins shedding too.
        let may_refuse = queueing_delay > target || f64::from(signals.queued) > 0.8 * 4096.0;
        assert!(may_refuse || controller.decision().state == State::Open, "{target}");
    }
}

#[test]
fn queue_beyond_its_target_begins_shedding() {
    let (bench, change) = Bench::shedding();
    assert_eq!(change.decision.state, State::Shedding);
    assert_eq!(
        change.to_string(),
        "overload: refusing connections; 2500 wait about 89.3 ms, with 132932/s arriving and 28000/s served"
    );
    let admission = bench.decision().admission;
    assert!(admission.share < 0.1 && admission.rate.0 < 28_000.0, "{admission:?}");
}

#[test]
fn a_long_queue_that_shrinks_refuses_nobody() {
    let mut bench = Bench::measured();
    for queued in (0..2000).rev().step_by(100) {
        assert!(bench.tick(140, queued).is_none());
    }
    let Admission { share, rate, .. } = bench.decision().admission;
    assert!(share == 1.0 && rate.0 >= 28_000.0, "{rate:?}");
}

#[test]
fn unknown_service_rate_refuses_no_connection() {
    let mut bench = Bench::new();
    for queued in [0, 4000] {
        assert!(bench.tick(140, queued).is_none());
    }
    assert_eq!(bench.decision().service_rate, None);
    assert_eq!((bench.decision().backlog, bench.decision().queueing_delay), (4096, Nanos::ZERO));
}

#[test]
fn a_late_request_that_is_refused_is_no_service() {
    let mut bench = Bench::measured();
    for _ in 0..200 {
        bench.signals.late += 1260;
        bench.tick(1400, 2000);
    }
    let rate = bench.decision().service_rate.unwrap().0;
    assert!((27_000.0..29_000.0).contains(&rate), "{rate}");
}

#[test]
fn many_late_requests_begin_shedding() {
    for (late, state) in [(2, State::Open), (5, State::Shedding)] {
        let mut bench = Bench::new();
        (0..10).for_each(|_| assert!(bench.tick(10, 10).is_none()));
        for _ in 0..40 {
            bench.signals.late += late;
            bench.tick(10, 10);
        }
        assert_eq!(bench.decision().state, state, "{late} of 10");
    }
}

#[test]
fn accept_at_an_empty_queue_measures_nothing() {
    let mut bench = Bench::new();
    bench.signals.emptied = true;
    (0..10).for_each(|_| assert!(bench.tick(20, 100).is_none()));
    assert_eq!(bench.decision().service_rate, None);
}

#[test]
fn shedding_ends_half_a_second_after_the_last_refusal() {
    let (mut bench, _) = Bench::shedding();
    bench.signals.refused = 1000;
    bench.signals.emptied = true;
    let mut ticks = 0;
    let change = loop {
        ticks += 1;
        if let Some(change) = bench.tick(20, 0) {
            break change;
        }
    };
    assert_eq!(change.decision.state, State::Open);
    assert_eq!(change.refused, 1000);
    assert!((100..=102).contains(&ticks), "{ticks} ticks of 5 ms");
    assert!(
        change.to_string().starts_with("overload over after 0.5 s: refused 1000 connections"),
        "{change}"
    );
    assert!(bench.decision().admission.new_are_free);
}

#[test]
fn refused_clients_keep_to_the_rate_for_8_seconds() {
    let (mut bench, _) = Bench::shedding();
    bench.signals.refused = 1000;
    bench.signals.emptied = true;
    bench.tick(20, 0);
    let mut ticks = 0;
    while ticks < 4 || bench.decision().admission.new_are_free {
        bench.tick(20, 0);
        ticks += 1;
        assert!(bench.decision().admission.share == 1.0 || ticks < 4, "{ticks}");
    }
    assert!((1600..=1604).contains(&ticks), "{ticks} ticks of 5 ms");
    assert_eq!(bench.decision().state, State::Open);
}

#[test]
fn bucket_of_the_first_tick_outlasts_its_refusals() {
    let mut bench = Bench::measured();
    for _ in 0..3 {
        let Admission { new_are_free, burst, .. } = bench.decision().admission;
        assert!(!new_are_free && (1100..=1140).contains(&burst), "{burst}: two targets of work are 1120");
        bench.signals.refused += 500;
        assert!(bench.tick(140, 100).is_none(), "a short queue begins no shedding");
    }
}

#[test]
fn a_rush_that_pauses_for_a_tick_is_still_refused() {
    let (mut bench, _) = Bench::shedding();
    for _ in 0..20 {
        bench.signals.refused += 1300;
        bench.tick(140, 100);
    }
    bench.tick(140, 20);
    assert!(bench.decision().admission.share < 0.5, "{:?}", bench.decision());
    bench.tick(60, 20);
    assert!(
        bench.decision().admission.new_are_free,
        "two ticks are the end of a rush: {:?}",
        bench.decision()
    );
}

#[test]
fn shedding_backlog_is_three_target_delays() {
    assert_eq!(Bench::measured().decision().backlog, 4096, "the configured one before");
    let (mut bench, _) = Bench::shedding();
    assert_eq!(bench.decision().backlog, 1680);
    // A stall of 30 ms does not shorten the backlog.
    bench.now += TICK * 5;
    bench.tick(100, 1700);
    assert!(bench.decision().backlog >= 1500, "{}", bench.decision().backlog);
}

#[test]
fn long_queue_is_bounded_before_any_refusal() {
    let mut bench = Bench::measured();
    // A target delay is 560 connections.
    bench.tick(140, 550);
    assert_eq!(bench.decision().backlog, 4096);
    bench.tick(140, 600);
    assert_eq!((bench.decision().state, bench.decision().backlog), (State::Open, 1680));
    // The handshakes of a rush, or a stall, leave the server no time.
    bench.now += TICK * 6;
    bench.tick(10, 1600);
    assert_eq!(bench.decision().backlog, 1680, "the rate of that tick says nothing about its capacity");
    (0..20).for_each(|_| assert!(bench.tick(140, 100).is_none()));
    assert_eq!(bench.decision().backlog, 4096);
}

#[test]
fn connection_cost_bounds_an_unsaturated_queue() {
    let mut bench = Bench::new();
    bench.signals.emptied = true;
    bench.signals.cost = Nanos::from_micros(100);
    (0..2).for_each(|_| assert!(bench.tick(5, 0).is_none()));
    assert_eq!(bench.decision().backlog, 1500, "150 ms of work");
    bench.signals.cost = Nanos::from_millis(10);
    bench.tick(5, 300);
    assert_eq!(bench.decision().backlog, 600, "60 ms, by the cost before the tick that was so long");
    assert_eq!(bench.decision().service_rate, None);
}

#[test]
fn requests_that_come_again_are_no_syns() {
    let (mut bench, _) = Bench::shedding();
    for _ in 0..40 {
        bench.signals.refused += 1300;
        bench.tick(140, 100);
    }
    let share = bench.decision().admission.share;
    assert!(share < 0.2, "at ten times the capacity: {share}");
    // The rush is over. Clients whose final ACK was dropped repeat their requests, four times as many as SYNs come.
    for queued in [500, 900, 1300] {
        bench.signals.refused += (100.0 * (1.0 - bench.decision().admission.share)) as u64;
        bench.tick(140, queued);
    }
    assert!(
        bench.decision().admission.new_are_free,
        "nobody new is refused for them: {:?}",
        bench.decision()
    );
}

#[test]
fn distant_handshakes_get_room_while_shedding() {
    let (mut bench, _) = Bench::shedding();
    for _ in 0..5 {
        bench.signals.dropped += 50;
        bench.tick(140, 100);
    }
    assert_eq!(bench.decision().backlog, 4096, "drops of a queue that was never full are theirs");
}

#[test]
fn a_stall_in_a_rush_gives_the_queue_no_more_room() {
    let (mut bench, _) = Bench::shedding();
    for _ in 0..5 {
        // The queue is full for 100 ms. The server then empties it at once, and is stopped again before its tick.
        bench.now += TICK * 20;
        bench.signals.dropped += 50;
        bench.tick(1700, 100);
    }
    for _ in 0..5 {
        // Clients whose final ACK was dropped try again.
        bench.signals.dropped += 50;
        bench.tick(140, 800);
    }
    assert!(bench.decision().backlog <= 1680, "at most 60 ms of work: {}", bench.decision().backlog);
}

#[test]
fn a_configured_backlog_is_never_exceeded() {
    let settings = Settings { backlog: 32, ..Settings::default() };
    let mut bench = Bench { controller: Controller::new(settings, Nanos::SECOND), ..Bench::new() };
    for _ in 0..10 {
        bench.tick(140, 30);
    }
    assert_eq!(bench.decision().backlog, 32);
}

#[test]
fn totals_lost_with_a_worker_do_no_harm() {
    let mut bench = Bench::measured();
    bench.signals = Signals { accepted: 0, refused: 0, dropped: 0, ..bench.signals };
    assert!(bench.tick(0, 100).is_none());
    assert!(bench.decision().service_rate.is_some_and(|rate| rate.0 > 0.0));
}

#[test]
fn a_tick_without_time_decides_nothing() {
    let mut bench = Bench::measured();
    let before = *bench.decision();
    bench.signals.queued = 4000;
    assert!(bench.controller.tick(bench.now, &bench.signals).is_none());
    assert_eq!(*bench.decision(), before);
    assert!(bench.controller.due() > bench.now);
}

#[test]
fn a_short_target_is_controlled_more_often() {
    let due = |target| {
        let settings = Settings { target, ..Settings::default() };
        Controller::new(settings, Nanos::ZERO).due()
    };
    assert_eq!(due(Nanos::from_millis(100)), TICK);
    assert_eq!(due(Nanos::from_millis(4)), Nanos::MILLISECOND);
}

#[test]
fn any_reading_gives_a_feasible_decision() {
    let seed = Seed(5);
    println!("seed {seed}");
    let mut draws = seed.rng();
    for _ in 0..200 {
        let backlog = draws.random_range(1..5000);
        let target = Nanos(draws.random_range(1_000_000..1_000_000_000));
        let mut controller = Controller::new(Settings { target, backlog }, Nanos::ZERO);
        let (mut now, mut signals) = (Nanos::ZERO, Signals::default());
        for _ in 0..200 {
            now += Nanos(draws.random_range(0..100_000_000));
            signals.accepted += draws.random_range(0..2000);
            signals.refused += draws.random_range(0..20_000);
            signals.dropped += draws.random_range(0..100);
            signals.queued = draws.random_range(0..5000);
            signals.emptied = draws.random_bool(0.2);
            signals.occupancy = draws.random();
            controller.tick(now, &signals);
            let Decision { state, admission, backlog: bound, .. } = *controller.decision();
            assert!(admission.share > 0.0 && admission.share <= 1.0, "{admission:?}");
            assert!(admission.rate.0 > 0.0, "{admission:?}");
            assert!((1..=backlog).contains(&bound), "{bound} of {backlog}");
            assert!(state == State::Shedding || admission.share == 1.0, "{admission:?}");
        }
    }
}
