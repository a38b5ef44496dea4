//! The number of worker processes if it follows the load: Apache's spare servers.
//!
//! Once a second the controller counts the idle workers, including those that have not begun yet. If they
//! exceed the maximum, it ends one. If they are below the minimum, it starts one, and twice as many in each
//! further second, up to [`MOST_AT_ONCE`]. It thus meets a surge quickly, and a trickle does not start a
//! crowd. This is `perform_idle_server_maintenance` of Apache's prefork module.
//!
//! Deviation: Apache also ends workers after a number of connections (MaxConnectionsPerChild), against leaks.

use base::setting::{Chosen, Declaration, Setting, number_in};

use crate::ground::error::ServeError;

/// Maximum value of the settings.
const MOST: usize = 10_000;

/// The fewest idle workers.
pub static MINIMUM: Setting<usize> = Setting::parsed_by(
    Declaration {
        flag: "--min-spare",
        value: "N",
        help: "minimum idle worker processes; fewer idle ones start more, up to --workers [default: 5 with --max-spare]",
        more: None,
        without: WITHOUT,
        in_kernel: None,
    },
    |text| number_in(1..=MOST, text),
);

/// The most idle workers.
pub static MAXIMUM: Setting<usize> = Setting::parsed_by(
    Declaration {
        flag: "--max-spare",
        value: "N",
        help: "maximum idle worker processes; above it one ends each second [default: 10 with --min-spare]",
        more: None,
        without: WITHOUT,
        in_kernel: None,
    },
    |text| number_in(2..=MOST + 1, text),
);

const WITHOUT: &str = "does not keep processes in reserve";

/// The number of idle workers: Apache's MinSpareServers and MaxSpareServers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spares {
    /// With fewer idle workers, more are started.
    pub minimum: usize,
    /// With more idle workers, some are ended; above the minimum.
    pub maximum: usize,
}

impl Spares {
    /// Apache's.
    const DEFAULT: Spares = Spares { minimum: 5, maximum: 10 };

    /// The numbers that were chosen, if any was. A missing one is Apache's, adjusted so that the minimum is below the
    /// maximum.
    ///
    /// # Errors
    /// [`ServeError::Setting`] for a maximum that is not above the minimum.
    pub fn chosen(chosen: &Chosen) -> Result<Option<Spares>, ServeError> {
        let spares = match (chosen.get(&MINIMUM), chosen.get(&MAXIMUM)) {
            (None, None) => return Ok(None),
            (None, Some(maximum)) => Spares { minimum: Spares::DEFAULT.minimum.min(maximum - 1), maximum },
            (Some(minimum), None) => Spares { minimum, maximum: Spares::DEFAULT.maximum.max(minimum + 1) },
            (Some(minimum), Some(maximum)) => Spares { minimum, maximum },
        };
        if spares.maximum <= spares.minimum {
            return Err(ServeError::Setting {
                setting: "--max-spare",
                given: spares.maximum.to_string(),
                accepted: format!("expected a number above --min-spare, which is {}", spares.minimum),
            });
        }
        Ok(Some(spares))
    }
}

/// Apache's MAX_SPAWN_RATE.
const MOST_AT_ONCE: usize = 32;

/// The action to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// Nothing.
    None,
    /// End an idle worker.
    End,
    /// Start this number of workers.
    Start(usize),
    /// More workers are needed, but their number is at its limit.
    AtLimit,
}

/// Decides, once a second.
#[derive(Clone, Debug)]
pub struct SpareServers {
    spares: Spares,
    most: usize,
    /// Number of workers to start next if there are too few.
    rate: usize,
}

impl SpareServers {
    /// A controller of at most `most` workers.
    pub fn new(spares: Spares, most: usize) -> SpareServers {
        SpareServers { spares, most, rate: 1 }
    }

    /// Maximum number of workers.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The action for `idle` idle workers and `vacant` places without a worker.
    pub fn adjust(&mut self, idle: usize, vacant: usize) -> Adjustment {
        if idle >= self.spares.minimum {
            self.rate = 1;
            return if idle > self.spares.maximum { Adjustment::End } else { Adjustment::None };
        }
        if vacant == 0 {
            self.rate = 1;
            return Adjustment::AtLimit;
        }
        let count = self.rate.min(vacant);
        self.rate = (self.rate * 2).min(MOST_AT_ONCE);
        Adjustment::Start(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decides(most: usize) -> SpareServers {
        SpareServers::new(Spares { minimum: 5, maximum: 10 }, most)
    }

    #[test]
    fn a_surge_is_met_by_twice_as_many_each_time() {
        let mut decides = decides(150);
        let mut workers = 5;
        let mut started = Vec::new();
        // All workers are busy all the time.
        while let Adjustment::Start(count) = decides.adjust(0, 150 - workers) {
            workers += count;
            started.push(count);
        }
        assert_eq!(started, [1, 2, 4, 8, 16, 32, 32, 32, 18]);
        assert_eq!(decides.adjust(0, 0), Adjustment::AtLimit);
        // After the limit, and after a time without need, it begins with one again.
        assert_eq!(decides.adjust(0, 3), Adjustment::Start(1));
        assert_eq!(decides.adjust(4, 3), Adjustment::Start(2));
        assert_eq!(decides.adjust(5, 3), Adjustment::None);
        assert_eq!(decides.adjust(4, 3), Adjustment::Start(1));
    }

    #[test]
    fn too_many_idle_ones_are_ended_one_by_one() {
        let mut decides = decides(20);
        let mut workers = 20;
        while decides.adjust(workers, 20 - workers) == Adjustment::End {
            workers -= 1;
        }
        assert_eq!(workers, 10);
    }
}
