//! What the stages send back to the source, and how it is woken.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::{Peer, Phase};
use crate::accept::{Arrived, PhaseEnd};
use crate::counters::Counters;

/// What a stage sends back.
pub enum Mail {
    /// The accept stage has done what it was asked for.
    Accepted { phase: Phase, arrived: Vec<Arrived>, end: PhaseEnd },
    /// A connection that can do nothing for the moment.
    Idle(Box<Peer>),
    /// A connection that the peer or the network has broken off.
    Broken(Box<Peer>),
    /// A connection whose end has come.
    Ended(Box<Peer>),
}

/// What waits for the source, taken at once: a connection's end and what was counted on the way to it are
/// published together.
#[derive(Default)]
pub struct Post {
    pub mail: Vec<Mail>,
    /// What the stages have counted.
    pub totals: Counters,
    /// Something waits.
    filled: bool,
}

/// The post, and a descriptor that is readable from its first piece on.
pub struct Mailbox {
    wake: OwnedFd,
    post: Mutex<Post>,
}

impl Mailbox {
    /// An empty one.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Mailbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { wake, post: Mutex::default() })
    }

    /// Adds mail and what was counted before it. A system call where the box was empty.
    pub fn send(&self, mail: impl IntoIterator<Item = Mail>, totals: Option<Counters>) {
        let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
        post.mail.extend(mail);
        if let Some(totals) = &totals {
            post.totals.add(totals);
        }
        let first = !post.filled && (totals.is_some() || !post.mail.is_empty());
        post.filled |= first;
        drop(post);
        if first {
            // The counter is full only if it was written before: the source wakes in any case.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Takes everything.
    pub fn take(&self) -> Post {
        std::mem::take(&mut *self.post.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the descriptor unreadable, before the mail is taken.
    pub fn silence(&self) {
        // Nothing to read means that it is silent already.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
