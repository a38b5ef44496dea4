//! The time since a run's start.

use base::{Clock, Nanos};

/// A clock that shows zero until the run's start.
pub(super) struct RunClock<C> {
    clock: C,
    start: Nanos,
}

impl<C: Clock> RunClock<C> {
    /// Counts from the time at which `clock` shows `start`.
    pub fn new(clock: C, start: Nanos) -> RunClock<C> {
        RunClock { clock, start }
    }

    /// The time since the start; zero before it.
    pub fn now(&self) -> Nanos {
        self.clock.now().saturating_sub(self.start)
    }

    /// The time until the start; zero after it.
    pub fn until_start(&self) -> Nanos {
        self.start.saturating_sub(self.clock.now())
    }
}
