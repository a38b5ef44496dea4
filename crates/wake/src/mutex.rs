//! The accept mutex of Apache and nginx, between threads or processes, by futex. As in Drepper, *Futexes are
//! tricky* (2011), one bit says that a waiter may be asleep.
//!
//! The mutex is not handed over: unlocking wakes one waiter, and a third task may lock first. A pthread mutex
//! behaves in the same way. Unlike a pthread mutex this one records its holder, so that it can be taken from
//! a dead process.

use std::sync::atomic::{AtomicU32, Ordering};

use words::{EVERY_SLEEPER, Futex};

const FREE: u32 = 0;
/// Set beside the holder's number while a waiter may be asleep.
const WANTED: u32 = 1;

/// A mutex in a word that all its users share. Zero is free.
#[derive(Debug)]
pub struct Mutex<'a, W = AtomicU32>(&'a W);

impl<W> Clone for Mutex<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Mutex<'_, W> {}

impl<'a, W: Futex> Mutex<'a, W> {
    /// The mutex in this word.
    pub fn new(word: &'a W) -> Mutex<'a, W> {
        Mutex(word)
    }

    /// Locks the mutex for a holder, a number below 2^30 that no other task uses. Calls `about_to_sleep`
    /// before each sleep. Blocks.
    pub fn lock(&self, holder: usize, about_to_sleep: impl Fn()) {
        // After a sleep there may be other sleeping waiters.
        let mut wanted = 0;
        loop {
            let locked = holds(holder) | wanted;
            let Err(held) = self.0.compare_exchange(FREE, locked, Ordering::Acquire, Ordering::Relaxed)
            else {
                return;
            };
            let asleep = held | WANTED;
            let said = self.0.compare_exchange(held, asleep, Ordering::Relaxed, Ordering::Relaxed);
            if said.is_ok() {
                about_to_sleep();
                self.0.sleep(asleep, EVERY_SLEEPER);
                wanted = WANTED;
            }
        }
    }

    /// Unlocks the caller's lock and wakes one waiter.
    pub fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) & WANTED != 0 {
            self.0.wake(1, EVERY_SLEEPER);
        }
    }

    /// Unlocks the mutex if this dead holder had locked it. Wakes a waiter in any case, because the dead one may have
    /// been woken for the lock of another.
    pub fn unlock_for_the_dead(&self, holder: usize) {
        if self.0.load(Ordering::Relaxed) & !WANTED == holds(holder) {
            self.0.swap(FREE, Ordering::Release);
        }
        self.0.wake(1, EVERY_SLEEPER);
    }
}

/// The value of the word while this holder has the mutex and no waiter wants it.
fn holds(holder: usize) -> u32 {
    u32::try_from((holder + 1) << 1).expect("fewer than 2^30 holders")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_nobody_is_forgotten() {
        const ROUNDS: u32 = 5_000;
        let (word, inside, total) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let (mutex, inside, total) = (Mutex::new(&word), &inside, &total);
        std::thread::scope(|scope| {
            for holder in 0..4 {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        mutex.lock(holder, || {});
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        total.fetch_add(1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        mutex.unlock();
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * ROUNDS);
        assert_eq!(word.into_inner(), FREE);
    }

    #[test]
    fn wake_up_of_a_dead_waiter_goes_to_the_next() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        let mutex = Mutex::new(&WORD);
        mutex.lock(7, || {});
        let (asleep, sleeps) = std::sync::mpsc::channel();
        let (locked, is_locked) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            mutex.lock(1, || asleep.send(()).unwrap());
            locked.send(()).unwrap();
        });
        sleeps.recv().unwrap();
        // As after an unlock whose waiter has died.
        WORD.store(FREE, Ordering::Release);
        mutex.unlock_for_the_dead(2);
        is_locked.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
    }

    #[test]
    fn the_dead_give_back_only_what_they_held() {
        let word = AtomicU32::new(0);
        let mutex = Mutex::new(&word);
        mutex.lock(7, || {});
        mutex.unlock_for_the_dead(6);
        assert_ne!(word.load(Ordering::Relaxed), FREE);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| mutex.lock(1, || {}));
            mutex.unlock_for_the_dead(7);
            waiting.join().unwrap();
        });
        mutex.unlock_for_the_dead(7);
        assert_eq!(word.load(Ordering::Relaxed) & !WANTED, holds(1));
    }
}
