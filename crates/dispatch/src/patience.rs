//! The timeout of a wait that may need several calls.

use base::{Clock, Nanos, RealClock};

/// The remaining time of a wait. Reads the clock only for a finite timeout.
pub(crate) enum Patience {
    None,
    Until(RealClock, Nanos),
    Endless,
}

impl Patience {
    pub(crate) fn new(timeout: Option<Nanos>) -> Patience {
        match timeout {
            Some(Nanos::ZERO) => Patience::None,
            Some(timeout) => {
                let clock = RealClock::new();
                Patience::Until(clock, clock.now().saturating_add(timeout))
            }
            None => Patience::Endless,
        }
    }

    /// The timeout of the next call.
    pub(crate) fn left(&self) -> Option<Nanos> {
        match self {
            Patience::None => Some(Nanos::ZERO),
            Patience::Until(clock, until) => Some(until.saturating_sub(clock.now())),
            Patience::Endless => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left() == Some(Nanos::ZERO)
    }
}
