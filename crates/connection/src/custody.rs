//! Whose the listening sockets of a server are, which decides how its connections end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whose the listening sockets of a server are: this process's own, at first, or another one's. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Custody {
    passed_on: Arc<AtomicBool>,
}

impl Custody {
    /// Leaves the listening sockets to another process: to a successor, or to a predecessor until
    /// [`Custody::take_on`].
    pub fn pass_on(&self) {
        self.passed_on.store(true, Ordering::Release);
    }

    /// Makes the inherited listening sockets this process's own.
    pub fn take_on(&self) {
        self.passed_on.store(false, Ordering::Release);
    }

    /// Returns true while the listening sockets are another process's.
    pub fn is_passed_on(&self) -> bool {
        self.passed_on.load(Ordering::Acquire)
    }
}
