//! The common contract of the mechanisms, and what they share.
//!
//! Does not know which mechanisms exist, so that each of them can use it;
//! [`for_each_mechanism`](crate::for_each_mechanism) lists them.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;
use base::setting::Chosen;
use serde::Serialize;
use sys::readiness::poll::bits;

use crate::{Capabilities, Event, Interest, Token, Waited};

/// A change of one descriptor's interest.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The descriptor's number.
    pub fd: RawFd,
    /// The token of its events.
    pub token: Token,
    /// The interest that the mechanism has now; `None` if it has not seen the descriptor in this life.
    pub from: Option<Interest>,
    /// The interest that it is to have; `None` to forget the descriptor.
    pub to: Option<Interest>,
    /// The descriptor must stay among the most often polled, however quiet it is. Only locality-aware
    /// mechanisms use it.
    pub locked: bool,
}

/// One way to learn of readiness. A [`Dispatcher`](crate::Dispatcher) calls `update` only for real
/// differences.
pub trait Mechanism: Sized {
    /// The mechanism's capabilities.
    const CAPABILITIES: Capabilities;
    /// Empty calls before a wait that spins sleeps, if no setting says so. The paper has 100 for its own mechanism and 50
    /// for the others.
    const SPINS: u32 = 50;

    /// An empty interest set with default settings. Some mechanisms keep state for the calling thread; only
    /// that thread may then wait.
    ///
    /// # Errors
    /// No descriptor, no memory, or the mechanism is not available on this machine.
    fn new() -> io::Result<Self>;

    /// An empty interest set with the given settings. A mechanism uses the settings that it declares.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    fn configured(_chosen: &Chosen) -> io::Result<Self> {
        Self::new()
    }

    /// Carries out one change with at most one system call. Mechanisms on signals need four calls for a new
    /// descriptor.
    ///
    /// # Errors
    /// The descriptor cannot be waited for (a regular file, a closed one), or a limit is reached.
    fn update(&mut self, change: Change) -> io::Result<()>;

    /// Tells that the owner is about to close a descriptor. If others may have its file open, the set has left
    /// the descriptor by an update before.
    fn closing(&mut self, fd: RawFd);

    /// Waits for at most `timeout` and appends the ready descriptors to `events`. `None` waits forever.
    ///
    /// # Errors
    /// None that a peer can cause.
    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited>;

    /// The mechanism's counters; zeros for a mechanism that counts nothing.
    fn counts(&self) -> MechanismCounts {
        MechanismCounts::default()
    }
}

/// Counters of a mechanism since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MechanismCounts {
    /// Overflows of a queue. Every descriptor was polled after each.
    pub overflows: u64,
    /// Reports that may belong to a past life of their descriptor number or come from another sender. The
    /// mechanism did not pass them on as they were.
    pub disbelieved: u64,
}

/// An event from epoll's or poll's report. A failed descriptor counts as readable and writable, because the
/// next call returns the error.
pub(super) fn event(token: Token, readable: bool, writable: bool, failed: bool) -> Event {
    Event { token, readable: readable || failed, writable: writable || failed, failed }
}

/// The interest in poll's bits.
pub(super) fn poll_bits(interest: Interest) -> i16 {
    match interest {
        Interest::None => 0,
        Interest::Read => bits::IN | bits::RDHUP,
        Interest::Write => bits::OUT,
        Interest::Both => bits::IN | bits::RDHUP | bits::OUT,
    }
}

/// The event for poll's bits.
pub(super) fn poll_event(token: Token, reported: i16) -> Event {
    event(
        token,
        reported & (bits::IN | bits::RDHUP) != 0,
        reported & bits::OUT != 0,
        reported & (bits::ERR | bits::HUP | bits::NVAL) != 0,
    )
}
