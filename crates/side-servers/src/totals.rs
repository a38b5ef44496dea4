//! The counters of a small server.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a small server.
#[derive(Debug, Default)]
pub struct Totals {
    evicted: AtomicU64,
    refused: AtomicU64,
    streams_refused: AtomicU64,
    streams_cut: AtomicU64,
}

impl Totals {
    /// Returns the number of connections closed to make room for a newcomer.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that the guard refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of streams of events that were refused because all places were taken.
    pub fn streams_refused(&self) -> u64 {
        self.streams_refused.load(Ordering::Relaxed)
    }

    /// Returns the number of streams of events that were closed because their clients did not read.
    pub fn streams_cut(&self) -> u64 {
        self.streams_cut.load(Ordering::Relaxed)
    }

    pub(crate) fn count_eviction(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refused_stream(&self) {
        self.streams_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_cut_streams(&self, cut: u64) {
        self.streams_cut.store(cut, Ordering::Relaxed);
    }
}
