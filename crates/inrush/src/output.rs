//! Data on standard output: one way for every command.
//!
//! A reader that has gone away has read all it wanted (`inrush lab list | head -1`). The command finishes in silence, and
//! its exit code says what it would have said otherwise. Any other failure to write is an error.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::exit::Exit;

/// Writes a formatted line, as [`text`].
macro_rules! out {
    ($($part:tt)*) => {
        $crate::output::text("the output", &::std::format!("{}\n", ::std::format_args!($($part)*)))
    };
}
pub(crate) use out;

/// Writes `what` as text.
///
/// # Errors
/// [`Exit::Failed`]: it cannot be written, and not because its reader has gone.
pub fn text(what: &str, text: &str) -> Result<(), Exit> {
    write(what, |out| out.write_all(text.as_bytes()))
}

/// Writes `what` as a JSON value on lines of its own.
///
/// # Errors
/// As [`text`].
pub fn json(what: &str, value: &impl Serialize) -> Result<(), Exit> {
    write(what, |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// Hands standard output to a function that writes `what`.
///
/// # Errors
/// As [`text`].
pub fn write(what: &str, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    match fill(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Exit::Failed(format!("cannot write {what}: {error}")))
        }
        _ => Ok(()),
    }
}
