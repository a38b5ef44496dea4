//! Real-time signals with recovery by poll: phhttpd's way, as the FDM paper measures it (section 2, figures 9
//! to 11). After an overflow the array for poll is built anew from all members. In the paper's figure 11 this
//! work makes the variant collapse.
//!
//! Deviations: announcements are fetched in batches unless [`RtFetch::One`] is chosen. Even with `One`, the
//! mechanism sleeps in a poll of the queue, so that descriptors that announce nothing are watched beside it.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;

use super::signals::{Delivery, Signals};
use super::{Change, Mechanism, MechanismCounts, Poll, RtFetch};
use crate::capabilities::{Capabilities, InitialState, Overflow, Trigger};
use crate::{Event, Waited};

/// The mechanism with recovery by poll. It belongs to the thread that makes it.
pub struct RtSignals(Signals);

impl RtSignals {
    /// An empty interest set whose queue is fetched as `fetch` says.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    pub fn with(fetch: RtFetch) -> io::Result<RtSignals> {
        Signals::new(fetch, Delivery::Each).map(RtSignals)
    }
}

/// Reports every ready member, by one poll of all members.
pub(super) fn poll_all(signals: &Signals, events: &mut Vec<Event>) -> io::Result<()> {
    let mut all = Poll::default();
    for (fd, token, interest) in signals.members() {
        all.update(Change { fd, token, from: None, to: Some(interest), locked: false })?;
    }
    while all.wait(events, Some(Nanos::ZERO))? == Waited::Interrupted {}
    Ok(())
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
        self.0.forget(fd);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        self.0.wait(events, timeout, poll_all)
    }

    fn counts(&self) -> MechanismCounts {
        self.0.counts()
    }
}
