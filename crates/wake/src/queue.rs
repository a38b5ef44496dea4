//! A wait queue with the semantics of Molloy's two patches (2000), task-exclusive and wake-one, between
//! threads or processes, by futex.
//!
//! Waiters queue as *ordinary* or *exclusive*. An event wakes every ordinary waiter; if it is a state
//! change, data ready or write space, it wakes the first exclusive one as well and stops there; a close or
//! an error wakes all. Ordinary waiters come before the first exclusive one, whatever the order in which
//! they came; among equals, first come, first woken.
//!
//! The kernel keeps one list with the ordinary waiters in front. Here they are two, one behind the other,
//! which gives the same order without a pointer to where the one kind ends.
//!
//! A waiter uses it as the kernel's do: [`Queue::enqueue`], look whether there is something to do, and then
//! either [`Queue::withdraw`] or [`Queue::sleep`]. No wake-up is lost: an event that comes after `enqueue`
//! marks the waiter, and `sleep` returns at once for one that is marked.
//!
//! Invariants: all links are read and written under the lock, which is never held across a system call; a
//! marked waiter is in no list. The lock spins and yields and never sleeps, so it adds no voluntary context
//! switch to those that are counted. A process killed while it holds the lock stops the queue for all:
//! those who share one live and die together. A wake-up may find its waiter already gone round and asleep
//! again; that one looks, finds no mark, and sleeps on.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex::{self, Flags};
use rustix::thread::sched_yield;

/// How a waiter queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every event wakes it.
    Ordinary,
    /// One event wakes one of its kind.
    Exclusive,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The socket changed its state.
    StateChange,
    /// There is something to read or to accept.
    DataReady,
    /// There is room to write.
    WriteSpace,
    /// The socket was closed.
    Close,
    /// The socket failed.
    Error,
}

const EVENTS: [Event; 5] =
    [Event::StateChange, Event::DataReady, Event::WriteSpace, Event::Close, Event::Error];

impl Event {
    /// Whether one exclusive waiter is enough for it.
    pub fn wakes_one(self) -> bool {
        matches!(self, Event::StateChange | Event::DataReady | Event::WriteSpace)
    }

    /// What marks a waiter as woken by it; never [`UNMARKED`].
    fn mark(self) -> u32 {
        EVENTS.iter().position(|event| *event == self).expect("every event is listed") as u32 + 1
    }

    fn of_mark(mark: u32) -> Option<Event> {
        EVENTS.get((mark as usize).checked_sub(1)?).copied()
    }
}

/// Whom an event woke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// So many ordinary waiters.
    pub ordinary: usize,
    /// So many exclusive ones.
    pub exclusive: usize,
}

/// Words a waiter has: a cache line of its own.
const LINE: usize = 16;
/// The queue's own words.
const LOCK: usize = 0;
const HEADS: [usize; 2] = [1, 3];
const TAILS: [usize; 2] = [2, 4];
/// A waiter's words.
const MARK: usize = 0;
const PLACE: usize = 1;
const NEXT: usize = 2;
const PREVIOUS: usize = 3;

const UNMARKED: u32 = 0;
/// No waiter, and no list; so that zeroed memory is an empty queue.
const NONE: u32 = 0;

/// The lists, in the order in which they are woken; a waiter's place is the list's number plus one.
const ORDINARY: usize = 0;
const EXCLUSIVE: usize = 1;

/// How often a waiter for the lock looks before it yields: longer than the few loads and stores for which
/// it is held.
const SPINS: u32 = 64;

/// A wait queue in words that are shared with whoever waits in it or wakes it.
#[derive(Clone, Copy)]
pub struct Queue<'a> {
    words: &'a [AtomicU32],
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiters", &(self.words.len() / LINE - 1)).finish()
    }
}

impl<'a> Queue<'a> {
    /// How many words a queue for so many waiters takes. Zeros are an empty queue.
    pub const fn words(waiters: usize) -> usize {
        (waiters + 1) * LINE
    }

    /// The queue in these words; everyone who shares them shares the queue.
    pub fn new(words: &'a [AtomicU32]) -> Queue<'a> {
        assert!(words.len() >= Queue::words(1) && words.len().is_multiple_of(LINE), "whole lines");
        Queue { words }
    }

    /// Puts a waiter at the end of its kind. From here on every event finds it.
    pub fn enqueue(&self, waiter: usize, kind: Kind) {
        let list = match kind {
            Kind::Ordinary => ORDINARY,
            Kind::Exclusive => EXCLUSIVE,
        };
        let _locked = self.lock();
        assert_eq!(self.load(waiter, PLACE), NONE, "a waiter queues once at a time");
        self.word(waiter, MARK).store(UNMARKED, Ordering::Relaxed);
        let last = self.words[TAILS[list]].load(Ordering::Relaxed);
        self.store(waiter, PREVIOUS, last);
        self.store(waiter, NEXT, NONE);
        self.store(waiter, PLACE, list as u32 + 1);
        let me = link(waiter);
        match waiter_of(last) {
            Some(last) => self.store(last, NEXT, me),
            None => self.words[HEADS[list]].store(me, Ordering::Relaxed),
        }
        self.words[TAILS[list]].store(me, Ordering::Relaxed);
    }

    /// Leaves the queue without sleeping. Some event, where one has woken this waiter meanwhile: it counts
    /// as taken, so whoever leaves looks once more at what he waited for before he waits again.
    pub fn withdraw(&self, waiter: usize) -> Option<Event> {
        let _locked = self.lock();
        if self.load(waiter, PLACE) != NONE {
            self.unlink(waiter);
        }
        Event::of_mark(self.word(waiter, MARK).load(Ordering::Relaxed))
    }

    /// Sleeps until an event wakes this waiter, who has queued before; afterwards he is in the queue no
    /// more. Blocks.
    pub fn sleep(&self, waiter: usize) -> Event {
        let mark = self.word(waiter, MARK);
        loop {
            if let Some(event) = Event::of_mark(mark.load(Ordering::Acquire)) {
                return event;
            }
            // Marked since, or interrupted: both are seen above.
            let _ = futex::wait(mark, Flags::empty(), UNMARKED, None);
        }
    }

    /// Wakes whom the event is for.
    pub fn wake(&self, event: Event) -> Woken {
        let mut chosen = Vec::with_capacity(self.words.len() / LINE);
        let mut woken = Woken::default();
        {
            let _locked = self.lock();
            while let Some(waiter) = self.take_first(ORDINARY, event) {
                chosen.push(waiter);
                woken.ordinary += 1;
            }
            while let Some(waiter) = self.take_first(EXCLUSIVE, event) {
                chosen.push(waiter);
                woken.exclusive += 1;
                if event.wakes_one() {
                    break;
                }
            }
        }
        for waiter in chosen {
            // A waiter who is not asleep yet sees the mark instead.
            let _ = futex::wake(self.word(waiter, MARK), Flags::empty(), 1);
        }
        woken
    }

    /// Takes the first of a list out and marks it.
    fn take_first(&self, list: usize, event: Event) -> Option<usize> {
        let waiter = waiter_of(self.words[HEADS[list]].load(Ordering::Relaxed))?;
        self.unlink(waiter);
        self.word(waiter, MARK).store(event.mark(), Ordering::Release);
        Some(waiter)
    }

    fn unlink(&self, waiter: usize) {
        let list = self.load(waiter, PLACE) as usize - 1;
        let (previous, next) = (self.load(waiter, PREVIOUS), self.load(waiter, NEXT));
        match waiter_of(previous) {
            Some(previous) => self.store(previous, NEXT, next),
            None => self.words[HEADS[list]].store(next, Ordering::Relaxed),
        }
        match waiter_of(next) {
            Some(next) => self.store(next, PREVIOUS, previous),
            None => self.words[TAILS[list]].store(previous, Ordering::Relaxed),
        }
        self.store(waiter, PLACE, NONE);
    }

    fn lock(&self) -> Locked<'a> {
        let lock = &self.words[LOCK];
        let mut spins = 0;
        while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spins += 1;
            if spins % SPINS == 0 {
                // Its holder has been taken off the processor.
                sched_yield();
            } else {
                std::hint::spin_loop();
            }
        }
        Locked(lock)
    }

    fn word(&self, waiter: usize, word: usize) -> &'a AtomicU32 {
        &self.words[(waiter + 1) * LINE + word]
    }

    /// Under the lock, which orders what is loaded and stored.
    fn load(&self, waiter: usize, word: usize) -> u32 {
        self.word(waiter, word).load(Ordering::Relaxed)
    }

    fn store(&self, waiter: usize, word: usize, value: u32) {
        self.word(waiter, word).store(value, Ordering::Relaxed);
    }
}

/// Unlocks when dropped.
struct Locked<'a>(&'a AtomicU32);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

fn link(waiter: usize) -> u32 {
    u32::try_from(waiter + 1).expect("fewer than 2^32 waiters")
}

fn waiter_of(link: u32) -> Option<usize> {
    (link as usize).checked_sub(1)
}

#[cfg(test)]
mod tests;
