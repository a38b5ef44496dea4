//! A response as its client counts it.

/// A complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The final status.
    pub status: u16,
    /// Bytes of content, with the transfer coding removed.
    pub body_bytes: u64,
    /// True if the connection can carry another request.
    pub persistent: bool,
}
