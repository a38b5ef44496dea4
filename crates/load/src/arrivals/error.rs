//! What is wrong with the text of an arrival process.

/// Not an arrival process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not an arrival process: {why}")]
pub struct NotAProcess {
    given: String,
    why: String,
}

impl NotAProcess {
    /// For the whole text of the process and what is wrong with it.
    pub(super) fn new(given: &str, why: impl Into<String>) -> NotAProcess {
        NotAProcess { given: given.to_owned(), why: why.into() }
    }
}
