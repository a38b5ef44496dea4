//! The connections of an engine and their deadlines.
//!
//! Invariant: a connection is in `connecting` exactly while it is connecting, and in `awaiting` exactly while it awaits a
//! reply; over HTTP/2, while its requests await a stream.

mod pool;

use base::{Key, Nanos, Slab};

use crate::engine::state::session::Connection;
use crate::engine::time::deadlines::Deadlines;
use crate::measurement::thread_metrics::Held;
pub(in crate::engine) use pool::Pool;

/// Connections, by key.
pub(in crate::engine) struct Connections<S> {
    all: Slab<Connection<S>>,
    connecting: Deadlines,
    awaiting: Deadlines,
}

impl<S> Default for Connections<S> {
    fn default() -> Connections<S> {
        Connections { all: Slab::new(), connecting: Deadlines::default(), awaiting: Deadlines::default() }
    }
}

impl<S> Connections<S> {
    /// The key of the next connection.
    pub fn next_key(&self) -> Key {
        self.all.next_key()
    }

    /// Adds a connection whose connect has begun.
    pub fn add_connecting(&mut self, connection: Connection<S>, until: Nanos) {
        let key = self.all.insert(connection);
        self.connecting.push(key, until);
    }

    /// Adds a connection whose request was sent.
    pub fn add_awaiting(&mut self, connection: Connection<S>, until: Nanos) {
        let key = self.all.insert(connection);
        self.awaiting.push(key, until);
    }

    pub fn get(&self, key: Key) -> Option<&Connection<S>> {
        self.all.get(key)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Connection<S>> {
        self.all.get_mut(key)
    }

    /// Forgets a connection and its deadline.
    pub fn remove(&mut self, key: Key) -> Option<Connection<S>> {
        let connection = self.all.remove(key)?;
        self.connecting.remove(key);
        self.awaiting.remove(key);
        Some(connection)
    }

    pub fn keys(&self) -> Vec<Key> {
        self.all.keys().collect()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of connects that are pending.
    pub fn connecting(&self) -> usize {
        self.connecting.len()
    }

    /// The number of connections that await a reply.
    pub fn awaiting(&self) -> usize {
        self.awaiting.len()
    }

    pub fn held(&self) -> Held {
        let sockets = self.len() as u64;
        Held { sockets, established: sockets - self.connecting() as u64, ..Held::default() }
    }

    /// A connect has begun again, on the socket of one that is overdue.
    pub fn connects_again(&mut self, key: Key, until: Nanos) {
        self.connecting.push(key, until);
    }

    /// The connect has succeeded.
    pub fn has_connected(&mut self, key: Key) {
        self.connecting.remove(key);
    }

    /// The connection awaits a reply from now on.
    pub fn awaits(&mut self, key: Key, until: Nanos) {
        self.awaiting.push(key, until);
    }

    /// The connection awaits no reply any more.
    pub fn has_reply(&mut self, key: Key) {
        self.awaiting.remove(key);
    }

    /// Takes the deadline of the connect that is overdue for longest, if one is.
    pub fn overdue_connect(&mut self, now: Nanos) -> Option<Key> {
        self.connecting.pop_due(now)
    }

    /// Takes the deadline of the reply that is overdue for longest, if one is.
    pub fn overdue_reply(&mut self, now: Nanos) -> Option<Key> {
        self.awaiting.pop_due(now)
    }

    /// When the first connect is overdue.
    pub fn first_connect_due(&self) -> Option<Nanos> {
        self.connecting.first().map(|(due, _)| due)
    }

    /// When the first reply is overdue.
    pub fn first_reply_due(&self) -> Option<Nanos> {
        self.awaiting.first().map(|(due, _)| due)
    }
}
