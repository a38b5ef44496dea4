//! The connection limit of several worker processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::thread;
use words::{Word, limit};

use super::word::{Number, SOUND, TORN, UNORDERED, check};

/// Two processes take the last place at once, each in a word of its own or both in one.
fn last_place_is_given_once<const FAULT: u8>(words: usize) {
    check(move || {
        let counters: Arc<Vec<Number<FAULT>>> = Arc::new((0..words).map(|_| Number::new()).collect());
        let take = |mine: usize| {
            let counters = Arc::clone(&counters);
            move || {
                let taken = || counters.iter().map(|word| word.load(Ordering::Relaxed)).sum();
                limit::take(&counters[mine], taken, 1)
            }
        };
        let (first, second) = (thread::spawn(take(0)), take(words - 1));
        let given = u64::from(second()) + u64::from(first.join().unwrap());
        assert!(given <= 1, "beyond the limit");
        let left: u64 = counters.iter().map(|word| word.load(Ordering::SeqCst)).sum();
        assert_eq!(left, given, "a refused place is given back");
    });
}

#[test]
fn last_place_is_never_given_twice() {
    last_place_is_given_once::<SOUND>(2);
    last_place_is_given_once::<SOUND>(1);
}

#[test]
#[should_panic(expected = "beyond the limit")]
fn missing_fence_of_a_limit_is_found() {
    last_place_is_given_once::<UNORDERED>(2);
}

#[test]
#[should_panic(expected = "beyond the limit")]
fn torn_counter_of_a_limit_is_found() {
    last_place_is_given_once::<TORN>(1);
}
