//! The server's waiters under `--wake one`: threads and processes that sleep on one futex and look at a listener.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU32;
use loom::thread;
use words::{EVERY_SLEEPER, bell};

use super::word::{Bed, DEAF, SOUND, check};

/// One sleeper waits for a connection, which comes at any moment. A sleep that nobody ends is a deadlock of the model.
fn no_connection_is_slept_through<const FAULT: u8>() {
    check(|| {
        let shared: Arc<(Bed<FAULT>, AtomicU32)> = Arc::new((Bed::new(), AtomicU32::new(0)));
        let of_waiter = Arc::clone(&shared);
        let waiter = thread::spawn(move || {
            let (rings, queue) = &*of_waiter;
            while queue.load(Ordering::Acquire) == 0 {
                let has_work = || Ok::<bool, Infallible>(queue.load(Ordering::Acquire) > 0);
                bell::sleep(rings, EVERY_SLEEPER, has_work).unwrap();
            }
        });
        let (rings, queue) = &*shared;
        queue.store(1, Ordering::Release);
        bell::ring(rings, 1, EVERY_SLEEPER);
        waiter.join().unwrap();
    });
}

#[test]
fn waiter_never_sleeps_through_a_connection() {
    no_connection_is_slept_through::<SOUND>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn sleep_without_a_look_at_the_bell_is_found() {
    no_connection_is_slept_through::<DEAF>();
}
