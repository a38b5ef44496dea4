//! Sessions over HTTP/2: a session's requests are streams of its connection.
//!
//! ```text
//!   due --a stream is free--> open --reply, RST_STREAM, GOAWAY, timeout--> ended
//!    |                                                                       |
//!    +--none is free: waits, its latency counts already                      +--> the session ends, or goes on
//! ```
//!
//! A session has a connection of its own, as over HTTP/1.1, so the rate keeps its meaning: sessions per second.
//! Requests do not wait for each other's replies. In an open loop the first request is due with the session, and each
//! further request a think time after the previous due time. The schedule alone thus fixes every intended time. A
//! closed-loop client is one user for each stream: a stream's next request is due a think time after its reply.
//!
//! A due request begins when fewer streams are open than the run and the server allow; until then it has no timeout of
//! its own. While requests are due and no stream is open, the connection has one ([`Engine::update_stream_waits`]).
//!
//! A reset or a timeout of a stream ends one request, and the others go on. A connection that breaks ends its session,
//! unless no stream was open and the connection had carried a reply. After GOAWAY the requests that were not sent yet
//! move to another connection, once the open streams have ended.
//!
//! On connections that requests share (`connections/pool`), each request is a session of one. The connection's session is
//! the request that came last, and counts those under way.
//!
//! Invariant: a connection with HTTP/2 awaits a reply exactly while it is blocked. `http2::client` keeps the protocol.

use std::cmp::Reverse;

use base::{Clock, Key, Nanos};
use http2::client::{Broken, End, Event};
use record::Outcome;

use super::exchange::{READS_PER_TURN, Times};
use super::{Engine, SCRATCH_BYTES};
use crate::engine::state::multiplex::{Multiplex, Stream, Users};
use crate::engine::state::retry_queue::Again;
use crate::engine::state::session::{Connection, Phase, Session};
use crate::engine::time::schedule::Busy;
use crate::engine::wire::transport::Transport;
use crate::measurement::recorder::Pieces;
use crate::plan::requests::Workload;

impl Session {
    /// The time at which the next request is due; `None` while all users of a closed-loop client are busy.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        match &self.users {
            None => Some(self.intended),
            Some(users) => users.peek().map(|due| due.0),
        }
    }

    /// Moves on to the next request, after one that was due at `due`. Returns the think time drawn for it.
    fn advance(&mut self, due: Nanos, workload: &Workload) -> Nanos {
        let think = workload.think_time(self.request, &mut self.draws);
        self.request = workload.next(self.request, &mut self.draws);
        self.retries = 0;
        match &mut self.users {
            None => self.intended = due + think,
            Some(users) => drop(users.pop()),
        }
        think
    }

    /// The intended times before `until` of `requests` requests that have not begun, each with a number of requests.
    fn due_before(&self, until: Nanos, requests: u32, workload: &Workload) -> Vec<(Nanos, u32)> {
        match &self.users {
            Some(users) => {
                let free = users.iter().map(|due| (due.0, 1)).filter(|(due, _)| *due < until);
                free.take(requests as usize).collect()
            }
            None => Again { requests, ..Again::of(self) }.due_before(until, workload),
        }
    }
}

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// The users of a new session of a closed-loop client over HTTP/2, all free at `at`.
    pub(super) fn users(&self, at: Nanos) -> Option<Box<Users>> {
        let streams = self.settings.streams.filter(|_| self.schedule.busy() == Some(Busy::Whole))?;
        Some(Box::new((0..streams.get()).map(|_| Reverse(at)).collect()))
    }

    /// Begins HTTP/2 on a connection that may be established.
    ///
    /// # Errors
    /// The connection failed.
    pub(super) fn open_http2(&mut self, key: Key, since: Nanos, now: Nanos) -> std::io::Result<()> {
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        if !connection.wire.open(&mut self.transport)? {
            return Ok(());
        }
        connection.phase = Phase::Sharing;
        let client = http2::client::Connection::new();
        let multiplex = Multiplex { client, wakes: None, is_blocked: false, is_over: false, is_idle: false };
        connection.http2 = Some(Box::new(multiplex));
        let measured = connection.session.is_counted(self.settings.counted);
        self.transport.watch(&connection.wire.socket, key, true);
        self.connections.has_connected(key);
        self.metrics.established(now.saturating_sub(since), measured);
        self.connected(key, now);
        self.carry_on(key, now);
        Ok(())
    }

    /// Handles an event of a connection that streams share.
    pub(super) fn streams_ready(&mut self, key: Key) {
        let http2 = self.connections.get(key).and_then(|connection| connection.http2.as_ref());
        if http2.is_none_or(|http2| http2.is_over) {
            return;
        }
        // What the server said before a reset is read before anything is sent.
        let mut ended = std::mem::take(&mut self.streams.ended);
        let received = self.receive_streams(key, &mut ended);
        for (stream, end) in ended.drain(..) {
            self.stream_ended(key, stream, end);
        }
        self.streams.ended = ended;
        match received {
            Ok(()) => self.carry_on(key, self.clock.now()),
            Err(outcome) => self.streams_lost(key, outcome),
        }
    }

    /// Reads what the server has sent, as much as a turn allows, and collects the streams that ended.
    fn receive_streams(&mut self, key: Key, ended: &mut Vec<(Key, End)>) -> Result<(), Outcome> {
        for _ in 0..READS_PER_TURN {
            let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
            let Connection { wire, http2: Some(http2), session, .. } = connection else { return Ok(()) };
            let received = wire.receive(&mut self.transport, &mut self.scratch);
            let bytes = match received {
                Ok(Some([])) => return Err(Outcome::Reset),
                Ok(bytes) => bytes.unwrap_or_default(),
                Err(outcome) => return Err(outcome),
            };
            let is_more = bytes.len() == SCRATCH_BYTES;
            let (streams, now) = (&mut self.streams, self.clock.now());
            let told = http2.client.receive(bytes, |event| match event {
                Event::Head(stream) => {
                    if let Some(stream) = streams.get_mut(stream) {
                        stream.pieces = Some(Pieces::after(None, now));
                    }
                }
                Event::Content(stream, content) => {
                    if let Some(stream) = streams.get_mut(stream) {
                        stream.pieces = Some(Pieces::after(stream.pieces, now));
                        stream.hasher.update(content);
                    }
                }
                Event::Ended(stream, end) => ended.push((stream, end)),
            });
            if let Some(handshake) = wire.handshake_ended() {
                if session.is_counted(self.settings.counted) {
                    self.metrics.recorder.handshake(handshake);
                }
                if !wire.allows_http2() {
                    return Err(Outcome::NotHttp2);
                }
            }
            told.map_err(|broken| match broken {
                Broken::NotHttp2 => Outcome::NotHttp2,
                Broken::Mistake => Outcome::Malformed,
            })?;
            if !is_more {
                break;
            }
        }
        Ok(())
    }

    /// Begins requests that are due, sends, and notes what the connection waits for.
    pub(super) fn carry_on(&mut self, key: Key, now: Nanos) {
        self.begin_streams(key, now);
        self.share(key, now);
        match self.flush_streams(key) {
            Ok(()) => self.update_stream_waits(key, now),
            Err(_) => self.streams_lost(key, Outcome::Reset),
        }
    }

    /// Returns true for a time that has come. After the schedule's end, the requests that were due before it still
    /// begin.
    pub(super) fn has_come(&self, due: Nanos, now: Nanos) -> bool {
        self.ending.map_or(due <= now, |ending| due < ending.at)
    }

    pub(super) fn begin_streams(&mut self, key: Key, now: Nanos) {
        while self.can_open(key) {
            let Some(connection) = self.connections.get(key) else { return };
            let due = connection.session.next_due().filter(|due| self.has_come(*due, now));
            let Some(intended) = due.filter(|_| connection.unbegun() > 0) else { return };
            self.begin_stream(key, intended, now);
        }
    }

    /// Returns true while the run and the server allow another stream.
    fn can_open(&self, key: Key) -> bool {
        let most = self.settings.streams.map_or(0, |streams| streams.get() as usize);
        let Some(connection) = self.connections.get(key) else { return false };
        let Connection { wire, http2: Some(http2), .. } = connection else { return false };
        http2.client.streams() < most && http2.client.can_open() && !wire.is_handshaking()
    }

    /// Returns true if a connection that requests share can begin another one at once.
    pub(super) fn has_room(&self, key: Key) -> bool {
        let is_free = |connection: &Connection<_>| connection.is_kept && connection.unbegun() == 0;
        self.connections.get(key).is_some_and(is_free) && self.can_open(key)
    }

    fn begin_stream(&mut self, key: Key, intended: Nanos, now: Nanos) {
        let workload = self.settings.workload;
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Connection { session, http2: Some(http2), .. } = connection else { return };
        let counted = self.settings.counted.contains(intended);
        let account = Some(session.account.take().unwrap_or_else(|| self.metrics.offer(1, counted)));
        let Session { request, retries, .. } = *session;
        let think = session.advance(intended, workload);
        let hasher = self.settings.expected.hasher();
        let stream = Stream {
            connection: key,
            account,
            request,
            intended,
            sent: now,
            pieces: None,
            retries,
            think,
            hasher,
        };
        let stream = self.streams.open(stream, now.saturating_add(self.settings.request_timeout));
        http2.client.open(
            stream,
            workload.block(request),
            workload.content(request),
            workload.answers_head(request),
        );
        self.metrics.recorder.sent(now);
    }

    /// Sends the bytes that wait in the connection, and those that its protocol has ready.
    fn flush_streams(&mut self, key: Key) -> std::io::Result<()> {
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        let Connection { wire, http2: Some(http2), .. } = connection else { return Ok(()) };
        if wire.is_behind() {
            wire.catch_up(&mut self.transport)?;
        }
        while !wire.is_handshaking() && !wire.is_behind() && !http2.client.output().is_empty() {
            match wire.send(&mut self.transport, http2.client.output())? {
                0 => break,
                sent => http2.client.transmitted(sent),
            }
        }
        Ok(())
    }

    /// Moves a session whose connection takes no more requests, and notes what the others wait for: room to send, the
    /// next request's time, or the server's leave to open a stream. The last has the request's timeout.
    fn update_stream_waits(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get(key) else { return };
        let Connection { session, http2: Some(http2), .. } = connection else { return };
        let open = http2.client.streams();
        let due = session.next_due().filter(|_| connection.unbegun() > 0);
        let is_needed = due.is_some() || connection.is_kept;
        if open == 0 && is_needed && http2.client.is_spent() && !http2.is_over {
            return self.streams_lost(key, Outcome::Reset);
        }
        let is_blocked = open == 0 && due.is_some_and(|due| self.has_come(due, now));
        match (is_blocked, http2.is_blocked) {
            (true, false) => self.connections.awaits(key, now.saturating_add(self.settings.request_timeout)),
            (false, true) => self.connections.has_reply(key),
            _ => {}
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_sending = connection.is_sending();
        let Some(http2) = &mut connection.http2 else { return };
        http2.is_blocked = is_blocked;
        if let Some(due) = due.filter(|due| *due > now && http2.wakes.is_none_or(|wakes| *due < wakes)) {
            http2.wakes = Some(due);
            self.thinking.push(Reverse((due, key)));
        }
        self.transport.watch(&connection.wire.socket, key, is_sending);
        self.offer_room(key);
    }

    /// Begins the requests of a connection whose time has come.
    pub(super) fn streams_due(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(http2) = &mut connection.http2 else { return };
        http2.wakes = http2.wakes.filter(|wakes| *wakes > now);
        if http2.is_over { self.reconnect(key, now) } else { self.carry_on(key, now) }
    }

    fn stream_ended(&mut self, key: Key, stream: Key, end: End) {
        let now = self.clock.now();
        let Some(mut stream) = self.streams.remove(stream) else { return };
        let (outcome, status) = match end {
            End::Reply(reply) => {
                let digest = stream.hasher.finish();
                let statuses = self.settings.workload.statuses(stream.request);
                let outcome = self.settings.expected.outcome(&reply, digest, statuses);
                let Stream { intended, sent, pieces, .. } = stream;
                let pieces = pieces.unwrap_or_else(|| Pieces::after(None, now));
                self.enter_reply(&reply, outcome, Times { intended, sent, pieces, last_byte: now });
                (outcome, Some(reply.status))
            }
            End::Malformed => (Outcome::Malformed, None),
            End::Reset => (Outcome::StreamReset, None),
            End::Unprocessed => (Outcome::GoAway, None),
        };
        self.end_stream(key, stream, outcome, status, now);
    }

    /// Enters the end of a stream in the ledger. Ends the session with its last request, or offers the request again.
    fn end_stream(
        &mut self,
        key: Key,
        mut stream: Stream,
        outcome: Outcome,
        status: Option<u16>,
        now: Nanos,
    ) {
        if let Some(account) = stream.account.take() {
            self.metrics.end(account, outcome, status);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.has_replied |= status.is_some();
        let session = &mut connection.session;
        let name = self.settings.workload.name_of(stream.request);
        self.metrics.named(name, outcome, stream.intended, now);
        session.left -= 1;
        if let Some(users) = &mut session.users {
            users.push(Reverse(now + stream.think));
        }
        if session.left > 0 || connection.is_kept {
            let again = stream.again(session, false);
            self.retry(again, outcome, now);
            return;
        }
        self.say_goodbye(key);
        if let Some(session) = self.close(key) {
            self.retry_or_free_place(&session, stream.again(&session, true), outcome, now);
        }
    }

    /// Tells the server that its connection ends; it may not hear it.
    fn say_goodbye(&mut self, key: Key) {
        if let Some(Connection { http2: Some(http2), .. }) = self.connections.get_mut(key) {
            http2.client.say_goodbye();
            // The connection is closed in any case.
            let _ = self.flush_streams(key);
        }
    }

    /// Abandons the streams that timed out.
    pub(super) fn expire_streams(&mut self, now: Nanos) {
        while let Some((place, stream)) = self.streams.take_overdue(now) {
            let key = stream.connection;
            let outcome = self.without_reply(key);
            if let Some(Connection { http2: Some(http2), .. }) = self.connections.get_mut(key) {
                http2.client.cancel(place);
            }
            self.end_stream(key, stream, outcome, None, now);
            match outcome {
                Outcome::Dropped => self.break_off(key, outcome, now),
                // Streams may have begun in this turn after `now`, and deadlines are set in order.
                _ => self.carry_on(key, self.clock.now()),
            }
        }
    }

    /// Handles a connection that takes no more requests. A session without an open stream moves to another connection
    /// if this one has carried a reply; otherwise it ends.
    fn streams_lost(&mut self, key: Key, outcome: Outcome) {
        let now = self.clock.now();
        let Some(connection) = self.connections.get(key) else { return };
        let Some(http2) = &connection.http2 else { return };
        let outcome = match outcome {
            Outcome::Reset if http2.client.is_going_away() => Outcome::GoAway,
            other => other,
        };
        let is_closed = matches!(outcome, Outcome::Reset | Outcome::GoAway);
        let can_move = connection.has_replied && connection.session.left > 0;
        if !is_closed || !can_move || http2.client.streams() > 0 {
            // The server hears of a mistake if it listens.
            let _ = self.flush_streams(key);
            return self.break_off(key, outcome, now);
        }
        match connection.session.next_due() {
            Some(due) if !self.has_come(due, now) => self.rest_until(key, due),
            _ => self.reconnect(key, now),
        }
    }

    /// Lets a connection that takes no more requests rest until its session's next request is due.
    fn rest_until(&mut self, key: Key, due: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(http2) = &mut connection.http2 else { return };
        (http2.is_over, http2.wakes) = (true, Some(due));
        self.thinking.push(Reverse((due, key)));
        self.transport.unwatch(&connection.wire.socket);
    }

    /// Closes a connection and ends its session: all its requests get this outcome. The retry policy may offer them
    /// again, each open stream's by itself.
    pub(super) fn break_off(&mut self, key: Key, outcome: Outcome, now: Nanos) {
        let streams = self.take_streams(key);
        let Some(session) = self.close(key) else { return };
        let rest = session.left - streams.len() as u32;
        let count = streams.len();
        for (place, mut stream) in streams.into_iter().enumerate() {
            let is_last = rest == 0 && place + 1 == count;
            if let Some(account) = stream.account.take() {
                self.metrics.end(account, outcome, None);
            }
            let again = stream.again(&session, is_last);
            if is_last {
                self.retry_or_free_place(&session, again, outcome, now);
            } else {
                self.retry(again, outcome, now);
            }
        }
        if rest > 0 {
            let again = Again { requests: rest, ..Again::rest(&session, now) };
            match session.next_due() {
                Some(_) => self.end_rest(session, again, outcome, now),
                // All users of the client wait for a reply, so none of the rest is due.
                None => self.give_place_back(&session, now),
            }
        }
    }

    /// Removes the open streams of a connection.
    fn take_streams(&mut self, key: Key) -> Vec<Stream> {
        let Some(Connection { http2: Some(http2), .. }) = self.connections.get(key) else {
            return Vec::new();
        };
        http2.client.tags().filter_map(|stream| self.streams.remove(stream)).collect()
    }

    /// Enters the requests of a connection that the run's end has interrupted: those that were due have no latency.
    pub(super) fn leave_in_flight(&mut self, key: Key, until: Nanos) {
        let streams = self.take_streams(key);
        let Some(connection) = self.connections.get(key) else { return };
        let session = &connection.session;
        let rest = session.left - streams.len() as u32;
        let mut waiting = session.due_before(until, rest, self.settings.workload).into_iter();
        for stream in streams {
            let (request, due) = (stream.request, stream.intended);
            stream.account.into_iter().for_each(|account| self.interrupt(account, request, due));
        }
        let Some(mut session) = self.close(key) else { return };
        if let Some(account) = session.account.take() {
            // The first of those that wait has its account already.
            let (due, requests) = waiting.next().unwrap_or((session.intended, 1));
            self.interrupt(account, session.request, due);
            self.leave_waiting([(due, requests - 1)]);
        }
        self.leave_waiting(waiting);
    }

    /// Enters requests that are due, and that the run's end has kept from being made. They are in no name.
    fn leave_waiting(&mut self, waiting: impl IntoIterator<Item = (Nanos, u32)>) {
        for (due, requests) in waiting {
            let account = self.metrics.offer(requests, self.settings.counted.contains(due));
            self.record_in_flight(account, due);
        }
    }
}

impl<S> Connection<S> {
    /// The number of the session's requests that have not begun.
    fn unbegun(&self) -> usize {
        let open = self.http2.as_ref().map_or(0, |http2| http2.client.streams());
        self.session.left as usize - open
    }

    /// Takes one more request, a session of its own, on a connection that requests share.
    pub(super) fn take_request(&mut self, session: Session) {
        let left = self.session.left + session.left;
        self.session = Session { left, ..session };
    }
}

impl Stream {
    /// The request, to be offered again. It has its own draws, because the session's requests must not depend on the
    /// server's replies.
    fn again(&self, session: &Session, frees_place: bool) -> Again {
        let frees_place = session.frees_place && frees_place;
        let Stream { request, intended, retries, .. } = *self;
        Again { request, intended, retries, frees_place, ..Again::one(session) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scripted::{Scripted, plan};
    use crate::engine::time::schedule::Schedule;
    use crate::plan::choices::tls::Trust;
    use std::num::NonZeroU32;

    /// A fatal alert of TLS 1.2 (RFC 5246, 7.2): the handshake has failed.
    const REFUSED: &[u8] = &[21, 3, 3, 0, 2, 2, 40];

    #[test]
    fn alert_before_reset_is_read_with_bytes_unsent() {
        let plan = plan(|config| {
            config.urls = vec!["https://127.0.0.1/".parse().unwrap()];
            config.tls.trust = Trust::Anybody;
            config.streams = NonZeroU32::new(1);
        });
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), Schedule::closed(1, Nanos::ZERO));
        engine.start_sessions(Nanos::ZERO);
        let key = engine.connections.keys()[0];
        server.peer(0).room = 9;
        engine.connect_ready(key);
        (server.peer(0).says, server.peer(0).is_reset) = (REFUSED, true);
        engine.streams_ready(key);
        let outcomes = engine.metrics.ledger.all().outcomes();
        assert_eq!((outcomes.get(Outcome::TlsFailed), outcomes.total()), (1, 1), "{outcomes:?}");
    }

    /// In the turn that ends the schedule, one session's request is due and another one's place is free after a timeout.
    /// Streams begin in the order of their deadlines.
    #[test]
    fn replacement_stream_has_the_later_deadline() {
        let ms = Nanos::from_millis;
        let plan = plan(|config| {
            config.streams = NonZeroU32::new(2);
            config.requests_per_connection = Some("3".parse().unwrap());
            config.think = Some("10ms".parse().unwrap());
            config.request_timeout = ms(25);
        });
        let server = Scripted::new();
        let origin = server.clock.now();
        let mut engine = server.engine(&plan, origin, Schedule::pending(0, Nanos::ZERO));
        let mut now = Nanos::ZERO;
        let mut wait_until = |time| {
            server.clock.advance(time - now);
            now = time;
        };
        engine.start_session(Nanos::ZERO);
        engine.connect_ready(engine.connections.keys()[0]);
        wait_until(ms(10));
        engine.resume_thinkers(ms(10));
        wait_until(ms(15));
        engine.start_session(ms(15));
        engine.connect_ready(engine.connections.keys()[1]);
        let turn = ms(25) + Nanos(2);
        wait_until(turn + Nanos(1));
        engine.end_schedule(turn);
        engine.expire(turn);
        let timed_out = engine.metrics.ledger.all().outcomes().get(Outcome::ResponseTimeout);
        assert_eq!((engine.streams.len(), timed_out), (4, 1));
    }
}
