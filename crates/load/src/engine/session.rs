//! A session and the connection that carries it at the moment.

use base::Nanos;
use http1::client::Reader;

use crate::content::Hasher;
use crate::draws::Draws;
use crate::ledger::Account;
use crate::wire::Wire;
use crate::workload::RequestId;

/// A client's sequence of requests. Outlives a connection that the server ends between two of them.
pub(super) struct Session {
    pub account: Account,
    pub draws: Draws,
    /// The request in progress, or the one to come.
    pub request: RequestId,
    /// When that request was meant to be sent.
    pub intended: Nanos,
    /// How many retries that request is.
    pub retries: u32,
    /// Whether a client of a closed loop is free again when it is over.
    pub frees_client: bool,
}

/// Where a connection stands.
///
/// ```text
///   Connecting --> Awaiting <--> Thinking
/// ```
///
/// Each can end with the connection closed, and the session over or moved to another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// connect() was called then.
    Connecting { since: Nanos },
    /// The request was sent then, as far as `unsent` allows.
    Awaiting { sent: Nanos },
    /// Until the next request is due; `over` where the server has ended the connection, so that the
    /// request needs another.
    Thinking { over: bool },
}

/// One connection's life, over a transport's socket.
pub(super) struct Connection<S> {
    pub wire: Wire<S>,
    pub session: Session,
    pub phase: Phase,
    pub reader: Reader,
    pub hasher: Hasher,
    /// Whether a reply has come on it: if so, and if the server ends it before another begins, the
    /// request may be repeated on a new connection (RFC 9112, 9.3.1).
    pub has_replied: bool,
    /// How many bytes of the request the socket did not take yet.
    pub unsent: u32,
}

impl<S> Connection<S> {
    /// Whether the socket is to say when it takes more.
    pub fn is_sending(&self) -> bool {
        self.unsent > 0 || self.wire.is_behind()
    }
}
