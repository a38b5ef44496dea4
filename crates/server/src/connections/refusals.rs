//! The queue of connections that are turned away, on their way from the acceptors to the loop that answers them.
//!
//! Some descriptors are kept in reserve for the time when no others are left. An acceptor gives one up to accept the
//! connection that it turns away. The loop ([`refusal_loop`](crate::plan::refusal_loop)) takes one back when it closes a
//! connection.
//!
//! Invariant: at most [`MOST_WAITING`] connections wait here. Beyond those, newcomers stay in the accept queue.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use base::lock;
use connection::clients::Admission;
use rustix::event::{EventfdFlags, eventfd};

/// Connections handed over and not yet looked at: a quarter of the usual accept queue.
pub const MOST_WAITING: usize = 1024;

/// Reserve descriptors: the connections that can be answered at once when no other descriptor is left.
pub const RESERVE: usize = 8;

/// Waiting connections beyond which those of refused clients are reset.
const MOST_REFUSED_CLIENTS: usize = MOST_WAITING / 4;

/// A connection that is turned away.
#[derive(Debug)]
pub struct TurnedAway {
    /// The socket.
    pub socket: OwnedFd,
    /// The client's address.
    pub peer: Option<SocketAddr>,
    /// [`Admission::Refused`] is answered 429, others 503.
    pub admission: Admission,
}

/// The place where acceptors hand over connections; clones share it.
#[derive(Clone, Debug)]
pub struct Refusals(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Readable while there is work.
    wake: OwnedFd,
    waiting: Mutex<Waiting>,
    /// A reserve descriptor was given up since the reserve was last seen full.
    short: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    connections: VecDeque<TurnedAway>,
    reserve: Vec<OwnedFd>,
    /// Silent connections to be closed, because another connection needs their descriptors.
    asked: usize,
}

impl Waiting {
    /// Fills the reserve while there are descriptors.
    fn fill_reserve(&mut self) {
        let missing = RESERVE - self.reserve.len();
        let opened = std::iter::repeat_with(|| File::open("/dev/null")).take(missing).map_while(Result::ok);
        self.reserve.extend(opened.map(OwnedFd::from));
    }
}

impl Refusals {
    /// Makes an empty queue with its reserve.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Refusals> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut waiting = Waiting::default();
        waiting.fill_reserve();
        Ok(Refusals(Arc::new(Shared { wake, waiting: Mutex::new(waiting), short: AtomicBool::new(false) })))
    }

    /// Tells whether there is room for another connection. Several acceptors that ask at once may all get the same
    /// answer.
    pub fn has_room(&self) -> bool {
        self.waiting().connections.len() < MOST_WAITING
    }

    /// Gives up a reserve descriptor. If none is left, asks the loop to close a silent connection that was turned
    /// away before.
    pub fn use_reserve(&self) {
        let mut waiting = self.waiting();
        self.0.short.store(true, Ordering::Relaxed);
        if waiting.reserve.pop().is_none() {
            waiting.asked = 1;
            drop(waiting);
            self.wake();
        }
    }

    /// Fills the reserve again, if the given-up descriptor was not used.
    pub fn fill_reserve(&self) {
        self.waiting().fill_reserve();
    }

    /// Tells whether the reserve is full, and fills it if it can. While it is not, an accepted connection has
    /// the descriptor that a refused one freed at its close.
    pub fn has_reserve(&self) -> bool {
        if !self.0.short.load(Ordering::Relaxed) {
            return true;
        }
        let mut waiting = self.waiting();
        waiting.fill_reserve();
        let is_full = waiting.reserve.len() == RESERVE;
        self.0.short.store(!is_full, Ordering::Relaxed);
        is_full
    }

    /// Tells whether there is room for another connection whose client has reached a limit. Such clients leave most places
    /// to others.
    pub fn has_room_for_refused_clients(&self) -> bool {
        self.waiting().connections.len() < MOST_REFUSED_CLIENTS
    }

    /// Takes a connection over, to be answered.
    pub fn take(&self, turned_away: TurnedAway) {
        self.waiting().connections.push_back(turned_away);
        self.wake();
    }

    /// Returns a descriptor that is readable while connections wait or one has to be closed.
    pub fn work(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }

    /// Returns the number of connections that wait. At 0, [`Refusals::work`] is readable again only after new work.
    pub fn waiting_or_silence(&self) -> usize {
        let waiting = self.waiting();
        if waiting.connections.is_empty() {
            // Connections that come from now on write to the descriptor after this lock is released.
            let _ = rustix::io::read(&self.0.wake, &mut [0; 8]);
        }
        waiting.connections.len()
    }

    /// Returns the number of connections that wait.
    pub fn len(&self) -> usize {
        self.waiting().connections.len()
    }

    /// Gives the connection that has waited longest to the loop.
    pub fn next(&self) -> Option<TurnedAway> {
        self.waiting().connections.pop_front()
    }

    /// Returns the number of silent connections that the loop has to close, once.
    pub fn take_asked(&self) -> usize {
        std::mem::take(&mut self.waiting().asked)
    }

    fn wake(&self) {
        // The counter is full only after an earlier write, so the loop wakes in any case.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.0.waiting)
    }
}
