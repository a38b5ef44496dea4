//! Every bound of the server's side of a connection, with its reason.

use base::{Limit, Nanos};

/// The most fields that [`Limits::fields`] can allow: they are tokenised into an array on the stack.
pub const MOST_FIELDS: usize = 128;

/// Bounds on what a peer may make us hold or do.
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
    /// Whether the service is shown the content. Otherwise it is read, checked and dropped.
    pub keep_body: bool,
    /// Requests answered on one connection; the last response says `Connection: close`.
    pub requests_per_connection: Limit,
    /// Pipelined requests answered between two times that everything has been sent: bounds the time
    /// that one connection can take from the others in a turn.
    pub pipelined: Limit,
    /// Bytes of responses queued in memory before the next pipelined request waits. One more response
    /// (its head and up to [`COPIED_BODY_BYTES`](super::COPIED_BODY_BYTES) of content) may go on top.
    pub outbox_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // What browsers with many cookies send fits twice; nginx and Apache allow 32 and 8 KiB.
            head_bytes: 16 * 1024,
            // RFC 9112, 3: "at minimum, request-line lengths of 8000 octets".
            target_bytes: 8 * 1024,
            fields: 100,
            body_bytes: 1024 * 1024,
            keep_body: false,
            requests_per_connection: Limit::Infinite,
            // 32 cached answers take about 10 us: less than a turn of a loop with a few ready sockets.
            pipelined: Limit::AtMost(32),
            outbox_bytes: 64 * 1024,
        }
    }
}

/// Bounds on how long a peer may make us wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a whole head, from its first byte (then 408), and for the first byte on a new connection
    /// (then it is closed without a word).
    pub header: Nanos,
    /// For the next request on a persistent connection; then it is closed without a word.
    pub idle: Nanos,
    /// For the whole content of a request, from the end of its head; then 408.
    pub body: Nanos,
    /// For the transport to take another byte of a response; then the connection is given up.
    pub write_stall: Nanos,
    /// For the peer to close after we refused something and shut down our side, so that it can read
    /// the refusal (RFC 9112, 9.6).
    pub linger: Nanos,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            header: Nanos::from_secs(10),
            idle: Nanos::from_secs(60),
            body: Nanos::from_secs(30),
            write_stall: Nanos::from_secs(30),
            linger: Nanos::from_secs(2),
        }
    }
}

/// All settings of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How much.
    pub limits: Limits,
    /// How long.
    pub timeouts: Timeouts,
}
