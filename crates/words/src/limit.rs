//! A limit whose counters lie apart: each process counts in a word of its own, so that the word of a dead one can be
//! cleared.
//!
//! ```text
//!   A   its word + 1    fence    sum of all words <= limit?    no: its word - 1
//!   B   its word + 1    fence    sum of all words <= limit?    no: its word - 1
//! ```
//!
//! A process adds first and checks afterwards. The fences are in one order for all processes, so of two that add at once
//! at least one sees the other. If two take the last place at once, both may be refused, but never do both get it.
//!
//! Invariant: the places that [`take`] has given are never more than the limit.

use std::sync::atomic::Ordering;

use crate::Word;

/// Takes a place in this process's word, if the limit has one left. `taken` sums up the words of all processes.
pub fn take<W: Word<Value = u64>>(mine: &W, taken: impl FnOnce() -> u64, limit: u64) -> bool {
    take_beyond(mine);
    W::fence(Ordering::SeqCst);
    let fits = taken() <= limit;
    if !fits {
        give_back(mine);
    }
    fits
}

/// Takes a place even beyond the limit.
pub fn take_beyond<W: Word<Value = u64>>(mine: &W) {
    mine.fetch_add(1, Ordering::Relaxed);
}

/// Gives a place back.
pub fn give_back<W: Word<Value = u64>>(mine: &W) {
    mine.fetch_sub(1, Ordering::Relaxed);
}
