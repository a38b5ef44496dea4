//! epoll, edge-triggered: it reports each change of state once, and the state at registration, as
//! `declare_interest` did (Banga, Mogul, Druschel 1999). The owner of a reported descriptor must drain it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use base::Nanos;
use sys::readiness::epoll::bits;

use super::epoll::EpollSet;
use super::{Change, Epoll, Mechanism};
use crate::capabilities::{Capabilities, Trigger};
use crate::{Event, Waited};

/// The edge-triggered mechanism.
pub struct EpollEdge(EpollSet);

impl AsFd for EpollEdge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Mechanism for EpollEdge {
    const CAPABILITIES: Capabilities =
        Capabilities { name: "epoll-et", trigger: Trigger::Edge, ..Epoll::CAPABILITIES };

    fn new() -> io::Result<EpollEdge> {
        EpollSet::new(bits::ET).map(EpollEdge)
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        self.0.update(change)
    }

    // The kernel forgets a file when its last descriptor is closed.
    fn closing(&mut self, _fd: RawFd) {}

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        self.0.wait(events, timeout)
    }
}
