//! The time since a run's start.

use std::io;

use base::{Clock, Nanos, WallTime};

use crate::engine::wire::transport::Transport;

/// The longest sleep of a loop; a request to stop is noticed after it.
pub(in crate::engine) const SLEEP_MAX: Nanos = Nanos::from_millis(50);

/// A clock that shows zero until the run's start.
pub(in crate::engine) struct RunClock<C> {
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

    /// The time of day.
    pub fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    /// Waits for the start, or until `should_stop`.
    ///
    /// # Errors
    /// A wait that fails for a reason that no peer can cause.
    pub fn await_start<T: Transport>(
        &self,
        transport: &mut T,
        should_stop: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        while !should_stop() {
            let left = self.start.saturating_sub(self.clock.now());
            if left == Nanos::ZERO {
                break;
            }
            transport.wait(Nanos::ZERO, left.min(SLEEP_MAX))?;
        }
        Ok(())
    }
}
