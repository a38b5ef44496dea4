//! Real-time signals with recovery by poll: phhttpd's way, as the FDM paper measures it (section 2, figures 9
//! to 11). The array for poll follows every change of interest, so that an overflow of the queue needs no
//! preparation. In the paper's figure 11 keeping it in order makes the variant slower than recovery by select.
//!
//! Deviations: announcements are fetched in batches unless [`RtFetch::One`] is chosen. Even with `One`, the
//! mechanism sleeps in a poll of the queue, so that descriptors that announce nothing are watched beside it. A descriptor that
//! leaves the array is replaced by the last one, so a change moves one entry at most.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;

use super::signals::{Delivery, Recovering};
use super::{Change, Mechanism, MechanismCounts, Poll, RtFetch};
use crate::capabilities::{Capabilities, InitialState, Overflow, Trigger};
use crate::{Event, Waited};

/// The mechanism with recovery by poll. It belongs to the thread that makes it.
pub struct RtSignals(Recovering<Poll>);

impl RtSignals {
    /// An empty interest set whose queue is fetched as `fetch` says.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    pub fn with(fetch: RtFetch) -> io::Result<RtSignals> {
        Recovering::new(fetch, Delivery::Each).map(RtSignals)
    }
}

impl Mechanism for RtSignals {
    const CAPABILITIES: Capabilities = Capabilities {
        name: "rt-signals",
        scales: true,
        collapses: false,
        many_events_per_call: true,
        overflow: Overflow::Queue,
        falls_back_to: Some("poll"),
        initial_state: InitialState::PolledOnce,
        many_interest_sets: false,
        trigger: Trigger::Edge,
        descriptor_limit: "RLIMIT_NOFILE",
        exclusive_wake: false,
        settings: &["rt-fetch"],
    };

    fn new() -> io::Result<RtSignals> {
        RtSignals::with(RtFetch::Batch)
    }

    fn configured(settings: &super::Settings) -> io::Result<RtSignals> {
        RtSignals::with(settings.rt_fetch)
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
