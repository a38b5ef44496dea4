//! A wait queue with the semantics of Molloy's two patches (2000), task-exclusive and wake-one, between
//! threads or processes, by futex.
//!
//! Waiters queue as *ordinary* or *exclusive*. An event wakes every ordinary waiter. A state change, data
//! ready or write space then wakes the first exclusive waiter and stops there; a close or an error wakes all.
//! Ordinary waiters come before exclusive ones, in any order of arrival. Among equals, the first to come is
//! the first to wake.
//!
//! The kernel keeps one list with the ordinary waiters in front. Here there are two lists, one behind the
//! other. They give the same order without a pointer to the boundary.
//!
//! A waiter uses the queue as the kernel's waiters do: it calls [`Queue::enqueue`], then looks for work. Then
//! it calls either [`Queue::withdraw`] or [`Queue::sleep`]. No wake-up is lost: an event after `enqueue`
//! marks the waiter, and `sleep` returns at once for a marked waiter.
//!
//! Invariants: all links are read and written under the lock, which is never held across a system call. A
//! marked waiter is in no list. The lock spins and yields but never sleeps, so it adds no voluntary context
//! switch to the measured ones.
//!
//! A process killed while it holds the lock stops the queue for all, so processes that share a queue live and
//! die together. A wake-up may reach a waiter that has already queued again and sleeps. That waiter finds no
//! mark and sleeps on.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use words::{EVERY_SLEEPER, Futex};

/// The kind of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every event wakes the waiter.
    Ordinary,
    /// An event that needs one waiter wakes only the first of this kind.
    Exclusive,
}

/// An event that wakes waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The socket changed its state.
    StateChange,
    /// The socket has data to read or a connection to accept.
    DataReady,
    /// The socket has room to write.
    WriteSpace,
    /// The socket was closed.
    Close,
    /// The socket failed.
    Error,
}

const EVENTS: [Event; 5] =
    [Event::StateChange, Event::DataReady, Event::WriteSpace, Event::Close, Event::Error];

impl Event {
    /// Returns true if one exclusive waiter is enough for the event.
    pub fn wakes_one(self) -> bool {
        matches!(self, Event::StateChange | Event::DataReady | Event::WriteSpace)
    }

    /// The mark of a waiter that the event woke; never [`UNMARKED`].
    fn mark(self) -> u32 {
        EVENTS.iter().position(|event| *event == self).expect("every event is listed") as u32 + 1
    }

    fn of_mark(mark: u32) -> Option<Event> {
        EVENTS.get((mark as usize).checked_sub(1)?).copied()
    }
}

/// The numbers of waiters that an event woke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// Ordinary waiters.
    pub ordinary: usize,
    /// Exclusive waiters.
    pub exclusive: usize,
}

/// The words of one waiter: a cache line.
const LINE: usize = 16;
/// The indices of the queue's own words.
const LOCK: usize = 0;
const HEADS: [usize; 2] = [1, 3];
const TAILS: [usize; 2] = [2, 4];
/// The indices within a waiter's words.
const MARK: usize = 0;
const PLACE: usize = 1;
const NEXT: usize = 2;
const PREVIOUS: usize = 3;

const UNMARKED: u32 = 0;
/// No waiter and no list. The value is 0, so that zeroed memory is an empty queue.
const NONE: u32 = 0;

/// The lists in the order in which they are woken. A waiter's place is its list's number plus one.
const ORDINARY: usize = 0;
const EXCLUSIVE: usize = 1;

/// A wait queue in words that all its waiters and wakers share.
pub struct Queue<'a, W = AtomicU32> {
    words: &'a [W],
}

impl<W> Clone for Queue<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Queue<'_, W> {}

impl<W> fmt::Debug for Queue<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiters", &(self.words.len() / LINE - 1)).finish()
    }
}

impl Queue<'_> {
    /// The number of words of a queue for `waiters` waiters. Zeros are an empty queue.
    pub const fn words(waiters: usize) -> usize {
        (waiters + 1) * LINE
    }
}

impl<'a, W: Futex> Queue<'a, W> {
    /// The queue in these words; tasks that share the words share the queue.
    pub fn new(words: &'a [W]) -> Queue<'a, W> {
        assert!(words.len() >= Queue::words(1) && words.len().is_multiple_of(LINE), "whole lines");
        Queue { words }
    }

    /// Appends a waiter to the list of its kind. From here on every event finds it.
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

    /// Removes a waiter from the queue without sleeping. Returns the event that has woken it, if any.
    /// The waiter has then consumed that wake-up, so it must look for work once more before it waits again.
    pub fn withdraw(&self, waiter: usize) -> Option<Event> {
        let _locked = self.lock();
        if self.load(waiter, PLACE) != NONE {
            self.unlink(waiter);
        }
        Event::of_mark(self.word(waiter, MARK).load(Ordering::Relaxed))
    }

    /// Sleeps until an event wakes this waiter, which must have called [`Queue::enqueue`]. Afterwards it is
    /// no longer in the queue. Blocks.
    pub fn sleep(&self, waiter: usize) -> Event {
        let mark = self.word(waiter, MARK);
        loop {
            if let Some(event) = Event::of_mark(mark.load(Ordering::Acquire)) {
                return event;
            }
            mark.sleep(UNMARKED, EVERY_SLEEPER);
        }
    }

    /// Wakes the waiters that the event is for.
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
            // A waiter that is not asleep yet sees the mark instead.
            self.word(waiter, MARK).wake(1, EVERY_SLEEPER);
        }
        woken
    }

    /// Removes and marks the first waiter of a list.
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

    fn lock(&self) -> Locked<'a, W> {
        let lock = &self.words[LOCK];
        let mut spins = 0;
        while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spins += 1;
            W::pause(spins);
        }
        Locked(lock)
    }

    fn word(&self, waiter: usize, word: usize) -> &'a W {
        &self.words[(waiter + 1) * LINE + word]
    }

    /// Requires the lock, which orders these loads and stores.
    fn load(&self, waiter: usize, word: usize) -> u32 {
        self.word(waiter, word).load(Ordering::Relaxed)
    }

    fn store(&self, waiter: usize, word: usize, value: u32) {
        self.word(waiter, word).store(value, Ordering::Relaxed);
    }
}

/// Unlocks when dropped.
struct Locked<'a, W: Futex>(&'a W);

impl<W: Futex> Drop for Locked<'_, W> {
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
