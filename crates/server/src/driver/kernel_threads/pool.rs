//! The threads of a group as a pool that may be full.

use std::sync::atomic::Ordering;

use base::Nanos;

use super::Group;
use crate::connections::accept::{Acceptor, Short};
use crate::driver::pools::full_pool::{Pool, State};
use crate::driver::pools::idle_threads::Reclaimed;
use crate::ground::counters::{Board, Counters, LoopCounts};
use crate::ground::listener::Listener;

/// The threads as a pool, with the acceptor that turns connections away.
pub(super) struct KernelPool<'a> {
    pub(super) group: &'a Group,
    pub(super) acceptor: &'a mut Acceptor,
    pub(super) board: &'a Board,
}

impl KernelPool<'_> {
    fn publish(&self, loops: LoopCounts) {
        self.board.merge(&Counters { loops, ..Counters::default() });
    }
}

impl Pool for KernelPool<'_> {
    fn state(&self) -> State {
        State {
            serves: self.group.share.taken() > 0,
            // A thread with an accept queue of its own handles that queue itself, and no other thread can.
            has_free: self.group.free.load(Ordering::Relaxed) > 0 || self.group.has_queues_of_their_own(),
            last_taken: Nanos(self.group.last_taken.load(Ordering::Relaxed)),
        }
    }

    fn reclaim(&mut self, _now: Nanos) -> bool {
        let mut counts = LoopCounts::default();
        let wanting = || !self.state().has_free && Listener::any_waits(&self.group.listeners);
        let reclaimed = self.group.reclaim(wanting, &mut counts);
        self.publish(counts);
        reclaimed != Reclaimed::None
    }

    fn turn_away(&mut self, now: Nanos) {
        let mut counts = LoopCounts::default();
        self.acceptor.turn_away_phase(&self.group.listeners, Short::Connections, now, &mut counts);
        self.group.taken.fetch_add(self.acceptor.take_refused(), Ordering::Relaxed);
        self.publish(counts);
    }
}
