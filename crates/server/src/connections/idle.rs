//! The idle connections of one owner, a loop or a group of threads, by how long they have been idle.
//!
//! ```text
//!   first <-> ... <-> last
//!   first <-> ... <-> last      each by the time from which its connections count as idle
//!   first <-> ... <-> last
//! ```
//!
//! A connection enters when it becomes idle and leaves when something arrives. Three doubly linked lists through one
//! array take a few nanoseconds for both, and no allocation.
//!
//! A connection counts as idle at once; a new one and a lingering one after a delay, which is the same for all of a
//! kind. So those of a kind enter in order, and need one list at most. Each goes to the end of the first list that
//! stays in order. A connection that enters long after its time was set may find none. Then it counts as idle a little
//! later, from the time of another on.
//!
//! Owns only the order. The owner of the connections decides to close one.
//!
//! Invariants: a place is in one list at most, under the key of its present life. The times of a list never decrease.

use base::{Key, Nanos};

/// The end of a list.
const NONE: u32 = u32::MAX;
/// An even generation, which no living key has.
const ABSENT: u32 = 0;
/// One list for each delay: none, that of new connections, and that of lingering ones.
const LISTS: usize = 3;

/// Keys of idle connections, longest idle first.
#[derive(Debug, Default)]
pub struct IdleList {
    /// Links by place.
    links: Vec<Link>,
    lists: [List; LISTS],
}

#[derive(Clone, Copy, Debug)]
struct Link {
    /// The time with which it entered.
    asked: Nanos,
    /// The time from which it counts as idle, which keeps its list in order.
    idle_from: Nanos,
    previous: u32,
    next: u32,
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    /// The `idle_from` of the first link, so that reading it touches no link.
    idle_from: Nanos,
    /// The `idle_from` of the last link.
    latest: Nanos,
}

impl Default for List {
    fn default() -> List {
        List { first: NONE, last: NONE, idle_from: Nanos::MAX, latest: Nanos::ZERO }
    }
}

impl IdleList {
    /// Appends a connection to a list, or moves it to the end of one. It counts as idle from `idle_from` on. A
    /// connection whose `idle_from` is unchanged keeps its place, because a ready event may find nothing to receive.
    pub fn enter(&mut self, key: Key, idle_from: Nanos) {
        let place = key.index as usize;
        if self
            .links
            .get(place)
            .is_some_and(|link| link.generation == key.generation && link.asked == idle_from)
        {
            return;
        }
        self.leave(key);
        if self.links.len() <= place {
            let absent = Link { asked: idle_from, idle_from, previous: NONE, next: NONE, generation: ABSENT };
            self.links.resize(place + 1, absent);
        }
        // The first list that stays in order, or else the one that delays it least.
        let list = self.lists.iter_mut().min_by_key(|list| list.latest.max(idle_from));
        let list = list.expect("there are three");
        let asked = idle_from;
        let idle_from = asked.max(list.latest);
        list.latest = idle_from;
        let previous = std::mem::replace(&mut list.last, key.index);
        self.links[place] = Link { asked, idle_from, previous, next: NONE, generation: key.generation };
        if previous == NONE {
            (list.first, list.idle_from) = (key.index, idle_from);
        } else {
            debug_assert!(
                self.links[previous as usize].idle_from <= idle_from,
                "a list's times never decrease"
            );
            self.links[previous as usize].next = key.index;
        }
    }

    /// Removes a connection. Returns true if it was in a list.
    pub fn leave(&mut self, key: Key) -> bool {
        if !self.has(key) {
            return false;
        }
        let link = &mut self.links[key.index as usize];
        link.generation = ABSENT;
        let Link { previous, next, .. } = *link;
        let latest = match self.links.get_mut(previous as usize) {
            Some(before) => {
                before.next = next;
                before.idle_from
            }
            None => Nanos::ZERO,
        };
        let idle_from = match self.links.get_mut(next as usize) {
            Some(after) => {
                after.previous = previous;
                after.idle_from
            }
            None => Nanos::MAX,
        };
        for list in &mut self.lists {
            if list.first == key.index {
                (list.first, list.idle_from) = (next, idle_from);
            }
            if list.last == key.index {
                (list.last, list.latest) = (previous, latest);
            }
        }
        true
    }

    /// Returns true if the connection is in a list.
    pub fn has(&self, key: Key) -> bool {
        self.links.get(key.index as usize).is_some_and(|link| link.generation == key.generation)
    }

    /// Returns the longest-idle connection, if one is idle by now.
    pub fn longest(&self, now: Nanos) -> Option<Key> {
        let list = self.lists.iter().min_by_key(|list| list.idle_from)?;
        let link = self.links.get(list.first as usize).filter(|_| list.idle_from <= now)?;
        Some(Key { index: list.first, generation: link.generation })
    }

    /// Returns the time, past or future, from which the longest-idle connection counts as idle; [`Nanos::MAX`]
    /// without one.
    pub fn idle_from(&self) -> Nanos {
        self.lists.iter().fold(Nanos::MAX, |from, list| from.min(list.idle_from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(index: u32) -> Key {
        Key { index, generation: 1 }
    }

    #[test]
    fn a_silent_connection_counts_from_its_time_on() {
        let mut list = IdleList::default();
        assert_eq!((list.longest(Nanos(100)), list.idle_from()), (None, Nanos::MAX));
        list.enter(key(7), Nanos(50));
        assert_eq!((list.longest(Nanos(49)), list.idle_from()), (None, Nanos(50)));
        assert_eq!(list.longest(Nanos(50)), Some(key(7)));
        list.enter(key(2), Nanos(20));
        assert_eq!(list.longest(Nanos(60)), Some(key(2)));
        assert!(list.leave(key(2)) && !list.leave(key(2)));
        assert_eq!(list.longest(Nanos(60)), Some(key(7)));
    }

    #[test]
    fn lingering_connection_precedes_a_later_one() {
        let mut list = IdleList::default();
        list.enter(key(1), Nanos(1000));
        list.enter(key(2), Nanos(150));
        list.enter(key(3), Nanos(120));
        assert_eq!((list.longest(Nanos(119)), list.idle_from()), (None, Nanos(120)));
        for (now, longest) in [(200, key(3)), (200, key(2)), (1000, key(1))] {
            assert_eq!(list.longest(Nanos(now)), Some(longest));
            assert!(list.leave(longest));
        }
        assert_eq!(list.idle_from(), Nanos::MAX);
    }

    #[test]
    fn out_of_order_connection_takes_the_time_of_another() {
        let mut list = IdleList::default();
        for (index, from) in [(1, 30), (2, 20), (3, 10), (4, 5)] {
            list.enter(key(index), Nanos(from));
        }
        for (from, longest) in [(10, key(3)), (10, key(4)), (20, key(2)), (30, key(1))] {
            assert_eq!((list.idle_from(), list.longest(Nanos(99))), (Nanos(from), Some(longest)));
            list.leave(longest);
        }
    }

    #[test]
    fn an_event_without_bytes_leaves_the_order_as_it_is() {
        let mut list = IdleList::default();
        list.enter(key(1), Nanos(10));
        list.enter(key(2), Nanos(20));
        list.enter(key(1), Nanos(10));
        assert_eq!((list.longest(Nanos(30)), list.idle_from()), (Some(key(1)), Nanos(10)));
    }

    #[test]
    fn event_without_bytes_keeps_a_raised_place() {
        let mut list = IdleList::default();
        for (index, from) in [(1, 30), (2, 20), (3, 10), (4, 5), (5, 10), (4, 5)] {
            list.enter(key(index), Nanos(from));
        }
        for longest in [3, 4, 5, 2, 1].map(key) {
            assert_eq!(list.longest(Nanos(99)), Some(longest));
            list.leave(longest);
        }
    }

    #[test]
    fn a_key_of_a_past_life_is_not_there() {
        let mut list = IdleList::default();
        list.enter(Key { index: 3, generation: 5 }, Nanos(1));
        assert!(!list.leave(key(3)));
        assert!(list.leave(Key { index: 3, generation: 5 }));
    }

    proptest! {
        /// Compares the list with a plain vector in the order of entering. New connections and lingering ones have a
        /// delay each.
        #[test]
        fn keeps_the_order_of_entering(steps in prop::collection::vec((0_u32..12, 0_usize..5), 1..200)) {
            let (mut list, mut model) = (IdleList::default(), Vec::<(u32, Nanos)>::new());
            for (time, (index, what)) in steps.into_iter().enumerate() {
                let now = Nanos(1000 + time as u64);
                match what {
                    0 => {
                        let there = model.iter().position(|(known, _)| *known == index);
                        prop_assert_eq!(list.leave(key(index)), there.is_some());
                        there.map(|at| model.remove(at));
                    }
                    _ => {
                        let from = now + [20, 5, 0, 0].map(Nanos)[what - 1];
                        model.retain(|(known, _)| *known != index);
                        model.push((index, from));
                        list.enter(key(index), from);
                    }
                }
                let longest = model.iter().min_by_key(|(_, from)| *from);
                prop_assert_eq!(list.idle_from(), longest.map_or(Nanos::MAX, |(_, from)| *from));
                let idle = longest.filter(|(_, from)| *from <= now).map(|(_, from)| *from);
                let found = list.longest(now).map(|key| list.links[key.index as usize].idle_from);
                prop_assert_eq!(found, idle);
            }
        }
    }
}
