//! The connections of a stack, found by their own address and port.
//!
//! Connections lie in *places*, and a place takes its names (an address with a port, see [`SourceNet`]) in
//! turn. With `p` places, place `i` has the names `i`, `i + p`, `i + 2p` and so on, one for each of its
//! lives. The place of a received segment is its name modulo `p`, so there is no hash table, no list of free
//! ports, and no search.
//!
//! A place rests between two lives; the place that has rested longest is used first. The rests before all of
//! its names together outlast the server's TIME-WAIT. A rest lasts at least [`REST_MIN_MS`], because the
//! place still answers late segments. If no place has rested long enough, a new one is made, up to
//! [`PLACES_MAX`]. Once all places exist, both promises end: the longest-resting place is used early, perhaps at
//! once, and a counter counts that.
//!
//! Invariants: a place is on the list of resting ones exactly while its connection is over. The life of a
//! place is the generation of its key, and never repeats. An idle connection takes 64 bytes here and 8 for
//! its token.

use std::collections::VecDeque;
use std::net::SocketAddr;

use base::Key;
use dispatch::Token;

use crate::endpoint::Endpoint;
use crate::net::SourceNet;
use crate::wrapping::Millis;

/// The most places: a million connections at once in 72 MB.
pub const PLACES_MAX: u32 = 1 << 20;

/// The time for which a server that closed first keeps a name: the TCP_TIMEWAIT_LEN of Linux.
pub const TIME_WAIT_MS: u32 = 60_000;

/// The time for which a place answers late segments, unless it is used early. At Linux's minimum timeout the server repeats a FIN
/// twice within it, if the acknowledgment was lost.
pub const REST_MIN_MS: u32 = 1000;

/// A connection and the stack's data for it.
#[derive(Debug)]
pub struct Place {
    /// The connection.
    pub endpoint: Endpoint,
    life: u32,
    /// The time of this life's earliest entry in the wheel of timers; 0 without one.
    pub entry_at: Millis,
}

const _: () = assert!(size_of::<Place>() == 64);

/// The table of connections.
#[derive(Debug)]
pub struct Table {
    net: SourceNet,
    places: Vec<Place>,
    tokens: Vec<Token>,
    /// Resting places, each with the start of its rest; longest resting first.
    resting: VecDeque<(u32, Millis)>,
    /// The largest number of places.
    capacity: u32,
    /// The number of names of each place.
    names_each: u32,
    rest_ms: u32,
    first_life: u32,
}

/// A place taken for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The key of the connection.
    pub key: Key,
    /// True if the server may still have the name's last connection in TIME-WAIT.
    pub is_early: bool,
}

impl Table {
    /// An empty table for names of `net`. `first_life` selects the first names: a restarted program should
    /// not begin with its last names.
    pub fn new(net: SourceNet, first_life: u32) -> Table {
        let capacity = net.names().min(PLACES_MAX);
        let names_each = net.names() / capacity;
        Table {
            net,
            places: Vec::new(),
            tokens: Vec::new(),
            resting: VecDeque::new(),
            capacity,
            names_each,
            rest_ms: TIME_WAIT_MS.div_ceil(names_each).max(REST_MIN_MS),
            first_life,
        }
    }

    /// The net of the names.
    pub fn net(&self) -> &SourceNet {
        &self.net
    }

    /// The number of connections that are not over.
    pub fn len(&self) -> usize {
        self.places.len() - self.resting.len()
    }

    /// Returns true if every connection is over.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of places, in use or resting. All indices are below it.
    pub fn places(&self) -> u32 {
        self.places.len() as u32
    }

    /// Takes a place, whose connection is closed; `None` if all are in use.
    pub fn take(&mut self, token: Token, now: Millis) -> Option<Taken> {
        let rested = self.resting.front().is_some_and(|(_, since)| now.since(*since) >= self.rest_ms);
        let (index, is_early) = if rested || self.places.len() as u32 == self.capacity {
            (self.resting.pop_front()?.0, !rested)
        } else {
            self.places.push(Place {
                endpoint: Endpoint::CLOSED,
                life: self.first_life,
                entry_at: Millis(0),
            });
            self.tokens.push(token);
            (self.places.len() as u32 - 1, false)
        };
        let place = &mut self.places[index as usize];
        place.life = place.life.wrapping_add(1);
        place.entry_at = Millis(0);
        self.tokens[index as usize] = token;
        Some(Taken { key: Key { index, generation: place.life }, is_early })
    }

    /// Begins the rest of a place whose connection is over.
    pub fn rest(&mut self, index: u32, now: Millis) {
        self.resting.push_back((index, now));
    }

    /// The place of a name's number, in use or resting; `None` if that name is not its current one.
    pub fn find(&self, number: u32) -> Option<u32> {
        let index = number % self.capacity;
        let place = self.places.get(index as usize)?;
        (place.life % self.names_each == number / self.capacity).then_some(index)
    }

    /// The place of a key, if the application holds its connection.
    pub fn held(&mut self, key: Key) -> Option<&mut Place> {
        self.living(key).filter(|place| place.endpoint.is_held())
    }

    /// The place of a key, if it is still in that life.
    pub fn living(&mut self, key: Key) -> Option<&mut Place> {
        self.places.get_mut(key.index as usize).filter(|place| place.life == key.generation)
    }

    /// The place with this index, which exists.
    pub fn place(&mut self, index: u32) -> &mut Place {
        &mut self.places[index as usize]
    }

    /// The key of a place's current life.
    pub fn key(&self, index: u32) -> Key {
        Key { index, generation: self.places[index as usize].life }
    }

    /// The name of a place's current life.
    pub fn name(&self, index: u32) -> SocketAddr {
        let lap = self.places[index as usize].life % self.names_each;
        self.net.name(lap * self.capacity + index)
    }

    /// The application's token for a place's connection.
    pub fn token(&self, index: u32) -> Token {
        self.tokens[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn table(net: &str) -> Table {
        Table::new(net.parse().unwrap(), 7)
    }

    #[test]
    fn wide_net_gives_a_slot_many_names_and_short_rests() {
        let table = table("10.94.0.0/16");
        assert_eq!((table.capacity, table.names_each, table.rest_ms), (1 << 20, 4031, REST_MIN_MS));
    }

    #[test]
    fn a_single_address_rests_for_the_whole_time_wait() {
        let table = table("10.94.0.1/32");
        assert_eq!((table.capacity, table.names_each, table.rest_ms), (64_512, 1, TIME_WAIT_MS));
    }

    #[test]
    fn a_key_of_a_past_life_finds_nothing() {
        let mut table = table("10.94.0.0/24");
        let first = table.take(Token(1), Millis(0)).unwrap().key;
        table.rest(first.index, Millis(0));
        let second = table.take(Token(2), Millis(REST_MIN_MS * 100)).unwrap().key;
        assert_eq!(second.index, first.index);
        assert!(table.living(first).is_none() && table.living(second).is_some());
        assert_eq!(table.token(second.index), Token(2));
    }

    #[test]
    fn early_reuse_of_a_name_is_last_resort_and_reported() {
        let mut table = table("10.94.0.1/32");
        let keys: Vec<Key> =
            (0..64_512).map(|_| table.take(Token(0), Millis(5)).unwrap()).map(|taken| taken.key).collect();
        assert_eq!(table.take(Token(0), Millis(5)), None, "every name is in use");
        table.rest(keys[3].index, Millis(10));
        table.rest(keys[9].index, Millis(20));
        assert_eq!(table.len(), 64_510);
        let early = table.take(Token(0), Millis(70)).unwrap();
        assert_eq!((early.key.index, early.is_early), (keys[3].index, true));
        let late = table.take(Token(0), Millis(20 + TIME_WAIT_MS)).unwrap();
        assert_eq!((late.key.index, late.is_early), (keys[9].index, false));
    }

    proptest! {
        /// A name leads back to its place, and no name is reused within TIME-WAIT unless `is_early` says so.
        #[test]
        fn names_lead_to_places_and_rest(
            net in prop::sample::select(vec!["10.94.0.0/16", "10.94.0.0/26", "10.94.0.1/32", "fd94::/64"]),
            steps in prop::collection::vec((0_u32..500, any::<bool>()), 1..300),
        ) {
            let mut table = table(net);
            let (mut now, mut open, mut over) = (Millis(u32::MAX - 20_000), Vec::new(), HashMap::new());
            for (millis, ends) in steps {
                now = now + millis;
                if ends && let Some((index, name)) = open.pop() {
                    table.rest(index, now);
                    over.insert(name, now);
                    continue;
                }
                let taken = table.take(Token(1), now).unwrap();
                let name = table.name(taken.key.index);
                let number = table.net().number(name).unwrap();
                prop_assert_eq!(table.find(number), Some(taken.key.index));
                if let Some(since) = over.get(&name) {
                    prop_assert_eq!(taken.is_early, now.since(*since) < TIME_WAIT_MS);
                }
                open.push((taken.key.index, name));
            }
            prop_assert_eq!(table.len(), open.len());
        }
    }
}
