//! The handler: sends requests, reads replies, and continues or ends sessions.

use std::cmp::Reverse;
use std::io;

use base::{Clock, Key, Nanos};
use http1::client::Reply;
use record::Outcome;

use super::Engine;
use super::session::{Connection, Phase};
use crate::engine::receive::{Received, receive};
use crate::engine::retry_queue::Again;
use crate::engine::transport::Transport;
use crate::measurement::recorder::Correct;
use crate::plan::digest::Digest;
use crate::plan::requests::Workload;

/// Reads of one connection in one turn; a larger reply continues in the next turn, behind the others.
pub(super) const READS_PER_TURN: usize = 4;

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// Awaits the reply of a request that went out at `now`, whole or in part.
    pub(super) fn await_reply(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.phase = Phase::Awaiting { sent: now };
        self.transport.watch(&connection.wire.socket, key, connection.is_sending());
        self.connections.awaits(key, now + self.settings.request_timeout);
        self.metrics.recorder.sent(now);
    }

    /// Handles an event of an established connection.
    pub(super) fn exchange_ready(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.phase {
            Phase::Connecting { .. } => self.connect_ready(key),
            Phase::Sharing => self.streams_ready(key),
            Phase::Thinking { .. } => {
                if connection.wire.is_quiet(&mut self.transport, &mut self.scratch) {
                    return;
                }
                // The server closed the connection or sent unrequested bytes (RFC 9112, 9.3), so the next
                // request needs another connection. Without `unwatch` the event would come back until then.
                connection.phase = Phase::Thinking { over: true };
                self.transport.unwatch(&connection.wire.socket);
            }
            Phase::Awaiting { sent } => {
                if connection.is_sending() && !self.send_rest(key) {
                    return;
                }
                self.read_reply(key, sent);
            }
        }
    }

    /// Sends the rest of a request; returns false for a connection that is lost.
    fn send_rest(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let sent = match connection.unsent {
            0 => connection.wire.catch_up(&mut self.transport),
            _ => transmit(&mut self.transport, self.settings.workload, connection).map(drop),
        };
        match sent {
            Ok(()) => {
                self.transport.watch(&connection.wire.socket, key, connection.is_sending());
                true
            }
            Err(_) => {
                self.lost(key, Outcome::Reset);
                false
            }
        }
    }

    fn read_reply(&mut self, key: Key, sent: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let received = read(&mut self.transport, connection, &mut self.scratch);
        let sent = self.after_handshake(key).unwrap_or(sent);
        match received {
            Received::Nothing | Received::Part(_) => {}
            Received::Over(outcome) => self.lost(key, outcome),
            Received::Reply(reply) => self.replied(key, &reply, sent),
        }
    }

    /// Counts a handshake that has just ended and returns the current time: only now is the request sent.
    fn after_handshake(&mut self, key: Key) -> Option<Nanos> {
        let connection = self.connections.get_mut(key)?;
        let handshake = connection.wire.handshake_ended()?;
        let now = self.clock.now();
        connection.phase = Phase::Awaiting { sent: now };
        let measured = connection.session.account.measured();
        self.transport.watch(&connection.wire.socket, key, connection.is_sending());
        self.metrics.recorder.handshake(handshake, measured);
        Some(now)
    }

    /// Enters a complete reply in the ledger and the histograms, and goes on.
    fn replied(&mut self, key: Key, reply: &Reply, sent: Nanos) {
        let now = self.clock.now();
        self.connections.has_reply(key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.has_replied = true;
        let session = &connection.session;
        let (intended, digest) = (session.intended, connection.hasher.finish());
        let outcome = self.enter_reply(reply, digest, intended, sent, now);
        let Some(connection) = self.connections.get_mut(key) else { return };
        self.metrics.ledger.end_one(&mut connection.session.account, outcome, Some(reply.status));
        self.metrics.recorder.ended(outcome, 1);
        self.go_on(key, reply.persistent, outcome, now);
    }

    /// Enters a complete reply in the histograms, and returns its outcome.
    pub(super) fn enter_reply(
        &mut self,
        reply: &Reply,
        digest: Option<Digest>,
        intended: Nanos,
        sent: Nanos,
        now: Nanos,
    ) -> Outcome {
        let outcome = self.settings.expected.outcome(reply, digest);
        self.metrics.recorder.reply(now, reply.status);
        if outcome == Outcome::Ok {
            let latency_intended = now.saturating_sub(intended);
            let correct = Correct {
                latency_intended,
                latency_sent: now.saturating_sub(sent),
                content_bytes: reply.body_bytes,
                in_time: self.settings.expected.in_time(latency_intended),
            };
            self.metrics.recorder.correct(now, correct, self.settings.counted.contains(intended));
        }
        outcome
    }

    /// Continues after a reply: retries a refused request, then ends the session, lets it think, or sends the
    /// next request.
    fn go_on(&mut self, key: Key, persistent: bool, outcome: Outcome, now: Nanos) {
        let Some(connection) = self.connections.get(key) else { return };
        if connection.session.account.left() == 0 {
            if let Some(session) = self.close(key) {
                self.over(&session, Again::one(&session), outcome, now);
            }
            return;
        }
        if outcome != Outcome::Ok {
            self.retry(Again::one(&connection.session), outcome, now);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let session = &mut connection.session;
        let due = now + self.settings.workload.think_time(&mut session.draws);
        session.request = self.settings.workload.pick(&mut session.draws);
        (session.intended, session.retries) = (due, 0);
        connection.phase = Phase::Thinking { over: !persistent };
        if due > now || self.ending.is_some() {
            if !persistent {
                self.transport.unwatch(&connection.wire.socket);
            }
            self.thinking.push(Reverse((due, key)));
        } else {
            self.next_request(key, now);
        }
    }

    /// Sends the next request of each session whose think time is over.
    pub(super) fn resume_thinkers(&mut self, now: Nanos) {
        while let Some(Reverse((due, key))) = self.thinking.peek().copied() {
            if due > now {
                break;
            }
            self.thinking.pop();
            self.next_request(key, self.clock.now());
        }
    }

    fn next_request(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.phase == Phase::Sharing {
            return self.streams_due(key, now);
        }
        if connection.phase == (Phase::Thinking { over: true }) {
            return self.reconnect(key, now);
        }
        match transmit(&mut self.transport, self.settings.workload, connection) {
            Ok(0) => {
                // Earlier requests, already answered, still fill the socket's buffer: no byte of this one
                // went out.
                let last = connection.session.account.left() == 1;
                connection.unsent =
                    self.settings.workload.bytes(connection.session.request, last).len() as u32;
                self.await_reply(key, now);
            }
            Ok(_) => self.await_reply(key, now),
            Err(_) => self.lost(key, Outcome::Reset),
        }
    }

    /// Handles a connection that ended without the reply. A server may close a persistent connection at any
    /// time, so between replies the session reconnects. Otherwise the session ends.
    fn lost(&mut self, key: Key, outcome: Outcome) {
        let now = self.clock.now();
        let Some(connection) = self.connections.get(key) else { return };
        let between_replies = connection.has_replied && !connection.reader.is_within_reply();
        if outcome == Outcome::Reset && between_replies {
            self.reconnect(key, now);
        } else if let Some(session) = self.close(key) {
            self.end_session(session, outcome, now);
        }
    }

    /// Moves the session to a new connection, which first sends its request.
    pub(super) fn reconnect(&mut self, key: Key, now: Nanos) {
        if let Some(session) = self.close(key) {
            self.connect(session, now);
        }
    }
}

/// Sends the unsent rest of the request in progress, or a whole request if none is in progress. Returns the
/// number of bytes sent; 0 for a full buffer.
///
/// # Errors
/// The connection failed.
pub(super) fn transmit<T: Transport>(
    transport: &mut T,
    workload: &Workload,
    connection: &mut Connection<T::Socket>,
) -> io::Result<usize> {
    let last = connection.session.account.left() == 1;
    let bytes = workload.bytes(connection.session.request, last);
    let rest = match connection.unsent {
        0 => bytes,
        unsent => &bytes[bytes.len() - unsent as usize..],
    };
    let sent = connection.wire.send(transport, rest)?;
    if sent > 0 {
        connection.unsent = (rest.len() - sent) as u32;
    }
    Ok(sent)
}

/// Reads until a reply is complete, no more bytes are available, or the turn is over.
fn read<T: Transport>(
    transport: &mut T,
    connection: &mut Connection<T::Socket>,
    scratch: &mut [u8],
) -> Received {
    for _ in 0..READS_PER_TURN {
        let Connection { wire, reader, hasher, .. } = &mut *connection;
        match receive(transport, wire, reader, hasher, scratch) {
            Received::Part(bytes) if bytes == scratch.len() => {}
            other => return other,
        }
    }
    Received::Nothing
}
