//! The accept mutex.
//!
//! ```text
//!   free ──lock──> held ──another waits──> held, wanted ──unlock──> free, and one is woken
//!     ^              │                                                          │
//!     └────unlock────┘          it locks as wanted, for the sake of other sleepers
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU32;
use loom::thread;
use wake::Mutex;

use super::word::{Bed, DEAF, SOUND, TORN, UNORDERED, check};

/// Tasks add to a number under the mutex, by a load and a store.
fn one_task_holds_the_mutex<const FAULT: u8>(tasks: usize) {
    check(move || {
        let shared: Arc<(Bed<FAULT>, AtomicU32)> = Arc::new((Bed::new(), AtomicU32::new(0)));
        let add = |holder: usize| {
            let shared = Arc::clone(&shared);
            move || {
                let mutex = Mutex::new(&shared.0);
                mutex.lock(holder, || ());
                shared.1.store(shared.1.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                mutex.unlock();
            }
        };
        let others: Vec<_> = (1..tasks).map(|holder| thread::spawn(add(holder))).collect();
        add(0)();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(shared.1.load(Ordering::Relaxed) as usize, tasks, "an addition is lost");
    });
}

/// A holder dies, and its parent unlocks for it while another task waits.
fn mutex_of_the_dead_is_free<const FAULT: u8>() {
    check(|| {
        let word: Arc<Bed<FAULT>> = Arc::new(Bed::new());
        Mutex::new(&*word).lock(7, || ());
        let of_waiter = Arc::clone(&word);
        let waiter = thread::spawn(move || Mutex::new(&*of_waiter).lock(1, || ()));
        Mutex::new(&*word).unlock_for_the_dead(7);
        waiter.join().unwrap();
    });
}

#[test]
fn mutex_is_held_by_one_and_forgets_nobody() {
    one_task_holds_the_mutex::<SOUND>(2);
    one_task_holds_the_mutex::<SOUND>(3);
}

#[test]
fn dead_holders_mutex_goes_to_a_waiter() {
    mutex_of_the_dead_is_free::<SOUND>();
}

#[test]
#[should_panic(expected = "an addition is lost")]
fn unordered_mutex_is_found() {
    one_task_holds_the_mutex::<UNORDERED>(2);
}

#[test]
#[should_panic(expected = "an addition is lost")]
fn torn_mutex_is_found() {
    one_task_holds_the_mutex::<TORN>(2);
}

#[test]
#[should_panic(expected = "deadlock")]
fn sleep_for_a_free_mutex_is_found() {
    mutex_of_the_dead_is_free::<DEAF>();
}
