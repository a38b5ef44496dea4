//! Real-time signals with recovery by select (FDM, section 5, figure 11). The bitmaps follow every change, so
//! that an overflow of the queue needs no preparation.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;

use super::signals::{Delivery, Signals};
use super::{Change, Mechanism, MechanismCounts, RtFetch, RtSignals, Select};
use crate::capabilities::Capabilities;
use crate::{Event, Waited};

/// The mechanism with recovery by select. It belongs to the thread that makes it.
pub struct RtSignalsSelect {
    signals: Signals,
    /// All members; the mechanism waits for them only after an overflow.
    all: Select,
}

impl RtSignalsSelect {
    /// An empty interest set whose queue is fetched as `fetch` says.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    pub fn with(fetch: RtFetch) -> io::Result<RtSignalsSelect> {
        Ok(RtSignalsSelect { signals: Signals::new(fetch, Delivery::Each)?, all: Select::default() })
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
        self.signals.update(change)?;
        self.all.update(change)
    }

    fn closing(&mut self, fd: RawFd) {
        self.signals.forget(fd);
        self.all.closing(fd);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        let all = &mut self.all;
        self.signals.wait(events, timeout, |_, events| {
            while all.wait(events, Some(Nanos::ZERO))? == Waited::Interrupted {}
            Ok(())
        })
    }

    fn counts(&self) -> MechanismCounts {
        self.signals.counts()
    }
}
