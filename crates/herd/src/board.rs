//! The board on which waiters report their state, so that the experiment can read it without disturbing them.
//!
//! Each waiter has one cache line in memory that all share. The line holds the number of times it was about
//! to sleep, the last of these times, its number of connections, and its thread number. A waiter writes only
//! its own line; the experiment only reads.

use std::sync::atomic::{AtomicU64, Ordering};

use base::{Clock, Nanos, RealClock};
use rustix::process::Pid;

const LINE: usize = 8;
const SLEEPS: usize = 0;
const ASLEEP_AT: usize = 1;
const ACCEPTED: usize = 2;
const THREAD: usize = 3;

/// The board in shared words. All zeros are an empty board.
#[derive(Clone, Copy, Debug)]
pub struct Board<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Board<'a> {
    /// The number of words of a board for `tasks` tasks.
    pub const fn words(tasks: usize) -> usize {
        tasks * LINE
    }

    /// The board in these words.
    pub fn new(words: &'a [AtomicU64]) -> Board<'a> {
        Board { words }
    }

    /// Reports that the calling thread is this waiter.
    pub fn arrive(&self, waiter: usize) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.word(waiter, THREAD).store(thread as u64, Ordering::Release);
    }

    /// Reports that the waiter will sleep in its next system call.
    pub fn about_to_sleep(&self, waiter: usize) {
        self.word(waiter, ASLEEP_AT).store(RealClock.now().0, Ordering::Relaxed);
        let sleeps = self.word(waiter, SLEEPS);
        sleeps.store(sleeps.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Reports that the waiter got a connection.
    pub fn accepted(&self, waiter: usize) {
        let accepted = self.word(waiter, ACCEPTED);
        accepted.store(accepted.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The waiter's thread number; `None` until it has arrived and been about to sleep.
    pub fn thread(&self, waiter: usize) -> Option<Pid> {
        if self.sleeps(waiter) == 0 {
            return None;
        }
        Pid::from_raw(self.word(waiter, THREAD).load(Ordering::Acquire) as i32)
    }

    /// The number of times the waiter was about to sleep.
    pub fn sleeps(&self, waiter: usize) -> u64 {
        self.word(waiter, SLEEPS).load(Ordering::Acquire)
    }

    /// The last time at which the waiter was about to sleep, by CLOCK_MONOTONIC.
    pub fn asleep_at(&self, waiter: usize) -> Nanos {
        Nanos(self.word(waiter, ASLEEP_AT).load(Ordering::Acquire))
    }

    /// The number of connections the waiter got.
    pub fn connections(&self, waiter: usize) -> u64 {
        self.word(waiter, ACCEPTED).load(Ordering::Acquire)
    }

    fn word(&self, waiter: usize, word: usize) -> &'a AtomicU64 {
        &self.words[waiter * LINE + word]
    }
}
