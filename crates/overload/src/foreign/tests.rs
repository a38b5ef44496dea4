//! The control on artificial readings. The simulation in `tests/foreign.rs` has realistic ones.

use base::Seed;
use rand::RngExt;

use super::*;

const TICK: Nanos = Nanos::from_millis(5);

/// A control and its readings.
struct Bench {
    control: ForeignControl,
    now: Nanos,
    readings: Readings,
}

impl Bench {
    /// A listener whose requests are read.
    fn requests() -> Bench {
        let readings = Readings { requests: Some(RequestTotals::default()), ..Readings::default() };
        Bench {
            control: ForeignControl::new(Nanos::from_millis(20), Nanos::SECOND),
            now: Nanos::SECOND,
            readings,
        }
    }

    /// A listener whose accept queue is read.
    fn queue(limit: u32) -> Bench {
        let queue = Some(AcceptQueueReading { limit, ..AcceptQueueReading::default() });
        Bench { readings: Readings { queue, ..Readings::default() }, ..Bench::requests() }
    }

    /// A tick with these requests, in a server that answers in order.
    fn tick(&mut self, asked: u64, first: u64, answered: u64) -> Option<Change> {
        let requests = self.readings.requests.as_mut().expect("it reads requests");
        let ahead = requests.unanswered() * answered;
        requests.asked += asked;
        requests.first_asked += first;
        requests.answered += answered;
        requests.answered_promptly += answered;
        requests.ahead += ahead;
        requests.overtaking += ahead;
        self.now += TICK;
        self.control.tick(self.now, &self.readings)
    }

    /// Ticks until the law refuses.
    fn shedding(&mut self, asked: u64, first: u64, answered: u64) {
        let refuses = (0..100).any(|_| self.tick(asked, first, answered).is_some());
        assert!(refuses && self.decision().state == State::Shedding, "{:?}", self.decision());
    }

    fn decision(&self) -> &ForeignDecision {
        self.control.decision()
    }
}

#[test]
fn unanswered_requests_past_capacity_are_refused() {
    let mut bench = Bench::requests();
    (0..20).for_each(|_| assert!(bench.tick(10, 10, 10).is_none()));
    bench.shedding(50, 50, 10);
    let ForeignDecision { admission, service_rate, waiting, .. } = *bench.decision();
    assert!((service_rate.unwrap().0 - 2000.0).abs() < 50.0, "{service_rate:?}");
    assert!(admission.rate.0 < 2000.0 && admission.share < 0.5, "{admission:?} with {waiting} waiting");
}

#[test]
fn kept_connections_divide_the_admitted_rate() {
    let (mut single, mut kept) = (Bench::requests(), Bench::requests());
    for _ in 0..400 {
        single.tick(10, 10, 10);
        kept.tick(10, 2, 10);
    }
    single.shedding(50, 50, 10);
    kept.shedding(50, 10, 10);
    // Both are admitted the least rate soon.
    for _ in 0..40 {
        single.tick(50, 50, 10);
        kept.tick(50, 10, 10);
    }
    assert_eq!(kept.decision().requests_per_connection.round(), 5.0);
    let ratio = single.decision().admission.rate.0 / kept.decision().admission.rate.0;
    assert!((4.9..5.1).contains(&ratio), "{ratio}");
}

#[test]
fn stuck_requests_do_not_count_as_waiting() {
    let mut bench = Bench::requests();
    for _ in 0..20 {
        bench.tick(1, 1, 1);
    }
    // Half requests come at once, and are never answered.
    bench.tick(150, 150, 0);
    for _ in 0..40 {
        let requests = bench.readings.requests.as_mut().unwrap();
        requests.ahead += 150;
        requests.asked += 1;
        requests.first_asked += 1;
        requests.answered += 1;
        requests.answered_promptly += 1;
        bench.now += TICK;
        bench.control.tick(bench.now, &bench.readings);
    }
    assert!(bench.decision().stuck >= 149 && bench.decision().waiting <= 1, "{:?}", bench.decision());
}

#[test]
fn queued_connections_count_with_all_their_answers() {
    let mut bench = Bench::requests();
    bench.readings.queue = Some(AcceptQueueReading { limit: 511, ..AcceptQueueReading::default() });
    for _ in 0..400 {
        bench.tick(3, 1, 3);
    }
    bench.readings.queue.as_mut().unwrap().depth = 100;
    bench.tick(100, 100, 0);
    let each = bench.decision().requests_per_connection;
    assert_eq!(bench.decision().waiting, (100.0 * each) as u32, "{:?}", bench.decision());
}

#[test]
fn accept_queue_alone_refuses_past_capacity() {
    let mut bench = Bench::queue(511);
    let mut state = State::Open;
    for _ in 0..100 {
        let queue = bench.readings.queue.as_mut().unwrap();
        queue.accepted += 10;
        queue.depth = (queue.depth + 20).min(500);
        bench.now += TICK;
        bench.control.tick(bench.now, &bench.readings);
        state = bench.decision().state;
    }
    assert_eq!(state, State::Shedding);
}

#[test]
fn silent_server_keeps_a_tenth_of_its_best_rate() {
    let mut bench = Bench::requests();
    (0..200).for_each(|_| assert!(bench.tick(10, 10, 10).is_none()));
    bench.shedding(50, 50, 10);
    // 25 s without an answer, in which most clients are refused.
    for nth in 0..5000 {
        bench.readings.refused += 49;
        bench.tick(nth % 2, nth % 2, 0);
    }
    let ForeignDecision { state, admission, .. } = *bench.decision();
    assert_eq!(state, State::Shedding);
    // The best rate of 2,000/s has lost some of its weight.
    assert!((100.0..200.0).contains(&admission.rate.0), "{admission:?}");
}

#[test]
fn decisions_are_possible_whatever_is_read() {
    let seed = Seed(7);
    println!("seed {seed}");
    let mut draws = seed.rng();
    for _ in 0..300 {
        let mut control =
            ForeignControl::new(Nanos(draws.random_range(1_000_000..1_000_000_000)), Nanos::ZERO);
        let (mut now, mut requests, mut queue) =
            (Nanos::ZERO, RequestTotals::default(), AcceptQueueReading::default());
        let (mut syns, mut refused) = (0, 0);
        for _ in 0..200 {
            now += Nanos(draws.random_range(0..100_000_000));
            // Also totals that fall, and answers that nobody asked for.
            requests.asked =
                (requests.asked + draws.random_range(0..2000)).saturating_sub(draws.random_range(0..50));
            requests.answered += draws.random_range(0..2000);
            requests.answered_promptly += draws.random_range(0..2000);
            requests.ended += draws.random_range(0..20);
            requests.first_asked += draws.random_range(0..500);
            requests.ahead += draws.random_range(0..100_000);
            requests.overtaking += draws.random_range(0..100_000);
            requests.first_byte_time += Nanos(draws.random_range(0..1_000_000_000_000));
            queue.depth = draws.random_range(0..5000);
            queue.dropped += draws.random_range(0..100);
            refused += draws.random_range(0..20_000);
            syns += draws.random_range(0..40_000);
            let readings = Readings {
                requests: draws.random_bool(0.9).then_some(requests),
                queue: draws.random_bool(0.9).then_some(queue),
                syns: draws.random_bool(0.5).then_some(syns),
                refused,
            };
            control.tick(now, &readings);
            let ForeignDecision { state, is_cautious, admission, .. } = *control.decision();
            assert!(admission.share > 0.0 && admission.share <= 1.0, "{admission:?}");
            assert!(admission.rate.0 > 0.0, "{admission:?}");
            let is_bounded = state == State::Shedding || is_cautious;
            assert!(is_bounded || admission.new_are_free, "{admission:?}");
        }
    }
}

#[test]
fn young_requests_do_not_count_as_waiting() {
    let mut bench = Bench::requests();
    (0..100).for_each(|_| assert!(bench.tick(1, 1, 1).is_none()));
    bench.tick(150, 150, 0);
    assert_eq!(bench.decision().waiting, 0, "no answer shows yet that they wait");
    for _ in 0..9 {
        bench.tick(1, 1, 1);
    }
    assert!(bench.decision().waiting > 100, "eight answers in their order do: {:?}", bench.decision());
}

#[test]
fn admission_opens_when_the_answers_cease_and_resume() {
    let mut bench = Bench::requests();
    (0..400).for_each(|_| assert!(bench.tick(2, 2, 2).is_none()));
    // A backend takes 400 ms instead of nothing.
    (0..80).for_each(|_| assert!(bench.tick(2, 2, 0).is_none()));
    for _ in 0..400 {
        bench.readings.requests.as_mut().unwrap().first_byte_time += Nanos::from_millis(800);
        assert!(bench.tick(2, 2, 2).is_none(), "{:?}", bench.decision());
    }
    assert_eq!(bench.decision().waiting, 0, "160 requests are what 400 ms need");
}

#[test]
fn clients_that_leave_begin_no_shedding() {
    let mut bench = Bench::requests();
    (0..20).for_each(|_| assert!(bench.tick(10, 10, 10).is_none()));
    bench.shedding(50, 50, 10);
    let left = bench.readings.requests.unwrap().unanswered();
    bench.tick(0, 0, left);
    assert!((0..400).any(|_| bench.tick(5, 5, 5).is_some()), "{:?}", bench.decision());
    // Half of the clients close before the answer, as from impatience, or half requests at their end.
    for _ in 0..200 {
        bench.readings.requests.as_mut().unwrap().ended += 10;
        assert!(bench.tick(20, 20, 10).is_none(), "{:?}", bench.decision());
    }
    assert_eq!(bench.decision().state, State::Open);
}

#[test]
fn calm_listener_is_read_less_often() {
    let mut bench = Bench::requests();
    (0..100).for_each(|_| assert!(bench.tick(1, 1, 1).is_none()));
    let wait = |bench: &Bench| bench.control.due() - bench.now;
    assert_eq!((bench.decision().waiting, wait(&bench)), (0, Nanos::from_millis(20)));
    bench.tick(150, 150, 0);
    assert!(bench.decision().is_cautious && wait(&bench) == Nanos::from_millis(5), "{:?}", bench.decision());
    for _ in 0..9 {
        bench.tick(1, 1, 1);
    }
    assert!(bench.decision().waiting > 0 && wait(&bench) == Nanos::from_millis(5), "{:?}", bench.decision());
}

#[test]
fn caution_leaves_a_known_load_alone() {
    let mut bench = Bench::requests();
    // 200 requests per second, of which 50 at once get no answer.
    (0..200).for_each(|_| assert!(bench.tick(1, 1, 1).is_none()));
    assert_eq!(bench.decision().admission, Admission::ALL);
    bench.tick(50, 50, 0);
    let ForeignDecision { is_cautious, admission, .. } = *bench.decision();
    assert!(is_cautious && admission.rate.0 > 380.0 && !admission.new_are_free, "{admission:?}");
}

#[test]
fn slow_server_sheds_before_64_requests_wait() {
    let mut bench = Bench::requests();
    // 25 requests per second, of which each takes no time.
    (0..400)
        .for_each(|nth| assert!(bench.tick(u64::from(nth % 8 == 0), 0, u64::from(nth % 8 == 0)).is_none()));
    for nth in 0..1000 {
        bench.tick(u64::from(nth % 4 == 0), 0, u64::from(nth % 8 == 0));
        if bench.decision().state == State::Shedding {
            break;
        }
    }
    let ForeignDecision { state, waiting, .. } = *bench.decision();
    assert!(state == State::Shedding && (16..40).contains(&waiting), "{state:?} with {waiting}");
}
