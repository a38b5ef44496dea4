//! The contract between drivers and the services that answer requests.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::Nanos;
use dispatch::Token;
use http_semantics::{FileRange, Responder};

/// Answers with files that can be sent, and counts.
///
/// The methods after [`SocketService::counts`] are for a service that waits for something besides its peers, such as a
/// file that a helper reads from a disk. Their defaults cost nothing. Only the readiness loop calls them, except for
/// [`SocketService::sendable`], which every sender calls.
pub trait SocketService: Responder<File = Arc<OwnedFd>> {
    /// Returns the service's totals, by name.
    fn counts(&self) -> Vec<(&'static str, u64)>;

    /// Answers requests 503 from now on, or no longer.
    fn refuse(&mut self, _refuses: bool) {}

    /// Returns the number of requests so answered since the last call.
    fn take_refused(&mut self) -> u64 {
        0
    }

    /// The time since the peer of a connection was last answered without this loop; `None` if it never was.
    fn idle_for(&self, _socket: BorrowedFd<'_>) -> Option<Nanos> {
        None
    }

    /// The number of bytes at the beginning of a range, `most` at most, that can be sent without waiting for a disk.
    fn sendable(&mut self, _range: &FileRange<Arc<OwnedFd>>, most: u64) -> u64 {
        most
    }

    /// Tells that the turn of a connection is over. Returns true if the connection waits for bytes to send, so that
    /// the loop need not watch its socket for room.
    fn waits(&mut self, _token: Token) -> bool {
        false
    }

    /// Returns a descriptor that is readable when [`SocketService::arrived`] has connections to report.
    fn notices(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the time until [`SocketService::arrived`] must be called even if nothing is readable.
    fn due_in(&self) -> Option<Nanos> {
        None
    }

    /// Adds the connections whose wait is over. Never blocks.
    ///
    /// # Errors
    /// A bug of Inrush, which ends the loop.
    fn arrived(&mut self, _tokens: &mut Vec<Token>) -> io::Result<()> {
        Ok(())
    }
}
