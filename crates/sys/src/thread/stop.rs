//! The word that ends a thread's loop, or wakes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Stops a sleeping loop, or wakes it for other work.
#[derive(Clone, Debug)]
pub struct Stop {
    wake: Arc<OwnedFd>,
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// Makes a stop that has not been asked for.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> std::io::Result<Stop> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stop { wake: Arc::new(wake), asked: Arc::default() })
    }

    /// Asks the loop to stop accepting, finish what is under way, and end.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes the loop.
    pub fn wake(&self) {
        // The counter is full only if it was written before: the loop wakes in any case.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    /// Ends a wake-up, so that the loop can sleep again. It may end the wake-up of a [`Stop::ask`] at the same moment, so
    /// [`Stop::asked`] comes after it.
    pub fn woken(&self) {
        if !self.asked() {
            // Nothing to read means that nothing has woken the loop.
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        }
    }

    /// Returns a descriptor that is readable after a wake-up, and for ever after [`Stop::ask`].
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Returns true after [`Stop::ask`].
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}
