//! The accept phase: one visit to the listeners that are ready (Brecht 2004, section 3). Loops, threads and
//! dispatchers share it.
//!
//! ```text
//!   phase:  a ready source ──look──> taken or turned away ──> the same source again, up to the accept-limit
//!              ^                └──> empty: no longer ready ─┐
//!              └──────────── the next one <──────────────────┘
//! ```
//!
//! Rotates the sources, so that none starves under a small limit. Does not count a phase that took nothing.
//!
//! Owns the order, the limit and the counting. The caller owns the look itself: accepting, and finding room.

use base::{Limit, Nanos};

use super::Short;
use crate::ground::counters::LoopCounts;

/// The result of one look into an accept queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A connection was taken.
    Taken,
    /// A connection was refused.
    TurnedAway,
    /// The queue is empty.
    Empty,
    /// Some connections had died. More may be in the queue, but the other sources get their turn.
    Dead,
    /// The phase ends here.
    Stop(PhaseEnd),
}

/// The reason for the end of an accept phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseEnd {
    /// Every queue is empty.
    Empty,
    /// The accept-limit is reached, or many connections had died; there may be more.
    AtLimit,
    /// A connection waits, and there is no room for it.
    NoRoom(Short),
    /// Accepting cannot succeed before this time.
    Pause(Nanos),
}

/// The result of an accept phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Connections taken.
    pub taken: u64,
    /// The reason why it took no more.
    pub end: PhaseEnd,
}

impl Phase {
    /// Counts the phase and the connections that it took.
    pub fn count(&self, counts: &mut LoopCounts) {
        counts.accepts += self.taken;
        counts.accept_phases += u64::from(self.taken > 0);
    }
}

/// The sources of connections that are ready, by index.
#[derive(Debug, Default)]
pub struct Ready {
    indexes: Vec<usize>,
    /// All phases so far, which rotate the first source. Phases that took nothing count here.
    phases: usize,
}

impl Ready {
    /// Marks a source as ready. With edge-triggered events it stays ready until its queue was found empty.
    pub fn report(&mut self, index: usize) {
        if let Err(at) = self.indexes.binary_search(&index) {
            self.indexes.insert(at, index);
        }
    }

    /// Marks all of `sources` sources as ready.
    pub fn report_all(&mut self, sources: usize) {
        self.indexes.clear();
        self.indexes.extend(0..sources);
    }

    /// Forgets all reports.
    pub fn clear(&mut self) {
        self.indexes.clear();
    }

    /// Tells whether no source is ready.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// Runs one accept phase: looks at the ready sources in turn, until `limit` connections were taken or turned
    /// away.
    pub fn phase(&mut self, limit: Limit, mut look: impl FnMut(usize) -> Look) -> Phase {
        let (mut taken, mut turned_away) = (0, 0);
        let end = loop {
            if self.indexes.is_empty() {
                break PhaseEnd::Empty;
            }
            if !limit.allows(taken + turned_away + 1) {
                break PhaseEnd::AtLimit;
            }
            let at = self.phases % self.indexes.len();
            match look(self.indexes[at]) {
                Look::Taken => taken += 1,
                Look::TurnedAway => turned_away += 1,
                Look::Empty => drop(self.indexes.remove(at)),
                Look::Dead => break PhaseEnd::AtLimit,
                Look::Stop(end) => break end,
            }
        };
        self.phases = self.phases.wrapping_add(1);
        Phase { taken, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a phase on sources with these numbers of connections.
    fn phase(ready: &mut Ready, limit: u32, queues: &mut [u32]) -> (Phase, Vec<usize>) {
        let mut order = Vec::new();
        let phase = ready.phase(Limit::AtMost(limit), |index| {
            let Some(left) = queues[index].checked_sub(1) else { return Look::Empty };
            queues[index] = left;
            order.push(index);
            Look::Taken
        });
        (phase, order)
    }

    #[test]
    fn phase_ends_at_its_limit_and_rotates_the_sources() {
        let (mut ready, mut queues) = (Ready::default(), [9, 9, 9]);
        ready.report_all(3);
        let firsts = (0..6).map(|_| phase(&mut ready, 1, &mut queues).1[0]).collect::<Vec<_>>();
        assert_eq!(firsts, [0, 1, 2, 0, 1, 2]);
        let (Phase { taken, end }, _) = phase(&mut ready, 5, &mut queues);
        assert_eq!((taken, end), (5, PhaseEnd::AtLimit));
    }

    #[test]
    fn empty_source_leaves_the_turn_to_the_others() {
        let (mut ready, mut queues) = (Ready::default(), [1, 0, 2]);
        [2, 0, 1, 0].into_iter().for_each(|index| ready.report(index));
        let (phase, order) = phase(&mut ready, 10, &mut queues);
        assert_eq!((phase, order), (Phase { taken: 3, end: PhaseEnd::Empty }, vec![0, 2, 2]));
        assert!(ready.is_empty());
    }

    #[test]
    fn a_phase_that_took_nothing_is_not_counted() {
        let mut counts = LoopCounts::default();
        Phase { taken: 0, end: PhaseEnd::Empty }.count(&mut counts);
        Phase { taken: 3, end: PhaseEnd::AtLimit }.count(&mut counts);
        assert_eq!((counts.accepts, counts.accept_phases), (3, 1));
    }

    #[test]
    fn those_that_are_turned_away_count_towards_the_limit() {
        let mut ready = Ready::default();
        ready.report(0);
        let mut looks = 0;
        let phase = ready.phase(Limit::AtMost(4), |_| {
            looks += 1;
            Look::TurnedAway
        });
        assert_eq!((phase, looks), (Phase { taken: 0, end: PhaseEnd::AtLimit }, 4));
    }
}
