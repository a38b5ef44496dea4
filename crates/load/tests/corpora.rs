//! Replays the corpora of the fuzz targets through the functions that the targets call.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

/// The least number of files of a corpus that lead to a prepared load. Refused files try the readers alone.
const PREPARED_LEAST: usize = 8;

#[test]
fn requests_file() {
    static PREPARED: AtomicUsize = AtomicUsize::new(0);
    corpus::replay("requests_file", |data| {
        PREPARED.fetch_add(support::requests_file_property(data).into(), Ordering::Relaxed);
    });
    assert!(PREPARED.load(Ordering::Relaxed) >= PREPARED_LEAST, "{PREPARED:?} files lead to a load");
}

#[test]
fn fleet_order() {
    static PREPARED: AtomicUsize = AtomicUsize::new(0);
    corpus::replay("fleet_order", |data| {
        PREPARED.fetch_add(support::fleet_order_property(data).into(), Ordering::Relaxed);
    });
    assert!(PREPARED.load(Ordering::Relaxed) >= PREPARED_LEAST, "{PREPARED:?} files lead to a load");
}
