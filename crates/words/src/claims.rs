//! Numbered things that were sent, and of which either the receiver or the sender gets each.
//!
//! ```text
//!   numbers    0 .. next                next .. end
//!              claimed or taken back    sent, and nobody's yet
//!
//!   receiver   claims number n    next: n -> n + 1, only from n
//!   sender     takes back         next: -> end
//! ```
//!
//! Invariant: a number below `next` has one owner: the receiver if its [`claim`] succeeded, otherwise the sender.

use std::sync::atomic::Ordering;

use crate::Word;

/// Claims a number as the receiver. Returns false if the sender has taken it back.
pub fn claim<W: Word<Value = u64>>(next: &W, number: u64) -> bool {
    next.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Takes back every unclaimed number below `end` as the sender. Returns the first of them.
pub fn take_back<W: Word<Value = u64>>(next: &W, end: u64) -> u64 {
    next.fetch_max(end, Ordering::AcqRel)
}
