//! The effective configuration as text, as worker processes are given it, and the certificates that go with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use tls::Sessions;

/// The text that workers are started with. It may be replaced while the server runs.
#[derive(Clone, Debug)]
pub struct ConfigText {
    text: Arc<Mutex<String>>,
    tls: Option<Sessions>,
    replaced: Arc<OwnedFd>,
}

impl ConfigText {
    /// A text to begin with.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new(text: String, tls: Option<Sessions>) -> io::Result<ConfigText> {
        let replaced = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(ConfigText { text: Arc::new(Mutex::new(text)), tls, replaced: Arc::new(replaced) })
    }

    /// Another text, for workers that run and for those to come.
    pub fn replace(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
        self.tell();
    }

    /// The certificates have been replaced, or the text: workers are to hear of it.
    pub fn tell(&self) {
        // The counter is full only if it was written before: whoever watches is told in any case.
        let _ = rustix::io::write(&*self.replaced, &1_u64.to_ne_bytes());
    }

    /// What it is now.
    pub fn get(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Certificates, private keys and keys of tickets, for workers that serve connections; `None` without TLS.
    pub fn secrets(&self) -> Option<Vec<u8>> {
        self.tls.as_ref().map(Sessions::to_bytes)
    }

    /// Readable after it has been replaced, until [`ConfigText::noticed`].
    pub fn replaced(&self) -> BorrowedFd<'_> {
        self.replaced.as_fd()
    }

    /// Makes it wait for the next time.
    pub fn noticed(&self) {
        // Nothing to read means that somebody else has noticed.
        let _ = rustix::io::read(&*self.replaced, &mut [0; 8]);
    }
}
