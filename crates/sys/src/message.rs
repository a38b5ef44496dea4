//! Messages on standard error.
//!
//! The reader of standard error may go away: a pager is quit, a log collector restarts. A run or a server
//! must survive that, but `eprintln!` panics. [`say!`](crate::say) is the only way to write a message.
//!
//! A message may quote a peer, a file or another machine. Its control characters are escaped, so that it does not steer
//! the terminal.

use std::fmt::Arguments;
use std::io::{self, Write};

use base::printable_lines;

/// Writes a line to standard error, formatted as by [`format!`]. A line that cannot be written is dropped.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => {
        $crate::message::line(::std::format_args!($($part)*))
    };
}

/// Writes a line to standard error in one piece, so that the lines of several threads and processes do not mix.
pub fn line(text: Arguments<'_>) {
    // A failure to write to standard error could be reported only there.
    let _ = io::stderr().lock().write_all(format!("{}\n", printable_lines(&text.to_string())).as_bytes());
}
