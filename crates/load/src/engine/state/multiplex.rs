//! The state of a connection that streams share, the streams, and the users of a closed-loop client.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::{Key, Nanos, Slab};
use http2::client::End;

use crate::engine::time::deadlines::Deadlines;
use crate::measurement::ledger::Account;
use crate::measurement::recorder::Pieces;
use crate::plan::requests::RequestId;
use crate::plan::terms::digest::Hasher;

/// The HTTP/2 state of an established connection.
pub(in crate::engine) struct Multiplex {
    /// Streams by their keys in the engine's slab.
    pub client: http2::client::Connection<Key>,
    /// The time of the connection's next entry in `thinking`.
    pub wakes: Option<Nanos>,
    /// True while requests are due and no stream is open.
    pub is_blocked: bool,
    /// True for a connection that takes no more requests, whose session will need another one later.
    pub is_over: bool,
    /// True for a connection that requests share while the pool has it among those with room.
    pub is_idle: bool,
}

/// A request under way.
pub(in crate::engine) struct Stream {
    pub connection: Key,
    /// The request's account, until its end.
    pub account: Option<Account>,
    pub request: RequestId,
    pub intended: Nanos,
    pub sent: Nanos,
    /// The pieces in which the reply has come; `None` before the first one.
    pub pieces: Option<Pieces>,
    pub retries: u32,
    /// The time from this request's end to the next one of the same closed-loop user.
    pub think: Nanos,
    pub hasher: Hasher,
}

/// The times at which the users of a closed-loop client are free: one user for each stream.
pub(in crate::engine) type Users = BinaryHeap<Reverse<Nanos>>;

/// The requests under way over HTTP/2, of all connections of an engine. Each has a deadline.
#[derive(Default)]
pub(in crate::engine) struct Streams {
    open: Slab<Stream>,
    deadlines: Deadlines,
    /// Memory for the streams that end in one turn.
    pub ended: Vec<(Key, End)>,
}

impl Streams {
    pub fn open(&mut self, stream: Stream, until: Nanos) -> Key {
        let key = self.open.insert(stream);
        self.deadlines.push(key, until);
        key
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.open.get_mut(key)
    }

    /// Removes a stream and its deadline.
    pub fn remove(&mut self, key: Key) -> Option<Stream> {
        self.deadlines.remove(key);
        self.open.remove(key)
    }

    /// Removes the stream that is overdue for longest, if one is.
    pub fn take_overdue(&mut self, now: Nanos) -> Option<(Key, Stream)> {
        let key = self.deadlines.pop_due(now)?;
        Some((key, self.open.remove(key)?))
    }

    /// The number of open streams.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// When the first stream is overdue.
    pub fn first_due(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(due, _)| due)
    }
}
