//! The limits on memory and work of the server's side of a connection, each with its reason.

use base::Limit;

/// Maximum value of [`Limits::fields`]. The fields are tokenised into an array on the stack.
pub const MOST_FIELDS: usize = 128;
/// Bytes of a response, or its rest, that a client must take within a write timeout to be given another one. A single
/// byte would otherwise buy a whole timeout. With the default of 30 s
/// it asks for 34 bytes a second.
pub const LEAST_PROGRESS_BYTES: u64 = 1024;

/// Limits on the memory and work that a peer can cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request head, request line and empty line included; beyond: 431, or 414 if the
    /// request line alone is as long. At most 4 GiB.
    pub head_bytes: usize,
    /// Bytes of a request target; beyond: 414.
    pub target_bytes: usize,
    /// Header fields of a request, [`MOST_FIELDS`] at most; beyond: 431.
    pub fields: usize,
    /// Bytes of content of a request; beyond: 413.
    pub body_bytes: u64,
    /// True if the service sees the content. Otherwise the content is read, checked and dropped.
    pub keep_body: bool,
    /// Requests answered on one connection; the last response says `Connection: close`.
    pub requests_per_connection: Limit,
    /// Pipelined requests answered between two moments without pending output. Bounds the time that one
    /// connection can take from the others in a turn.
    pub pipelined: Limit,
    /// Bytes of responses queued in memory before the next pipelined request waits. One response more (its
    /// head and the content that is copied behind it) may exceed the limit.
    pub outbox_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // The requests of browsers with many cookies fit twice; nginx and Apache allow 32 and 8 KiB.
            head_bytes: 16 * 1024,
            // RFC 9112, 3: "at minimum, request-line lengths of 8000 octets".
            target_bytes: 8 * 1024,
            fields: 100,
            body_bytes: 1024 * 1024,
            keep_body: false,
            requests_per_connection: Limit::Infinite,
            // 32 cached answers take about 10 us, less than a turn of a loop with a few ready sockets.
            pipelined: Limit::AtMost(32),
            outbox_bytes: 64 * 1024,
        }
    }
}
