//! The mechanisms, one file each, and what they have in common.
//!
//! To add one: a file here with a type that implements [`Mechanism`], a line below, and a line in
//! [`for_each_mechanism`](crate::for_each_mechanism), which brings it into the command line, the server's
//! generic loop and the conformance suite.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;
use serde::Serialize;
use sys::poll::bits;

use crate::{Capabilities, Event, Interest, Token, Waited, locality};

mod epoll;
mod epoll_edge;
mod fdm;
mod patience;
mod poll;
mod rt_per_fd;
mod rt_signals;
mod rt_signals_select;
mod select;
mod signals;
mod uring_poll;

pub use epoll::Epoll;
pub use epoll_edge::EpollEdge;
pub use fdm::Fdm;
pub use poll::Poll;
pub use rt_per_fd::RtPerFd;
pub use rt_signals::RtSignals;
pub use rt_signals_select::RtSignalsSelect;
pub use select::Select;
pub use signals::RtFetch;
pub use uring_poll::UringPoll;

/// Calls a macro with every mechanism: its name on the command line and its type. Level-triggered and
/// edge-triggered ones alike.
#[macro_export]
macro_rules! for_each_mechanism {
    ($then:ident) => {
        $then! {
            "epoll" => $crate::mechanism::Epoll,
            "epoll-et" => $crate::mechanism::EpollEdge,
            "poll" => $crate::mechanism::Poll,
            "select" => $crate::mechanism::Select,
            "rt-signals" => $crate::mechanism::RtSignals,
            "rt-signals-select" => $crate::mechanism::RtSignalsSelect,
            "rt-per-fd" => $crate::mechanism::RtPerFd,
            "fdm" => $crate::mechanism::Fdm,
            "uring-poll" => $crate::mechanism::UringPoll,
        }
    };
}

/// A change of one descriptor's interest.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Which descriptor.
    pub fd: RawFd,
    /// What its events are to be named.
    pub token: Token,
    /// What the mechanism has now: `None` where it has never seen the descriptor in this life.
    pub from: Option<Interest>,
    /// What it is to have: `None` to forget the descriptor.
    pub to: Option<Interest>,
    /// It is to be looked at as often as any, however quiet it is: for mechanisms that make a difference.
    pub locked: bool,
}

/// One way to learn of readiness. Used through a [`Dispatcher`](crate::Dispatcher), which calls
/// `update` only with real differences.
pub trait Mechanism: Sized {
    /// What it can do.
    const CAPABILITIES: Capabilities;

    /// An empty interest set, with default settings where there are any. Some mechanisms keep something
    /// for the calling thread, which must then be the one that waits.
    ///
    /// # Errors
    /// No descriptor, no memory, or not available on this machine.
    fn new() -> io::Result<Self>;

    /// The same with settings; a mechanism takes those that concern it.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    fn configured(_settings: &Settings) -> io::Result<Self> {
        Self::new()
    }

    /// Carries out one change: at most one system call, but for a new descriptor of the mechanisms on
    /// signals, which takes three.
    ///
    /// # Errors
    /// The descriptor cannot be waited for (a regular file, a closed one), or a limit is reached.
    fn update(&mut self, change: Change) -> io::Result<()>;

    /// The owner is about to close a descriptor that is part of the set, and which nobody else has open.
    fn closing(&mut self, fd: RawFd);

    /// Waits and appends what is ready to `events`. `None` waits for ever; blocks for at most the
    /// time-out.
    ///
    /// # Errors
    /// None that a peer can cause.
    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited>;

    /// What went on inside, for mechanisms where something does.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

/// Settings of the mechanisms that have any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How the mechanisms on real-time signals fetch their queue.
    pub rt_fetch: RtFetch,
    /// The locality-aware mechanism's sets.
    pub locality: locality::Settings,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { rt_fetch: RtFetch::Batch, locality: locality::Settings::default() }
    }
}

/// What a mechanism counts, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Times a queue was full, after which every descriptor was looked at.
    pub overflows: u64,
    /// Reports that were, or may have been, of a past life of their descriptor number, or that somebody else
    /// has sent; they were not passed on as they were.
    pub disbelieved: u64,
}

/// What epoll and poll report, in words: a failed descriptor is readable and writable, because the next
/// call will say what is wrong.
fn event(token: Token, readable: bool, writable: bool, failed: bool) -> Event {
    Event { token, readable: readable || failed, writable: writable || failed, failed }
}

/// An interest in poll's bits.
fn poll_bits(interest: Interest) -> i16 {
    match interest {
        Interest::None => 0,
        Interest::Read => bits::IN | bits::RDHUP,
        Interest::Write => bits::OUT,
        Interest::Both => bits::IN | bits::RDHUP | bits::OUT,
    }
}

/// What poll's bits say.
fn poll_event(token: Token, reported: i16) -> Event {
    event(
        token,
        reported & (bits::IN | bits::RDHUP) != 0,
        reported & bits::OUT != 0,
        reported & (bits::ERR | bits::HUP | bits::NVAL) != 0,
    )
}
