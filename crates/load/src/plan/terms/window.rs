//! Windows of time within a run, such as the measured one.

use base::Nanos;

/// The measured part of a run, as times since the run's start: from the end of the warm-up to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first moment inside.
    pub from: Nanos,
    /// The first moment after.
    pub until: Nanos,
}

impl Window {
    /// Returns true for a moment inside the window.
    pub fn contains(self, at: Nanos) -> bool {
        self.from <= at && at < self.until
    }

    /// The length of the window.
    pub fn length(self) -> Nanos {
        self.until.saturating_sub(self.from)
    }
}
