//! One stage: a queue of events and the threads that take them.
//!
//! ```text
//!   push ──> queue ──> take: a batch, or quiet, or over
//!     └─ too long: a thread is wanted        └─ idle for a while, and not the last: over
//! ```
//!
//! Owns the queue, the number of threads and their counters. Does not start threads: the pusher of an event does, if
//! the stage asks for one. The queue needs no bound of its own: an event is a connection, and the number of connections
//! is limited.
//!
//! Invariants: a closed stage has an empty queue and accepts no events; the last thread leaves only a closed stage.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use base::{Clock, Nanos, RealClock, lock};

use super::control::PoolController;
use crate::ground::counters::StageFigures;

/// The idle time after which a thread ends [SEDA, 3.4].
const IDLE: Nanos = Nanos::from_secs(5);

/// A queue and its pool.
#[derive(Debug)]
pub struct Stage<E> {
    name: &'static str,
    /// The most events that a thread takes at once.
    batch: usize,
    clock: RealClock,
    state: Mutex<State<E>>,
    arrived: Condvar,
    left: Condvar,
}

#[derive(Debug)]
struct State<E> {
    events: VecDeque<E>,
    controller: PoolController,
    threads: usize,
    waiting: usize,
    processed: u64,
    longest: usize,
    closed: bool,
}

/// The fate of a pushed event.
#[derive(Debug, PartialEq, Eq)]
pub enum Pushed<E> {
    /// It is queued.
    Queued,
    /// It is queued. The caller must start a thread, which has been counted already.
    ThreadWanted,
    /// The stage is closed.
    Refused(E),
}

/// The result of waiting for events.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// Events were taken.
    Events,
    /// The queue is empty, and the thread has something to do before it sleeps.
    Quiet,
    /// The thread must end, and is no longer counted.
    Over,
}

impl<E> Stage<E> {
    /// Makes a stage whose first thread is counted and still to be started.
    pub fn new(name: &'static str, batch: usize, controller: PoolController, clock: RealClock) -> Stage<E> {
        let state = State {
            events: VecDeque::new(),
            controller,
            threads: 1,
            waiting: 0,
            processed: 0,
            longest: 0,
            closed: false,
        };
        Stage { name, batch, clock, state: Mutex::new(state), arrived: Condvar::new(), left: Condvar::new() }
    }

    /// The stage's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Queues an event.
    pub fn push(&self, event: E, now: Nanos) -> Pushed<E> {
        let mut state = self.lock();
        if state.closed {
            return Pushed::Refused(event);
        }
        state.events.push_back(event);
        let (queued, threads) = (state.events.len(), state.threads);
        state.longest = state.longest.max(queued);
        let wake = state.waiting > 0;
        let grows = state.controller.grows(queued, threads, now);
        state.threads += usize::from(grows);
        drop(state);
        if wake {
            self.arrived.notify_one();
        }
        if grows { Pushed::ThreadWanted } else { Pushed::Queued }
    }

    /// Moves a thread's share of the queue into `events`. If the queue is empty and the thread may sleep, blocks until
    /// an event comes or the thread has been idle for [`IDLE`] since `idle_since`.
    pub fn take(&self, events: &mut Vec<E>, idle_since: Nanos, may_sleep: bool) -> Taken {
        let mut state = self.lock();
        loop {
            if !state.events.is_empty() {
                assert!(!state.closed, "a closed stage has an empty queue");
                // Leaves a share for the other threads.
                let share = state.events.len().div_ceil(state.threads).min(self.batch);
                events.extend(state.events.drain(..share));
                state.processed += share as u64;
                return Taken::Events;
            }
            if !may_sleep {
                return Taken::Quiet;
            }
            let now = self.clock.now();
            let idle_until = (state.threads > 1).then(|| idle_since.saturating_add(IDLE));
            if state.closed || idle_until.is_some_and(|end| end <= now) {
                // Counted under the lock: of two idle threads, one stays.
                assert!(state.closed || state.threads > 1, "the last thread leaves only a closed stage");
                state.threads -= 1;
                self.left.notify_all();
                return Taken::Over;
            }
            let time = idle_until.map_or(IDLE, |end| end - now);
            state.waiting += 1;
            state = match self.arrived.wait_timeout(state, time.into()) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
            state.waiting -= 1;
        }
    }

    /// Returns true if no event is queued.
    pub fn is_empty(&self) -> bool {
        self.lock().events.is_empty()
    }

    /// Closes the stage: returns the queued events, and makes every thread end.
    pub fn close(&self) -> VecDeque<E> {
        let mut state = self.lock();
        state.closed = true;
        self.arrived.notify_all();
        std::mem::take(&mut state.events)
    }

    /// Notes that a counted thread could not be started, or has ended unexpectedly.
    pub fn thread_lost(&self) {
        let mut state = self.lock();
        assert!(state.threads > 0, "a thread that is lost was counted");
        state.threads -= 1;
        drop(state);
        self.left.notify_all();
    }

    /// Waits until no thread is left. Blocks.
    pub fn wait_for_threads(&self) {
        drop(self.left.wait_while(self.lock(), |state| state.threads > 0));
    }

    /// Returns the current figures.
    pub fn figures(&self) -> StageFigures {
        let state = self.lock();
        StageFigures {
            name: self.name,
            queued: state.events.len() as u64,
            longest_queue: state.longest as u64,
            threads: state.threads as u64,
            processed: state.processed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(batch: usize) -> Stage<u32> {
        Stage::new("test", batch, PoolController::new(2, 3), RealClock::new())
    }

    #[test]
    fn events_leave_in_order_and_shared_out() {
        let stage = stage(2);
        for event in 0..3 {
            let grows = stage.push(event, Nanos::ZERO) == Pushed::ThreadWanted;
            assert_eq!(grows, event == 2, "above the threshold");
        }
        let mut events = Vec::new();
        assert_eq!(stage.take(&mut events, Nanos::ZERO, true), Taken::Events);
        assert_eq!(events, [0, 1], "a share of three for each of two threads");
        assert_eq!(stage.take(&mut events, Nanos::ZERO, true), Taken::Events);
        assert_eq!(events, [0, 1, 2]);
        let figures = stage.figures();
        assert_eq!((figures.queued, figures.longest_queue), (0, 3));
        assert_eq!((figures.threads, figures.processed), (2, 3));
    }

    #[test]
    fn who_is_idle_ends_unless_it_is_the_last() {
        let stage = stage(1);
        let now = stage.clock.now();
        (0..3).for_each(|event| assert!(stage.push(event, now) != Pushed::Refused(event)));
        let mut events = Vec::new();
        (0..3).for_each(|_| assert_eq!(stage.take(&mut events, now, true), Taken::Events));
        let long_ago = now.saturating_sub(IDLE);
        assert_eq!(stage.take(&mut events, long_ago, true), Taken::Over);
        assert_eq!(stage.figures().threads, 1);
        assert_eq!(stage.take(&mut events, long_ago, false), Taken::Quiet);
    }

    #[test]
    fn closed_stage_returns_its_queue_and_ends_threads() {
        let stage = stage(1);
        assert_eq!(stage.push(7, Nanos::ZERO), Pushed::Queued);
        std::thread::scope(|scope| {
            assert_eq!(stage.close(), [7]);
            scope.spawn(|| assert_eq!(stage.take(&mut Vec::new(), Nanos::ZERO, true), Taken::Over));
            stage.wait_for_threads();
        });
        assert_eq!(stage.push(8, Nanos::ZERO), Pushed::Refused(8));
    }
}
