//! The scheduler: chooses the worker of a new connection (SMPED; steps 1 to 6).
//!
//! ```text
//!   1  some have no connection ───────────────> one of them, at random
//!   2  else the first by the schedule
//!   3     it has fewer than C_max ────────────> it
//!   4     else the pool may grow ─────────────> a new worker
//!   5     else the next that has fewer ───────> it
//!   6  none has ──────────────────────────────> nobody, until one frees
//! ```
//!
//! The paper's schedule ranks by `(T_i / sum T) x (C_i / sum C)`, the least first. The schedules that the
//! paper compares it with rank otherwise and omit step 1; steps 3 to 6 are the same for all.
//!
//! Pure: no clock, no socket; randomness from a seed.
//!
//! Invariants: the scheduler never chooses a worker that has C_max connections. It chooses none exactly if
//! all workers have C_max connections and the pool may not grow. It makes at most two passes over the
//! workers.
//!
//! Deviations, where the paper is silent: a share whose sum is 0 is 1/n. Ties go to fewer connections, then
//! to chance.

use std::cmp::Ordering;

use base::{Rng, Seed};
use rand::RngExt;

use crate::architecture::smped::settings::Schedule;

/// A worker's load when a connection is placed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// T_i, smoothed, in replies per second; finite and not negative.
    pub throughput: f64,
    /// C_i, the number of connections.
    pub connections: u32,
    /// It counts as full, although it may have fewer than C_max.
    pub is_full: bool,
}

impl Load {
    /// True if the worker may have another connection.
    pub fn has_room(&self, c_max: u32) -> bool {
        self.connections < c_max && !self.is_full
    }
}

/// The scheduler's choice for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The worker in this slot.
    Assign(usize, Reason),
    /// A new worker, which has to be started for the connection.
    Start,
    /// No worker: every worker has C_max connections.
    Full,
}

/// The reason why a worker was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Step 1: it had no connection.
    Idle,
    /// Step 3: it came first.
    First,
    /// Step 5: the workers before it were full.
    Next,
}

/// Chooses workers by one schedule.
#[derive(Debug)]
pub struct Scheduler {
    schedule: Schedule,
    c_max: u32,
    rng: Rng,
    /// The slot after the last chosen one, for round-robin.
    next: usize,
}

impl Scheduler {
    /// A scheduler that gives no worker more than `c_max` connections, at least 1.
    pub fn new(schedule: Schedule, c_max: u32, seed: Seed) -> Scheduler {
        assert!(c_max > 0, "a worker that may have no connection serves nobody");
        Scheduler { schedule, c_max, rng: seed.rng(), next: 0 }
    }

    /// Chooses among the workers in `loads`. An empty slot has no worker.
    pub fn choose(&mut self, loads: &[Option<Load>], may_start: bool) -> Choice {
        let choice = self.choose_among(loads, may_start);
        if let Choice::Assign(slot, _) = choice {
            self.next = slot + 1;
        }
        choice
    }

    fn choose_among(&mut self, loads: &[Option<Load>], may_start: bool) -> Choice {
        if self.schedule == Schedule::Smped
            && let Some(idle) = self.least(loads, |_, load| (load.connections == 0).then_some(()))
        {
            return Choice::Assign(idle, Reason::Idle);
        }
        let c_max = self.c_max;
        match self.first(loads, |_| true) {
            Some((slot, load)) if load.has_room(c_max) => Choice::Assign(slot, Reason::First),
            _ if may_start => Choice::Start,
            _ => match self.first(loads, |load| load.has_room(c_max)) {
                Some((slot, _)) => Choice::Assign(slot, Reason::Next),
                None => Choice::Full,
            },
        }
    }

    /// The first worker by the schedule among those that qualify.
    fn first(&mut self, loads: &[Option<Load>], qualifies: impl Fn(&Load) -> bool) -> Option<(usize, Load)> {
        let slot = match self.schedule {
            Schedule::Smped => {
                let shares = Shares::of(loads);
                let rank = |load: &Load| (shares.product(load), load.connections);
                self.least(loads, |_, load| qualifies(load).then(|| rank(load)))
            }
            Schedule::LeastConnections => {
                self.least(loads, |_, load| qualifies(load).then_some(load.connections))
            }
            Schedule::RoundRobin => {
                let (next, slots) = (self.next, loads.len());
                let distance = |slot| (slot + slots - next % slots) % slots;
                self.least(loads, |slot, load| qualifies(load).then(|| distance(slot)))
            }
            Schedule::Random => self.least(loads, |_, load| qualifies(load).then_some(())),
        }?;
        loads[slot].map(|load| (slot, load))
    }

    /// The slot with the least rank, chosen at random among equals. Slots with the rank `None` do not take
    /// part.
    fn least<R: PartialOrd>(
        &mut self,
        loads: &[Option<Load>],
        rank: impl Fn(usize, &Load) -> Option<R>,
    ) -> Option<usize> {
        let mut best: Option<(usize, R)> = None;
        let mut equals = 0_u32;
        for (slot, load) in loads.iter().enumerate() {
            let Some(this) = load.as_ref().and_then(|load| rank(slot, load)) else { continue };
            let order = best.as_ref().map_or(Some(Ordering::Less), |(_, best)| this.partial_cmp(best));
            match order.expect("ranks are numbers") {
                Ordering::Greater => continue,
                Ordering::Less => equals = 1,
                // Each of k equals stays with a probability of 1/k.
                Ordering::Equal => {
                    equals += 1;
                    if self.rng.random_range(0..equals) > 0 {
                        continue;
                    }
                }
            }
            best = Some((slot, this));
        }
        best.map(|(slot, _)| slot)
    }
}

/// The sums for computing shares.
struct Shares {
    workers: f64,
    throughput: f64,
    connections: f64,
}

impl Shares {
    fn of(loads: &[Option<Load>]) -> Shares {
        let there = loads.iter().flatten();
        there.fold(Shares { workers: 0.0, throughput: 0.0, connections: 0.0 }, |sum, load| Shares {
            workers: sum.workers + 1.0,
            throughput: sum.throughput + load.throughput,
            connections: sum.connections + f64::from(load.connections),
        })
    }

    /// `(T_i / sum T) x (C_i / sum C)`, from 0 to 1.
    fn product(&self, load: &Load) -> f64 {
        let share = |part: f64, sum: f64| if sum > 0.0 { part / sum } else { 1.0 / self.workers };
        share(load.throughput, self.throughput) * share(f64::from(load.connections), self.connections)
    }
}

#[cfg(test)]
mod tests;
