//! The error for text that names no arrival process.

/// The text is not an arrival process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not an arrival process: {why}")]
pub struct NotAProcess {
    given: String,
    why: String,
}

impl NotAProcess {
    /// Takes the whole text of the process and the reason.
    pub(super) fn new(given: &str, why: impl Into<String>) -> NotAProcess {
        NotAProcess { given: given.to_owned(), why: why.into() }
    }
}
