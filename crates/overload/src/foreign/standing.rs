//! A standing queue: one that was long during several answers.
//!
//! The law begins at 64 waiting requests, because fewer also wait by chance in a server below its capacity. In a server of
//! 40 requests per second these are 1.6 s of work. There the time tells: chance soon empties a queue, and an overload does
//! not. This is the rule of CoDel (Nichols and Jacobson 2012), with answers in place of its interval.

/// The fewest waiting requests that are a long queue.
const FEWEST: f64 = 16.0;
/// The wait of a long queue, in seconds. Servers of more than 427 requests per second are left to the law's 64.
const WAIT: f64 = 0.15;
/// The answers during which a standing queue is long.
const ANSWERS: u64 = 8;

/// The answers since the queue was short.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// All answers when the queue was last short.
    short_at: u64,
}

impl Standing {
    /// Returns true if the queue stands. `waiting` requests wait, `rate` is that of answers per second, and `answered` counts
    /// all answers.
    pub fn measure(&mut self, waiting: f64, rate: f64, answered: u64) -> bool {
        if waiting < FEWEST.max(WAIT * rate) {
            self.short_at = answered;
        }
        answered.saturating_sub(self.short_at) >= ANSWERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_stands_after_eight_answers() {
        let mut standing = Standing::default();
        assert!((0..100).all(|answered| !standing.measure(15.0, 40.0, answered)), "it is short");
        assert!((100..107).all(|answered| !standing.measure(16.0, 40.0, answered)));
        assert!(standing.measure(16.0, 40.0, 107));
        assert!(!standing.measure(0.0, 40.0, 108), "and not after it was empty");
        assert!((109..200).all(|answered| !standing.measure(59.0, 400.0, answered)), "an eighth of a second");
    }
}
