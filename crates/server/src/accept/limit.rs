//! The accept-limit, which this process or another may change while the server runs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Limit;
use sys::shared::SharedArray;

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
    pub fn new(limit: Limit) -> LiveLimit {
        LiveLimit(Word::Private(Arc::default())).starting_at(limit)
    }

    /// Makes a limit that other processes can share.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn shared(limit: Limit) -> io::Result<LiveLimit> {
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

    fn starting_at(self, limit: Limit) -> LiveLimit {
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
    pub fn set(&self, limit: Limit) {
        let most = match limit {
            Limit::AtMost(most) => u64::from(most),
            Limit::Infinite => u64::MAX,
        };
        self.word().store(most, Ordering::Relaxed);
    }

    /// Returns the present limit.
    pub fn get(&self) -> Limit {
        u32::try_from(self.word().load(Ordering::Relaxed)).map_or(Limit::Infinite, Limit::AtMost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_can_change_while_it_is_used() {
        let limit = LiveLimit::new(Limit::AtMost(10));
        let other = limit.clone();
        assert_eq!(other.get(), Limit::AtMost(10));
        limit.set(Limit::Infinite);
        assert_eq!(other.get(), Limit::Infinite);
    }

    #[test]
    fn the_limit_can_be_that_of_another_process() {
        let limit = LiveLimit::shared(Limit::AtMost(10)).unwrap();
        let other = LiveLimit::open(limit.memory().unwrap()).unwrap();
        limit.set(Limit::AtMost(3));
        assert_eq!(other.get(), Limit::AtMost(3));
        assert!(LiveLimit::new(Limit::Infinite).memory().is_none());
    }
}
