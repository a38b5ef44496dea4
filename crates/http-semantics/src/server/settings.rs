//! The time that the server's side of a connection waits, and all settings together.

use base::Nanos;

use super::limits::Limits;

/// Limits on the time that the server waits for a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time for a whole head from its first byte, followed by 408. Also the time for the first byte on a new
    /// connection, which is then closed without a response.
    pub header: Nanos,
    /// Time for the next request on a persistent connection, which is then closed without a response.
    pub idle: Nanos,
    /// Time for the whole content of a request from the end of its head, followed by 408.
    pub body: Nanos,
    /// Time for the transport to take the next [`LEAST_PROGRESS_BYTES`](super::LEAST_PROGRESS_BYTES) of output, or its
    /// rest. Then the connection is closed, or the stream is reset.
    pub write_stall: Nanos,
    /// Time for the peer to close after a refusal and the shutdown of the server's side, so that the peer can
    /// read the refusal (RFC 9112, 9.6).
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
    /// Limits on memory and work.
    pub limits: Limits,
    /// Limits on time.
    pub timeouts: Timeouts,
}
