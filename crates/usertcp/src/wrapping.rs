//! Numbers that wrap: sequence numbers, and the milliseconds that timestamps and timers count.
//!
//! Two such numbers are compared by their distance, which must be below 2^31 (RFC 9293, section 3.4).

use std::ops::{Add, AddAssign};

/// A TCP sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seq(pub u32);

impl Seq {
    /// Returns true if this number comes before `other`.
    pub fn is_before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Returns true if this number comes after `other`.
    pub fn is_after(self, other: Seq) -> bool {
        other.is_before(self)
    }

    /// The distance from `earlier` to this number, in bytes.
    pub fn since(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    fn add(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for Seq {
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

/// A point in time in milliseconds, as a timestamp carries it. It wraps after 49 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Millis(pub u32);

impl Millis {
    /// Returns true if this time is `now` or earlier.
    pub fn is_due(self, now: Millis) -> bool {
        (self.0.wrapping_sub(now.0) as i32) <= 0
    }

    /// Milliseconds from `earlier` to this time.
    pub fn since(self, earlier: Millis) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl Add<u32> for Millis {
    type Output = Millis;
    fn add(self, millis: u32) -> Millis {
        Millis(self.0.wrapping_add(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_across_the_wrap() {
        let (before, after) = (Seq(u32::MAX - 1), Seq(3));
        assert!(before.is_before(after) && after.is_after(before));
        assert!(!before.is_before(before) && !before.is_after(before));
        assert_eq!(after.since(before), 5);
        assert_eq!(before + 5, after);
    }

    #[test]
    fn a_time_is_due_from_itself_on() {
        let due = Millis(u32::MAX) + 1;
        assert!(!due.is_due(Millis(u32::MAX)));
        assert!(due.is_due(Millis(0)) && due.is_due(Millis(7)));
        assert_eq!(Millis(7).since(Millis(u32::MAX)), 8);
    }

    #[test]
    fn order_is_that_of_the_distance() {
        const HALF: u32 = 1 << 31;
        let far = (0..HALF).step_by(65_521).chain(HALF - 300..HALF);
        let distances: Vec<u32> = (0..300).chain(far).collect();
        for (begin, distance) in [0, 1, HALF - 1, HALF, u32::MAX]
            .into_iter()
            .flat_map(|begin| distances.iter().map(move |distance| (begin, *distance)))
        {
            let (begin, end) = (Seq(begin), Seq(begin) + distance);
            assert_eq!(
                (begin.is_before(end), end.is_before(begin)),
                (distance > 0, false),
                "{begin:?} {end:?}"
            );
            assert_eq!(end.since(begin), distance);
            let (early, late) = (Millis(begin.0), Millis(end.0));
            assert_eq!((early.is_due(late), late.is_due(early)), (true, distance == 0), "{early:?} {late:?}");
        }
    }
}
