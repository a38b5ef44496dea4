//! Real-time signals with recovery by select (FDM, section 5, figure 11). The bitmaps follow every change, so
//! that an overflow of the queue needs no preparation.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;

use super::signals::{Delivery, Recovering};
use super::{Change, Mechanism, MechanismCounts, RtFetch, RtSignals, Select};
use crate::capabilities::Capabilities;
use crate::{Event, Waited};

/// The mechanism with recovery by select. It belongs to the thread that makes it.
pub struct RtSignalsSelect(Recovering<Select>);

impl RtSignalsSelect {
    /// An empty interest set whose queue is fetched as `fetch` says.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    pub fn with(fetch: RtFetch) -> io::Result<RtSignalsSelect> {
        Recovering::new(fetch, Delivery::Each).map(RtSignalsSelect)
    }
}

impl Mechanism for RtSignalsSelect {
    const CAPABILITIES: Capabilities =
        Capabilities { name: "rt-signals-select", falls_back_to: Some("select"), ..RtSignals::CAPABILITIES };

    fn new() -> io::Result<RtSignalsSelect> {
        RtSignalsSelect::with(RtFetch::Batch)
    }

    fn configured(settings: &super::Settings) -> io::Result<RtSignalsSelect> {
        RtSignalsSelect::with(settings.rt_fetch)
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
