//! The mail from the stages to the source, and the descriptor that wakes the source.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use base::lock;
use rustix::event::{EventfdFlags, eventfd};

use super::{Peer, Phase};
use crate::connections::accept::{Arrived, PhaseEnd};
use crate::ground::counters::Counters;

/// A message from a stage.
pub enum Mail {
    /// The accept stage has finished a task.
    Accepted { phase: Phase, arrived: Vec<Arrived>, end: PhaseEnd },
    /// A connection that has nothing to do for now.
    Idle(Box<Peer>),
    /// A connection that the peer or the network has broken.
    Broken(Box<Peer>),
    /// A connection that is to be closed.
    Ended(Box<Peer>),
}

/// The messages that wait for the source, taken all at once. So a connection's end and the counts on the way to it are
/// published together.
#[derive(Default)]
pub struct Post {
    pub mail: Vec<Mail>,
    /// The stages' counts.
    pub totals: Counters,
    /// The mailbox holds something.
    filled: bool,
}

/// The post, and a descriptor that is readable while the mailbox is not empty.
pub struct Mailbox {
    wake: OwnedFd,
    post: Mutex<Post>,
}

impl Mailbox {
    /// Makes an empty mailbox.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Mailbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { wake, post: Mutex::default() })
    }

    /// Adds mail and the counts that precede it. Makes a system call if the mailbox was empty.
    pub fn send(&self, mail: impl IntoIterator<Item = Mail>, totals: Option<Counters>) {
        let mut post = lock(&self.post);
        post.mail.extend(mail);
        if let Some(totals) = &totals {
            post.totals.add(totals);
        }
        let first = !post.filled && (totals.is_some() || !post.mail.is_empty());
        post.filled |= first;
        drop(post);
        if first {
            // The write fails only if the counter is full, and then the source wakes anyway.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Takes everything.
    pub fn take(&self) -> Post {
        std::mem::take(&mut *lock(&self.post))
    }

    /// Makes the descriptor unreadable. Call it before taking the mail.
    pub fn silence(&self) {
        // A failed read means that the descriptor is unreadable already.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
