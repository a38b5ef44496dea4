//! The state of a connection that streams share, of one stream, and of the users of a closed-loop client.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::{Key, Nanos};

use crate::plan::digest::Hasher;
use crate::plan::requests::RequestId;

/// The HTTP/2 state of an established connection.
pub(super) struct Multiplex {
    /// Streams by their keys in the engine's slab.
    pub client: http2::client::Connection<Key>,
    /// The time of the connection's next entry in `thinking`.
    pub wakes: Option<Nanos>,
    /// True while requests are due and no stream is open.
    pub is_blocked: bool,
    /// True for a connection that takes no more requests, whose session will need another one later.
    pub is_over: bool,
}

/// A request under way.
pub(super) struct Stream {
    pub connection: Key,
    pub request: RequestId,
    pub intended: Nanos,
    pub sent: Nanos,
    pub retries: u32,
    /// The time from this request's end to the next one of the same closed-loop user.
    pub think: Nanos,
    pub hasher: Hasher,
}

/// The times at which the users of a closed-loop client are free: one user for each stream.
pub(super) type Users = BinaryHeap<Reverse<Nanos>>;
