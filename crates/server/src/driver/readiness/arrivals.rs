//! Where a loop's connections come from: listeners of its own, or whoever passes it connections.
//!
//! The loop is generic over it. What listeners do not need costs a loop with listeners nothing.

use std::os::fd::{AsFd, BorrowedFd};

use base::{Limit, Nanos};
use dispatch::{Dispatcher, Mechanism};
use rustix::net::Shutdown;
use sys::socket::AcceptQueue;

use crate::accept::{Accepted, Acceptor};
use crate::counters::LoopCounts;
use crate::listener::Listener;

/// A source of connections, on one or several descriptors that are readable when some wait.
pub trait Arrivals {
    /// The descriptors, by index.
    fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>>;

    /// An accept phase begins; gives the most that it may take.
    fn begin_phase(&mut self, counts: &mut LoopCounts) -> Limit;

    /// Takes one connection. Never blocks.
    fn accept(&mut self, index: usize, now: Nanos, counts: &mut LoopCounts) -> Accepted;

    /// What waits in the kernel.
    fn queue(&self) -> AcceptQueue;

    /// The loop is going down and takes no more: forgets the descriptors.
    fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>);

    /// The loop is about to wait, having sent so many replies and closed so many connections so far. Gives
    /// when it wants to hear of it again at the latest.
    fn hear(&mut self, _replies: u64, _closed: u64, _now: Nanos) -> Option<Nanos> {
        None
    }
}

/// Listeners of the loop's own.
pub struct Listeners {
    /// Several for several addresses.
    pub listeners: Vec<Listener>,
    /// How they are accepted from.
    pub acceptor: Acceptor,
}

impl Arrivals for Listeners {
    fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.socket.as_fd())
    }

    fn begin_phase(&mut self, counts: &mut LoopCounts) -> Limit {
        counts.accept_phases += 1;
        self.acceptor.limit.get()
    }

    fn accept(&mut self, index: usize, now: Nanos, counts: &mut LoopCounts) -> Accepted {
        let accepted = self.acceptor.accept(&self.listeners[index], now, counts);
        counts.accepts += u64::from(matches!(accepted, Accepted::Connection(..)));
        accepted
    }

    fn queue(&self) -> AcceptQueue {
        Listener::queues(&self.listeners)
    }

    fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>) {
        for listener in self.listeners.drain(..) {
            dispatcher.closing(listener.socket.as_fd());
            // A request of io_uring on it keeps it open until the kernel comes to cancel it: connects would
            // still succeed, and be reset later.
            let _ = rustix::net::shutdown(&listener.socket, Shutdown::Both);
        }
    }
}
