//! Data on standard output, written in the same way by every command.
//!
//! A reader that is gone has read enough (`inrush lab list | head -1`). The command then finishes silently,
//! with the same exit code as otherwise. Any other failure to write is an error.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use base::printable_lines;
use serde::Serialize;

use crate::cli::TextOrJson;
use crate::exit::Exit;

/// Writes a formatted line, as [`text`] does.
macro_rules! out {
    ($($part:tt)*) => {
        $crate::output::text("the output", &::std::format!("{}\n", ::std::format_args!($($part)*)))
    };
}
pub(crate) use out;

/// Writes text; `what` names it in an error. Control characters but tabs and line ends are escaped, because a text may
/// quote a peer or a record.
///
/// # Errors
/// [`Exit::Failed`] if the text cannot be written, unless its reader is gone.
pub fn text(what: &str, text: &str) -> Result<(), Exit> {
    write(what, |out| out.write_all(printable_lines(text).as_bytes()))
}

/// Writes a JSON value on lines of its own; `what` names it in an error.
///
/// # Errors
/// The errors of [`text`].
pub fn json(what: &str, value: &impl Serialize) -> Result<(), Exit> {
    write(what, |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// Writes a result in the form that was asked for; `what` names it in an error.
///
/// # Errors
/// The errors of [`text`].
pub fn result(
    what: &str,
    form: TextOrJson,
    value: &impl Serialize,
    as_text: impl FnOnce() -> String,
) -> Result<(), Exit> {
    match form {
        TextOrJson::Text => text(what, &as_text()),
        TextOrJson::Json => json(what, value),
    }
}

/// Opens the file of a result before the work for it. An earlier content stays. Also tells whether the file is new: the
/// caller removes a new file that gets no result.
///
/// # Errors
/// The errors of opening it.
pub fn open_early(path: &Path) -> io::Result<(File, bool)> {
    let is_new = path.symlink_metadata().is_err();
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    Ok((file, is_new))
}

/// Lends standard output to `fill`, which writes the data; `what` names it in an error.
///
/// # Errors
/// The errors of [`text`].
pub fn write(what: &str, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    match fill(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Exit::Failed(format!("cannot write {what}: {error}")))
        }
        _ => Ok(()),
    }
}
