//! Keeps account, without processes, of the connections that wait for a fetch and of the helpers that do it.
//!
//! Invariants: equal needs are one errand, however many connections wait for it. An errand is in the queue or
//! with one helper. An errand of a helper that died comes before all others, so that none is lost.

use std::collections::{HashMap, VecDeque};

use dispatch::Token;

use super::need::Need;

/// Maximum fetches in a row of the same need for connections that then find it missing again. The kernel may
/// have reclaimed the memory since, which is worth a second fetch. Or this file system cannot tell which
/// contents are in memory.
const MOST_FETCHES: u32 = 2;

/// A need to fetch, and the connections that wait for it.
#[derive(Debug)]
struct Errand {
    need: Need,
    waiters: Vec<Token>,
    /// The number of this fetch among fetches of the same need in a row.
    time: u32,
}

/// All unfinished errands.
#[derive(Debug)]
pub struct Errands {
    errands: HashMap<u64, Errand>,
    ids: HashMap<Need, u64>,
    queue: VecDeque<u64>,
    /// The errand of each helper. A helper has one at a time, so that no errand waits behind a slow disk
    /// while another helper is free.
    given: Vec<Option<u64>>,
    next_id: u64,
    /// The needs that were fetched just now, with the number of fetches in a row.
    fetched: HashMap<Need, u32>,
}

impl Errands {
    /// An empty account for `helpers` helpers.
    pub fn new(helpers: usize) -> Errands {
        Errands {
            errands: HashMap::new(),
            ids: HashMap::new(),
            queue: VecDeque::new(),
            given: vec![None; helpers],
            next_id: 0,
            fetched: HashMap::new(),
        }
    }

    /// True if a fetch can help. A need that was fetched just now and is missing again will be missing once
    /// more.
    pub fn has_a_point(&self, need: &Need) -> bool {
        self.fetched.get(need).is_none_or(|times| *times < MOST_FETCHES)
    }

    /// Lets a connection wait for a need. Returns true if that is a new errand.
    pub fn add(&mut self, need: Need, waiter: Token) -> bool {
        if let Some(errand) = self.ids.get(&need).and_then(|id| self.errands.get_mut(id)) {
            if !errand.waiters.contains(&waiter) {
                errand.waiters.push(waiter);
            }
            return false;
        }
        let id = self.next_id;
        self.next_id += 1;
        let time = self.fetched.get(&need).map_or(1, |times| times + 1);
        self.ids.insert(need.clone(), id);
        self.errands.insert(id, Errand { need, waiters: vec![waiter], time });
        self.queue.push_back(id);
        true
    }

    /// True if a helper has no errand.
    pub fn is_free(&self, helper: usize) -> bool {
        self.given[helper].is_none()
    }

    /// The next errand to give to a helper.
    pub fn first(&self) -> Option<(u64, &Need)> {
        let id = self.queue.front()?;
        Some((*id, &self.errands.get(id)?.need))
    }

    /// Records that a free helper got the first errand.
    pub fn give(&mut self, helper: usize) {
        self.given[helper] = self.queue.pop_front();
    }

    /// Records the death of a helper. Returns true if another helper must do its errand.
    pub fn take_back(&mut self, helper: usize) -> bool {
        let given = self.given[helper].take();
        if let Some(id) = given {
            self.queue.push_front(id);
        }
        given.is_some()
    }

    /// Forgets all past fetches. From now on only later fetches count as just made.
    pub fn forget_fetched(&mut self) {
        self.fetched.clear();
    }

    /// Records that a helper has finished its errand. Returns the connections that wait for it.
    pub fn finish(&mut self, helper: usize, id: u64) -> Vec<Token> {
        if self.given[helper] != Some(id) {
            return Vec::new();
        }
        self.given[helper] = None;
        let Some(errand) = self.errands.remove(&id) else { return Vec::new() };
        self.ids.remove(&errand.need);
        self.fetched.insert(errand.need, errand.time);
        errand.waiters
    }
}

#[cfg(test)]
mod tests {
    use super::super::need::tests::need_of;
    use super::*;

    fn first(errands: &Errands) -> Option<Need> {
        errands.first().map(|(_, need)| need.clone())
    }

    #[test]
    fn equal_needs_are_fetched_once_for_all_who_wait() {
        let mut errands = Errands::new(1);
        assert!(errands.add(need_of("/a"), Token(1)));
        assert!(!errands.add(need_of("/a"), Token(2)));
        assert!(!errands.add(need_of("/a"), Token(2)));
        errands.give(0);
        assert!(!errands.is_free(0) && errands.first().is_none());
        assert!(!errands.add(need_of("/a"), Token(3)), "it is under way");
        assert!(errands.finish(0, 99).is_empty(), "nobody gave it that");
        assert_eq!(errands.finish(0, 0), [Token(1), Token(2), Token(3)]);
        assert!(errands.is_free(0));
    }

    #[test]
    fn fetches_of_a_dead_helper_go_first_to_the_next() {
        let mut errands = Errands::new(2);
        for path in ["/a", "/b", "/c"] {
            errands.add(need_of(path), Token(1));
        }
        errands.give(0);
        errands.give(1);
        assert!(errands.take_back(0));
        assert!(!errands.take_back(0), "it had one");
        assert_eq!(first(&errands), Some(need_of("/a")));
        assert_eq!(errands.finish(1, 1), [Token(1)]);
        errands.give(1);
        assert_eq!(first(&errands), Some(need_of("/c")));
        assert!(errands.finish(0, 0).is_empty(), "the dead one's word comes too late");
        assert_eq!(errands.finish(1, 0), [Token(1)]);
    }

    #[test]
    fn missing_file_is_fetched_at_most_twice_in_a_row() {
        let mut errands = Errands::new(1);
        for (id, has_a_point) in [(0, true), (1, false)] {
            assert!(errands.has_a_point(&need_of("/a")));
            errands.add(need_of("/a"), Token(1));
            errands.give(0);
            errands.forget_fetched();
            errands.finish(0, id);
            assert_eq!(errands.has_a_point(&need_of("/a")), has_a_point);
        }
        errands.forget_fetched();
        assert!(errands.has_a_point(&need_of("/a")), "later it is worth another try");
    }
}
