//! Responses in the memory that the program sends them from.
//!
//! An object's place is used again after nothing in it was valid for [`GRACE`], because slow clients may still need
//! the rest of a response.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use base::Nanos;
use sys::shared::SharedArray;

/// `PIECE` of `programs/cache_memory.h`, in bytes.
const PIECE: usize = 448;
/// `PIECES` there.
const PIECES: usize = 35;
/// `DATE` there, in bytes.
pub(super) const DATE: usize = 29;
/// The longest response, in bytes: 15 KiB and its head.
pub const LONGEST: usize = PIECE * PIECES;
/// The time for which a response is kept after its validity has ended. Linux gives up an unacknowledged request after
/// 15 minutes, other systems after one minute. Most losses are repaired within a second.
pub const GRACE: Nanos = Nanos::from_secs(120);

// 64-bit words of `struct object`.
const VALID_UNTIL: usize = 0;
const GENERATION_AND_LENGTH: usize = 1;
const DATE_AT_AND_USED: usize = 2;
const SUMS: usize = 3;
const BYTES: usize = 12;
/// Words of a whole object; a segment of three pieces may begin with its last piece.
const WORDS: usize = BYTES + (PIECES + 2) * PIECE / 8;

/// A response that was put into the cache. Another one may have replaced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// The objects' memory with its free places.
pub(super) struct Objects {
    words: SharedArray<AtomicU64>,
    places: Vec<Place>,
}

/// The state of a place.
#[derive(Clone, Copy)]
struct Place {
    /// The generation of the present object, or of the last one.
    generation: u32,
    /// The end of validity; `None` if the place has never had an object.
    valid_until: Option<Nanos>,
}

impl Objects {
    pub fn new(words: SharedArray<AtomicU64>) -> Objects {
        let places = vec![Place { generation: 0, valid_until: None }; words.len() / WORDS];
        Objects { words, places }
    }

    /// Stores a response. Returns `None` if it is too long, if its date is not in its first piece, or if no place is
    /// free.
    pub fn put(&mut self, response: &[u8], date_at: Option<usize>, now: Nanos) -> Option<ObjectId> {
        let date_fits = date_at.is_none_or(|at| at > 0 && at + DATE <= PIECE.min(response.len()));
        if response.is_empty() || response.len() > LONGEST || !date_fits {
            return None;
        }
        let free = |place: &Place| place.valid_until.is_none_or(|until| until + GRACE <= now);
        let index = self.places.iter().position(free)?;
        let place = &mut self.places[index];
        // Generation 0 is that of a place that has never had an object.
        place.generation = place.generation.wrapping_add(1).max(1);
        place.valid_until = Some(now);
        let id = ObjectId { index: index as u32, generation: place.generation };
        self.store(id, response, date_at);
        Some(id)
    }

    fn store(&self, id: ObjectId, response: &[u8], date_at: Option<usize>) {
        let mut bytes = response.to_vec();
        if let Some(at) = date_at {
            bytes[at..at + DATE].fill(0);
        }
        let words = self.words_of(id);
        let store = |at: usize, value: u64| words[at].store(value, Ordering::Release);
        // The generation changes before anything else, so that a sender of the old object sees it.
        store(VALID_UNTIL, 0);
        store(GENERATION_AND_LENGTH, u64::from(id.generation));
        fence(Ordering::SeqCst);
        store(DATE_AT_AND_USED, date_at.unwrap_or(0) as u64);
        let mut sums: Vec<u16> = bytes.chunks(PIECE).map(sum).collect();
        // A segment adds those of all its pieces, also behind the end, where an older object may have left some.
        sums.resize(4 * (BYTES - SUMS), 0);
        for (place, sums) in words[SUMS..BYTES].iter().zip(sums.chunks(4)) {
            let word = sums.iter().rev().fold(0, |word, sum| word << 16 | u64::from(*sum));
            place.store(word, Ordering::Relaxed);
        }
        for (place, bytes) in words[BYTES..].iter().zip(bytes.chunks(8)) {
            place.store(word(bytes), Ordering::Relaxed);
        }
        store(GENERATION_AND_LENGTH, (bytes.len() as u64) << 32 | u64::from(id.generation));
    }

    /// Makes an object valid until the given time. Returns false if its place has another object.
    pub fn renew(&mut self, id: ObjectId, until: Nanos) -> bool {
        if !self.holds(id) {
            return false;
        }
        self.places[id.index as usize].valid_until = Some(until);
        self.words_of(id)[VALID_UNTIL].store(until.0, Ordering::Release);
        true
    }

    /// Ends the validity of an object. `now` is CLOCK_MONOTONIC: its place is kept for [`GRACE`] from then on.
    pub fn end(&mut self, id: ObjectId, now: Nanos) {
        if self.holds(id) {
            self.places[id.index as usize].valid_until = Some(now);
            self.words_of(id)[VALID_UNTIL].store(0, Ordering::Release);
        }
    }

    /// Returns the second of CLOCK_MONOTONIC in which an object last answered a request; zero before its first
    /// answer.
    pub fn last_used(&self, id: ObjectId) -> Nanos {
        let word = self.words_of(id)[DATE_AT_AND_USED].load(Ordering::Relaxed);
        Nanos::from_secs(word >> 32)
    }

    /// Tells whether an object is still in its place.
    pub fn holds(&self, id: ObjectId) -> bool {
        self.places[id.index as usize].generation == id.generation
    }

    fn words_of(&self, id: ObjectId) -> &[AtomicU64] {
        let start = id.index as usize * WORDS;
        &self.words[start..start + WORDS]
    }
}

/// Returns up to eight bytes as a word, padded with zeros.
pub(super) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The one's complement sum of 16-bit words (RFC 1071), as the kernel has them in memory.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(*pair.get(1).unwrap_or(&0)) << 8);
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(places: usize) -> Objects {
        Objects::new(SharedArray::create(places * WORDS).unwrap())
    }

    const NOW: Nanos = Nanos::from_secs(1000);

    #[test]
    fn a_place_is_used_again_after_its_grace() {
        let mut objects = objects(1);
        let first = objects.put(b"first", None, NOW).unwrap();
        assert!(objects.renew(first, NOW + Nanos::SECOND));
        assert_eq!(objects.put(b"second", None, NOW + GRACE), None, "the first was valid for a second more");
        let second = objects.put(b"second", None, NOW + GRACE + Nanos::SECOND).unwrap();
        assert!(objects.holds(second) && !objects.holds(first));
        assert!(!objects.renew(first, NOW), "what is there is another");
    }

    #[test]
    fn an_object_is_in_memory_as_the_program_reads_it() {
        let mut objects = objects(2);
        objects.put(b"other", None, NOW).unwrap();
        let mut response = vec![b'x'; PIECE + 3];
        response[7..7 + DATE].fill(b'd');
        let id = objects.put(&response, Some(7), NOW).unwrap();
        assert_eq!((id.index, id.generation), (1, 1));
        let words: Vec<u64> = objects.words_of(id).iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(words[VALID_UNTIL], 0, "not valid before it is renewed");
        assert_eq!(words[GENERATION_AND_LENGTH], (response.len() as u64) << 32 | 1);
        assert_eq!(words[DATE_AT_AND_USED], 7);
        response[7..7 + DATE].fill(0);
        let expected = u64::from(sum(&response[..PIECE])) | u64::from(sum(&response[PIECE..])) << 16;
        assert_eq!(words[SUMS], expected);
        let bytes: Vec<u8> = words[BYTES..].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[..response.len()], response);
        objects.renew(id, NOW);
        assert_eq!(objects.words_of(id)[VALID_UNTIL].load(Ordering::Relaxed), NOW.0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut objects = objects(1);
        assert_eq!(objects.put(b"", None, NOW), None);
        assert_eq!(objects.put(&vec![0; LONGEST + 1], None, NOW), None);
        assert_eq!(
            objects.put(&vec![0; LONGEST], Some(PIECE), NOW),
            None,
            "the date is past the first piece"
        );
        assert_eq!(objects.put(&[0; 30], Some(2), NOW), None, "the date is past the end");
        assert!(objects.put(&vec![0; LONGEST], Some(PIECE - DATE), NOW).is_some());
    }

    #[test]
    fn sums_are_those_of_the_kernel() {
        assert_eq!(sum(&[1, 2, 3]), 0x0201 + 0x0003);
        assert_eq!(sum(&[0xff, 0xff, 0x01, 0x00]), 1);
        assert_eq!(sum(&[]), 0);
    }
}
