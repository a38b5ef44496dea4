//! The ways to wait for a connection, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use wake::Kind;

/// A way for N tasks to wait on one listening address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// Each blocks in accept(), the kernel's task-exclusive wait.
    Accept,
    /// Each polls the listener, then accepts without blocking.
    Poll,
    /// Each waits in its own level-triggered epoll, then accepts without blocking.
    Epoll,
    /// The same as [`Wait::Epoll`] with EPOLLEXCLUSIVE.
    EpollExclusive,
    /// All wait in one level-triggered epoll, then accept without blocking.
    EpollShared,
    /// Each blocks in accept() on its own listener with SO_REUSEPORT.
    Reuseport,
    /// The same as [`Wait::Reuseport`], but a connection that the k-th processor received goes to the k-th
    /// listener. At most as many waiters as processors get connections.
    Steered,
    /// An acceptor task notices the connection and wakes the paper's wait queue, in which all waiters are
    /// ordinary. Each then accepts without blocking.
    WakeAll,
    /// The same as [`Wait::WakeAll`] with exclusive waiters.
    WakeOne,
    /// Each takes a mutex, blocks in accept(), and releases the mutex.
    Mutex,
}

impl Wait {
    /// All ways to wait, in the order of their documentation.
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

    /// The name on the command line and in results.
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

    /// Returns true if accept() itself blocks.
    pub(crate) fn blocks_in_accept(self) -> bool {
        matches!(self, Wait::Accept | Wait::Reuseport | Wait::Steered | Wait::Mutex)
    }

    /// Returns true if each waiter has its own listener.
    pub(crate) fn has_own_listeners(self) -> bool {
        matches!(self, Wait::Reuseport | Wait::Steered)
    }

    /// The kind under which a waiter enters the wait queue; `None` without a wait queue.
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

/// The text names no way to wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a way to wait: expected {}", Wait::ALL.map(Wait::name).join(", "))]
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
        assert!(error.starts_with("'knock' is not a way to wait: expected accept, poll,"), "{error}");
    }
}
