//! The threads that serve idle connections, and the way to make one give its connection up.
//!
//! A thread enters when it begins to wait for an idle connection, and leaves when the wait ends. To reclaim its place,
//! the server shuts down the receiving side of the socket. The thread wakes, reads the end of the stream, and closes
//! the connection as if the peer had left. Bytes that arrived in that moment are read before the end, and answered.
//!
//! Owns the order of idle connections among threads, under one lock. Does not own the connections.
//!
//! Invariant: while the lock is held, no socket of an entered thread is closed.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use base::{Key, Nanos, Slab};
use rustix::net::{RecvFlags, Shutdown};

use crate::idle::IdleList;
use crate::lock::lock;

/// The most idle connections with a new request that one call passes over. Their threads are about to leave.
const MOST_PASSED_OVER: usize = 16;

/// The threads of a process that serve idle connections.
#[derive(Default)]
pub struct IdleThreads {
    entered: Mutex<Entered>,
    /// Called when the longest-idle connection changes.
    shown: Option<Box<dyn Fn(Nanos) + Send + Sync>>,
}

#[derive(Default)]
struct Entered {
    sockets: Slab<Arc<OwnedFd>>,
    order: IdleList,
    /// Threads that must give up their connection and have not woken yet.
    leaving: usize,
}

/// The result of asking for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// An idle connection is about to end.
    One,
    /// A connection that was reclaimed before is about to end.
    Already,
    /// No connection is idle.
    None,
}

/// A thread that waits for an idle connection; leaves when dropped.
pub struct Entry<'a> {
    threads: &'a IdleThreads,
    key: Key,
}

impl IdleThreads {
    /// Makes a list that calls `shown` with the time since when the longest-idle connection has been idle;
    /// [`Nanos::MAX`] without one.
    pub fn shown_to(shown: impl Fn(Nanos) + Send + Sync + 'static) -> IdleThreads {
        IdleThreads { shown: Some(Box::new(shown)), ..IdleThreads::default() }
    }

    /// Enters a thread that begins to wait for a connection. The connection counts as idle from `idle_from` on.
    pub fn enter(&self, socket: &Arc<OwnedFd>, idle_from: Nanos) -> Entry<'_> {
        let mut entered = self.lock();
        let key = entered.sockets.insert(Arc::clone(socket));
        entered.order.enter(key, idle_from);
        self.show(&entered);
        Entry { threads: self, key }
    }

    /// Makes the thread with the longest-idle connection give it up.
    pub fn reclaim(&self, now: Nanos) -> Reclaimed {
        let mut entered = self.lock();
        if entered.leaving > 0 {
            return Reclaimed::Already;
        }
        for _ in 0..MOST_PASSED_OVER {
            let Some(key) = entered.order.longest(now) else { return Reclaimed::None };
            let socket = Arc::clone(entered.sockets.get(key).expect("what is in order is entered"));
            if rustix::net::recv(&socket, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT)
                .is_ok_and(|read| read.1 > 0)
            {
                entered.order.leave(key);
                entered.order.enter(key, now);
                continue;
            }
            entered.order.leave(key);
            entered.leaving += 1;
            self.show(&entered);
            // If the shutdown fails, the peer has gone, and that has woken the thread already.
            let _ = rustix::net::shutdown(&socket, Shutdown::Read);
            // Dropped under the lock. So the thread holds the last reference, and its own drop closes the socket.
            drop(socket);
            return Reclaimed::One;
        }
        Reclaimed::None
    }

    fn leave(&self, key: Key) -> bool {
        let mut entered = self.lock();
        entered.sockets.remove(key);
        let reclaimed = !entered.order.leave(key);
        entered.leaving -= usize::from(reclaimed);
        self.show(&entered);
        reclaimed
    }

    fn show(&self, entered: &Entered) {
        if let Some(shown) = &self.shown {
            shown(entered.order.idle_from());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entered> {
        lock(&self.entered)
    }
}

impl Entry<'_> {
    /// Leaves. Returns true if the thread must give its connection up.
    pub fn leave(self) -> bool {
        let reclaimed = self.threads.leave(self.key);
        std::mem::forget(self);
        reclaimed
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.threads.leave(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use std::os::fd::AsRawFd;
    use sys::poll::{self, PollFd, bits};

    fn pair() -> (UnixStream, Arc<OwnedFd>) {
        let (client, server) = UnixStream::pair().unwrap();
        (client, Arc::new(server.into()))
    }

    fn is_woken(socket: &Arc<OwnedFd>) -> bool {
        poll::wait(&mut [PollFd::new(socket.as_raw_fd(), bits::IN)], Some(Nanos::ZERO)).unwrap() > 0
    }

    #[test]
    fn the_thread_with_the_longest_idle_connection_wakes_and_no_other() {
        let threads = IdleThreads::default();
        let clients = [pair(), pair(), pair()];
        let enter = |(at, (_, socket)): (usize, &(_, _))| threads.enter(socket, Nanos(at as u64));
        let mut entries: Vec<Entry<'_>> = clients.iter().enumerate().map(enter).collect();
        assert_eq!(threads.reclaim(Nanos(9)), Reclaimed::One);
        assert_eq!(clients.each_ref().map(|(_, socket)| is_woken(socket)), [true, false, false]);
        assert_eq!(threads.reclaim(Nanos(9)), Reclaimed::Already);
        assert!(entries.remove(0).leave() && !entries.remove(0).leave());
        assert_eq!(threads.reclaim(Nanos(9)), Reclaimed::One);
        assert!(is_woken(&clients[2].1));
        entries.clear();
        assert_eq!(threads.reclaim(Nanos(9)), Reclaimed::None);
    }

    #[test]
    fn a_connection_whose_request_has_arrived_is_passed_over() {
        let threads = IdleThreads::default();
        let (mut asks, quiet) = (pair(), pair());
        let _entries = [&asks, &quiet].map(|(_, socket)| threads.enter(socket, Nanos(1)));
        asks.0.write_all(b"GET").unwrap();
        assert_eq!(threads.reclaim(Nanos(1)), Reclaimed::One);
        assert!(is_woken(&quiet.1));
        assert_eq!(threads.reclaim(Nanos(1)), Reclaimed::Already);
    }

    #[test]
    fn a_new_connection_is_left_alone_until_it_counts_as_idle() {
        let threads = IdleThreads::default();
        let silent = pair();
        let _entry = threads.enter(&silent.1, Nanos(50));
        assert_eq!(threads.reclaim(Nanos(49)), Reclaimed::None);
        assert_eq!(threads.reclaim(Nanos(50)), Reclaimed::One);
    }

    #[test]
    fn whoever_is_shown_the_longest_sees_each_change() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        let threads = IdleThreads::shown_to(move |from| sees.lock().unwrap().push(from.0));
        let one = pair();
        drop(threads.enter(&one.1, Nanos(5)));
        assert_eq!(*seen.lock().unwrap(), [5, u64::MAX]);
    }
}
