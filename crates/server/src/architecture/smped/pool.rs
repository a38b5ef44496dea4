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
//! worker that is not running has no connection and is given none, nor is one that does not answer; running, down and leaving together never
//! exceed P_max, running and down fall below P_min by nothing that is done here.

use std::borrow::Cow;

use base::{Nanos, Seed};

use super::feedback::Feedback;
use super::resources::{Resources, Surplus};
use super::scheduler::{Choice, Load, Reason, Scheduler};
use crate::choices::{Schedule, SmpedSettings};
use crate::counters::Decisions;

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
    /// Which of them do not answer: nothing is placed with them.
    silent: Vec<bool>,
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
            silent: vec![false; slots],
            feedback: vec![Feedback::default(); slots],
            idle_since: vec![now; slots],
            period_began: now,
            decisions: Decisions::default(),
        }
    }

    /// A worker runs in this slot: a new one, or one in place of one that died.
    pub fn started(&mut self, slot: usize, now: Nanos) {
        assert!(matches!(self.states[slot], State::Vacant | State::Down), "the slot has a worker");
        self.states[slot] = State::Running;
        self.loads[slot] = Some(Load::default());
        self.silent[slot] = false;
        self.feedback[slot] = Feedback::default();
        self.idle_since[slot] = now;
    }

    /// A worker runs in place of one that died.
    pub fn replaced(&mut self, slot: usize, now: Nanos) {
        if self.states[slot] == State::Down {
            self.started(slot, now);
        }
    }

    /// How many workers there may be at most.
    pub fn slots(&self) -> usize {
        self.states.len()
    }

    /// A slot that another worker may be started in.
    pub fn vacancy(&self) -> Option<usize> {
        let vacant = self.states.iter().position(|state| *state == State::Vacant);
        vacant.filter(|_| self.resources.may_start(self.states.len() - self.count(State::Vacant)))
    }

    /// Whether another connection can be placed.
    pub fn has_room(&self) -> bool {
        let c_max = self.settings.c_max;
        let answering = answering(&self.loads, &self.silent);
        self.vacancy().is_some() || answering.iter().flatten().any(|load| load.connections < c_max)
    }

    /// Whether there is a worker that connections could be placed with, or could be.
    pub fn has_answering_worker(&self) -> bool {
        self.vacancy().is_some() || answering(&self.loads, &self.silent).iter().any(Option::is_some)
    }

    /// A worker does not answer. Of the connections placed with it, `taken_back` were taken back.
    pub fn falls_silent(&mut self, slot: usize, taken_back: u64) {
        self.decisions.workers_silent += 1;
        self.silent[slot] = true;
        self.reported(slot, 0, taken_back, self.idle_since[slot]);
    }

    /// A worker that did not answer does again.
    pub fn answers(&mut self, slot: usize) {
        self.silent[slot] = false;
    }

    /// Whether a worker does not answer.
    pub fn is_silent(&self, slot: usize) -> bool {
        self.silent[slot]
    }

    /// Places a connection, which counts as the worker's from now on; one that has to be started for it has to be
    /// said to have [`grown`](Pool::grown) the pool.
    pub fn place(&mut self, now: Nanos) -> Placement {
        if self.is_idle() {
            // Nobody has replied in the meantime, and nobody could have.
            self.period_began = now;
        }
        let vacancy = self.vacancy();
        let loads = answering(&self.loads, &self.silent);
        let slot = match self.scheduler.choose(&loads, vacancy.is_some()) {
            Choice::Full => return Placement::Full,
            Choice::Start => return Placement::Start(vacancy.expect("it was allowed to start one")),
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

    /// A worker was started in this slot for a connection, which is the worker's from now on.
    pub fn grown(&mut self, slot: usize, now: Nanos) {
        self.started(slot, now);
        self.decisions.placed_on_new_worker += 1;
        self.add_connection(slot);
    }

    fn add_connection(&mut self, slot: usize) {
        self.loads[slot].as_mut().expect("it runs").connections += 1;
    }

    /// A worker has sent replies and closed connections since it last said so. One that no longer runs is not
    /// heard.
    pub fn reported(&mut self, slot: usize, replies: u64, closed: u64, now: Nanos) {
        let Some(load) = &mut self.loads[slot] else { return };
        self.feedback[slot].replied(replies);
        if closed == 0 {
            return;
        }
        load.connections = load.connections.saturating_sub(u32::try_from(closed).unwrap_or(u32::MAX));
        if load.connections == 0 {
            self.idle_since[slot] = now;
            self.feedback[slot] = Feedback::default();
            load.throughput = 0.0;
        }
    }

    /// When the throughputs are to be smoothed next; never while no worker has a connection.
    pub fn period_ends(&self) -> Option<Nanos> {
        (!self.is_idle()).then(|| self.period_began.saturating_add(self.settings.period))
    }

    fn is_idle(&self) -> bool {
        self.loads.iter().flatten().all(|load| load.connections == 0)
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

    /// A worker has died. Of the connections placed with it so many had not been passed on, and are to be placed
    /// anew; the others are lost.
    pub fn died(&mut self, slot: usize, kept: u64) {
        self.states[slot] = match self.states[slot] {
            State::Leaving => State::Vacant,
            _ => State::Down,
        };
        let placed = self.loads[slot].take().map_or(0, |load| u64::from(load.connections));
        self.decisions.connections_lost_with_worker += placed.saturating_sub(kept);
    }

    /// A worker that was told to stop has ended.
    pub fn left(&mut self, slot: usize) {
        self.states[slot] = State::Vacant;
        self.loads[slot] = None;
    }

    /// The worker to stop next, and when; nobody places anything with it from then on.
    pub fn next_surplus(&self) -> Option<Surplus> {
        let running = self.loads.iter().zip(&self.idle_since).enumerate();
        let idle = running.filter_map(|(slot, (load, since))| {
            load.filter(|load| load.connections == 0 && !self.silent[slot]).map(|_| (slot, *since))
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

/// The loads of those that answer.
fn answering<'a>(loads: &'a [Option<Load>], silent: &[bool]) -> Cow<'a, [Option<Load>]> {
    if !silent.contains(&true) {
        return Cow::Borrowed(loads);
    }
    loads.iter().zip(silent).map(|(load, silent)| load.filter(|_| !silent)).collect()
}

#[cfg(test)]
mod tests;
