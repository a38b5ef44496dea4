//! The limit on reading the configuration again: at most ten times a second.
//!
//! A reading takes some milliseconds of each worker process. SIGHUPs that come sooner wait, and share one reading, which
//! finds what was written before any of them.

use base::Nanos;

/// The least time between two readings.
const LEAST: Nanos = Nanos::from_millis(100);

/// The readings that were asked for.
#[derive(Debug, Default)]
pub struct Rereads {
    due: Option<Nanos>,
    earliest: Nanos,
}

impl Rereads {
    /// Asks for a reading, at once or as soon as the last one is long enough ago.
    pub fn ask(&mut self, now: Nanos) {
        self.due.get_or_insert(self.earliest.max(now));
    }

    /// Returns the time until a reading is due; `None` without one.
    pub fn left(&self, now: Nanos) -> Option<Nanos> {
        self.due.map(|due| due.saturating_sub(now))
    }

    /// Returns true if a reading is due, which is to be made now.
    pub fn begin(&mut self, now: Nanos) -> bool {
        let begins = self.due.take_if(|due| *due <= now).is_some();
        if begins {
            self.earliest = now + LEAST;
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_reading_is_at_once_and_a_storm_is_one_more() {
        let (mut rereads, start) = (Rereads::default(), Nanos::from_secs(7));
        assert_eq!((rereads.left(start), rereads.begin(start)), (None, false));
        rereads.ask(start);
        assert_eq!(rereads.left(start), Some(Nanos::ZERO));
        assert!(rereads.begin(start));
        let soon = start + Nanos::from_millis(30);
        (0..50).for_each(|_| rereads.ask(soon));
        assert_eq!((rereads.left(soon), rereads.begin(soon)), (Some(Nanos::from_millis(70)), false));
        assert!(rereads.begin(start + LEAST));
        assert_eq!(rereads.left(start + LEAST), None, "one reading for all");
    }
}
