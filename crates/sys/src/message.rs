//! Messages on standard error.
//!
//! Whoever reads standard error may go away: a pager is quit, a log collector restarts. That is no reason for a run or a
//! server to end, and `eprintln!` panics then. [`say!`](crate::say) is the one way to say something.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Writes a line to standard error, formatted as by [`format!`]. A line that cannot be written is dropped.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => {
        $crate::message::line(::std::format_args!($($part)*))
    };
}

/// Writes a line to standard error in one piece, so that the lines of several threads and processes do not mix.
pub fn line(text: Arguments<'_>) {
    // A failure could only be told where it happened.
    let _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}
