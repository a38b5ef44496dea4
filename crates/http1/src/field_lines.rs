//! Field lines, read byte by byte (RFC 9112, 5): the lines of a request head and the trailers of a chunked
//! body.
//!
//! Strict: no space before the colon, no folded lines, no control characters, CRLF at every end. The first
//! byte that no field line can have is an error.

use http_semantics::{is_text_byte, is_token_byte};

/// Error: the grammar has no such byte at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Impossible;

/// The place in the field lines that the next byte belongs to.
///
/// ```text
///          token        ":"           CR            LF
///   Start -------> Name ----> Value ------> LineEnd ----> Start
///     | CR
///     +----> LastEnd ----> Done
///                     LF
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldLines {
    /// The first byte of a line.
    #[default]
    Start,
    Name,
    Value,
    LineEnd,
    LastEnd,
    /// The place after the empty line that ends the field lines.
    Done,
}

impl FieldLines {
    /// The place after `byte`.
    ///
    /// # Errors
    /// [`Impossible`] if no field line has this byte here.
    pub(crate) fn step(self, byte: u8) -> Result<FieldLines, Impossible> {
        match (self, byte) {
            (FieldLines::Start, b'\r') => Ok(FieldLines::LastEnd),
            (FieldLines::Start | FieldLines::Name, name) if is_token_byte(name) => Ok(FieldLines::Name),
            (FieldLines::Name, b':') => Ok(FieldLines::Value),
            (FieldLines::Value, b'\r') => Ok(FieldLines::LineEnd),
            (FieldLines::Value, text) if is_text_byte(text) => Ok(FieldLines::Value),
            (FieldLines::LineEnd, b'\n') => Ok(FieldLines::Start),
            (FieldLines::LastEnd, b'\n') => Ok(FieldLines::Done),
            _ => Err(Impossible),
        }
    }
}
