//! Accepting as a value: how many at once, and what to do when nothing is left to accept with.
//!
//! The strategy of Brecht 2004 (section 3): each time the listener is ready, accept until the
//! *accept-limit*, until the queue is empty, or until the connection limit. Accept rate = phases a second
//! x mean accepted a phase (equation 1): both are counted.
//!
//! When descriptors run out (EMFILE, ENFILE) a listener would stay ready and the loop would spin. One
//! descriptor is therefore kept in reserve: it is given up to accept the connection that waits longest
//! and to turn it away in so many words, a 503 instead of a time-out; then the listener is left alone
//! for a delay that doubles from [`FIRST_PAUSE`] to [`LONGEST_PAUSE`] until an accept succeeds again.
//!
//! ```text
//!              shortage                 delay over
//!   listening ─────────> paused(delay) ───────────> listening
//!       |                                               |
//!       | connection limit          a connection ends   | success: delay back to the first
//!       └──────────> full ──────────────────────────────┘
//! ```

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Limit, Nanos};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketFlags};
use sys::errno::{Failure, classify};
use sys::shared::SharedArray;

use crate::counters::LoopCounts;
use crate::listener::Listener;
use crate::slots::{Slot, Slots};

const FIRST_PAUSE: Nanos = Nanos::MILLISECOND;
const LONGEST_PAUSE: Nanos = Nanos::SECOND;

/// Pending network errors that one accept skips; each is a connection that died in the queue.
const MOST_DEAD: u32 = 64;

const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\
Content-Type: text/plain; charset=utf-8\r\nContent-Length: 24\r\n\r\n503 Service Unavailable\n";

/// The accept-limit, shared with whoever may change it while the server runs.
#[derive(Clone, Debug)]
pub struct LiveLimit(Word);

/// Where the limit stands.
#[derive(Clone, Debug)]
enum Word {
    /// In this process.
    Private(Arc<AtomicU64>),
    /// In the memory of several.
    Shared(Arc<SharedArray<AtomicU64>>),
}

impl LiveLimit {
    /// A limit to start with.
    pub fn new(limit: Limit) -> LiveLimit {
        LiveLimit(Word::Private(Arc::default())).starting_at(limit)
    }

    /// A limit to start with, which other processes can share.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn shared(limit: Limit) -> io::Result<LiveLimit> {
        Ok(LiveLimit(Word::Shared(Arc::new(SharedArray::create(1)?))).starting_at(limit))
    }

    /// The limit of another process.
    ///
    /// # Errors
    /// EINVAL where the memory is not that of a limit; ENOMEM.
    pub fn open(memory: OwnedFd) -> io::Result<LiveLimit> {
        let words = SharedArray::open(memory)?;
        if words.is_empty() {
            Err(io::ErrorKind::InvalidInput.into())
        } else {
            Ok(LiveLimit(Word::Shared(Arc::new(words))))
        }
    }

    /// What another process opens; nothing where it is not shared or no descriptor is left.
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

    /// Changes it, from the next accept phase on.
    pub fn set(&self, limit: Limit) {
        let most = match limit {
            Limit::AtMost(most) => u64::from(most),
            Limit::Infinite => u64::MAX,
        };
        self.word().store(most, Ordering::Relaxed);
    }

    /// What it is now.
    pub fn get(&self) -> Limit {
        u32::try_from(self.word().load(Ordering::Relaxed)).map_or(Limit::Infinite, Limit::AtMost)
    }
}

/// How one accept ended.
pub enum Accepted {
    /// With a connection.
    Connection(OwnedFd, Option<SocketAddr>),
    /// The queue is empty.
    Empty,
    /// With nothing but connections that had died, so many that others are to have their turn; there may be more.
    Dead,
    /// Nothing left to accept with: leave the listener alone until then.
    Exhausted(Nanos),
}

/// A connection that a thread has taken from the queue, to serve it from now on.
#[derive(Debug)]
pub struct Arrived {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// Who it is.
    pub peer: Option<SocketAddr>,
    /// When it was accepted.
    pub at: Nanos,
    /// Given back with the connection's end.
    pub slot: Slot,
}

/// Why an accept phase ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseEnd {
    /// Every queue is empty.
    Empty,
    /// The accept-limit is reached, or one of dead connections; there may be more.
    AtLimit,
    /// The connection limit is reached; there may be more.
    Full,
    /// Nothing left to accept with: leave the listeners alone until then.
    Exhausted(Nanos),
}

/// Accepts by one strategy for one loop.
pub struct Acceptor {
    /// How many a phase.
    pub limit: LiveLimit,
    reserve: Option<OwnedFd>,
    pause: Nanos,
    /// Which listener comes first in the next phase.
    first: usize,
}

impl Acceptor {
    /// An acceptor with its reserve descriptor.
    ///
    /// # Errors
    /// No descriptor left even now.
    pub fn new(limit: LiveLimit) -> io::Result<Acceptor> {
        Ok(Acceptor { limit, reserve: Some(open_reserve()?), pause: FIRST_PAUSE, first: 0 })
    }

    /// Takes one connection from the queue.
    pub fn accept(&mut self, listener: &Listener, now: Nanos, counts: &mut LoopCounts) -> Accepted {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..MOST_DEAD {
            match rustix::net::acceptfrom_with(&listener.socket, flags) {
                Ok((socket, peer)) => {
                    self.pause = FIRST_PAUSE;
                    self.reserve = self.reserve.take().or_else(|| open_reserve().ok());
                    return Accepted::Connection(socket, peer.and_then(|peer| peer.try_into().ok()));
                }
                // Shut down by the process that it was inherited from: the stop follows.
                Err(Errno::INVAL) => return Accepted::Exhausted(now + self.next_pause()),
                Err(errno) => {
                    if let Some(accepted) = self.failed(&errno.into(), listener, now, counts) {
                        return accepted;
                    }
                }
            }
        }
        Accepted::Dead
    }

    /// What comes of a failed accept; nothing where the next connection is to be tried.
    fn failed(
        &mut self,
        error: &io::Error,
        listener: &Listener,
        now: Nanos,
        counts: &mut LoopCounts,
    ) -> Option<Accepted> {
        match classify(error) {
            Failure::WouldBlock => Some(Accepted::Empty),
            Failure::Retry => None,
            Failure::NoDescriptor => Some(self.turn_one_away(listener, now, counts)),
            Failure::NoMemory | Failure::NoPort | Failure::Other => {
                counts.accept_errors += 1;
                Some(Accepted::Exhausted(now + self.next_pause()))
            }
            Failure::PeerGone => {
                counts.aborted_in_queue += 1;
                None
            }
        }
    }

    /// A whole accept phase of a thread that serves what it takes: at most accept-limit connections in all,
    /// from each listener in turn. Counted as a phase if there was any.
    pub fn phase(
        &mut self,
        listeners: &[Listener],
        now: Nanos,
        slots: &Arc<Slots>,
        counts: &mut LoopCounts,
        batch: &mut Vec<Arrived>,
    ) -> PhaseEnd {
        let limit = self.limit.get();
        let before = batch.len();
        // Another listener comes first each time, so that none waits for ever under a small limit.
        let first = self.first;
        self.first = self.first.wrapping_add(1);
        let mut end = PhaseEnd::Empty;
        let mut listeners_left = (0..listeners.len()).map(|turn| (first + turn) % listeners.len());
        let mut index = listeners_left.next();
        while let Some(current) = index {
            if !limit.allows((batch.len() - before) as u64 + 1) {
                end = PhaseEnd::AtLimit;
                break;
            }
            let Some(slot) = slots.take() else {
                counts.limit_connections += 1;
                end = PhaseEnd::Full;
                break;
            };
            match self.accept(&listeners[current], now, counts) {
                Accepted::Connection(socket, peer) => batch.push(Arrived { socket, peer, at: now, slot }),
                Accepted::Empty => index = listeners_left.next(),
                // As at a limit there may be more, so nobody waits to be told of it.
                Accepted::Dead => {
                    end = PhaseEnd::AtLimit;
                    break;
                }
                Accepted::Exhausted(until) => {
                    end = PhaseEnd::Exhausted(until);
                    break;
                }
            }
        }
        let taken = (batch.len() - before) as u64;
        counts.accepts += taken;
        counts.accept_phases += u64::from(taken > 0);
        end
    }

    /// How long to leave a resource alone that is used up; longer each time until an accept succeeds.
    pub fn next_pause(&mut self) -> Nanos {
        let pause = self.pause;
        self.pause = Nanos((pause.0 * 2).min(LONGEST_PAUSE.0));
        pause
    }

    fn turn_one_away(&mut self, listener: &Listener, now: Nanos, counts: &mut LoopCounts) -> Accepted {
        drop(self.reserve.take());
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = rustix::net::accept_with(&listener.socket, flags);
        if let Ok(socket) = &accepted {
            counts.turned_away += 1;
            // Bytes left unread would turn the close into a reset, which can overtake the answer.
            let mut request = [0_u8; 4096];
            let _ = rustix::net::recv(socket, &mut request, rustix::net::RecvFlags::empty());
            let _ = rustix::net::send(socket, TURNED_AWAY, SendFlags::NOSIGNAL);
            let _ = rustix::net::shutdown(socket, Shutdown::Write);
        }
        // The kernel wants a descriptor before it looks whether anybody waits.
        let nobody_waits = matches!(accepted, Err(errno) if classify(&errno.into()) == Failure::WouldBlock);
        drop(accepted);
        self.reserve = open_reserve().ok();
        if nobody_waits {
            return Accepted::Empty;
        }
        counts.no_descriptor += 1;
        Accepted::Exhausted(now + self.next_pause())
    }
}

fn open_reserve() -> io::Result<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from)
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

    #[test]
    fn the_refusal_says_how_long_it_is() {
        let text = std::str::from_utf8(TURNED_AWAY).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(text.contains(&format!("Content-Length: {}\r\n", body.len())));
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut acceptor = Acceptor::new(LiveLimit::new(Limit::AtMost(1))).unwrap();
        let pauses: Vec<Nanos> = (0..12).map(|_| acceptor.next_pause()).collect();
        assert_eq!(pauses[..3], [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]);
        assert_eq!(pauses[11], LONGEST_PAUSE);
    }
}
