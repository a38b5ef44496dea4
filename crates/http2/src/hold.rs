//! The time for which a window has held content back.
//!
//! ```text
//!   open ──the window is too small──> held since t ──LEAST_PROGRESS_BYTES moved──> held since then
//!    ^──────────the window is large enough───────────┘
//! ```
//!
//! A client that grants a few bytes at a time stays held: each grant is used up at once.

use base::Nanos;
use http_semantics::server::LEAST_PROGRESS_BYTES;

/// The hold of one window, that of a stream or of the connection.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    since: Option<Nanos>,
    /// Bytes of content that moved since then.
    moved: u64,
}

impl Hold {
    /// True if a window is too small for the progress that `left` bytes of content must make.
    pub(crate) fn is_closed(window: i64, left: u64) -> bool {
        (window.max(0) as u64) < left.min(LEAST_PROGRESS_BYTES)
    }

    /// Begins a hold at `now`, unless one is under way.
    pub(crate) fn begin(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    pub(crate) fn end(&mut self) {
        *self = Hold::default();
    }

    /// Counts content that moved at `now`.
    pub(crate) fn moved(&mut self, bytes: u64, now: Nanos) {
        self.moved += bytes;
        if self.moved >= LEAST_PROGRESS_BYTES {
            *self = Hold { since: self.since.map(|_| now), moved: 0 };
        }
    }

    pub(crate) fn since(&self) -> Option<Nanos> {
        self.since
    }
}
