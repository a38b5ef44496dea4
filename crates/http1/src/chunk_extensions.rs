//! The extensions of a chunk, read byte by byte (RFC 9112, 7.1.1). Their content means nothing here, but
//! their end matters: readers that disagree about it disagree about the chunk's first byte.

use http_semantics::{is_text_byte, is_token_byte};

use crate::field_lines::Impossible;

/// The place in the extensions that the next byte belongs to. The first place is after the first semicolon.
///
/// ```text
///           token         "="           token, "quoted"
///   Start --------> Name ----> Equals -----------------> Value, Quoted, Behind
///     ^               | ";"                                       | ";"
///     +---------------+-------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extensions {
    /// The first byte of a name, or white space before it.
    Start,
    Name,
    /// White space behind a name.
    NameSpace,
    /// The first byte of a value, or white space before it.
    Equals,
    Value,
    Quoted,
    /// The byte after a backslash.
    Escaped,
    /// The place after the closing quote.
    QuoteEnd,
    /// White space after a value. Only another extension may follow.
    ValueSpace,
}

impl Extensions {
    /// The place after `byte`, which is not the CR of a line end that is [possible](Self::may_end) here.
    ///
    /// # Errors
    /// [`Impossible`] if no extension has this byte here.
    pub(crate) fn step(self, byte: u8) -> Result<Extensions, Impossible> {
        use Extensions::{Equals, Escaped, Name, NameSpace, QuoteEnd, Quoted, Start, Value, ValueSpace};
        match (self, byte) {
            (Start, b' ' | b'\t') => Ok(Start),
            (Start | Name, token) if is_token_byte(token) => Ok(Name),
            (Name | NameSpace, b' ' | b'\t') => Ok(NameSpace),
            (Name | NameSpace, b'=') => Ok(Equals),
            (Equals, b' ' | b'\t') => Ok(Equals),
            (Equals, b'"') => Ok(Quoted),
            (Equals | Value, token) if is_token_byte(token) => Ok(Value),
            (Quoted, b'"') => Ok(QuoteEnd),
            (Quoted, b'\\') => Ok(Escaped),
            (Quoted | Escaped, text) if is_text_byte(text) => Ok(Quoted),
            (Value | QuoteEnd | ValueSpace, b' ' | b'\t') => Ok(ValueSpace),
            (Name | NameSpace | Value | QuoteEnd | ValueSpace, b';') => Ok(Start),
            _ => Err(Impossible),
        }
    }

    /// True if the line may end here.
    pub(crate) fn may_end(self) -> bool {
        matches!(self, Extensions::Name | Extensions::Value | Extensions::QuoteEnd)
    }
}
