//! The wait queue of Molloy's patches.
//!
//! ```text
//!   waiter   enqueue    no work    sleep, or return at once if marked
//!   waker    new work   take the first, mark it    wake the marked
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU32;
use loom::thread;
use wake::{Event, Kind, Queue};

use super::word::{Bed, DEAF, SOUND, UNORDERED, check_with};

type Shared<const FAULT: u8> = Arc<(Vec<Bed<FAULT>>, AtomicU32)>;

fn shared<const FAULT: u8>(waiters: usize) -> Shared<FAULT> {
    Arc::new(((0..Queue::words(waiters)).map(|_| Bed::new()).collect(), AtomicU32::new(0)))
}

/// Waits for work as the kernel's waiters do, and takes it.
fn wait_for_work<const FAULT: u8>(shared: &Shared<FAULT>, waiter: usize) {
    let (queue, work) = (Queue::new(&shared.0), &shared.1);
    let take = || {
        let one_less = |work: u32| work.checked_sub(1);
        work.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok()
    };
    loop {
        queue.enqueue(waiter, Kind::Exclusive);
        if take() {
            // A wake-up that came all the same is for the next waiter.
            if let Some(event) = queue.withdraw(waiter) {
                queue.wake(event);
            }
            return;
        }
        queue.sleep(waiter);
    }
}

/// Work comes at any moment, one for each waiter.
fn no_work_is_slept_through<const FAULT: u8>(waiters: usize, preemptions: usize) {
    check_with(preemptions, move || {
        let shared = shared::<FAULT>(waiters);
        let wait = |waiter: usize| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || wait_for_work(&shared, waiter))
        };
        let waiting: Vec<_> = (0..waiters).map(wait).collect();
        for _ in 0..waiters {
            shared.1.fetch_add(1, Ordering::Release);
            Queue::new(&shared.0).wake(Event::DataReady);
        }
        waiting.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn waiter_never_sleeps_through_its_event() {
    no_work_is_slept_through::<SOUND>(1, 3);
}

#[test]
fn each_of_two_waiters_gets_its_event() {
    // Three tasks with a lock between them have too many orders for more.
    no_work_is_slept_through::<SOUND>(2, 1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn sleep_of_a_marked_waiter_is_found() {
    no_work_is_slept_through::<DEAF>(1, 3);
}

#[test]
#[should_panic(expected = "deadlock")]
fn unordered_queue_is_found() {
    no_work_is_slept_through::<UNORDERED>(2, 1);
}
