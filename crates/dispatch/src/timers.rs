//! Deadlines by the thousand: a wheel of slots that is read lazily.
//!
//! A deadline that moves *later*, as an idle connection's does with every request, costs nothing. The old
//! entry stays; when it expires, its owner sees the later deadline and schedules it again. Only a deadline
//! that moves *earlier* needs a new entry. The owner therefore keeps, beside each deadline, the time of its
//! earliest entry ([`Timers::schedule`] returns it), and ignores superfluous entries.
//!
//! Invariants: an entry never expires before its time, and at most one slot's length after it, if the owner
//! asks at that moment. A deadline beyond the wheel's horizon expires at the horizon, to be scheduled again.
//! Tokens of past lives may expire; the owner recognises them by their generation.

use base::Nanos;

use crate::Token;

const SLOTS: usize = 4096;
const WORDS: usize = SLOTS / 64;

/// The wheel of deadlines.
pub struct Timers {
    slots: Box<[Vec<Token>]>,
    /// One bit per slot, set if the slot has entries.
    occupied: [u64; WORDS],
    /// Length of a slot.
    slot: Nanos,
    /// The last emptied slot, counted from time zero.
    emptied: u64,
}

impl Timers {
    /// An empty wheel whose slots are `slot` long and whose horizon is 4095 slots.
    pub fn new(slot: Nanos, now: Nanos) -> Timers {
        Timers {
            slots: std::iter::repeat_with(Vec::new).take(SLOTS).collect(),
            occupied: [0; WORDS],
            slot,
            emptied: now.0 / slot.0,
        }
    }

    /// Lets `token` expire at `deadline`, or at the horizon if that is nearer. Returns the time of its
    /// expiry, rounded up to the end of a slot.
    pub fn schedule(&mut self, token: Token, deadline: Nanos) -> Nanos {
        let slot = deadline.0.div_ceil(self.slot.0).clamp(self.emptied + 1, self.emptied + SLOTS as u64 - 1);
        let index = slot as usize % SLOTS;
        self.slots[index].push(token);
        self.occupied[index / 64] |= 1 << (index % 64);
        Nanos(slot * self.slot.0)
    }

    /// The time at which the next entry expires.
    pub fn next(&self) -> Option<Nanos> {
        let start = (self.emptied + 1) as usize % SLOTS;
        let (first, bit) = (start / 64, start % 64);
        // The loop reads the first word twice: its upper bits first, its lower bits last.
        for step in 0..=WORDS {
            let word = (first + step) % WORDS;
            let mask = match step {
                0 => u64::MAX << bit,
                WORDS => !(u64::MAX << bit),
                _ => u64::MAX,
            };
            let found = self.occupied[word] & mask;
            if found != 0 {
                let index = word * 64 + found.trailing_zeros() as usize;
                let ahead = (index + SLOTS - start) % SLOTS;
                return Some(Nanos((self.emptied + 1 + ahead as u64) * self.slot.0));
            }
        }
        None
    }

    /// Appends to `due` every token whose time has come.
    pub fn expire(&mut self, now: Nanos, due: &mut Vec<Token>) {
        while let Some(next) = self.next() {
            if next > now {
                break;
            }
            let slot = next.0 / self.slot.0;
            let index = slot as usize % SLOTS;
            due.append(&mut self.slots[index]);
            self.occupied[index / 64] &= !(1 << (index % 64));
            self.emptied = slot;
        }
        self.emptied = self.emptied.max(now.0 / self.slot.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOT: Nanos = Nanos::from_millis(16);

    fn due(timers: &mut Timers, now: Nanos) -> Vec<Token> {
        let mut due = Vec::new();
        timers.expire(now, &mut due);
        due
    }

    #[test]
    fn timer_fires_once_and_not_before_its_time() {
        let mut timers = Timers::new(SLOT, Nanos::SECOND);
        assert_eq!(timers.next(), None);
        let at = timers.schedule(Token(1), Nanos::from_millis(1500));
        assert!(at >= Nanos::from_millis(1500) && at <= Nanos::from_millis(1500) + SLOT);
        assert_eq!(timers.next(), Some(at));
        assert_eq!(due(&mut timers, at - Nanos(1)), []);
        assert_eq!(due(&mut timers, at), [Token(1)]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_deadline_beyond_the_horizon_comes_up_there() {
        let mut timers = Timers::new(SLOT, Nanos::SECOND);
        let at = timers.schedule(Token(1), Nanos::from_secs(100_000));
        assert!(at < Nanos::from_secs(70));
        assert_eq!(due(&mut timers, at), [Token(1)]);
    }

    #[test]
    fn a_deadline_in_the_past_comes_up_with_the_next_slot() {
        let mut timers = Timers::new(SLOT, Nanos::from_secs(10));
        let at = timers.schedule(Token(1), Nanos::SECOND);
        assert_eq!(due(&mut timers, at), [Token(1)]);
    }

    proptest! {
        /// Compares with a plain list: every entry expires at the first call at or after its time.
        #[test]
        fn like_a_sorted_list(steps in prop::collection::vec((0u64..3_000, 0u64..40_000), 1..200)) {
            let mut timers = Timers::new(SLOT, Nanos::ZERO);
            let (mut now, mut waiting) = (Nanos::ZERO, Vec::new());
            for (number, (advance_ms, ahead_ms)) in steps.into_iter().enumerate() {
                let token = Token(number as u64);
                waiting.push((timers.schedule(token, now + Nanos::from_millis(ahead_ms)), token));
                now += Nanos::from_millis(advance_ms);
                prop_assert_eq!(timers.next(), waiting.iter().map(|(at, _)| *at).min());
                let mut expected: Vec<Token> =
                    waiting.iter().filter(|(at, _)| *at <= now).map(|(_, token)| *token).collect();
                waiting.retain(|(at, _)| *at > now);
                let mut found = due(&mut timers, now);
                found.sort();
                expected.sort();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
