//! The table of requests that the program looks up.
//!
//! The hash of a request gives it a few possible places. A place is changed under an odd version, so that the program
//! never takes half a request for a whole one.

use std::sync::atomic::{AtomicU64, Ordering};

use sys::shared::SharedArray;
use words::version;

use super::object::{ObjectId, word};

/// `REQUEST_WORDS` of `programs/cache_memory.h`.
const REQUEST_WORDS: usize = 64;
/// The longest request, in bytes.
pub const LONGEST_REQUEST: usize = REQUEST_WORDS * 8;
/// The shortest request, in bytes; no HTTP/1.1 request has fewer.
const SHORTEST_REQUEST: usize = 16;
/// `BLOCK` there, in words.
const BLOCK: usize = 8;
/// `WAYS` there.
const WAYS: u64 = 4;

// 64-bit words of `struct request`.
const VERSION: usize = 0;
const HASH: usize = 1;
const OBJECT: usize = 2;
const LENGTH: usize = 3;
const REQUEST: usize = 4;
/// Words of a whole place.
const WORDS: usize = REQUEST + REQUEST_WORDS;

/// The requests' memory.
pub(super) struct Table {
    words: SharedArray<AtomicU64>,
    seed: u64,
}

/// A request in the form in which the program looks it up.
struct Key {
    hash: u64,
    length: u64,
    words: [u64; REQUEST_WORDS],
}

impl Table {
    /// `words` has a power of two of places; `seed` is that of the program.
    pub fn new(words: SharedArray<AtomicU64>, seed: u64) -> Table {
        Table { words, seed }
    }

    /// Makes the program answer this request, byte for byte, with an object. If all its places are taken, it replaces
    /// a request whose object is gone, or any other. Returns false for a request that is too long or too short.
    pub fn insert(&mut self, request: &[u8], object: ObjectId, holds: impl Fn(ObjectId) -> bool) -> bool {
        if !(SHORTEST_REQUEST..=LONGEST_REQUEST).contains(&request.len()) {
            return false;
        }
        let key = self.key(request);
        let places = (0..WAYS).map(|way| self.place(key.hash.wrapping_add(way)));
        let chosen = places
            .clone()
            .find(|place| has(place, &key))
            .or_else(|| places.clone().find(|place| !object_of(place).is_some_and(&holds)))
            .or_else(|| places.clone().nth((key.hash >> 32) as usize % WAYS as usize))
            .expect("there are ways");
        // The program hands over connections whose place is being changed, so an unchanged place is left alone.
        if !(has(chosen, &key) && object_of(chosen) == Some(object)) {
            store(chosen, &key, object);
        }
        true
    }

    fn key(&self, request: &[u8]) -> Key {
        let mut words = [0; REQUEST_WORDS];
        for (place, bytes) in words.iter_mut().zip(request.chunks(8)) {
            *place = word(bytes);
        }
        let length = request.len() as u64;
        let blocks = request.len().div_ceil(BLOCK * 8);
        let hash = words[..blocks * BLOCK].iter().fold(self.seed ^ length, |hash, word| {
            let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            product ^ product >> 32
        });
        Key { hash, length, words }
    }

    fn place(&self, hash: u64) -> &[AtomicU64] {
        let places = (self.words.len() / WORDS) as u64;
        let start = (hash & (places - 1)) as usize * WORDS;
        &self.words[start..start + WORDS]
    }
}

fn has(place: &[AtomicU64], key: &Key) -> bool {
    let read = |at: usize| place[at].load(Ordering::Relaxed);
    read(HASH) == key.hash
        && read(LENGTH) == key.length
        && (0..REQUEST_WORDS).all(|word| read(REQUEST + word) == key.words[word])
}

fn object_of(place: &[AtomicU64]) -> Option<ObjectId> {
    if place[VERSION].load(Ordering::Relaxed) == 0 {
        return None;
    }
    let word = place[OBJECT].load(Ordering::Relaxed);
    Some(ObjectId { index: word as u32, generation: (word >> 32) as u32 })
}

fn store(place: &[AtomicU64], key: &Key, object: ObjectId) {
    version::write(&place[VERSION], || {
        place[HASH].store(key.hash, Ordering::Relaxed);
        place[OBJECT].store(u64::from(object.generation) << 32 | u64::from(object.index), Ordering::Relaxed);
        place[LENGTH].store(key.length, Ordering::Relaxed);
        for (place, word) in place[REQUEST..].iter().zip(key.words) {
            place.store(word, Ordering::Relaxed);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(places: usize) -> Table {
        Table::new(SharedArray::create(places * WORDS).unwrap(), 42)
    }

    fn object(index: u32) -> ObjectId {
        ObjectId { index, generation: 1 }
    }

    fn found(table: &Table, request: &[u8]) -> Option<ObjectId> {
        let key = table.key(request);
        (0..WAYS)
            .map(|way| table.place(key.hash.wrapping_add(way)))
            .find(|place| has(place, &key))
            .and_then(object_of)
    }

    #[test]
    fn a_request_is_found_byte_for_byte() {
        let mut table = table(8);
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert!(table.insert(request, object(7), |_| true));
        assert_eq!(found(&table, request), Some(object(7)));
        assert_eq!(found(&table, b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"), None);
        assert!(table.insert(request, object(8), |_| true));
        assert_eq!(found(&table, request), Some(object(8)), "in its own place");
        let version = table.words.chunks(WORDS).map(|place| place[VERSION].load(Ordering::Relaxed)).max();
        assert_eq!(version, Some(4), "even, and changed twice");
    }

    #[test]
    fn lengths_have_bounds() {
        let mut table = table(4);
        for (length, taken) in [(15, false), (16, true), (512, true), (513, false)] {
            assert_eq!(table.insert(&vec![b'x'; length], object(0), |_| true), taken, "{length}");
        }
    }

    #[test]
    fn requests_without_an_object_make_room_first() {
        let mut table = table(4);
        let request = |number: u32| format!("GET /{number} HTTP/1.1\r\n\r\n").into_bytes();
        for number in 0..4 {
            table.insert(&request(number), object(number), |_| true);
        }
        table.insert(&request(9), object(9), |held| held != object(2));
        assert_eq!(found(&table, &request(2)), None);
        assert_eq!(found(&table, &request(9)), Some(object(9)));
        assert!([0, 1, 3].iter().all(|number| found(&table, &request(*number)).is_some()));
        table.insert(&request(10), object(10), |_| true);
        assert_eq!(found(&table, &request(10)), Some(object(10)), "where all are held, one goes");
    }
}
