//! The accept mutex of Apache and nginx, between threads or processes, by futex (Drepper, *Futexes are
//! tricky*, 2011: the mutex with three states).
//!
//! It does not hand over: whoever unlocks wakes one waiter, and a third may be quicker. That is how a
//! pthread mutex behaves.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex::{self, Flags};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may be asleep.
const WANTED: u32 = 2;

/// A mutex in a word that is shared with whoever locks it. Zero is free.
#[derive(Clone, Copy, Debug)]
pub struct Mutex<'a>(&'a AtomicU32);

impl<'a> Mutex<'a> {
    /// The mutex in this word.
    pub fn new(word: &'a AtomicU32) -> Mutex<'a> {
        Mutex(word)
    }

    /// Locks it, calling `about_to_sleep` each time before it sleeps. Blocks.
    pub fn lock(&self, about_to_sleep: impl Fn()) {
        if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.0.swap(WANTED, Ordering::Acquire) != FREE {
            about_to_sleep();
            // Unlocked since, or interrupted: both are seen above.
            let _ = futex::wait(self.0, Flags::empty(), WANTED, None);
        }
    }

    /// Unlocks what this caller has locked, and wakes one who waits.
    pub fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == WANTED {
            // There is nothing to do where nobody sleeps.
            let _ = futex::wake(self.0, Flags::empty(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_nobody_is_forgotten() {
        const ROUNDS: u32 = 5_000;
        let (word, inside, total) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let mutex = Mutex::new(&word);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        mutex.lock(|| {});
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        total.fetch_add(1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        mutex.unlock();
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4 * ROUNDS);
        assert_eq!(word.into_inner(), FREE);
    }
}
