//! The accept-limit, which this process or another may change while the server runs.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Limit, UnitError};
use sys::shared::SharedArray;

/// The maximum number of connections taken in one accept phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptLimit {
    /// Always the same number. Overload control may take fewer connections.
    Fixed(Limit),
    /// Follows the time that a turn of the loop takes ([`overload::adaptive_limit`]).
    Adaptive,
}

impl AcceptLimit {
    /// The adaptive limit as text.
    const ADAPTIVE: &str = "adaptive";

    /// Returns the limit of a thread that serves the connections it accepts. An adaptive limit becomes one, because
    /// any other thread can take the connections that stay in the queue.
    pub fn of_a_thread(self) -> Limit {
        match self {
            AcceptLimit::Fixed(limit) => limit,
            AcceptLimit::Adaptive => Limit::AtMost(1),
        }
    }
}

impl FromStr for AcceptLimit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<AcceptLimit, UnitError> {
        match text.trim() {
            AcceptLimit::ADAPTIVE => Ok(AcceptLimit::Adaptive),
            number => number
                .parse()
                .map(AcceptLimit::Fixed)
                .map_err(|_| UnitError::new(text, "a whole number from 1 up, inf, or adaptive")),
        }
    }
}

impl fmt::Display for AcceptLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptLimit::Fixed(limit) => limit.fmt(f),
            AcceptLimit::Adaptive => f.write_str(AcceptLimit::ADAPTIVE),
        }
    }
}

/// The stored words of the two limits that are not numbers.
const INFINITE: u64 = u64::MAX;
const ADAPTIVE: u64 = u64::MAX - 1;

/// The accept-limit; clones share it.
#[derive(Clone, Debug)]
pub struct LiveLimit(Word);

/// The memory of the limit.
#[derive(Clone, Debug)]
enum Word {
    /// In this process.
    Private(Arc<AtomicU64>),
    /// In memory that several processes share.
    Shared(Arc<SharedArray<AtomicU64>>),
}

impl LiveLimit {
    /// Makes a limit.
    pub fn new(limit: AcceptLimit) -> LiveLimit {
        LiveLimit(Word::Private(Arc::default())).starting_at(limit)
    }

    /// Makes a limit that other processes can share.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn shared(limit: AcceptLimit) -> io::Result<LiveLimit> {
        Ok(LiveLimit(Word::Shared(Arc::new(SharedArray::create(1)?))).starting_at(limit))
    }

    /// Opens the limit of another process.
    ///
    /// # Errors
    /// EINVAL if the memory holds no limit; ENOMEM.
    pub fn open(memory: OwnedFd) -> io::Result<LiveLimit> {
        let words = SharedArray::open(memory)?;
        if words.is_empty() {
            Err(io::ErrorKind::InvalidInput.into())
        } else {
            Ok(LiveLimit(Word::Shared(Arc::new(words))))
        }
    }

    /// Returns the memory for another process; `None` if the limit is not shared or no descriptor is left.
    pub fn memory(&self) -> Option<OwnedFd> {
        match &self.0 {
            Word::Private(_) => None,
            Word::Shared(words) => SharedArray::as_fd(words).try_clone_to_owned().ok(),
        }
    }

    fn starting_at(self, limit: AcceptLimit) -> LiveLimit {
        self.set(limit);
        self
    }

    fn word(&self) -> &AtomicU64 {
        match &self.0 {
            Word::Private(word) => word,
            Word::Shared(words) => &words[0],
        }
    }

    /// Changes the limit, from the next accept phase on.
    pub fn set(&self, limit: AcceptLimit) {
        let word = match limit {
            AcceptLimit::Fixed(Limit::AtMost(most)) => u64::from(most),
            AcceptLimit::Fixed(Limit::Infinite) => INFINITE,
            AcceptLimit::Adaptive => ADAPTIVE,
        };
        self.word().store(word, Ordering::Relaxed);
    }

    /// Returns the present limit.
    pub fn get(&self) -> AcceptLimit {
        match self.word().load(Ordering::Relaxed) {
            ADAPTIVE => AcceptLimit::Adaptive,
            most => AcceptLimit::Fixed(u32::try_from(most).map_or(Limit::Infinite, Limit::AtMost)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: AcceptLimit = AcceptLimit::Fixed(Limit::AtMost(10));

    #[test]
    fn the_limit_can_change_while_it_is_used() {
        let limit = LiveLimit::new(TEN);
        let other = limit.clone();
        assert_eq!(other.get(), TEN);
        for new in [AcceptLimit::Adaptive, AcceptLimit::Fixed(Limit::Infinite), TEN] {
            limit.set(new);
            assert_eq!(other.get(), new);
        }
    }

    #[test]
    fn the_limit_can_be_that_of_another_process() {
        let limit = LiveLimit::shared(TEN).unwrap();
        let other = LiveLimit::open(limit.memory().unwrap()).unwrap();
        limit.set(AcceptLimit::Adaptive);
        assert_eq!(other.get(), AcceptLimit::Adaptive);
        assert!(LiveLimit::new(TEN).memory().is_none());
    }

    #[test]
    fn a_limit_is_a_number_or_a_word() {
        for text in ["1", "10", "inf", "adaptive"] {
            assert_eq!(text.parse::<AcceptLimit>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "1.5", "Adaptive", "10 adaptive"] {
            let error = text.parse::<AcceptLimit>().unwrap_err().to_string();
            assert!(error.contains("a whole number from 1 up, inf, or adaptive"), "{error}");
        }
    }
}
