//! The control of one accept queue: reads its signals, asks the law, and tells the hook and the kernel.
//!
//! A driver's loop, by phase:
//!
//! ```text
//!   get events
//!   work              limit.worked(turns, closed, time)
//!   control           if control.due(now) { control.tick(now, listeners, progress) }
//!   accept            up to limit.limit(); limit.accepted(connections, time)
//!   wait              until control.wakes_at(), if nothing happens
//! ```
//!
//! The limit holds even where the operator has set a larger accept-limit: a loop that takes everything keeps its queue
//! empty and makes clients wait in the loop instead, where the law does not see them.
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
//! Costs a driver two or three microseconds of system calls each 5 ms, and nothing while it sleeps.

use std::io;
use std::os::fd::BorrowedFd;

use base::Nanos;
use sys::socket::accept_queue;

use crate::hook::Hook;
use crate::law::{Change, Controller, Decision, Settings, Signals, State};
use crate::total::Total;

/// What a driver knows of its accept queue. See [`Signals`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Connections taken from the queue since the start.
    pub accepted: u64,
    /// An accept has found the queue empty since the last tick, or somebody has waited for a connection.
    pub emptied: bool,
    /// The longest turn of the loop since the last tick; 0 where there is none.
    pub lag: Nanos,
    /// Open connections, as a part of the most that there may be.
    pub occupancy: f64,
}

/// What came of a tick that is worth a line of a log.
#[derive(Debug, Default)]
pub struct Ticked {
    /// The change of state.
    pub change: Option<Change>,
    /// Why the hook has failed. It has withdrawn, and from now on only the backlog bounds the queue.
    pub failure: Option<io::Error>,
}

/// Controls one accept queue, or those of several addresses that one loop accepts from.
pub struct QueueControl {
    controller: Controller,
    hook: Box<dyn Hook>,
    /// What each listener has dropped.
    dropped: Vec<Total>,
    /// What the listeners were told last.
    backlog: u32,
    signals: Signals,
}

impl QueueControl {
    /// The control of listeners that have the configured backlog.
    pub fn new(settings: Settings, hook: Box<dyn Hook>, now: Nanos) -> QueueControl {
        QueueControl {
            controller: Controller::new(settings, now),
            hook,
            dropped: Vec::new(),
            backlog: settings.backlog,
            signals: Signals::default(),
        }
    }

    /// Whether it is time for a tick.
    pub fn due(&self, now: Nanos) -> bool {
        now >= self.due_at()
    }

    /// When it is time for a tick.
    pub fn due_at(&self) -> Nanos {
        self.controller.due()
    }

    /// When a loop must wake up for a tick although nothing happens; never while everything is admitted.
    pub fn wakes_at(&self) -> Option<Nanos> {
        (self.decision().state == State::Shedding).then(|| self.due_at())
    }

    /// The decision in force.
    pub fn decision(&self) -> &Decision {
        self.controller.decision()
    }

    /// The last readings.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// The name of what refuses.
    pub fn hook(&self) -> &'static str {
        self.hook.name()
    }

    /// Reads, decides, and carries out. The listeners are always the same, in the same order. Never blocks.
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
        let Progress { accepted, emptied, lag, occupancy } = progress;
        let (queued, dropped) = self.read(listeners.clone());
        self.signals = Signals { queued, accepted, emptied, refused, dropped, lag, occupancy };
        let change = self.controller.tick(now, &self.signals);
        let admitted = self.hook.admit(&self.controller.decision().admission);
        self.bound(listeners);
        Ticked { change, failure: unread.or(admitted.err()) }
    }

    /// Depth and drops of the listeners together; nothing of one that the kernel cannot read.
    fn read<'a>(&mut self, listeners: impl Iterator<Item = BorrowedFd<'a>>) -> (u32, u64) {
        let (mut queued, mut dropped) = (0, 0);
        for (index, listener) in listeners.enumerate() {
            let queue = accept_queue(listener).unwrap_or_default();
            if index == self.dropped.len() {
                self.dropped.push(Total::default());
            }
            self.dropped[index].read(queue.drops);
            queued += queue.depth;
            dropped += self.dropped[index].get();
        }
        (queued, dropped)
    }

    /// Gives the listeners the decided backlog: listen(2) again changes it at once and drops nobody.
    fn bound<'a>(&mut self, listeners: impl Iterator<Item = BorrowedFd<'a>>) {
        let backlog = self.decision().backlog;
        if std::mem::replace(&mut self.backlog, backlog) != backlog {
            for listener in listeners {
                // A listener that is being shut down has no backlog any more.
                let _ = rustix::net::listen(listener, i32::try_from(backlog).unwrap_or(i32::MAX));
            }
        }
    }
}
