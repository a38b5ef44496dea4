//! The threads that serve idle connections, and the way to make one give its connection up.
//!
//! A thread enters when it begins to wait for an idle connection, and leaves when the wait ends. To reclaim its place,
//! the server shuts down the receiving side of the socket. The thread wakes, reads the end of the stream, and closes
//! the connection as if the peer had left. Bytes that arrived in that moment are read before the end, and answered.
//! Until the thread is free, and for [`LEAVES_WITHIN`] at most, no other is asked.
//!
//! Owns the order of idle connections among threads, under one lock. Does not own the connections.
//!
//! Invariant: while the lock is held, no socket of an entered thread is closed.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use base::{Key, Nanos, Slab, lock};
use rustix::net::{RecvFlags, Shutdown};

use crate::connections::idle::IdleList;

/// The most idle connections with a new request that one call passes over. Their threads are about to leave.
const MOST_PASSED_OVER: usize = 16;

/// The time that a thread may take to give its connection up before another is asked. On a busy machine it waits for a
/// processor, and bytes that arrived late may have a long answer.
const LEAVES_WITHIN: Nanos = Nanos::from_millis(100);

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
    /// Threads that must give up their connection and are not free yet.
    leaving: usize,
    /// The time when the last of them was asked.
    asked_at: Nanos,
}

/// The result of asking for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// An idle connection is about to end.
    One,
    /// A connection that was reclaimed before is about to end, or nobody waits any more.
    Already,
    /// No connection is idle.
    None,
}

/// A thread that waits for an idle connection; leaves when dropped.
pub struct Entry<'a> {
    threads: &'a IdleThreads,
    key: Key,
}

/// A thread that gives its connection up. Dropped when the thread is free.
pub struct Leaving<'a>(&'a IdleThreads);

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

    /// Makes the thread with the longest-idle connection give it up, if a connection is still `wanting` for a thread.
    /// That is asked after the last thread has left, because it may have taken the connection by then.
    pub fn reclaim(&self, now: Nanos, wanting: impl FnOnce() -> bool) -> Reclaimed {
        let mut entered = self.lock();
        let leaves = entered.leaving > 0 && now.saturating_sub(entered.asked_at) <= LEAVES_WITHIN;
        if leaves || !wanting() {
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
            (entered.leaving, entered.asked_at) = (entered.leaving + 1, now);
            // If the shutdown fails, the peer has gone, and that has woken the thread already.
            let _ = rustix::net::shutdown(&socket, Shutdown::Read);
            // Dropped under the lock. So the thread holds the last reference, and its own drop closes the socket.
            drop(socket);
            return Reclaimed::One;
        }
        Reclaimed::None
    }

    fn leave(&self, key: Key) -> Option<Leaving<'_>> {
        let mut entered = self.lock();
        entered.sockets.remove(key);
        if !entered.order.leave(key) {
            return Some(Leaving(self));
        }
        self.show(&entered);
        None
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

impl<'a> Entry<'a> {
    /// Leaves. Returns a guard if the thread must give its connection up.
    pub fn leave(self) -> Option<Leaving<'a>> {
        let leaving = self.threads.leave(self.key);
        std::mem::forget(self);
        leaving
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut entered = self.0.lock();
        entered.leaving -= 1;
        self.0.show(&entered);
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        drop(self.threads.leave(self.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use std::os::fd::AsRawFd;
    use sys::readiness::poll::{self, PollFd, bits};

    fn pair() -> (UnixStream, Arc<OwnedFd>) {
        let (client, server) = UnixStream::pair().unwrap();
        (client, Arc::new(server.into()))
    }

    fn is_woken(socket: &Arc<OwnedFd>) -> bool {
        poll::wait(&mut [PollFd::new(socket.as_raw_fd(), bits::IN)], Some(Nanos::ZERO)).unwrap() > 0
    }

    #[test]
    fn only_thread_with_longest_idle_connection_wakes() {
        let threads = IdleThreads::default();
        let clients = [pair(), pair(), pair()];
        let enter = |(at, (_, socket)): (usize, &(_, _))| threads.enter(socket, Nanos(at as u64));
        let mut entries: Vec<Entry<'_>> = clients.iter().enumerate().map(enter).collect();
        assert_eq!(threads.reclaim(Nanos(9), || true), Reclaimed::One);
        assert_eq!(clients.each_ref().map(|(_, socket)| is_woken(socket)), [true, false, false]);
        assert_eq!(threads.reclaim(Nanos(9), || true), Reclaimed::Already);
        let leaving = entries.remove(0).leave();
        assert!(leaving.is_some() && entries.remove(0).leave().is_none());
        assert_eq!(threads.reclaim(Nanos(9), || true), Reclaimed::Already, "its thread is not free yet");
        drop(leaving);
        assert_eq!(threads.reclaim(Nanos(9), || false), Reclaimed::Already, "nobody waits");
        assert_eq!(threads.reclaim(Nanos(9), || true), Reclaimed::One);
        assert!(is_woken(&clients[2].1));
        entries.clear();
        assert_eq!(threads.reclaim(Nanos(9), || true), Reclaimed::None);
    }

    #[test]
    fn connection_with_a_request_is_passed_over() {
        let threads = IdleThreads::default();
        let (mut asks, quiet) = (pair(), pair());
        let _entries = [&asks, &quiet].map(|(_, socket)| threads.enter(socket, Nanos(1)));
        asks.0.write_all(b"GET").unwrap();
        assert_eq!(threads.reclaim(Nanos(1), || true), Reclaimed::One);
        assert!(is_woken(&quiet.1));
        assert_eq!(threads.reclaim(Nanos(1), || true), Reclaimed::Already);
    }

    #[test]
    fn new_connection_stays_until_it_counts_as_idle() {
        let threads = IdleThreads::default();
        let silent = pair();
        let _entry = threads.enter(&silent.1, Nanos(50));
        assert_eq!(threads.reclaim(Nanos(49), || true), Reclaimed::None);
        assert_eq!(threads.reclaim(Nanos(50), || true), Reclaimed::One);
    }

    #[test]
    fn a_thread_that_hangs_is_not_waited_for() {
        let threads = IdleThreads::default();
        let clients = [pair(), pair()];
        let _entries = clients.each_ref().map(|(_, socket)| threads.enter(socket, Nanos(1)));
        assert_eq!(threads.reclaim(Nanos(9), || true), Reclaimed::One);
        assert_eq!(threads.reclaim(Nanos(9) + LEAVES_WITHIN, || true), Reclaimed::Already);
        assert_eq!(threads.reclaim(Nanos(10) + LEAVES_WITHIN, || true), Reclaimed::One);
        assert!(is_woken(&clients[1].1));
    }

    #[test]
    fn whoever_is_shown_the_longest_sees_each_change() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        let threads = IdleThreads::shown_to(move |from| sees.lock().unwrap().push(from.0));
        let one = pair();
        drop(threads.enter(&one.1, Nanos(5)));
        assert_eq!(*seen.lock().unwrap(), [5, u64::MAX]);
        let entry = threads.enter(&one.1, Nanos(7));
        assert_eq!(threads.reclaim(Nanos(9), || true), Reclaimed::One);
        let leaving = entry.leave();
        assert_eq!(seen.lock().unwrap()[2..], [7], "until the thread is free");
        drop(leaving);
        assert_eq!(seen.lock().unwrap()[3..], [u64::MAX]);
    }
}
