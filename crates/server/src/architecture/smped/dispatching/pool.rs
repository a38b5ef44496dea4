//! The dispatcher's account of its workers: their states, their loads, and the decisions that follow.
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
//! Joins scheduler, feedback handler and resource controller on one table, without I/O and clock. The
//! dispatcher reports the events and carries out the decisions. Tests run the table without a process.
//!
//! Invariants: C_i counts the connections placed with a worker and not yet reported closed, and never exceeds
//! C_max. A worker that is not running has no connection and gets none. A worker that does not answer gets no
//! new connection. No worker is full by [`relieve`](Pool::relieve) while no other may be started. The running, down
//! and leaving workers together never exceed P_max. No decision of this module reduces the running and down workers
//! below P_min.

use std::borrow::Cow;

use base::{Nanos, Seed};

use super::scheduler::{Choice, Load, Reason, Scheduler};
use crate::architecture::smped::feedback::Feedback;
use crate::architecture::smped::resources::{Resources, Surplus};
use crate::architecture::smped::settings::{Schedule, SmpedSettings};
use crate::ground::counters::Decisions;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Vacant,
    Running,
    Leaving,
    Down,
}

/// The destination of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The worker in this slot.
    To(usize),
    /// A new worker in this slot, which has to be started.
    Start(usize),
    /// No worker has room yet.
    Full,
}

/// The table of workers, by slot.
#[derive(Debug)]
pub struct Pool {
    settings: SmpedSettings,
    scheduler: Scheduler,
    resources: Resources,
    states: Vec<State>,
    /// T_i of the last period and C_i, for each running worker.
    loads: Vec<Option<Load>>,
    /// True for each worker that does not answer. It gets no connections.
    silent: Vec<bool>,
    feedback: Vec<Feedback>,
    /// The time since which each worker has had no connection.
    idle_since: Vec<Nanos>,
    period_began: Nanos,
    /// No worker is started before this time.
    pause_until: Nanos,
    /// The decisions so far.
    pub decisions: Decisions,
}

impl Pool {
    /// A pool without workers.
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
            pause_until: Nanos::ZERO,
            decisions: Decisions::default(),
        }
    }

    /// Records a running worker in this slot: a new one, or the replacement of one that died.
    pub fn started(&mut self, slot: usize, now: Nanos) {
        assert!(matches!(self.states[slot], State::Vacant | State::Down), "the slot has a worker");
        self.states[slot] = State::Running;
        self.loads[slot] = Some(Load::default());
        self.silent[slot] = false;
        self.feedback[slot] = Feedback::default();
        self.idle_since[slot] = now;
    }

    /// Records a worker that replaces one that died.
    pub fn replaced(&mut self, slot: usize, now: Nanos) {
        if self.states[slot] == State::Down {
            self.started(slot, now);
        }
    }

    /// Maximum number of workers.
    pub fn slots(&self) -> usize {
        self.states.len()
    }

    /// A slot in which another worker may be started now.
    pub fn vacancy(&self, now: Nanos) -> Option<usize> {
        let vacant = self.states.iter().position(|state| *state == State::Vacant);
        let may_start = || self.resources.may_start(self.states.len() - self.count(State::Vacant));
        vacant.filter(|_| now >= self.pause_until && may_start())
    }

    /// Starts no worker until this time, because the last one could not be started.
    pub fn pause(&mut self, until: Nanos) {
        self.pause_until = until;
        self.nobody_is_full();
    }

    /// The end of the pause under way.
    pub fn pause_ends(&self, now: Nanos) -> Option<Nanos> {
        (self.pause_until > now).then_some(self.pause_until)
    }

    /// True if another connection can be placed.
    pub fn has_room(&self, now: Nanos) -> bool {
        let c_max = self.settings.c_max;
        let answering = answering(&self.loads, &self.silent);
        self.vacancy(now).is_some() || answering.iter().flatten().any(|load| load.has_room(c_max))
    }

    /// True if a worker answers or could be started.
    pub fn has_answering_worker(&self, now: Nanos) -> bool {
        self.vacancy(now).is_some() || answering(&self.loads, &self.silent).iter().any(Option::is_some)
    }

    /// Records that a worker does not answer, and that `taken_back` of its connections were taken back.
    pub fn falls_silent(&mut self, slot: usize, taken_back: u64) {
        self.decisions.workers_silent += 1;
        self.silent[slot] = true;
        self.reported(slot, 0, taken_back, self.idle_since[slot]);
    }

    /// Records that a silent worker answers again.
    pub fn answers(&mut self, slot: usize) {
        self.silent[slot] = false;
    }

    /// True if a worker does not answer.
    pub fn is_silent(&self, slot: usize) -> bool {
        self.silent[slot]
    }

    /// Places a connection, which counts as the worker's from now on. If the result is to start a worker, the
    /// caller must then report it with [`grown`](Pool::grown), or [`pause`](Pool::pause) and place the connection again.
    pub fn place(&mut self, now: Nanos) -> Placement {
        if self.is_idle() {
            // No worker has replied since the last period, and none could have.
            self.period_began = now;
        }
        let vacancy = self.vacancy(now);
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

    /// Records that a worker was started in this slot for a connection, which is the worker's from now on.
    pub fn grown(&mut self, slot: usize, now: Nanos) {
        self.started(slot, now);
        self.decisions.placed_on_new_worker += 1;
        // The new one has to show that it helps before the next comes.
        self.nobody_is_full();
        self.add_connection(slot);
    }

    fn nobody_is_full(&mut self) {
        self.loads.iter_mut().flatten().for_each(|load| load.is_full = false);
    }

    fn add_connection(&mut self, slot: usize) {
        self.loads[slot].as_mut().expect("it runs").connections += 1;
    }

    /// Records the replies and the closed connections of a worker's report. Ignores the report of a worker
    /// that no longer runs.
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

    /// The next time to smooth the throughputs; `None` while no worker has a connection.
    pub fn period_ends(&self) -> Option<Nanos> {
        (!self.is_idle()).then(|| self.period_began.saturating_add(self.settings.period))
    }

    fn is_idle(&self) -> bool {
        self.loads.iter().flatten().all(|load| load.connections == 0)
    }

    /// Ends a period, perhaps late: smooths the throughputs.
    pub fn end_period(&mut self, now: Nanos) {
        let length = now.saturating_sub(self.period_began);
        self.period_began = now;
        for (load, feedback) in self.loads.iter_mut().zip(&mut self.feedback) {
            let Some(load) = load.as_mut().filter(|load| load.connections > 0) else { continue };
            feedback.period(length, self.settings.alpha);
            load.throughput = feedback.throughput();
        }
    }

    /// Marks the workers that need relief as full, by slot, if another worker may be started.
    pub fn relieve(&mut self, needed: &[bool], now: Nanos) {
        let may_grow = self.vacancy(now).is_some();
        for (load, needed) in self.loads.iter_mut().zip(needed) {
            load.iter_mut().for_each(|load| load.is_full = *needed && may_grow);
        }
    }

    /// Records the death of a worker. Of its connections, `kept` had not been passed on and will be placed
    /// anew; the others are lost.
    pub fn died(&mut self, slot: usize, kept: u64) {
        self.states[slot] = match self.states[slot] {
            State::Leaving => State::Vacant,
            _ => State::Down,
        };
        let placed = self.loads[slot].take().map_or(0, |load| u64::from(load.connections));
        self.decisions.connections_lost_with_worker += placed.saturating_sub(kept);
    }

    /// Records the end of a worker that was told to stop.
    pub fn left(&mut self, slot: usize) {
        self.states[slot] = State::Vacant;
        self.loads[slot] = None;
    }

    /// The worker to stop next, and the time to stop it.
    pub fn next_surplus(&self) -> Option<Surplus> {
        let running = self.loads.iter().zip(&self.idle_since).enumerate();
        let idle = running.filter_map(|(slot, (load, since))| {
            load.filter(|load| load.connections == 0 && !self.silent[slot]).map(|_| (slot, *since))
        });
        self.resources.surplus(self.count(State::Running) + self.count(State::Down), idle)
    }

    /// Takes a worker that has been idle for too long, to be told to stop. It gets no connection from then
    /// on.
    pub fn take_surplus(&mut self, now: Nanos) -> Option<usize> {
        let surplus = self.next_surplus().filter(|surplus| surplus.at <= now)?;
        self.decisions.workers_stopped_idle += 1;
        self.states[surplus.slot] = State::Leaving;
        self.loads[surplus.slot] = None;
        Some(surplus.slot)
    }

    /// The load of each running worker, by slot.
    pub fn loads(&self) -> impl Iterator<Item = (usize, Load)> {
        self.loads.iter().enumerate().filter_map(|(slot, load)| load.map(|load| (slot, load)))
    }

    /// Connections placed and not yet reported closed, over all workers.
    pub fn connections(&self) -> u64 {
        self.loads.iter().flatten().map(|load| u64::from(load.connections)).sum()
    }

    fn count(&self, state: State) -> usize {
        self.states.iter().filter(|known| **known == state).count()
    }
}

/// The loads of the workers that answer.
fn answering<'a>(loads: &'a [Option<Load>], silent: &[bool]) -> Cow<'a, [Option<Load>]> {
    if !silent.contains(&true) {
        return Cow::Borrowed(loads);
    }
    loads.iter().zip(silent).map(|(load, silent)| load.filter(|_| !silent)).collect()
}

#[cfg(test)]
mod tests;
