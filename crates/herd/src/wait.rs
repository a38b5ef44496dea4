//! The ways to wait for a connection, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use wake::Kind;

/// How N tasks wait on one listening address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// Each blocks in accept(): the kernel's task-exclusive wait.
    Accept,
    /// Each polls the listener, then accepts without blocking.
    Poll,
    /// Each has an epoll of its own, level-triggered, then accepts without blocking.
    Epoll,
    /// The same with EPOLLEXCLUSIVE.
    EpollExclusive,
    /// All wait in one epoll, level-triggered, then accept without blocking.
    EpollShared,
    /// Each blocks in accept() on a listener of its own with SO_REUSEPORT.
    Reuseport,
    /// The same, but a connection goes to the k-th listener where the k-th processor has received it, so that
    /// no more waiters get any than there are processors.
    Steered,
    /// One more task notices the connection and wakes the wait queue of the paper, in which all are
    /// ordinary; then each accepts without blocking.
    WakeAll,
    /// The same with all exclusive.
    WakeOne,
    /// Each takes a mutex, blocks in accept(), and gives the mutex back.
    Mutex,
}

impl Wait {
    /// All, in the order in which they are described.
    pub const ALL: [Wait; 10] = [
        Wait::Accept,
        Wait::Poll,
        Wait::Epoll,
        Wait::EpollExclusive,
        Wait::EpollShared,
        Wait::Reuseport,
        Wait::Steered,
        Wait::WakeAll,
        Wait::WakeOne,
        Wait::Mutex,
    ];

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Accept => "accept",
            Wait::Poll => "poll",
            Wait::Epoll => "epoll",
            Wait::EpollExclusive => "epoll-exclusive",
            Wait::EpollShared => "epoll-shared",
            Wait::Reuseport => "reuseport",
            Wait::Steered => "steered",
            Wait::WakeAll => "wake-all",
            Wait::WakeOne => "wake-one",
            Wait::Mutex => "mutex",
        }
    }

    /// Whether accept() itself blocks.
    pub(crate) fn blocks_in_accept(self) -> bool {
        matches!(self, Wait::Accept | Wait::Reuseport | Wait::Steered | Wait::Mutex)
    }

    /// Whether each waiter has a listener of its own.
    pub(crate) fn has_own_listeners(self) -> bool {
        matches!(self, Wait::Reuseport | Wait::Steered)
    }

    /// As what a waiter enters the wait queue that an acceptor wakes, where there is one.
    pub(crate) fn queues_as(self) -> Option<Kind> {
        match self {
            Wait::WakeAll => Some(Kind::Ordinary),
            Wait::WakeOne => Some(Kind::Exclusive),
            _ => None,
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no way to wait has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not one of {}", Wait::ALL.map(Wait::name).join(", "))]
pub struct UnknownWait {
    given: String,
}

impl FromStr for Wait {
    type Err = UnknownWait;
    fn from_str(text: &str) -> Result<Wait, UnknownWait> {
        let found = Wait::ALL.into_iter().find(|wait| wait.name() == text);
        found.ok_or_else(|| UnknownWait { given: text.to_owned() })
    }
}

impl Serialize for Wait {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for wait in Wait::ALL {
            assert_eq!(wait.name().parse(), Ok(wait));
        }
        let error = "knock".parse::<Wait>().unwrap_err().to_string();
        assert!(error.starts_with("'knock' is not one of accept, poll,"), "{error}");
    }
}
