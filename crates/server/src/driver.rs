//! Drivers move bytes between sockets and the protocol machine; nothing else does.

pub mod blocking;
pub mod kernel_threads;
pub mod readiness;
pub mod stages;
pub mod transfer;
pub mod user_threads;
pub mod waiters;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Tells a sleeping loop to stop.
#[derive(Clone, Debug)]
pub struct Stop {
    wake: Arc<OwnedFd>,
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// A stop that has not been asked for.
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
        // The counter is full only if it was written before: the loop wakes in any case.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    /// Readable from then on.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Whether it has been asked for.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}
