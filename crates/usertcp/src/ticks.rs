//! The timers of many machines: due together in a slot of the wheel, and spread over the slot.
//!
//! Each machine of a crowd rounds its timers to a clock tick of its own. The connections of a stack stand for such a crowd.
//! If all timers of a slot fired at its end, a thousand SYNs would come again in one burst. A full accept queue that gets
//! room between two bursts would then take new SYNs only, and nearly none that come again.
//!
//! Most connections end before their timers. Such a timer is left out when its slot is over, so that nobody wakes up for it.
//!
//! Owns the order and the times of firing. A timer fires at most a slot later than the wheel says.

use std::collections::VecDeque;

use base::Nanos;
use dispatch::{Timers, Token};

/// The length of a slot, the precision of timers: that of Linux at 250 Hz.
const SLOT: Nanos = Nanos::from_millis(4);

/// The most by which an entry of the wheel is later than its deadline, in milliseconds: a slot, and what a time loses when it
/// is rounded to milliseconds.
pub const LATE_MS: u32 = 5;

/// The most times within a slot at which timers fire, 50 us apart.
const PORTIONS: usize = 80;

/// The timers of a stack.
pub struct Ticks {
    wheel: Timers,
    /// Entries that the wheel has returned and that have not fired yet, the next one first.
    due: Due,
}

#[derive(Default)]
struct Due {
    tokens: VecDeque<Token>,
    /// The number of tokens that fire together, from `next` on at every `gap`.
    portion: usize,
    next: Nanos,
    gap: Nanos,
}

impl Ticks {
    /// No timers.
    pub fn new(now: Nanos) -> Ticks {
        Ticks { wheel: Timers::new(SLOT, now), due: Due::default() }
    }

    /// Lets `token` fire at `deadline` or within two slots after it; see [`Timers::schedule`].
    pub fn schedule(&mut self, token: Token, deadline: Nanos) -> Nanos {
        self.wheel.schedule(token, deadline)
    }

    /// The time at which the next timer fires.
    pub fn next(&self) -> Option<Nanos> {
        let due = (!self.due.tokens.is_empty()).then_some(self.due.next);
        [due, self.wheel.next()].into_iter().flatten().min()
    }

    /// Appends to `fired` every token whose time has come. Tokens for which `matters` returns false may be left out.
    pub fn expire(&mut self, now: Nanos, fired: &mut Vec<Token>, matters: impl FnMut(&Token) -> bool) {
        if self.wheel.next().is_some_and(|next| next <= now) {
            // The last slot is over, and so is its spread.
            fired.extend(self.due.tokens.drain(..));
            let over = fired.len();
            self.wheel.expire(now, fired);
            self.due = Due::spread(fired.drain(over..).filter(matters), now);
        }
        self.due.fire(now, fired);
    }
}

impl Due {
    fn spread(tokens: impl Iterator<Item = Token>, now: Nanos) -> Due {
        let tokens = VecDeque::from_iter(tokens);
        let portion = tokens.len().div_ceil(PORTIONS).max(1);
        let portions = tokens.len().div_ceil(portion).max(1) as u64;
        Due { tokens, portion, next: now, gap: Nanos(SLOT.0 / portions) }
    }

    fn fire(&mut self, now: Nanos, fired: &mut Vec<Token>) {
        while !self.tokens.is_empty() && self.next <= now {
            fired.extend(self.tokens.drain(..self.portion.min(self.tokens.len())));
            self.next += self.gap;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Key;

    fn token(index: u32) -> Token {
        Key { index, generation: 1 }.into()
    }

    fn fired(ticks: &mut Ticks, now: Nanos) -> usize {
        let mut fired = Vec::new();
        ticks.expire(now, &mut fired, |_| true);
        fired.len()
    }

    #[test]
    fn a_single_timer_fires_at_the_end_of_its_slot() {
        let mut ticks = Ticks::new(Nanos::ZERO);
        ticks.schedule(token(1), Nanos::from_millis(9));
        assert_eq!(ticks.next(), Some(Nanos::from_millis(12)));
        assert_eq!(fired(&mut ticks, Nanos::from_millis(11)), 0);
        assert_eq!(fired(&mut ticks, Nanos::from_millis(12)), 1);
        assert_eq!(ticks.next(), None);
    }

    #[test]
    fn timers_of_a_slot_all_fire_evenly_over_the_next() {
        for count in [2, 3, 79, 80, 81, 1000, 12_345_u32] {
            let mut ticks = Ticks::new(Nanos::ZERO);
            for index in 0..count {
                ticks.schedule(token(index), SLOT);
            }
            let (mut total, mut most, mut times) = (0, 0, 0);
            while let Some(next) = ticks.next() {
                assert!(next >= SLOT && next < SLOT + SLOT, "{next}");
                let now = fired(&mut ticks, next);
                (total, most, times) = (total + now, most.max(now), times + 1);
            }
            assert_eq!(total, count as usize);
            assert!(
                most <= (count as usize).div_ceil(PORTIONS) && times <= PORTIONS,
                "{count}: {most}, {times}"
            );
        }
    }

    #[test]
    fn a_late_caller_gets_all_that_is_due() {
        let mut ticks = Ticks::new(Nanos::ZERO);
        for index in 0..500 {
            ticks.schedule(token(index), SLOT);
        }
        assert!(fired(&mut ticks, SLOT) < 500);
        ticks.schedule(token(500), Nanos(SLOT.0 * 2));
        // Seven have fired. The last one was in another slot, and is spread by itself.
        assert_eq!(fired(&mut ticks, Nanos::SECOND), 500 + 1 - 7);
        assert_eq!(ticks.next(), None);
    }

    #[test]
    fn nobody_wakes_up_for_what_does_not_matter() {
        let mut ticks = Ticks::new(Nanos::ZERO);
        for index in 0..500 {
            ticks.schedule(token(index), SLOT);
        }
        let mut fired = Vec::new();
        ticks.expire(SLOT, &mut fired, |timer| *timer == token(250));
        assert_eq!((fired, ticks.next()), (vec![token(250)], None));
    }
}
