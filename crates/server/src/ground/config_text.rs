//! The effective configuration as text, for worker processes, with its certificates.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use base::lock;
use rustix::event::{EventfdFlags, eventfd};
use tls::Sessions;

/// The text for new workers. It may be replaced while the server runs.
#[derive(Clone, Debug)]
pub struct ConfigText {
    text: Arc<Mutex<String>>,
    tls: Option<Sessions>,
    replaced: Arc<OwnedFd>,
}

impl ConfigText {
    /// Makes the first text.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new(text: String, tls: Option<Sessions>) -> io::Result<ConfigText> {
        let replaced = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(ConfigText { text: Arc::new(Mutex::new(text)), tls, replaced: Arc::new(replaced) })
    }

    /// Replaces the text, for present and future workers.
    pub fn replace(&self, text: String) {
        *lock(&self.text) = text;
        self.announce_change();
    }

    /// Announces new certificates or a new text to the workers.
    pub fn announce_change(&self) {
        // The counter is full only after an earlier write, so the watcher wakes in any case.
        let _ = rustix::io::write(&*self.replaced, &1_u64.to_ne_bytes());
    }

    /// Returns the present text.
    pub fn get(&self) -> String {
        lock(&self.text).clone()
    }

    /// Returns certificates, private keys and keys of tickets, for workers that serve connections; `None` without
    /// TLS.
    pub fn secrets(&self) -> Option<Vec<u8>> {
        self.tls.as_ref().map(Sessions::to_bytes)
    }

    /// Returns a descriptor that is readable after a replacement, until [`ConfigText::noticed`].
    pub fn replaced(&self) -> BorrowedFd<'_> {
        self.replaced.as_fd()
    }

    /// Resets the descriptor until the next replacement.
    pub fn noticed(&self) {
        // Nothing to read means that another call has reset it.
        let _ = rustix::io::read(&*self.replaced, &mut [0; 8]);
    }
}
