//! Equal shares of the threads, connects and clients of a run, one for each process.

use std::ops::Range;

/// One of several equal shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub index: u32,
    pub count: u32,
}

impl Share {
    /// The only share, of everything.
    pub const ALL: Share = Share { index: 0, count: 1 };

    /// The size of this share of `things`; shares differ by one at most.
    pub fn of(self, things: u32) -> u32 {
        things / self.count + u32::from(self.index < things % self.count)
    }

    /// The fraction of `things` in this share.
    pub fn fraction(self, things: u32) -> f64 {
        f64::from(self.of(things)) / f64::from(things)
    }

    /// The numbers of this share's things, counted in order.
    pub fn range(self, things: u32) -> Range<u32> {
        let before = (0..self.index).map(|index| Share { index, ..self }.of(things)).sum();
        before..before + self.of(things)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_are_all_there_is_and_differ_by_one(things in 0u32..10_000, count in 1u32..100) {
            let mut next = 0;
            for index in 0..count {
                let share = Share { index, count };
                let range = share.range(things);
                prop_assert_eq!(range.start, next);
                prop_assert_eq!(range.len(), share.of(things) as usize);
                prop_assert!(share.of(things).abs_diff(things / count) <= 1);
                next = range.end;
            }
            prop_assert_eq!(next, things);
        }
    }
}
