//! The instructions of overload control for open connections, in memory that threads or processes share.
//!
//! The thread that controls the accept queue writes them, and those that serve its connections read them. Invariants: one
//! thread writes; fresh memory, all zeros, instructs nothing. Each word is an instruction of its own, so a reader may find
//! some of them newer than others.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Nanos;
use overload::law::Sessions;

/// The number of words.
pub const WORDS: usize = 4;

/// The instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// The treatment of open connections.
    pub sessions: Sessions,
    /// The target delay in force; `None` while there is no control.
    pub target: Option<Nanos>,
}

impl Instructions {
    /// Writes the instructions to `words`, which are [`WORDS`].
    pub fn write(self, words: &[AtomicU64]) {
        let Sessions { idle_timeout, close_after_response, late_after } = self.sessions;
        let time = |time: Option<Nanos>| time.map_or(0, |time| time.0);
        let values =
            [time(idle_timeout), u64::from(close_after_response), time(late_after), time(self.target)];
        for (word, value) in words.iter().zip(values) {
            // The readers keep the cache line while nothing changes.
            if word.load(Ordering::Relaxed) != value {
                word.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Reads the instructions in `words`, which are [`WORDS`].
    pub fn read(words: &[AtomicU64]) -> Instructions {
        let value = |index: usize| words[index].load(Ordering::Relaxed);
        let time = |index: usize| Some(Nanos(value(index))).filter(|time| *time > Nanos::ZERO);
        let sessions =
            Sessions { idle_timeout: time(0), close_after_response: value(1) != 0, late_after: time(2) };
        Instructions { sessions, target: time(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let words = [const { AtomicU64::new(0) }; WORDS];
        assert_eq!(Instructions::read(&words), Instructions::default());
        let late = Sessions { late_after: Some(Nanos::SECOND), ..Sessions::default() };
        let full = Sessions { idle_timeout: Some(Nanos::MILLISECOND), close_after_response: true, ..late };
        for sessions in [late, full, Sessions::default()] {
            let instructions = Instructions { sessions, target: Some(Nanos::from_micros(7)) };
            instructions.write(&words);
            assert_eq!(Instructions::read(&words), instructions);
        }
    }
}
