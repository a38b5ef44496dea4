//! Real-time signals, one per descriptor (Chandra and Mosberger, "Scalability of Linux Event-Dispatch
//! Mechanisms", 2001; FDM, section 2). An event of a descriptor with a pending signal is added to that
//! signal.
//!
//! The paper's version is a kernel patch. With it the queue cannot overflow if it is as long as the
//! descriptor limit. In user space every wait fetches the *whole* queue and keeps one pending entry per
//! descriptor, so the entries cannot overflow. Deviation: the kernel's own queue can still overflow between
//! two waits. User space cannot keep the kernel from queueing a second announcement before the first is
//! fetched. After an overflow every member is polled.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;

use super::signals::{Delivery, Recovering};
use super::{Change, Mechanism, MechanismCounts, Poll, RtFetch, RtSignals};
use crate::capabilities::{Capabilities, Overflow};
use crate::{Event, Waited};

/// The mechanism with one signal per descriptor. It belongs to the thread that makes it.
pub struct RtPerFd(Recovering<Poll>);

impl RtPerFd {
    /// An empty interest set whose queue is fetched as `fetch` says.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    pub fn with(fetch: RtFetch) -> io::Result<RtPerFd> {
        Recovering::new(fetch, Delivery::Collapsed).map(RtPerFd)
    }
}

impl Mechanism for RtPerFd {
    const CAPABILITIES: Capabilities = Capabilities {
        name: "rt-per-fd",
        collapses: true,
        overflow: Overflow::BetweenWaits,
        ..RtSignals::CAPABILITIES
    };

    fn new() -> io::Result<RtPerFd> {
        RtPerFd::with(RtFetch::Batch)
    }

    fn configured(settings: &super::Settings) -> io::Result<RtPerFd> {
        RtPerFd::with(settings.rt_fetch)
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        self.0.update(change)
    }

    fn closing(&mut self, fd: RawFd) {
        self.0.closing(fd);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        self.0.wait(events, timeout)
    }

    fn counts(&self) -> MechanismCounts {
        self.0.counts()
    }
}
