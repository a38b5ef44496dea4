//! The scoreboard: the counters of workers, in memory that they share with their parent.
//!
//! ```text
//!   a place:  version | totals: loop, protocol, service | gauges | words of the architecture
//! ```
//!
//! A place has one writer, the worker in it. The version is odd while totals are written (a sequence lock), so that a
//! reader gets figures of one moment. If a writer was killed in the middle of a write, the reader takes the figures
//! as they are. Totals of a place only grow: a worker adds to the totals of its predecessors.
//!
//! The version does not cover the architecture's words, which are independent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Nanos;
use sys::shared::SharedArray;
use sys::socket::AcceptQueue;
use words::version;

use crate::ground::counters::Counters;
use crate::ground::instructions::{self, Instructions};

/// The index of the word that shows since when a worker's longest-idle connection has been idle, in nanoseconds. The
/// word is 0 without an idle connection.
pub const IDLE_FROM: usize = 0;

/// Maximum number of attempts to read figures of one moment.
const MOST_LOOKS: u32 = 1000;
/// Connections, and the accept queue's depth, limit and drops.
const GAUGES: usize = 4;

/// The layout of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Totals of the service.
    pub service: usize,
    /// Words of the architecture.
    pub own: usize,
}

impl Layout {
    fn totals(self) -> usize {
        Counters::default().named().count() + self.service
    }

    fn words(self) -> usize {
        1 + self.totals() + GAUGES + self.own
    }
}

/// All places, in the parent's view.
#[derive(Debug)]
pub(crate) struct Scoreboard {
    words: Arc<SharedArray<AtomicU64>>,
    layout: Layout,
    service: Vec<&'static str>,
    places: usize,
    /// The index of the late connections among the totals.
    late: usize,
}

impl Scoreboard {
    pub fn new(places: usize, service: Vec<&'static str>, own: usize) -> io::Result<Scoreboard> {
        let layout = Layout { service: service.len(), own };
        let words = Arc::new(SharedArray::create(places * layout.words() + instructions::WORDS)?);
        let late = Counters::default().named().position(|(name, _)| name == "late_connections");
        Ok(Scoreboard { words, layout, service, places, late: late.expect("every loop has this total") })
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the architecture's words of a place.
    pub fn own(&self, place: usize) -> &[AtomicU64] {
        let end = (place + 1) * self.layout.words();
        &self.words[end - self.layout.own..end]
    }

    /// Returns the open connections of a place, as its worker has last shown them.
    pub fn connections(&self, place: usize) -> u64 {
        let end = (place + 1) * self.layout.words() - self.layout.own;
        self.words[end - GAUGES].load(Ordering::Relaxed)
    }

    /// Returns the number of connections of all workers whose first request was refused because it had waited too long.
    pub fn late_connections(&self) -> u64 {
        let total = |place: usize| &self.words[place * self.layout.words() + 1 + self.late];
        (0..self.places).map(|place| total(place).load(Ordering::Relaxed)).sum()
    }

    /// Replaces the instructions that all workers read.
    pub fn instruct(&self, instructions: Instructions) {
        instructions.write(&self.words[self.places * self.layout.words()..]);
    }

    /// Returns the figures of a place at one moment. A worker that died in the middle of writing leaves figures of
    /// two moments.
    pub fn read(&self, place: usize) -> Counters {
        for _ in 0..MOST_LOOKS {
            if let (figures, true) = self.read_place(place) {
                return figures;
            }
            // The writer may be waiting for this processor.
            std::thread::yield_now();
        }
        self.read_place(place).0
    }

    /// Returns the figures of a place, and true if they are of one moment.
    fn read_place(&self, place: usize) -> (Counters, bool) {
        let words = &self.words[place * self.layout.words()..][..self.layout.words() - self.layout.own];
        let load = || words[1..].iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let (values, of_one_moment): (Vec<u64>, bool) = version::read(&words[0], load);
        (self.counters(&values), of_one_moment)
    }

    fn counters(&self, values: &[u64]) -> Counters {
        let (totals, gauges) = values.split_at(self.layout.totals());
        let mut counters = Counters {
            connections: gauges[0],
            queue: AcceptQueue { depth: gauges[1] as u32, limit: gauges[2] as u32, drops: gauges[3] as u32 },
            ..Counters::default()
        };
        let mut totals = totals.iter().copied();
        let (loops, http) = (counters.loops.values_mut(), counters.http.values_mut());
        let values = loops.into_iter().chain(http).chain(counters.http2.values_mut());
        for (value, total) in values.zip(&mut totals) {
            *value = total;
        }
        counters.service = self.service.iter().copied().zip(totals).collect();
        counters
    }

    /// Adds totals to a place that several processes write to. Readers may see figures of two moments.
    pub fn add(&self, place: usize, counters: &Counters) {
        let words = &self.words[place * self.layout.words() + 1..][..self.layout.totals()];
        for (word, (_, total)) in words.iter().zip(counters.named()) {
            word.fetch_add(total, Ordering::Relaxed);
        }
    }

    /// Returns the sum of all places.
    pub fn sum(&self) -> Counters {
        let mut sum = Counters::default();
        for place in 0..self.places {
            sum.add(&self.read(place));
        }
        sum
    }

    /// Clears the architecture's words, before a worker is started in a place.
    pub fn clear_own(&self, place: usize) {
        self.own(place).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Removes the connections of a dead worker from its place, and returns their number. The architecture's words
    /// stay as they were.
    pub fn vacate(&self, place: usize) -> u64 {
        let words = &self.words[place * self.layout.words()..][..self.layout.words()];
        let gauges = &words[1 + self.layout.totals()..][..GAUGES];
        let connections = gauges[0].load(Ordering::Relaxed);
        for word in gauges {
            word.store(0, Ordering::Relaxed);
        }
        // The worker may have been killed while it wrote.
        version::end_for_the_dead(&words[0]);
        connections
    }
}

impl AsFd for Scoreboard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        SharedArray::as_fd(&self.words)
    }
}

/// A place, in the view of its worker.
#[derive(Debug)]
pub struct Slot {
    words: SharedArray<AtomicU64>,
    layout: Layout,
    first: usize,
    /// The totals of its predecessors.
    before: Vec<u64>,
}

impl Slot {
    /// Makes a place outside any parent's memory.
    #[cfg(test)]
    pub fn with_own_words(own: usize) -> Slot {
        Slot::neighbours(own, 1).remove(0)
    }

    /// Makes `count` places outside any parent's memory.
    #[cfg(test)]
    pub fn neighbours(own: usize, count: usize) -> Vec<Slot> {
        let board = Scoreboard::new(count, Vec::new(), own).unwrap();
        let memory = || board.as_fd().try_clone_to_owned().unwrap();
        (0..count).map(|place| Slot::open(memory(), place, board.layout()).unwrap()).collect()
    }

    pub(crate) fn open(memory: OwnedFd, place: usize, layout: Layout) -> io::Result<Slot> {
        let words = SharedArray::<AtomicU64>::open(memory)?;
        let first = place * layout.words();
        if words.len() < first + layout.words() + instructions::WORDS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let totals = &words[first + 1..][..layout.totals()];
        let before = totals.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        Ok(Slot { words, layout, first, before })
    }

    /// Replaces the figures by this worker's counters. Calls must not overlap.
    pub fn write(&self, counters: &Counters) {
        let words = &self.words[self.first..][..self.layout.words()];
        let queue = counters.queue;
        let gauges = [counters.connections, queue.depth.into(), queue.limit.into(), queue.drops.into()];
        version::write(&words[0], || {
            for ((word, before), (_, total)) in words[1..].iter().zip(&self.before).zip(counters.named()) {
                word.store(before + total, Ordering::Relaxed);
            }
            for (word, gauge) in words[1 + self.layout.totals()..].iter().zip(gauges) {
                word.store(gauge, Ordering::Relaxed);
            }
        });
    }

    /// Shows the parent the time since which the longest-idle connection has been idle; [`Nanos::MAX`] without one.
    pub fn show_idle(&self, idle_from: Nanos) {
        let word = if idle_from == Nanos::MAX { 0 } else { idle_from.0 };
        self.own()[IDLE_FROM].store(word, Ordering::Relaxed);
    }

    /// Returns the parent's instructions for open connections.
    pub fn instructions(&self) -> Instructions {
        Instructions::read(&self.words[self.words.len() - instructions::WORDS..])
    }

    /// Returns the architecture's words.
    pub fn own(&self) -> &[AtomicU64] {
        self.own_of(self.first / self.layout.words())
    }

    fn own_of(&self, place: usize) -> &[AtomicU64] {
        let end = (place + 1) * self.layout.words();
        &self.words[end - self.layout.own..end]
    }

    /// Iterates over one of the architecture's words in every place.
    pub fn of_all(&self, word: usize) -> impl Iterator<Item = &AtomicU64> {
        let places = (self.words.len() - instructions::WORDS) / self.layout.words();
        (0..places).map(move |place| &self.own_of(place)[word])
    }

    /// Returns the time since which the longest-idle connection of all other workers has been idle; [`Nanos::MAX`]
    /// without one.
    pub fn idle_elsewhere(&self) -> Nanos {
        let mine = &self.own()[IDLE_FROM];
        let others = self.of_all(IDLE_FROM).filter(|word| !std::ptr::eq(*word, mine));
        let idle = others.map(|word| word.load(Ordering::Relaxed)).filter(|from| *from > 0);
        idle.min().map_or(Nanos::MAX, Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(accepts: u64, requests: u64, hits: u64, connections: u64) -> Counters {
        let mut counters = Counters { connections, service: vec![("hits", hits)], ..Counters::default() };
        counters.loops.accepts = accepts;
        counters.loops.late_connections = accepts / 5;
        counters.http.requests = requests;
        counters
    }

    fn slot(board: &Scoreboard, place: usize) -> Slot {
        Slot::open(board.as_fd().try_clone_to_owned().unwrap(), place, board.layout()).unwrap()
    }

    #[test]
    fn what_workers_count_is_added_up_and_outlives_them() {
        let board = Scoreboard::new(3, vec!["hits"], 2).unwrap();
        let (first, third) = (slot(&board, 0), slot(&board, 2));
        first.write(&counted(5, 7, 1, 2));
        third.write(&counted(1, 1, 1, 1));
        third.own()[1].store(9, Ordering::Relaxed);
        assert_eq!(board.own(2)[1].load(Ordering::Relaxed), 9);
        let sum = board.sum();
        assert_eq!((sum.loops.accepts, sum.http.requests, sum.connections), (6, 8, 3));
        assert_eq!((sum.service, board.late_connections()), (vec![("hits", 2)], 1));
        assert_eq!([0, 1, 2].map(|place| board.connections(place)), [2, 0, 1]);

        assert_eq!(board.vacate(2), 1);
        assert_eq!(board.own(2)[1].load(Ordering::Relaxed), 9);
        board.clear_own(2);
        assert_eq!(board.own(2)[1].load(Ordering::Relaxed), 0);
        let sum = board.sum();
        assert_eq!((sum.loops.accepts, sum.connections), (6, 2));
        // The next worker in the place counts from zero, and the total goes on.
        slot(&board, 2).write(&counted(10, 0, 0, 1));
        assert_eq!(board.read(2).loops.accepts, 11);
        assert_eq!((board.sum().loops.accepts, board.late_connections()), (16, 3));
    }

    #[test]
    fn a_worker_sees_since_when_others_have_been_idle() {
        let board = Scoreboard::new(3, Vec::new(), 1).unwrap();
        let slots = [0, 1, 2].map(|place| slot(&board, place));
        assert_eq!(slots[0].idle_elsewhere(), Nanos::MAX);
        slots[0].show_idle(Nanos(5));
        slots[2].show_idle(Nanos(7));
        assert_eq!([0, 1, 2].map(|place| slots[place].idle_elsewhere()), [Nanos(7), Nanos(5), Nanos(5)]);
        slots[2].show_idle(Nanos::MAX);
        assert_eq!(slots[0].idle_elsewhere(), Nanos::MAX);
    }

    #[test]
    fn who_was_killed_while_writing_holds_up_nobody() {
        let board = Scoreboard::new(1, Vec::new(), 0).unwrap();
        slot(&board, 0).write(&counted(1, 0, 0, 0));
        board.words[0].fetch_add(1, Ordering::Relaxed);
        assert_eq!(board.read(0).loops.accepts, 1);
        board.vacate(0);
        assert!(board.words[0].load(Ordering::Relaxed).is_multiple_of(2));
    }

    #[test]
    fn figures_are_of_one_moment() {
        let board = Scoreboard::new(1, Vec::new(), 0).unwrap();
        let slot = slot(&board, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..20_000).for_each(|n| slot.write(&counted(n, n, 0, n))));
            while !writer.is_finished() {
                // The writer may be kept from its processor in the middle of a write.
                let (read, true) = board.read_place(0) else { continue };
                assert_eq!((read.http.requests, read.connections), (read.loops.accepts, read.loops.accepts));
            }
        });
        assert_eq!(board.read(0).connections, 19_999);
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        let board = Scoreboard::new(2, Vec::new(), 1).unwrap();
        let memory = || board.as_fd().try_clone_to_owned().unwrap();
        assert!(Slot::open(memory(), 2, board.layout()).is_err());
        assert!(Slot::open(memory(), 1, Layout { service: 0, own: 2 }).is_err());
    }
}
