//! Ending a run early, from a signal handler or another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that all copies share. A run that sees it ends within a twentieth of a second, with a complete
/// result of the time it had.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that is not raised.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Raises it; for good.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is raised.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
