//! The locality-aware mechanism behind the common contract; [`locality`](crate::locality) names the paper and
//! the deviations. Listeners must be registered as locked. Deadlines are not used: the loops keep theirs in
//! [`Timers`](crate::Timers).

use std::io;
use std::os::fd::RawFd;

use base::{Nanos, RealClock};

use super::{Change, Mechanism, Poll, poll_bits, poll_event};
use crate::capabilities::Capabilities;
use crate::locality::{self, LONGEST, PollingSets, Settings};
use crate::{Event, Interest, Token, Waited};

/// The locality-aware mechanism.
pub struct Fdm {
    sets: PollingSets,
    /// Reports of the sets, before they are translated for the contract.
    reported: Vec<locality::Event>,
}

impl Fdm {
    /// Empty sets with these settings. Timers end the loops' waits, and most timers have no deadline behind
    /// them any more. No such timer is worth a poll of every set, so `freshness` is [`LONGEST`].
    pub fn with(settings: Settings) -> Fdm {
        let settings = Settings { freshness: LONGEST, ..settings };
        Fdm { sets: PollingSets::new(settings, RealClock::new()), reported: Vec::new() }
    }
}

impl Mechanism for Fdm {
    const CAPABILITIES: Capabilities = Capabilities {
        name: "fdm",
        settings: &["fdm-sets", "fdm-live-counter", "fdm-rule", "sleep-threshold", "nap"],
        ..Poll::CAPABILITIES
    };

    fn new() -> io::Result<Fdm> {
        Ok(Fdm::with(Settings::default()))
    }

    fn configured(settings: &super::Settings) -> io::Result<Fdm> {
        Ok(Fdm::with(settings.locality))
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        let Some(interest) = change.to.filter(|interest| *interest != Interest::None) else {
            // poll reports a member's hang-ups even without interest.
            self.sets.unregister(change.fd);
            return Ok(());
        };
        let (bits, payload) = (poll_bits(interest), change.token.0);
        if !self.sets.update(change.fd, bits, payload, None) {
            self.sets.register(change.fd, bits, payload, change.locked);
        }
        Ok(())
    }

    fn closing(&mut self, fd: RawFd) {
        self.sets.unregister(fd);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        let waited = self.sets.wait(&mut self.reported, timeout)?;
        events.extend(self.reported.drain(..).map(|event| poll_event(Token(event.payload), event.bits)));
        Ok(waited)
    }
}
