//! Those who wait for the same listeners, and who of them wakes for a connection (Molloy and Lever 2000).
//!
//! ```text
//!   exclusive   each in an epoll of its own, EPOLLEXCLUSIVE      the kernel wakes one
//!   one         each in a wait queue by futex                    the waker decides, and wakes one
//!   mutex       one in poll, the others for a mutex              the one, who then lets the next in
//!   all         each in poll                                     the kernel wakes all
//!   reuseport   each in poll, on an accept queue of its own      the kernel, by a hash of the addresses
//! ```
//!
//! Owns the strategy, and the words that waiters share under some of them. Those are in memory that other
//! processes can map, so that it is all the same whether waiters are threads or processes. Does not accept.
//!
//! Under [`Wake::One`] the waker is whoever calls [`Waiters::wake`]. It is told of new connections by edges,
//! several of which may come as one: it looks how many connections wait, and wakes a waiter for each
//! accept-limit of them. One that came while everybody was at work is found by who is done first.
//!
//! Invariants: a waiter tries the listeners after it was woken, or is seen by the next wake-up; whoever waits
//! is woken by the stop, or by [`Waiters::wake_all`] after it.

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
/// Listeners that the waker hears of at once; the others come next.
const EVENTS: usize = 16;

/// What waiters share.
#[derive(Debug)]
pub struct Waiters {
    wake: Wake,
    words: SharedArray<AtomicU32>,
    /// The waker's interest set, where there is a waker.
    edges: Option<OwnedFd>,
}

impl Waiters {
    /// For at most so many who wait for these listeners.
    ///
    /// # Errors
    /// No descriptor or memory left.
    pub fn new(wake: Wake, most: usize, listeners: &[Listener]) -> io::Result<Waiters> {
        let words = SharedArray::create(MUTEX_WORDS + Queue::words(most))?;
        let edges = match wake {
            Wake::One => Some(interest_set(listeners, epoll::bits::ET)?),
            _ => None,
        };
        Ok(Waiters { wake, words, edges })
    }

    /// What another process opens, which knows the strategy.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }

    /// The waiters of another process, which is the waker if there has to be one.
    ///
    /// # Errors
    /// EINVAL where the memory is not that of waiters; ENOMEM.
    pub fn open(wake: Wake, memory: OwnedFd) -> io::Result<Waiters> {
        Ok(Waiters { wake, words: SharedArray::open(memory)?, edges: None })
    }

    /// The waiter of this number was a process that has died: lets the next one in if it had the mutex.
    pub fn bury(&self, index: usize) {
        Mutex::new(&self.words[0]).unlock_for_the_dead(index);
    }

    /// The waiter of a number below the most, which nobody else has. It waits for `listeners`, all or its
    /// own, until `stop` is readable.
    ///
    /// # Errors
    /// No descriptor left for its interest set.
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

    /// Readable when [`Waiters::wake`] is to be called, where waiters need a waker.
    pub fn calls_the_waker(&self) -> Option<BorrowedFd<'_>> {
        self.edges.as_ref().map(AsFd::as_fd)
    }

    /// Is the waker: wakes waiters for the connections that have come since the last call. Never blocks.
    ///
    /// # Errors
    /// Looking fails, which is our mistake.
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

    /// Wakes as many as so many connections need; one at least.
    fn wake_for(&self, connections: u32, limit: Limit) {
        let each = match limit {
            Limit::AtMost(most) => most.max(1),
            Limit::Infinite => u32::MAX,
        };
        for _ in 0..connections.div_ceil(each).max(1) {
            if self.queue().wake(Event::DataReady) == Woken::default() {
                // Everybody is at work.
                return;
            }
        }
    }

    /// Wakes everybody who sleeps in the wait queue: after the stop has become readable.
    pub fn wake_all(&self) {
        self.queue().wake(Event::Close);
    }

    fn queue(&self) -> Queue<'_> {
        Queue::new(&self.words[MUTEX_WORDS..])
    }
}

/// One who waits.
#[derive(Debug)]
pub struct Waiter<'a> {
    shared: &'a Waiters,
    index: usize,
    listeners: &'a [Listener],
    stop: BorrowedFd<'a>,
    /// Its own interest set, under [`Wake::Exclusive`].
    exclusive: Option<OwnedFd>,
}

/// The right to wait and to accept, where one at a time has it.
#[derive(Debug)]
pub struct Turn<'a>(Mutex<'a>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<'a> Waiter<'a> {
    /// What it waits for.
    pub fn listeners(&self) -> &'a [Listener] {
        self.listeners
    }

    /// Waits for its turn, where one at a time accepts: kept until a connection is there. Blocks.
    pub fn turn(&self) -> Option<Turn<'a>> {
        let mutex = Mutex::new(&self.shared.words[0]);
        (self.shared.wake == Wake::Mutex).then(|| {
            mutex.lock(self.index, || {});
            Turn(mutex)
        })
    }

    /// Sleeps until a listener may be ready or the stop is. May end early, and others may be quicker. Blocks.
    ///
    /// # Errors
    /// Waiting fails, which is our mistake.
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
        // What came before this caller was in the queue has woken others, or nobody.
        match self.poll(Some(Nanos::ZERO)) {
            Ok(0) => drop(queue.sleep(self.index)),
            // A wake-up meanwhile is followed as well: the listeners are tried next.
            Ok(_) => drop(queue.withdraw(self.index)),
            Err(error) => {
                queue.withdraw(self.index);
                return Err(error);
            }
        }
        Ok(())
    }

    /// How many listeners are ready, and the stop.
    fn poll(&self, timeout: Option<Nanos>) -> io::Result<usize> {
        let mut set: Vec<PollFd> = self.listeners.iter().map(|listener| readable(&listener.socket)).collect();
        set.push(readable(&self.stop));
        sleep(&mut set, timeout)
    }
}

/// An epoll that watches the listeners in this way.
fn interest_set(listeners: &[Listener], how: u32) -> io::Result<OwnedFd> {
    let set = epoll::create()?;
    for (index, listener) in listeners.iter().enumerate() {
        let descriptor = listener.socket.as_raw_fd();
        epoll::control(&set, Operation::Add, descriptor, epoll::bits::IN | how, index as u64)?;
    }
    Ok(set)
}

/// A descriptor to be waited for until it is readable.
pub fn readable(descriptor: &impl AsRawFd) -> PollFd {
    PollFd::new(descriptor.as_raw_fd(), poll::bits::IN)
}

/// Sleeps until one of the descriptors is ready, at most so long; a signal ends it early.
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
