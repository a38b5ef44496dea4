//! The waiters of the same listeners, and the strategy that wakes them for a connection (Molloy and Lever 2000).
//!
//! ```text
//!   exclusive   each in an epoll of its own, EPOLLEXCLUSIVE      the kernel wakes one
//!   one         each in a wait queue by futex                    the waker decides, and wakes one
//!   mutex       one in poll, the others for a mutex              the one, who then lets the next in
//!   all         each in poll                                     the kernel wakes all
//!   reuseport   each in poll, on an accept queue of its own      the kernel, by a hash of the addresses
//! ```
//!
//! Owns the strategy, and the words that waiters share under some strategies. The words are in memory that other
//! processes can map, so waiters may be threads or processes. Does not accept.
//!
//! Under [`Wake::One`] the caller of [`Waiters::wake`] is the waker. Edges report new connections to it, and several
//! edges may come as one. So it reads the number of waiting connections, and wakes a waiter for each accept-limit of
//! them. If all waiters were at work, the first to finish finds the connection.
//!
//! Invariants: a woken waiter tries the listeners, or the next wake-up sees it; the stop wakes every waiter, directly
//! or by [`Waiters::wake_all`] after it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use base::{Limit, Nanos};
use sys::epoll::{self, Operation};
use sys::poll::{self, PollFd};
use sys::shared::SharedArray;
use wake::{Event, Kind, Mutex, Queue, Woken};

use crate::accept::LiveLimit;
use crate::choices::Wake;
use crate::listener::Listener;

/// The mutex has a cache line of its own, in front of the queue.
const MUTEX_WORDS: usize = 16;
/// Marks the stop among the waker's events.
const STOP: u64 = u64::MAX;
/// The most listeners that one call reports to the waker; the next call reports the others.
const EVENTS: usize = 16;

/// The state that waiters share.
#[derive(Debug)]
pub struct Waiters {
    wake: Wake,
    words: SharedArray<AtomicU32>,
    /// The waker's interest set, if the strategy has a waker.
    edges: Option<OwnedFd>,
}

impl Waiters {
    /// Makes the state for at most `most` waiters of these listeners.
    ///
    /// # Errors
    /// No descriptor or memory is left.
    pub fn new(wake: Wake, most: usize, listeners: &[Listener]) -> io::Result<Waiters> {
        let words = SharedArray::create(MUTEX_WORDS + Queue::words(most))?;
        let edges = match wake {
            Wake::One => Some(interest_set(listeners, epoll::bits::ET)?),
            _ => None,
        };
        Ok(Waiters { wake, words, edges })
    }

    /// Returns the memory that another process opens; that process knows the strategy already.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }

    /// Opens the waiters of another process, which is also the waker if the strategy has one.
    ///
    /// # Errors
    /// EINVAL if the memory is not that of waiters; ENOMEM.
    pub fn open(wake: Wake, memory: OwnedFd) -> io::Result<Waiters> {
        Ok(Waiters { wake, words: SharedArray::open(memory)?, edges: None })
    }

    /// Notes that the process of a waiter has died. If that waiter had the mutex, lets the next one in.
    pub fn bury(&self, index: usize) {
        Mutex::new(&self.words[0]).unlock_for_the_dead(index);
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
            Wake::Exclusive => {
                let set = interest_set(listeners, epoll::bits::EXCLUSIVE)?;
                epoll::control(&set, Operation::Add, stop.as_raw_fd(), epoll::bits::IN, STOP)?;
                Some(set)
            }
            _ => None,
        };
        Ok(Waiter { shared: self, index, listeners, stop, exclusive })
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
            self.queue().wake(Event::Error);
        } else if !events.is_empty() {
            self.wake_for(Listener::queues(listeners).depth, limit.get().of_a_thread());
        }
        Ok(())
    }

    /// Wakes a waiter for each accept-limit of the connections, at least one.
    fn wake_for(&self, connections: u32, limit: Limit) {
        let each = match limit {
            Limit::AtMost(most) => most.max(1),
            Limit::Infinite => u32::MAX,
        };
        for _ in 0..connections.div_ceil(each).max(1) {
            if self.queue().wake(Event::DataReady) == Woken::default() {
                // Every waiter is at work.
                return;
            }
        }
    }

    /// Wakes every waiter that sleeps in the wait queue. Call it after the stop has become readable.
    pub fn wake_all(&self) {
        self.queue().wake(Event::Close);
    }

    fn queue(&self) -> Queue<'_> {
        Queue::new(&self.words[MUTEX_WORDS..])
    }
}

/// A thread or process that waits for listeners.
#[derive(Debug)]
pub struct Waiter<'a> {
    shared: &'a Waiters,
    index: usize,
    listeners: &'a [Listener],
    stop: BorrowedFd<'a>,
    /// Its own interest set under [`Wake::Exclusive`].
    exclusive: Option<OwnedFd>,
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
        let mutex = Mutex::new(&self.shared.words[0]);
        (self.shared.wake == Wake::Mutex).then(|| {
            mutex.lock(self.index, || {});
            Turn(mutex)
        })
    }

    /// Sleeps until a listener or the stop may be ready. May return early, and other waiters may be quicker. Blocks.
    ///
    /// # Errors
    /// Waiting fails because of a bug of Inrush.
    pub fn wait(&self) -> io::Result<()> {
        match (&self.exclusive, self.shared.wake) {
            (Some(set), _) => {
                unless_interrupted(epoll::wait(set, &mut [epoll::Event::EMPTY], None)).map(drop)
            }
            (None, Wake::One) => self.wait_in_the_queue(),
            (None, _) => self.poll(None).map(drop),
        }
    }

    fn wait_in_the_queue(&self) -> io::Result<()> {
        let queue = self.shared.queue();
        queue.enqueue(self.index, Kind::Exclusive);
        // A connection that came before this caller entered the queue has woken another waiter or none.
        match self.poll(Some(Nanos::ZERO)) {
            Ok(0) => drop(queue.sleep(self.index)),
            // The thread tries the listeners next, as after a wake-up.
            Ok(_) => drop(queue.withdraw(self.index)),
            Err(error) => {
                queue.withdraw(self.index);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the number of ready descriptors among the listeners and the stop.
    fn poll(&self, timeout: Option<Nanos>) -> io::Result<usize> {
        let mut set: Vec<PollFd> = self.listeners.iter().map(|listener| readable(&listener.socket)).collect();
        set.push(readable(&self.stop));
        sleep(&mut set, timeout)
    }
}

/// Makes an epoll that watches the listeners with the flags `how`.
fn interest_set(listeners: &[Listener], how: u32) -> io::Result<OwnedFd> {
    let set = epoll::create()?;
    for (index, listener) in listeners.iter().enumerate() {
        let descriptor = listener.socket.as_raw_fd();
        epoll::control(&set, Operation::Add, descriptor, epoll::bits::IN | how, index as u64)?;
    }
    Ok(set)
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
