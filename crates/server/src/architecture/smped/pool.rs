//! The dispatcher's account of its workers: who is there, with what load, and what follows from it.
//!
//! ```text
//!             started                 told to stop
//!   vacant ────────────> running ──────────────────> leaving ──┐
//!     ^                   |   ^                                │
//!     |              died v   | replaced                  ended│
//!     |                  down ┘                                │
//!     └────────────────────────────────────────────────────────┘
//! ```
//!
//! Scheduler, feedback handler and resource controller on one table, without I/O and clock: the dispatcher tells it
//! what has happened and does what it says, and tests run it without a process.
//!
//! Invariants: C_i counts what was placed with a worker and not yet reported closed, never more than C_max; a
//! worker that is not running has no connection and is given none; running, down and leaving together never
//! exceed P_max, running and down fall below P_min by nothing that is done here.

use base::{Nanos, Seed};

use super::feedback::Feedback;
use super::resources::{Resources, Surplus};
use super::scheduler::{Choice, Load, Reason, Scheduler};
use super::settings::SmpedSettings;
use crate::choices::Schedule;

base::counts! {
    /// How often connections were placed, by reason, and what became of workers.
    pub struct Decisions {
        /// Placed with a worker that had no connection (step 1).
        placed_on_idle_worker,
        /// Placed with the worker that came first by the schedule (step 3).
        placed_on_first_worker,
        /// Placed with a worker started because the first was full (step 4).
        placed_on_new_worker,
        /// Placed with another because the first was full and the pool could not grow (step 5).
        placed_on_next_worker,
        /// Times that accepting stopped because all workers were full (step 6).
        all_workers_full,
        /// Workers started, the first ones and replacements among them.
        workers_started,
        /// Workers stopped because they were idle.
        workers_stopped_idle,
        /// Connections that ended because their worker died.
        connections_lost_with_worker,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Vacant,
    Running,
    Leaving,
    Down,
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// To the worker of this slot.
    To(usize),
    /// To a worker that has to be started in this slot.
    Start(usize),
    /// Nowhere yet.
    Full,
}

/// The table of workers, by slot.
#[derive(Debug)]
pub struct Pool {
    settings: SmpedSettings,
    scheduler: Scheduler,
    resources: Resources,
    states: Vec<State>,
    /// T_i as of the last period, and C_i, of those that run.
    loads: Vec<Option<Load>>,
    feedback: Vec<Feedback>,
    /// Since when a worker has had no connection.
    idle_since: Vec<Nanos>,
    period_began: Nanos,
    /// What was decided so far.
    pub decisions: Decisions,
}

impl Pool {
    /// A pool without workers yet.
    pub fn new(settings: &SmpedSettings, schedule: Schedule, seed: Seed, now: Nanos) -> Pool {
        let slots = settings.p_max;
        Pool {
            settings: settings.clone(),
            scheduler: Scheduler::new(schedule, settings.c_max, seed),
            resources: Resources::new(settings),
            states: vec![State::Vacant; slots],
            loads: vec![None; slots],
            feedback: vec![Feedback::default(); slots],
            idle_since: vec![now; slots],
            period_began: now,
            decisions: Decisions::default(),
        }
    }

    /// A worker runs in this slot: a new one, or one in place of one that died.
    pub fn started(&mut self, slot: usize, now: Nanos) {
        assert!(matches!(self.states[slot], State::Vacant | State::Down), "the slot has a worker");
        self.decisions.workers_started += 1;
        self.states[slot] = State::Running;
        self.loads[slot] = Some(Load::default());
        self.feedback[slot] = Feedback::default();
        self.idle_since[slot] = now;
    }

    /// A slot that another worker may be started in.
    pub fn vacancy(&self) -> Option<usize> {
        let vacant = self.states.iter().position(|state| *state == State::Vacant);
        vacant.filter(|_| self.resources.may_start(self.states.len() - self.count(State::Vacant)))
    }

    /// Whether another connection can be placed.
    pub fn has_room(&self) -> bool {
        let c_max = self.settings.c_max;
        self.vacancy().is_some() || self.loads.iter().flatten().any(|load| load.connections < c_max)
    }

    /// Places a connection, which counts as the worker's from now on, even if it has to be started first.
    pub fn place(&mut self, now: Nanos) -> Placement {
        let vacancy = self.vacancy();
        let slot = match self.scheduler.choose(&self.loads, vacancy.is_some()) {
            Choice::Full => return Placement::Full,
            Choice::Start => {
                let slot = vacancy.expect("it was allowed to start one");
                self.decisions.placed_on_new_worker += 1;
                self.started(slot, now);
                self.add_connection(slot);
                return Placement::Start(slot);
            }
            Choice::Assign(slot, reason) => {
                match reason {
                    Reason::Idle => self.decisions.placed_on_idle_worker += 1,
                    Reason::First => self.decisions.placed_on_first_worker += 1,
                    Reason::Next => self.decisions.placed_on_next_worker += 1,
                }
                slot
            }
        };
        self.add_connection(slot);
        Placement::To(slot)
    }

    fn add_connection(&mut self, slot: usize) {
        self.loads[slot].as_mut().expect("it runs").connections += 1;
    }

    /// A worker has sent replies and closed connections since it last said so. One that no longer runs is not
    /// heard.
    pub fn reported(&mut self, slot: usize, replies: u64, closed: u32, now: Nanos) {
        let Some(load) = &mut self.loads[slot] else { return };
        self.feedback[slot].replied(replies);
        if closed == 0 {
            return;
        }
        load.connections = load.connections.saturating_sub(closed);
        if load.connections == 0 {
            self.idle_since[slot] = now;
            self.feedback[slot] = Feedback::default();
            load.throughput = 0.0;
        }
    }

    /// When the throughputs are to be smoothed next.
    pub fn period_ends(&self) -> Nanos {
        self.period_began.saturating_add(self.settings.period)
    }

    /// The end of a period, which may come late: smooths the throughputs.
    pub fn end_period(&mut self, now: Nanos) {
        let length = now.saturating_sub(self.period_began);
        self.period_began = now;
        for (load, feedback) in self.loads.iter_mut().zip(&mut self.feedback) {
            let Some(load) = load.as_mut().filter(|load| load.connections > 0) else { continue };
            feedback.period(length, self.settings.alpha);
            load.throughput = feedback.throughput();
        }
    }

    /// A worker that ran has died; gives how many connections had been placed with it.
    pub fn died(&mut self, slot: usize) -> u32 {
        self.states[slot] = State::Down;
        self.loads[slot].take().map_or(0, |load| load.connections)
    }

    /// A worker that was told to stop has ended.
    pub fn left(&mut self, slot: usize) {
        self.states[slot] = State::Vacant;
    }

    /// Whether the worker of this slot was told to stop.
    pub fn is_leaving(&self, slot: usize) -> bool {
        self.states[slot] == State::Leaving
    }

    /// The worker to stop next, and when; nobody places anything with it from then on.
    pub fn next_surplus(&self) -> Option<Surplus> {
        let running = self.loads.iter().zip(&self.idle_since).enumerate();
        let idle = running.filter_map(|(slot, (load, since))| {
            load.filter(|load| load.connections == 0).map(|_| (slot, *since))
        });
        self.resources.surplus(self.count(State::Running) + self.count(State::Down), idle)
    }

    /// A worker that has been idle for too long, to be told to stop.
    pub fn take_surplus(&mut self, now: Nanos) -> Option<usize> {
        let surplus = self.next_surplus().filter(|surplus| surplus.at <= now)?;
        self.decisions.workers_stopped_idle += 1;
        self.states[surplus.slot] = State::Leaving;
        self.loads[surplus.slot] = None;
        Some(surplus.slot)
    }

    /// The load of each worker that runs, by slot.
    pub fn loads(&self) -> impl Iterator<Item = (usize, Load)> {
        self.loads.iter().enumerate().filter_map(|(slot, load)| load.map(|load| (slot, load)))
    }

    /// Connections placed and not yet reported closed, all workers together.
    pub fn connections(&self) -> u64 {
        self.loads.iter().flatten().map(|load| u64::from(load.connections)).sum()
    }

    fn count(&self, state: State) -> usize {
        self.states.iter().filter(|known| **known == state).count()
    }
}

#[cfg(test)]
mod tests;
