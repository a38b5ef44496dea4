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
}
