//! The wake-up of sleepers that look for their work elsewhere, for example in a listener.
//!
//! ```text
//!   sleeper   rings = r     work there? no    sleep while rings == r
//!   waker     new work      rings + 1         wake some
//! ```
//!
//! Invariant: a sleeper that reads the rings, finds no work and then sleeps does not sleep through work that came after
//! its look. The ring has changed the word by then, or the wake-up finds the sleeper.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;

use crate::Futex;

/// Wakes the first `most` sleepers that have one of these bits. A sleeper between its look and its sleep does not sleep.
/// Call it after the work is there.
pub fn ring<F: Futex>(rings: &F, most: u32, bits: NonZeroU32) {
    rings.fetch_add(1, Ordering::Release);
    rings.wake(most, bits);
}

/// Sleeps until the bell rings for one of these bits. Does not sleep if there is work, or if the bell rang after the
/// call began. May return earlier. Blocks.
///
/// # Errors
/// That of `has_work`.
pub fn sleep<F: Futex, E>(
    rings: &F,
    bits: NonZeroU32,
    has_work: impl FnOnce() -> Result<bool, E>,
) -> Result<(), E> {
    let heard = rings.load(Ordering::Acquire);
    if !has_work()? {
        rings.sleep(heard, bits);
    }
    Ok(())
}
