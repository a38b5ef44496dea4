//! Ending a run early, from a signal handler or another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that all clones share. Within 50 ms after the flag is raised, a run begins nothing more. It then waits
/// for replies on their way, for a second at most, and has a complete result of its time so far.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that is down.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Raises the flag for good.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true once the flag is raised.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
