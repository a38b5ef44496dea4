//! What waiters say about themselves, where the experiment can read it without disturbing them.
//!
//! One cache line a waiter, in memory that all share: how often it was about to sleep, when it was last,
//! how many connections it got, and its thread number. A waiter writes its own line only; the experiment
//! writes none.

use std::sync::atomic::{AtomicU64, Ordering};

use base::{Clock, Nanos, RealClock};
use rustix::process::Pid;

const LINE: usize = 8;
const SLEEPS: usize = 0;
const ASLEEP_AT: usize = 1;
const ACCEPTED: usize = 2;
const THREAD: usize = 3;

/// The board in words that are shared. Zeros are an empty board.
#[derive(Clone, Copy, Debug)]
pub struct Board<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Board<'a> {
    /// How many words a board for so many takes.
    pub const fn words(tasks: usize) -> usize {
        tasks * LINE
    }

    /// The board in these words.
    pub fn new(words: &'a [AtomicU64]) -> Board<'a> {
        Board { words }
    }

    /// Says that the calling thread is this waiter.
    pub fn arrive(&self, waiter: usize) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.word(waiter, THREAD).store(thread as u64, Ordering::Release);
    }

    /// Says that it will sleep with its next system call.
    pub fn about_to_sleep(&self, waiter: usize) {
        self.word(waiter, ASLEEP_AT).store(RealClock.now().0, Ordering::Relaxed);
        let sleeps = self.word(waiter, SLEEPS);
        sleeps.store(sleeps.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Says that it has got a connection.
    pub fn accepted(&self, waiter: usize) {
        let accepted = self.word(waiter, ACCEPTED);
        accepted.store(accepted.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Its thread number, once it has arrived and been about to sleep.
    pub fn thread(&self, waiter: usize) -> Option<Pid> {
        if self.sleeps(waiter) == 0 {
            return None;
        }
        Pid::from_raw(self.word(waiter, THREAD).load(Ordering::Acquire) as i32)
    }

    /// How often it was about to sleep.
    pub fn sleeps(&self, waiter: usize) -> u64 {
        self.word(waiter, SLEEPS).load(Ordering::Acquire)
    }

    /// When it was last about to sleep, by CLOCK_MONOTONIC.
    pub fn asleep_at(&self, waiter: usize) -> Nanos {
        Nanos(self.word(waiter, ASLEEP_AT).load(Ordering::Acquire))
    }

    /// How many connections it got.
    pub fn connections(&self, waiter: usize) -> u64 {
        self.word(waiter, ACCEPTED).load(Ordering::Acquire)
    }

    fn word(&self, waiter: usize, word: usize) -> &'a AtomicU64 {
        &self.words[waiter * LINE + word]
    }
}
