//! The random draws of one session: its number of requests, the requests themselves, and the think times.
//!
//! Each session has its own generator, eight bytes large, which is seeded when the session is *scheduled*.
//! The requests of a session therefore follow from the run's seed alone, not from the order of the server's
//! replies.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state; every seed is a good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws(u64);

impl Draws {
    /// The generator of one session.
    pub fn new(seed: u64) -> Draws {
        Draws(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A uniform draw from 0 up to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number from `low` to `high`, both included; `low <= high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = u128::from(high - low) + 1;
        low + ((u128::from(self.bits()) * span) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn is_the_published_generator() {
        // The first outputs of the reference implementation for the seed 1234567.
        let mut draws = Draws::new(1_234_567);
        assert_eq!(draws.bits(), 6_457_827_717_110_365_317);
        assert_eq!(draws.bits(), 3_203_168_211_198_807_973);
    }

    proptest! {
        #[test]
        fn stays_within_its_bounds(seed: u64, low: u32, span: u32) {
            let (low, high) = (u64::from(low), u64::from(low) + u64::from(span));
            let mut draws = Draws::new(seed);
            for _ in 0..50 {
                prop_assert!((low..=high).contains(&draws.between(low, high)));
                prop_assert!((0.0..1.0).contains(&draws.unit()));
            }
        }
    }
}
