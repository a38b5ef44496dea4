//! Time as a value that is handed in.
//!
//! Code that measures or waits takes a [`Clock`], so that a test can drive days of deadlines in a
//! millisecond. Only this module reads the machine's clock.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use nix::time::ClockId;

use crate::units::Nanos;

/// Seconds since 1970-01-01 00:00 UTC, for a `Date` field or a log line. Never use it for a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WallTime {
    /// Whole seconds since the epoch.
    pub seconds: u64,
}

impl WallTime {
    /// The same instant in the standard library's type.
    pub fn system_time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.seconds)
    }
}

/// A source of time.
pub trait Clock {
    /// Monotonic nanoseconds since an arbitrary start.
    fn now(&self) -> Nanos;
    /// The time of day.
    fn wall(&self) -> WallTime;
}

/// The machine's monotonic clock (CLOCK_MONOTONIC). All processes of a machine read the same time.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

impl RealClock {
    /// A handle to the clock.
    pub fn new() -> RealClock {
        RealClock
    }
}

impl Clock for RealClock {
    fn now(&self) -> Nanos {
        let now = ClockId::CLOCK_MONOTONIC.now().expect("Linux has this clock");
        Nanos(now.tv_sec() as u64 * Nanos::SECOND.0 + now.tv_nsec() as u64)
    }

    #[allow(clippy::disallowed_methods, reason = "this is the home of the time of day")]
    fn wall(&self) -> WallTime {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        WallTime { seconds: since.as_secs() }
    }
}

/// A clock that moves only in [`advance`](Self::advance). Clones share the same time.
#[derive(Clone, Debug)]
pub struct SimulatedClock {
    now: Rc<Cell<Nanos>>,
    wall_at_start: WallTime,
}

impl SimulatedClock {
    /// A clock that stands at one second, with the given time of day.
    pub fn new(wall: WallTime) -> SimulatedClock {
        SimulatedClock { now: Rc::new(Cell::new(Nanos::SECOND)), wall_at_start: wall }
    }

    /// Moves time forward.
    pub fn advance(&self, by: Nanos) {
        self.now.set(self.now.get() + by);
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Nanos {
        self.now.get()
    }

    fn wall(&self) -> WallTime {
        let elapsed = self.now.get() - Nanos::SECOND;
        WallTime { seconds: self.wall_at_start.seconds + elapsed.0 / Nanos::SECOND.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_moves_on_command_and_is_shared() {
        let clock = SimulatedClock::new(WallTime { seconds: 100 });
        let other = clock.clone();
        assert_eq!(clock.now(), Nanos::SECOND);
        clock.advance(Nanos::from_secs(3));
        assert_eq!(other.now(), Nanos::from_secs(4));
        assert_eq!(other.wall(), WallTime { seconds: 103 });
    }

    #[test]
    fn real_time_does_not_run_backwards() {
        let clock = RealClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
    }
}
