//! The handler: sends requests, reads replies, and continues or ends sessions.

use std::cmp::Reverse;
use std::io;

use base::{Clock, Key, Nanos};
use http_semantics::Reply;
use record::Outcome;

use super::Engine;
use crate::engine::receive::{Ears, Received, receive};
use crate::engine::state::retry_queue::Again;
use crate::engine::state::session::{Connection, Phase};
use crate::engine::wire::transport::Transport;
use crate::measurement::recorder::{Correct, Pieces};
use crate::measurement::thread_metrics::failures::Failures;
use crate::plan::choices::expected::Statuses;
use crate::plan::requests::Workload;

/// Reads of one connection in one turn; a larger reply continues in the next turn, behind the others.
pub(super) const READS_PER_TURN: usize = 4;

/// The times of a request with a reply.
pub(super) struct Times {
    pub intended: Nanos,
    pub sent: Nanos,
    pub pieces: Pieces,
    pub last_byte: Nanos,
}

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// Awaits the reply of a request that went out at `now`, whole or in part.
    pub(super) fn await_reply(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.phase = Phase::Awaiting { sent: now };
        self.transport.watch(&connection.wire.socket, key, connection.is_sending());
        self.connections.awaits(key, now.saturating_add(self.settings.request_timeout));
        self.metrics.recorder.sent(now);
    }

    /// Handles an event of an established connection.
    pub(super) fn exchange_ready(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.phase {
            Phase::Connecting { .. } => self.connect_ready(key),
            Phase::Sharing => self.streams_ready(key),
            Phase::Idle => self.idle_ready(key),
            Phase::Thinking { .. } => {
                if connection.wire.is_quiet(&mut self.transport, &mut self.scratch) {
                    return;
                }
                // The server closed the connection or sent unrequested bytes (RFC 9112, 9.3), so the next
                // request needs another connection. Without `unwatch` the event would come back until then.
                connection.phase = Phase::Thinking { over: true };
                self.transport.unwatch(&connection.wire.socket);
            }
            Phase::Awaiting { sent } => self.read_reply(key, sent),
        }
    }

    /// Sends the rest of a request.
    fn send_rest(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let sent = match connection.unsent {
            0 => connection.wire.catch_up(&mut self.transport),
            _ => transmit(&mut self.transport, self.settings.workload, connection),
        };
        match sent {
            Ok(_) => self.transport.watch(&connection.wire.socket, key, connection.is_sending()),
            Err(_) => self.handle_lost_connection(key, Outcome::Reset),
        }
    }

    /// Reads, and then sends the rest of a request: a server may reply early and reset the connection.
    fn read_reply(&mut self, key: Key, sent: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let was_sending = connection.is_sending();
        let own = self.settings.workload.statuses(connection.session.request);
        let accepted = own.unwrap_or(&self.settings.expected.status);
        let known = (accepted, &self.metrics.failures);
        let received = read(&mut self.transport, connection, known, &mut self.scratch);
        if matches!(received, Received::Part(_)) && connection.reader.is_within_reply() {
            connection.pieces = Some(Pieces::after(connection.pieces, self.clock.now()));
        }
        let sent = self.after_handshake(key).unwrap_or(sent);
        match received {
            Received::Nothing | Received::Part(_) if was_sending => self.send_rest(key),
            Received::Nothing | Received::Part(_) => {}
            Received::Over(outcome) => self.handle_lost_connection(key, outcome),
            Received::Reply(reply) => self.replied(key, &reply, sent),
        }
    }

    /// Counts a handshake that has just ended and returns the current time: only now is the request sent.
    fn after_handshake(&mut self, key: Key) -> Option<Nanos> {
        let connection = self.connections.get_mut(key)?;
        let handshake = connection.wire.handshake_ended()?;
        let now = self.clock.now();
        connection.phase = Phase::Awaiting { sent: now };
        let measured = connection.session.is_counted(self.settings.counted);
        self.transport.watch(&connection.wire.socket, key, connection.is_sending());
        if measured {
            self.metrics.recorder.handshake(handshake);
        }
        Some(now)
    }

    /// Enters a complete reply in the ledger and the histograms, and goes on.
    fn replied(&mut self, key: Key, reply: &Reply, sent: Nanos) {
        let now = self.clock.now();
        self.connections.has_reply(key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.has_replied = true;
        // The server may leave the rest of a request unread, so the next request cannot follow it.
        let persistent = reply.persistent && !connection.is_sending();
        if self.settings.follows_redirects && connection.follow_redirect(reply.status, &self.settings) {
            let measured = self.settings.window.contains(connection.session.intended);
            self.metrics.recorder.redirected(measured);
            return if persistent { self.send_next(key, now) } else { self.reconnect(key, now) };
        }
        let (workload, session) = (self.settings.workload, &mut connection.session);
        let (intended, digest) = (session.intended, connection.hasher.finish());
        let pieces = Pieces::after(connection.pieces.take(), now);
        self.metrics.failures.enter(reply.status, &mut connection.example);
        let statuses = workload.statuses(session.request);
        let mut outcome = self.settings.expected.outcome(reply, digest, statuses);
        if let (Some(story), Some(script)) = (&mut session.story, workload.script())
            && !story.take(script, session.request)
            && outcome == Outcome::Ok
        {
            outcome = Outcome::WrongBody;
        }
        self.metrics.named(workload.name_of(session.request), outcome, intended, now);
        self.enter_reply(reply, outcome, Times { intended, sent, pieces, last_byte: now });
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.session.left -= 1;
        if let Some(account) = connection.session.account.take() {
            self.metrics.end(account, outcome, Some(reply.status));
        }
        self.go_on(key, persistent, outcome, now);
    }

    /// Enters a complete reply in the histograms.
    pub(super) fn enter_reply(&mut self, reply: &Reply, outcome: Outcome, times: Times) {
        let Times { intended, sent, pieces, last_byte } = times;
        self.metrics.recorder.reply(last_byte, intended, reply.status);
        if outcome == Outcome::Ok {
            let latency_intended = last_byte.saturating_sub(intended);
            let correct = Correct {
                latency_intended,
                latency_sent: last_byte.saturating_sub(sent),
                first_byte: pieces.first.saturating_sub(sent),
                longest_gap: pieces.longest_gap,
                content_bytes: reply.body_bytes,
                in_time: self.settings.expected.in_time(latency_intended),
            };
            self.metrics.recorder.correct(last_byte, correct, self.settings.window.contains(intended));
        }
    }

    /// Continues after a reply: retries a refused request, then ends the session, lets it think, or sends the
    /// next request.
    fn go_on(&mut self, key: Key, persistent: bool, outcome: Outcome, now: Nanos) {
        let Some(connection) = self.connections.get(key) else { return };
        if connection.session.left == 0 && connection.is_kept {
            return self.reuse(key, persistent, outcome, now);
        }
        if connection.session.left == 0 {
            if let Some(session) = self.close(key) {
                self.retry_or_free_place(&session, Again::one(&session), outcome, now);
            }
            return;
        }
        if outcome != Outcome::Ok {
            self.retry(Again::one(&connection.session), outcome, now);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (workload, session) = (self.settings.workload, &mut connection.session);
        let due = now + workload.think_time(session.request, &mut session.draws);
        session.request = workload.next(session.request, &mut session.draws);
        (session.intended, session.retries) = (due, 0);
        if let Some(detour) = &mut session.detour {
            detour.end();
        }
        connection.reader.expect_head(workload.answers_head(session.request));
        session.write_request(&self.settings, self.clock.wall());
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
        let session = &mut connection.session;
        session.account = Some(self.metrics.offer(1, self.settings.counted.contains(session.intended)));
        if connection.phase == (Phase::Thinking { over: true }) {
            return self.reconnect(key, now);
        }
        self.send_next(key, now);
    }

    /// Sends the request that is next on an established connection.
    pub(super) fn send_next(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match transmit(&mut self.transport, self.settings.workload, connection) {
            Ok(0) => {
                // Earlier requests, already answered, still fill the socket's buffer: no byte of this one
                // went out.
                let bytes = connection.session.request_bytes(self.settings.workload, connection.is_last());
                connection.unsent = bytes.len() as u32;
                self.await_reply(key, now);
            }
            Ok(_) => self.await_reply(key, now),
            Err(_) => self.handle_lost_connection(key, Outcome::Reset),
        }
    }

    /// Handles a connection that ended without the reply. A server may close a persistent connection at any
    /// time, so between replies the session reconnects. Otherwise the session ends.
    fn handle_lost_connection(&mut self, key: Key, outcome: Outcome) {
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
    let bytes = connection.session.request_bytes(workload, connection.is_last());
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

/// Reads until a reply is complete, no more bytes are available, or the turn is over. Returns a part if it read any bytes.
fn read<T: Transport>(
    transport: &mut T,
    connection: &mut Connection<T::Socket>,
    (accepted, known): (&Statuses, &Failures),
    scratch: &mut [u8],
) -> Received {
    let mut read = Received::Nothing;
    for _ in 0..READS_PER_TURN {
        let Connection { wire, reader, hasher, session, example, .. } = &mut *connection;
        let ears = Ears {
            hasher,
            story: session.story.as_deref_mut(),
            detour: session.detour.as_deref_mut(),
            example: Some((example, accepted, known)),
        };
        match receive(transport, wire, reader, ears, scratch) {
            Received::Part(bytes) if bytes == scratch.len() => read = Received::Part(bytes),
            Received::Nothing => break,
            other => return other,
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scripted::{Scripted, plan};
    use crate::engine::time::schedule::Schedule;
    use crate::plan::requests::RequestId;
    use proptest::prelude::*;

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";

    fn one_client() -> Schedule {
        Schedule::closed(1, Nanos::ZERO)
    }

    #[test]
    fn session_reconnects_after_an_early_reply() {
        let plan = plan(|config| config.requests_per_connection = Some("2".parse().unwrap()));
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), one_client());
        engine.start_sessions(Nanos::ZERO);
        let first = engine.connections.keys()[0];
        server.peer(0).room = 9;
        engine.connect_ready(first);
        server.peer(0).says = BUSY;
        engine.exchange_ready(first);
        let second = engine.connections.keys()[0];
        engine.connect_ready(second);
        let request = plan.workload.bytes(RequestId(0), true);
        let heard: Vec<Vec<u8>> = server.peers.borrow().iter().map(|peer| peer.heard.clone()).collect();
        assert_eq!(heard, [&request[..9], request]);
        server.peer(1).says = OK;
        engine.exchange_ready(second);
        let outcomes = engine.metrics.ledger.all().outcomes();
        assert_eq!([Outcome::Shed, Outcome::Ok].map(|outcome| outcomes.get(outcome)), [1, 1], "{outcomes:?}");
        assert_eq!((outcomes.total(), engine.connections.len()), (2, 0));
    }

    #[test]
    fn reply_before_reset_is_read_after_a_failed_send() {
        let (plan, server) = (plan(|_| {}), Scripted::new());
        let mut engine = server.engine(&plan, server.clock.now(), one_client());
        engine.start_sessions(Nanos::ZERO);
        let key = engine.connections.keys()[0];
        server.peer(0).room = 9;
        engine.connect_ready(key);
        (server.peer(0).says, server.peer(0).is_reset) = (BUSY, true);
        engine.exchange_ready(key);
        let outcomes = engine.metrics.ledger.all().outcomes();
        assert_eq!((outcomes.get(Outcome::Shed), outcomes.total()), (1, 1), "{outcomes:?}");
    }

    #[test]
    fn think_time_is_no_part_of_a_latency() {
        let think = Nanos::from_millis(10);
        let plan = plan(|config| {
            config.requests_per_connection = Some("2".parse().unwrap());
            config.think = Some("10ms".parse().unwrap());
        });
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), one_client());
        engine.start_sessions(Nanos::ZERO);
        let key = engine.connections.keys()[0];
        engine.connect_ready(key);
        server.peer(0).says = OK;
        engine.exchange_ready(key);
        server.clock.advance(think);
        engine.resume_thinkers(think);
        server.peer(0).says = OK;
        engine.exchange_ready(key);
        let outcomes = engine.metrics.ledger.all().outcomes();
        assert_eq!((outcomes.get(Outcome::Ok), outcomes.total()), (2, 2), "{outcomes:?}");
        assert!(engine.metrics.recorder.longest() < think, "{:?}", engine.metrics.recorder.longest());
    }

    proptest! {
        /// The server takes and says what it likes. Each connection carries whole requests, and a part only at its end.
        #[test]
        fn a_connection_carries_whole_requests(
            steps in prop::collection::vec((0usize..300, any::<bool>()), 1..60),
        ) {
            let plan = plan(|config| {
                config.urls.push(format!("http://127.0.0.1/{}", "long".repeat(50)).parse().unwrap());
                config.requests_per_connection = Some("1000".parse().unwrap());
            });
            let server = Scripted::new();
            let mut engine = server.engine(&plan, server.clock.now(), one_client());
            engine.start_sessions(Nanos::ZERO);
            for (room, replies) in steps {
                let key = engine.connections.keys()[0];
                if let Some(peer) = server.peers.borrow_mut().last_mut() {
                    peer.room = room;
                    peer.says = if replies && !peer.heard.is_empty() { OK } else { b"" };
                }
                engine.exchange_ready(key);
            }
            let requests = [0, 1].map(|number| plan.workload.bytes(RequestId(number), false));
            for peer in server.peers.borrow().iter() {
                let mut heard = &peer.heard[..];
                while let Some(rest) = requests.iter().find_map(|request| heard.strip_prefix(*request)) {
                    heard = rest;
                }
                let is_part = requests.iter().any(|request| request.starts_with(heard));
                prop_assert!(is_part, "{}", String::from_utf8_lossy(&peer.heard));
            }
        }
    }
}
