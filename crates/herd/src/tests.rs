//! Small herds of every kind, in threads. The tests check structure and never speed.

use super::*;

use std::cell::RefCell;

const WAITERS: usize = 16;
const SAMPLES: usize = 12;

fn config(waits: &[Wait], count_by: CountedBy) -> Config {
    Config {
        waits: waits.to_vec(),
        waiters: vec![WAITERS],
        tasks: Tasks::Threads,
        samples: SAMPLES,
        seed: Seed(1),
        count_by: Some(count_by),
        program: PathBuf::new(),
    }
}

fn check(point: &Point) {
    let wakeups = point.wakeups_per_connection;
    let most = WAITERS as f64;
    match point.wait {
        // Every waiter was asleep, so every waiter wakes.
        Wait::WakeAll | Wait::Poll | Wait::Epoll => assert!(wakeups >= most, "{point:?}"),
        Wait::WakeOne | Wait::Accept | Wait::EpollExclusive | Wait::Reuseport | Wait::Steered => {
            assert!((1.0..2.0).contains(&wakeups), "{point:?}");
        }
        Wait::EpollShared | Wait::Mutex => assert!((1.0..most / 2.0).contains(&wakeups), "{point:?}"),
    }
    assert!(point.settle_us.p50 > 0.0 && point.settle_us.p50 <= point.settle_us.max);
    assert!(point.cpu_us_per_connection > 0.0);
    assert!(point.fairness > 0.0 && point.fairness <= 1.0);
    let most = match point.wait {
        Wait::Steered => WAITERS.min(sys::cpu::allowed().unwrap().len()),
        _ => WAITERS,
    };
    assert!((1..=most).contains(&point.winners), "{point:?}");
    assert_eq!(point.samples, SAMPLES);
}

#[test]
fn every_herd_settles_counted_by_context_switches() {
    let outcome = run(&config(&Wait::ALL, CountedBy::Switches), |_| {}, &|| false).unwrap();
    assert_eq!(outcome.points.len(), Wait::ALL.len());
    outcome.points.iter().for_each(check);
}

#[test]
fn every_herd_settles_counted_by_trace_points() {
    let config = config(&Wait::ALL, CountedBy::TracePoints);
    match run(&config, |_| {}, &|| false) {
        Ok(outcome) => outcome.points.iter().for_each(check),
        Err(HerdError::NoTracePoints(why)) => println!("skipped: {why}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_order_is_the_seeds_and_a_stop_ends_it() {
    let order = |seed| {
        let seen = RefCell::new(Vec::new());
        let config = Config { seed: Seed(seed), samples: 1, ..config(&Wait::ALL, CountedBy::Switches) };
        let tell = |progress: Progress| seen.borrow_mut().push(progress.wait);
        let outcome = run(&config, tell, &|| seen.borrow().len() == 4);
        assert_eq!(outcome.unwrap().points.len(), 3);
        seen.into_inner()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}
