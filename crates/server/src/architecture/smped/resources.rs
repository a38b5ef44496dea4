//! The resource controller: decides on the number of workers (SMPED).
//!
//! The pool grows, up to P_max, when the scheduler finds its first choice full. It shrinks, down to P_min, by
//! a worker that has been without a connection for a delay.
//!
//! Deviation, where the paper is silent: of several idle workers, the one that has been idle longest ends.

use base::Nanos;

use crate::architecture::smped::settings::SmpedSettings;

/// The bounds of the pool.
#[derive(Clone, Debug)]
pub struct Resources {
    p_min: usize,
    p_max: usize,
    idle: Nanos,
}

/// A worker that may be stopped, and the time from which it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// The worker's slot.
    pub slot: usize,
    /// The time at which the worker has been idle for the whole delay.
    pub at: Nanos,
}

impl Resources {
    /// The bounds of the settings.
    pub fn new(settings: &SmpedSettings) -> Resources {
        Resources { p_min: settings.p_min, p_max: settings.p_max, idle: settings.idle }
    }

    /// True if another worker may be started beside `workers` others.
    pub fn may_start(&self, workers: usize) -> bool {
        workers < self.p_max
    }

    /// The worker to stop next, among `workers` workers. `idle` has the idle ones by slot, with the time
    /// since which they are idle.
    pub fn surplus(&self, workers: usize, idle: impl Iterator<Item = (usize, Nanos)>) -> Option<Surplus> {
        let longest = idle.min_by_key(|(_, since)| *since).filter(|_| workers > self.p_min);
        longest.map(|(slot, since)| Surplus { slot, at: since.saturating_add(self.idle) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources() -> Resources {
        Resources::new(&"p-min=2,p-max=4,idle=5s".parse().unwrap())
    }

    #[test]
    fn grows_to_the_ceiling() {
        assert!(resources().may_start(0) && resources().may_start(3));
        assert!(!resources().may_start(4));
    }

    #[test]
    fn shrinks_to_the_floor_the_longest_idle_first() {
        let idle = [(0, Nanos::from_secs(9)), (3, Nanos::from_secs(7))];
        let expected = Surplus { slot: 3, at: Nanos::from_secs(12) };
        assert_eq!(resources().surplus(3, idle.into_iter()), Some(expected));
        assert_eq!(resources().surplus(2, idle.into_iter()), None);
        assert_eq!(resources().surplus(3, std::iter::empty()), None);
    }
}
