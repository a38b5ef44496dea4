//! The waiters of the same listeners, and the strategy that wakes them for a connection (Molloy and Lever 2000).
//!
//! ```text
//!   exclusive         each in an epoll of its own, EPOLLEXCLUSIVE      the kernel wakes one
//!   epoll-exclusive   the same, and never leaves the wait queue        the kernel wakes one
//!   one               each on one futex                                the waker decides, and wakes the first
//!   mutex             one in poll, the others for a mutex              the one, who then lets the next in
//!   all               each in poll                                     the kernel wakes all
//!   reuseport         each in poll, on an accept queue of its own      the kernel, by a hash of the addresses
//! ```
//!
//! Owns the strategy, and the words that waiters share under some strategies. The words are in memory that other
//! processes can map, so waiters may be threads or processes. Does not accept.
//!
//! EPOLLEXCLUSIVE keeps a waiter in a listener's wait queue while it works. For each connection the kernel asks one
//! after the other until it finds one that sleeps. If a thousand processes are at work, that costs more than the request.
//! Under [`Wake::Exclusive`] a waiter therefore leaves the queue when it finds a connection without a sleep, and enters
//! it before the next sleep. Until then it keeps its place. While most sleep, the kernel thus wakes the same few, whose
//! memory is likely to be in the processor's cache. A blocking accept enters anew for each connection, and the kernel
//! wakes the one that has slept longest.
//!
//! Under [`Wake::One`] the caller of [`Waiters::wake`] is the waker. Edges report new connections to it, and several
//! edges may come as one. So it reads the number of waiting connections, and wakes a waiter for each accept-limit of
//! them. If all waiters were at work, the first to finish finds the connection. The kernel keeps the queue of the futex,
//! so a process that dies leaves it. Waiters could not repair a queue of their own.
//!
//! Invariants: a woken waiter tries the listeners, or the next wake-up sees it; the stop wakes every waiter, directly
//! or by [`Waiters::wake_all`] after it.

use std::cell::Cell;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use base::{Limit, Nanos};
use sys::readiness::epoll::{self, Operation};
use sys::readiness::poll::{self, PollFd};
use sys::shared::SharedArray;
use wake::Mutex;
use words::{EVERY_SLEEPER, bell};

use crate::connections::accept::LiveLimit;
use crate::ground::choices::Wake;
use crate::ground::listener::Listener;

/// The mutex and the futex have a cache line each.
const MUTEX: usize = 0;
const FUTEX: usize = 16;
const WORDS: usize = 32;
/// Marks the stop among the waker's events.
const STOP: u64 = u64::MAX;
/// The most listeners that one call reports to the waker; the next call reports the others.
const EVENTS: usize = 16;

/// The state that waiters share.
#[derive(Debug)]
pub struct Waiters {
    wake: Wake,
    words: SharedArray<AtomicU32>,
    /// The sleepers that [`Waiters::wake_all`] wakes: bits of their numbers.
    ours: NonZeroU32,
    /// The waker's interest set, if the strategy has a waker.
    edges: Option<OwnedFd>,
}

impl Waiters {
    /// Makes the state for the waiters of these listeners.
    ///
    /// # Errors
    /// No descriptor or memory is left.
    pub fn new(wake: Wake, listeners: &[Listener]) -> io::Result<Waiters> {
        let words = SharedArray::create(WORDS)?;
        let edges = match wake {
            Wake::One => {
                let set = epoll::create()?;
                watch(&set, listeners, epoll::bits::ET)?;
                Some(set)
            }
            _ => None,
        };
        Ok(Waiters { wake, words, ours: EVERY_SLEEPER, edges })
    }

    /// Returns the memory that another process opens; that process knows the strategy already.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }

    /// Opens the waiters of another process, which is also the waker if the strategy has one. The only waiter of this
    /// process has the number `index`.
    ///
    /// # Errors
    /// EINVAL if the memory is not that of waiters; ENOMEM.
    pub fn open(wake: Wake, memory: OwnedFd, index: usize) -> io::Result<Waiters> {
        Ok(Waiters { wake, words: SharedArray::open(memory)?, ours: bit(index), edges: None })
    }

    /// Notes that the process of a waiter has died. If that waiter had the mutex or a wake-up, lets the next one in.
    pub fn bury(&self, index: usize) {
        Mutex::new(&self.words[MUTEX]).unlock_for_the_dead(index);
        self.wake_sleepers(1, EVERY_SLEEPER);
    }

    /// Makes the waiter of an unused number below `most`. It waits for `listeners`, all or its own, until `stop` is
    /// readable.
    ///
    /// # Errors
    /// No descriptor is left for its interest set.
    pub fn waiter<'a>(
        &'a self,
        index: usize,
        listeners: &'a [Listener],
        stop: BorrowedFd<'a>,
    ) -> io::Result<Waiter<'a>> {
        let exclusive = match self.wake {
            Wake::Exclusive | Wake::EpollExclusive => {
                let set = epoll::create()?;
                epoll::control(&set, Operation::Add, stop.as_raw_fd(), epoll::bits::IN, STOP)?;
                Some(set)
            }
            _ => None,
        };
        Ok(Waiter {
            shared: self,
            index,
            listeners,
            stop,
            exclusive,
            in_queues: Cell::new(false),
            has_waited: Cell::new(false),
        })
    }

    /// Returns a descriptor that is readable when [`Waiters::wake`] must be called; `None` if the strategy has no
    /// waker.
    pub fn calls_the_waker(&self) -> Option<BorrowedFd<'_>> {
        self.edges.as_ref().map(AsFd::as_fd)
    }

    /// Wakes waiters for the connections that have come since the last call, as the waker. Never blocks.
    ///
    /// # Errors
    /// Polling fails because of a bug of Inrush.
    pub fn wake(&self, listeners: &[Listener], limit: &LiveLimit) -> io::Result<()> {
        let Some(edges) = &self.edges else { return Ok(()) };
        let mut events = [epoll::Event::EMPTY; EVENTS];
        let count = unless_interrupted(epoll::wait(edges, &mut events, Some(Nanos::ZERO)))?;
        let events = &events[..count];
        if events.iter().any(|event| event.bits() & (epoll::bits::ERR | epoll::bits::HUP) != 0) {
            self.wake_sleepers(u32::MAX, EVERY_SLEEPER);
        } else if !events.is_empty() {
            self.wake_sleepers(
                needed(Listener::queues(listeners).depth, limit.get().of_a_thread()),
                EVERY_SLEEPER,
            );
        }
        Ok(())
    }

    /// Wakes every waiter of this process that sleeps on the futex. Call it after the stop has become readable.
    pub fn wake_all(&self) {
        self.wake_sleepers(u32::MAX, self.ours);
    }

    fn wake_sleepers(&self, count: u32, bits: NonZeroU32) {
        bell::ring(&self.words[FUTEX], count, bits);
    }
}

/// A thread or process that waits for listeners.
#[derive(Debug)]
pub struct Waiter<'a> {
    shared: &'a Waiters,
    index: usize,
    listeners: &'a [Listener],
    stop: BorrowedFd<'a>,
    /// Its own interest set under [`Wake::Exclusive`] and [`Wake::EpollExclusive`].
    exclusive: Option<OwnedFd>,
    /// True while the interest set holds the listeners.
    in_queues: Cell<bool>,
    /// It has waited since it found the last connections.
    has_waited: Cell<bool>,
}

/// The right to wait and to accept, under a strategy that gives it to one waiter at a time.
#[derive(Debug)]
pub struct Turn<'a>(Mutex<'a>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<'a> Waiter<'a> {
    /// Returns the listeners that it waits for.
    pub fn listeners(&self) -> &'a [Listener] {
        self.listeners
    }

    /// Waits for its turn if only one waiter accepts at a time. The waiter keeps the turn until a connection comes.
    /// Blocks.
    pub fn turn(&self) -> Option<Turn<'a>> {
        let mutex = Mutex::new(&self.shared.words[MUTEX]);
        (self.shared.wake == Wake::Mutex).then(|| {
            mutex.lock(self.index, || {});
            Turn(mutex)
        })
    }

    /// Sleeps until a listener or the stop may be ready. May return early, and other waiters may be quicker. Blocks.
    ///
    /// # Errors
    /// Waiting fails because of a bug of Inrush, or the kernel has no memory for it.
    pub fn wait(&self) -> io::Result<()> {
        self.has_waited.set(true);
        match (&self.exclusive, self.shared.wake) {
            (Some(set), _) => {
                if !self.in_queues.replace(true) {
                    watch(set, self.listeners, epoll::bits::EXCLUSIVE)?;
                }
                unless_interrupted(epoll::wait(set, &mut [epoll::Event::EMPTY], None)).map(drop)
            }
            (None, Wake::One) => self.wait_on_the_futex(),
            (None, _) => self.poll(None).map(drop),
        }
    }

    /// Notes that the waiter has found connections. If it did not wait for them, it leaves the listeners' wait queues
    /// where the strategy says so.
    ///
    /// # Errors
    /// None that is not a bug of Inrush.
    pub fn found_connections(&self) -> io::Result<()> {
        let has_waited = self.has_waited.replace(false);
        let (Some(set), Wake::Exclusive) = (&self.exclusive, self.shared.wake) else { return Ok(()) };
        if !has_waited && self.in_queues.replace(false) {
            for listener in self.listeners {
                epoll::control(set, Operation::Delete, listener.socket.as_raw_fd(), 0, 0)?;
            }
        }
        Ok(())
    }

    fn wait_on_the_futex(&self) -> io::Result<()> {
        // A connection that came before the look has woken another waiter or none. The caller tries the listeners after
        // every return.
        let is_ready = || Ok(self.poll(Some(Nanos::ZERO))? > 0);
        bell::sleep(&self.shared.words[FUTEX], bit(self.index), is_ready)
    }

    /// Returns the number of ready descriptors among the listeners and the stop.
    fn poll(&self, timeout: Option<Nanos>) -> io::Result<usize> {
        let mut set: Vec<PollFd> = self.listeners.iter().map(|listener| readable(&listener.socket)).collect();
        set.push(readable(&self.stop));
        sleep(&mut set, timeout)
    }
}

/// The waiters that these connections need: one for each accept-limit of them, at least one.
fn needed(connections: u32, limit: Limit) -> u32 {
    let each = match limit {
        Limit::AtMost(most) => most.max(1),
        Limit::Infinite => u32::MAX,
    };
    connections.div_ceil(each).max(1)
}

/// The bit of a waiter among the sleepers; others may share it.
fn bit(index: usize) -> NonZeroU32 {
    NonZeroU32::new(1 << (index % 32)).expect("one bit is set")
}

/// Adds the listeners to an interest set, with the flags `how`.
fn watch(set: &OwnedFd, listeners: &[Listener], how: u32) -> io::Result<()> {
    for (index, listener) in listeners.iter().enumerate() {
        let descriptor = listener.socket.as_raw_fd();
        epoll::control(set, Operation::Add, descriptor, epoll::bits::IN | how, index as u64)?;
    }
    Ok(())
}

/// Makes a poll entry that waits until a descriptor is readable.
pub fn readable(descriptor: &impl AsRawFd) -> PollFd {
    PollFd::new(descriptor.as_raw_fd(), poll::bits::IN)
}

/// Sleeps until a descriptor is ready or `timeout` has passed. A signal ends the sleep early.
pub fn sleep(set: &mut [PollFd], timeout: Option<Nanos>) -> io::Result<usize> {
    unless_interrupted(poll::wait(set, timeout))
}

fn unless_interrupted(waited: io::Result<usize>) -> io::Result<usize> {
    match waited {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        waited => waited,
    }
}

#[cfg(test)]
mod tests;
