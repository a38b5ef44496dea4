use super::*;

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::thread;

use base::Seed;
use proptest::prelude::*;
use rand::RngExt;

fn memory(waiters: usize) -> Vec<AtomicU32> {
    (0..Queue::words(waiters)).map(|_| AtomicU32::new(0)).collect()
}

/// The event that marked a waiter, read without sleeping.
fn marked(queue: &Queue<'_>, waiter: usize) -> Option<Event> {
    Event::of_mark(queue.word(waiter, MARK).load(Ordering::Acquire))
}

#[test]
fn event_wakes_all_ordinary_and_one_exclusive_waiter() {
    for event in [Event::StateChange, Event::DataReady, Event::WriteSpace] {
        let memory = memory(5);
        let queue = Queue::new(&memory);
        // The ordinary waiters are woken first although the exclusive ones came first.
        queue.enqueue(3, Kind::Exclusive);
        queue.enqueue(1, Kind::Exclusive);
        queue.enqueue(0, Kind::Ordinary);
        queue.enqueue(4, Kind::Ordinary);
        assert_eq!(queue.wake(event), Woken { ordinary: 2, exclusive: 1 });
        let seen: Vec<_> = (0..5).map(|waiter| marked(&queue, waiter).is_some()).collect();
        assert_eq!(seen, [true, false, false, true, true]);
        assert_eq!(queue.wake(event), Woken { ordinary: 0, exclusive: 1 });
        assert_eq!(queue.sleep(1), event);
        assert_eq!(queue.wake(event), Woken::default());
    }
}

#[test]
fn close_and_error_wake_all() {
    for event in [Event::Close, Event::Error] {
        let memory = memory(6);
        let queue = Queue::new(&memory);
        for waiter in 0..6 {
            queue.enqueue(waiter, if waiter % 2 == 0 { Kind::Exclusive } else { Kind::Ordinary });
        }
        assert_eq!(queue.wake(event), Woken { ordinary: 3, exclusive: 3 });
        assert!((0..6).all(|waiter| queue.sleep(waiter) == event));
    }
}

#[test]
fn withdrawn_waiter_is_not_woken_again() {
    let memory = memory(3);
    let queue = Queue::new(&memory);
    for waiter in 0..3 {
        queue.enqueue(waiter, Kind::Exclusive);
    }
    assert_eq!(queue.withdraw(1), None);
    queue.wake(Event::DataReady);
    assert_eq!(queue.withdraw(0), Some(Event::DataReady));
    queue.wake(Event::WriteSpace);
    assert_eq!(queue.sleep(2), Event::WriteSpace);
    assert_eq!(queue.wake(Event::Close), Woken::default());
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue(usize, bool),
    Withdraw(usize),
    Wake(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..6usize, any::<bool>()).prop_map(|(waiter, exclusive)| Step::Enqueue(waiter, exclusive)),
        1 => (0..6usize).prop_map(Step::Withdraw),
        2 => (0..EVENTS.len()).prop_map(Step::Wake),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Compares the queue with the paper's rules on two plain lists.
    #[test]
    fn it_does_what_two_plain_lists_would(steps in steps()) {
        let memory = memory(6);
        let queue = Queue::new(&memory);
        let mut lists = [VecDeque::new(), VecDeque::new()];
        for step in steps {
            match step {
                Step::Enqueue(waiter, _) if lists.iter().any(|list| list.contains(&waiter)) => {}
                Step::Enqueue(waiter, exclusive) => {
                    queue.enqueue(waiter, if exclusive { Kind::Exclusive } else { Kind::Ordinary });
                    lists[usize::from(exclusive)].push_back(waiter);
                }
                Step::Withdraw(waiter) => {
                    let queued = lists.iter().any(|list| list.contains(&waiter));
                    let event = queue.withdraw(waiter);
                    prop_assert!(!(queued && event.is_some()));
                    lists.iter_mut().for_each(|list| list.retain(|other| *other != waiter));
                }
                Step::Wake(event) => {
                    let event = EVENTS[event];
                    let ordinary: Vec<usize> = lists[0].drain(..).collect();
                    let most = if event.wakes_one() { 1 } else { usize::MAX };
                    let count = lists[1].len().min(most);
                    let exclusive: Vec<usize> = lists[1].drain(..count).collect();
                    let woken = queue.wake(event);
                    prop_assert_eq!(woken, Woken { ordinary: ordinary.len(), exclusive: exclusive.len() });
                    for waiter in ordinary.into_iter().chain(exclusive) {
                        prop_assert_eq!(marked(&queue, waiter), Some(event));
                    }
                }
            }
        }
    }
}

/// The waker makes units of work one by one and announces each as data ready. Waiters of both kinds take
/// them. After a lost wake-up one unit would remain while every waiter sleeps, and the test would hang.
fn all_work_is_taken(seed: Seed, ordinary: usize, exclusive: usize) {
    const UNITS: u32 = 2_000;
    println!("seed {seed}");
    let waiters = ordinary + exclusive;
    let memory = memory(waiters);
    let queue = Queue::new(&memory);
    let (ready, taken, done) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let take = || ready.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok();
    let wait = |waiter: usize| {
        let kind = if waiter < ordinary { Kind::Ordinary } else { Kind::Exclusive };
        let mut rng = seed.child(&format!("waiter {waiter}")).rng();
        loop {
            queue.enqueue(waiter, kind);
            for _ in 0..rng.random_range(0..3) {
                thread::yield_now();
            }
            if take() {
                queue.withdraw(waiter);
                taken.fetch_add(1, Ordering::AcqRel);
            } else if done.load(Ordering::Acquire) {
                queue.withdraw(waiter);
                return;
            } else {
                queue.sleep(waiter);
            }
        }
    };
    thread::scope(|scope| {
        for waiter in 0..waiters {
            scope.spawn(move || wait(waiter));
        }
        let mut rng = seed.child("waker").rng();
        for unit in 1..=UNITS {
            ready.fetch_add(1, Ordering::AcqRel);
            queue.wake(Event::DataReady);
            // From time to time every waiter falls asleep before the next unit.
            if rng.random_range(0..8) == 0 {
                while taken.load(Ordering::Acquire) < unit {
                    thread::yield_now();
                }
            }
        }
        while taken.load(Ordering::Acquire) < UNITS {
            thread::yield_now();
        }
        done.store(true, Ordering::Release);
        queue.wake(Event::Close);
    });
    assert_eq!(taken.into_inner(), UNITS);
}

#[test]
fn no_wake_up_is_lost() {
    all_work_is_taken(Seed(1), 0, 6);
    all_work_is_taken(Seed(2), 6, 0);
    all_work_is_taken(Seed(3), 3, 3);
    all_work_is_taken(Seed(4), 0, 1);
}
