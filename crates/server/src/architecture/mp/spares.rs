//! How many worker processes there are, where their number follows the load: Apache's spare servers.
//!
//! Once a second the idle ones are counted, those that have not begun yet among them. With more than the
//! maximum one is ended; with fewer than the minimum some are started: one, and twice as many each second
//! that it still does not suffice, up to [`MOST_AT_ONCE`], so that a surge is met quickly and a trickle
//! does not start a crowd. That is `perform_idle_server_maintenance` of Apache's prefork module.
//!
//! Deviation: Apache also ends workers after a number of connections (MaxConnectionsPerChild), against leaks.

use crate::choices::Spares;

/// Apache's MAX_SPAWN_RATE.
const MOST_AT_ONCE: usize = 32;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// Nothing.
    None,
    /// End an idle one.
    End,
    /// Start so many.
    Start(usize),
    /// There ought to be more, and there may not.
    AtLimit,
}

/// Decides, once a second.
#[derive(Clone, Debug)]
pub struct SpareServers {
    spares: Spares,
    most: usize,
    /// How many are started if there are too few.
    rate: usize,
}

impl SpareServers {
    /// With so many workers at most.
    pub fn new(spares: Spares, most: usize) -> SpareServers {
        SpareServers { spares, most, rate: 1 }
    }

    /// The most workers.
    pub fn most(&self) -> usize {
        self.most
    }

    /// What is to be done with so many idle workers and so many places where there is none.
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
        // Everybody is busy all the time.
        while let Adjustment::Start(count) = decides.adjust(0, 150 - workers) {
            workers += count;
            started.push(count);
        }
        assert_eq!(started, [1, 2, 4, 8, 16, 32, 32, 32, 18]);
        assert_eq!(decides.adjust(0, 0), Adjustment::AtLimit);
        // After the limit, as after a time without want, it begins with one again.
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
