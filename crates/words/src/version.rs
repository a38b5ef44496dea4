//! Words that change together: a sequence lock with one writer.
//!
//! ```text
//!   writer   version 4 -> 5    words    version 5 -> 6
//!   reader   version = ?       words    version = ?       both the same and even: the words are of one moment
//! ```
//!
//! A reader never waits for a writer that was killed in the middle. It learns that the words may be of two moments.
//!
//! Invariant: the version is odd while the words change. The words are loaded and stored with [`Ordering::Relaxed`].

use std::sync::atomic::Ordering;

use crate::Word;

/// Changes the words of a version. Calls must not overlap.
pub fn write<W: Word<Value = u64>>(version: &W, change: impl FnOnce()) {
    let before = version.load(Ordering::Relaxed);
    version.store(before + 1, Ordering::Relaxed);
    W::fence(Ordering::Release);
    change();
    version.store(before + 2, Ordering::Release);
}

/// Reads the words of a version. Returns what was read, and true if the words are of one moment.
pub fn read<W: Word<Value = u64>, T>(version: &W, words: impl FnOnce() -> T) -> (T, bool) {
    let before = version.load(Ordering::Acquire);
    let read = words();
    W::fence(Ordering::Acquire);
    (read, before.is_multiple_of(2) && version.load(Ordering::Relaxed) == before)
}

/// Ends the change of a writer that was killed, if it was in the middle of one.
pub fn end_for_the_dead<W: Word<Value = u64>>(version: &W) {
    let left = version.load(Ordering::Relaxed);
    version.store(left.next_multiple_of(2), Ordering::Release);
}
