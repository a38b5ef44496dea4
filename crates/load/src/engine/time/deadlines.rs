//! A queue of deadlines with one common timeout. It is exact, and every operation takes constant time.
//!
//! Every connect has the same timeout, and so has every request; the clock does not run backwards. The
//! deadline that is set last is therefore due last, so a plain queue suffices: no wheel, no heap, no slack.
//! The queue is a doubly linked list through arrays that have the indices of the connections' slab. A
//! deadline that was met leaves at once, and its memory belongs to the connection, not to the request.
//!
//! Invariants: the deadlines from first to last never decrease; a key is in the queue at most once.

use base::{Key, Nanos};

/// The index of no neighbour.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    deadline: Nanos,
    /// The generation of the queued key; 0, which no living key has, for an unlinked place.
    generation: u32,
    previous: u32,
    next: u32,
}

const UNLINKED: Link = Link { deadline: Nanos::ZERO, generation: 0, previous: NONE, next: NONE };

/// The queue of deadlines.
#[derive(Debug)]
pub struct Deadlines {
    links: Vec<Link>,
    first: u32,
    last: u32,
    count: usize,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { links: Vec::new(), first: NONE, last: NONE, count: 0 }
    }
}

impl Deadlines {
    /// The number of deadlines that are set.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Sets the deadline of a key that has none in this queue. No earlier call may have set a later deadline.
    pub fn push(&mut self, key: Key, deadline: Nanos) {
        let index = key.index as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, UNLINKED);
        }
        debug_assert_eq!(self.links[index].generation, 0, "one deadline a key");
        debug_assert!(self.first().is_none() || self.links[self.last as usize].deadline <= deadline);
        self.links[index] = Link { deadline, generation: key.generation, previous: self.last, next: NONE };
        match self.last {
            NONE => self.first = key.index,
            last => self.links[last as usize].next = key.index,
        }
        self.last = key.index;
        self.count += 1;
    }

    /// Removes the key's deadline; does nothing for a key without one.
    pub fn remove(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key.index as usize) else { return };
        if link.generation != key.generation {
            return;
        }
        let Link { previous, next, .. } = std::mem::replace(link, UNLINKED);
        match previous {
            NONE => self.first = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.links[next as usize].previous = previous,
        }
        self.count -= 1;
    }

    /// The earliest deadline and its key.
    pub fn first(&self) -> Option<(Nanos, Key)> {
        let link = self.links.get(self.first as usize)?;
        Some((link.deadline, Key { index: self.first, generation: link.generation }))
    }

    /// Removes and returns the first key if its deadline has passed.
    pub fn pop_due(&mut self, now: Nanos) -> Option<Key> {
        let (deadline, key) = self.first()?;
        if deadline > now {
            return None;
        }
        self.remove(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        Remove(u32),
        Advance(u64),
    }

    proptest! {
        /// Compares the queue with a plain list, for keys of many lives on few places.
        #[test]
        fn like_a_list(steps in prop::collection::vec(prop_oneof![
            (0u32..20).prop_map(Step::Push), (0u32..20).prop_map(Step::Remove), (0u64..5).prop_map(Step::Advance),
        ], 1..300)) {
            let (mut deadlines, mut list) = (Deadlines::default(), Vec::<(Nanos, Key)>::new());
            let (mut now, mut life) = (Nanos(100), 1);
            for step in steps {
                match step {
                    Step::Push(index) if list.iter().all(|(_, key)| key.index != index) => {
                        life += 2;
                        let key = Key { index, generation: life };
                        deadlines.push(key, now + Nanos(10));
                        list.push((now + Nanos(10), key));
                    }
                    Step::Push(index) | Step::Remove(index) => {
                        // A key of a past life finds no deadline.
                        deadlines.remove(Key { index, generation: 1 });
                        if let Some(at) = list.iter().position(|(_, key)| key.index == index) {
                            deadlines.remove(list.remove(at).1);
                        }
                    }
                    Step::Advance(by) => {
                        now += Nanos(by);
                        while let Some(key) = deadlines.pop_due(now) {
                            prop_assert_eq!(list.remove(0).1, key);
                        }
                        prop_assert!(list.iter().all(|(deadline, _)| *deadline > now));
                    }
                }
                prop_assert_eq!(deadlines.len(), list.len());
                prop_assert_eq!(deadlines.first(), list.first().copied());
            }
        }
    }
}
