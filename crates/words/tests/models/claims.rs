//! Connections on their way from smped's dispatcher to a worker.

use std::sync::Arc;

use loom::thread;
use words::claims;

use super::word::{Number, SOUND, TORN, check};

/// The worker claims three connections in turn. The dispatcher takes back what is left, at any moment, and sends one more.
fn each_number_has_one_owner<const FAULT: u8>() {
    check(|| {
        let next: Arc<Number<FAULT>> = Arc::new(Number::new());
        let of_worker = Arc::clone(&next);
        let worker =
            thread::spawn(move || (0..4).filter(|n| claims::claim(&*of_worker, *n)).collect::<Vec<u64>>());
        let taken_back: Vec<u64> = (claims::take_back(&*next, 3)..3).collect();
        let claimed = worker.join().unwrap();
        let mut owned = [taken_back, claimed].concat();
        owned.sort_unstable();
        assert_eq!(owned, [0, 1, 2, 3], "owners of the numbers");
    });
}

#[test]
fn each_connection_has_one_owner() {
    each_number_has_one_owner::<SOUND>();
}

#[test]
#[should_panic(expected = "owners of the numbers")]
fn torn_claim_is_found() {
    each_number_has_one_owner::<TORN>();
}
