//! The control of one accept queue: reads its signals, calls the law, and applies the decision to the hook
//! and the kernel.
//!
//! The phases of a driver's loop:
//!
//! ```text
//!   get events
//!   work              limit.worked(turns, closed, time)
//!   control           if control.due(now) { control.tick(now, listeners, progress) }
//!   accept            up to limit.limit(); limit.accepted(connections, time)
//!   wait              until control.wakes_at(), if nothing happens
//! ```
//!
//! The limit holds even if the operator has set a larger accept-limit. A loop that accepts everything keeps
//! its queue empty and makes clients wait in the loop instead, where the law does not see them.
//!
//! One control belongs to one accept queue:
//!
//! | architecture | control in | accepted | emptied | lag |
//! |---|---|---|---|---|
//! | sped, per-core, tux, amped | each loop | the loop's | an accept phase ended at an empty queue | the turn |
//! | knot | the scheduler's thread | the scheduler's | a thread waits for a connection | 0 |
//! | mt | one thread, each tick | all threads' | a thread waits for a connection | 0 |
//! | mp | the parent, each tick while a worker is busy | all workers', by the scoreboard | a worker is idle | 0 |
//! | smped | the dispatcher | the dispatcher's | an accept phase ended at an empty queue | the turn |
//!
//! `seda` keeps the controllers of its own paper.
//!
//! The control costs a driver two or three microseconds of system calls every 5 ms, and nothing while it
//! sleeps.

use std::io;
use std::os::fd::BorrowedFd;

use base::Nanos;
use sys::socket::accept_queue;

use crate::hook::Hook;
use crate::law::{Change, Controller, Decision, Settings, Signals, State};
use crate::total::Total;

/// A driver's figures for its accept queue. See [`Signals`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Connections accepted from the queue since the start.
    pub accepted: u64,
    /// Those among them whose first request was refused because it had waited too long.
    pub late: u64,
    /// True if an accept has found the queue empty since the last tick, or a thread or process has waited for
    /// a connection.
    pub emptied: bool,
    /// The longest turn of the loop since the last tick; 0 for a driver without a loop.
    pub lag: Nanos,
    /// Open connections, as a fraction of the connection limit.
    pub occupancy: f64,
    /// The time that a connection takes from its accept to its close, as the loop has measured it; 0 if it has not.
    pub cost: Nanos,
}

/// The results of a tick that deserve a line of a log.
#[derive(Debug, Default)]
pub struct Ticked {
    /// The change of state.
    pub change: Option<Change>,
    /// The error of a failed hook. It has withdrawn, and from now on only the backlog bounds the queue.
    pub failure: Option<io::Error>,
}

/// Controls one accept queue, or the queues of several addresses that one loop accepts from.
pub struct QueueControl {
    controller: Controller,
    hook: Box<dyn Hook>,
    /// Drops of each listener.
    dropped: Vec<Total>,
    /// The listeners' current backlog.
    backlog: u32,
    signals: Signals,
}

impl QueueControl {
    /// The control of listeners with the configured backlog.
    pub fn new(settings: Settings, hook: Box<dyn Hook>, now: Nanos) -> QueueControl {
        QueueControl {
            controller: Controller::new(settings, now),
            hook,
            dropped: Vec::new(),
            backlog: settings.backlog,
            signals: Signals::default(),
        }
    }

    /// Changes the target delay, within [`Settings::TARGETS`], from the next tick on.
    pub fn set_target(&mut self, target: Nanos) {
        self.controller.set_target(target);
    }

    /// Returns true if a tick is due.
    pub fn due(&self, now: Nanos) -> bool {
        now >= self.due_at()
    }

    /// The time of the next tick.
    pub fn due_at(&self) -> Nanos {
        self.controller.due()
    }

    /// The time at which an idle loop must wake for a tick; `None` while everything is admitted.
    pub fn wakes_at(&self) -> Option<Nanos> {
        (self.decision().state == State::Shedding).then(|| self.due_at())
    }

    /// The current decision.
    pub fn decision(&self) -> &Decision {
        self.controller.decision()
    }

    /// The last readings.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// The name of the hook.
    pub fn hook(&self) -> &'static str {
        self.hook.name()
    }

    /// Reads the signals, decides, and applies the decision. The listeners must be the same in each call, in
    /// the same order. Never blocks.
    pub fn tick<'a>(
        &mut self,
        now: Nanos,
        listeners: impl Iterator<Item = BorrowedFd<'a>> + Clone,
        progress: Progress,
    ) -> Ticked {
        let (refused, unread) = match self.hook.refused() {
            Ok(refused) => (refused, None),
            Err(error) => (self.signals.refused, Some(error)),
        };
        let Progress { accepted, late, emptied, lag, occupancy, cost } = progress;
        let (queued, dropped) = self.read(listeners.clone());
        self.signals = Signals {
            stands: false,
            queued,
            accepted,
            late,
            emptied,
            syns: self.hook.seen(),
            refused,
            dropped,
            lag,
            occupancy,
            cost,
            batch: 1.0,
        };
        let change = self.controller.tick(now, &self.signals);
        let admitted = self.hook.admit(&self.controller.decision().admission);
        self.bound(listeners);
        Ticked { change, failure: unread.or(admitted.err()) }
    }

    /// The depth and the drops of all listeners; 0 for a listener that the kernel cannot read.
    fn read<'a>(&mut self, listeners: impl Iterator<Item = BorrowedFd<'a>>) -> (u32, u64) {
        let mut queued = 0;
        for (index, listener) in listeners.enumerate() {
            let queue = accept_queue(listener).unwrap_or_default();
            if index == self.dropped.len() {
                self.dropped.push(Total::default());
            }
            self.dropped[index].read(queue.drops);
            queued += queue.depth;
        }
        // Those of listeners that are gone still count.
        (queued, self.dropped.iter().map(Total::get).sum())
    }

    /// Sets the decided backlog: another listen(2) changes it at once and drops no connection.
    fn bound<'a>(&mut self, listeners: impl Iterator<Item = BorrowedFd<'a>>) {
        let backlog = self.decision().backlog;
        if std::mem::replace(&mut self.backlog, backlog) != backlog {
            for listener in listeners {
                // A listener that is being shut down has no backlog.
                let _ = rustix::net::listen(listener, i32::try_from(backlog).unwrap_or(i32::MAX));
            }
        }
    }
}
