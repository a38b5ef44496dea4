//! Replays the corpus of the fuzz target through the function that the target calls.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn experiment_file() {
    static PLANNED: AtomicUsize = AtomicUsize::new(0);
    corpus::replay("experiment_file", |data| {
        PLANNED.fetch_add(support::experiment_file_property(data).into(), Ordering::Relaxed);
    });
    assert!(PLANNED.load(Ordering::Relaxed) >= 8, "only {PLANNED:?} files lead to a plan");
}
