//! Requests that share a number of kept connections, as behind a proxy.
//!
//! ```text
//!   due --fewer connections than N--> connecting --> its request, its reply --> idle <--> the next request, its reply
//!    |--one is idle---------------------------------------------------------------^
//!    +--all are busy: waits; its latency counts from its due time
//! ```
//!
//! Each arrival of the schedule is one request. The first N open a connection each; later ones take the connection that
//! has been idle for longest. A connection that the server closes is opened again by the next request that is due, and
//! counts as one more attempt. While requests wait, later ones wait behind them. A request that finds no connection within
//! its timeout ends as a response timeout, because the server has kept all of them busy.
//!
//! Over HTTP/2 a connection carries several requests, and is idle here while it has room for another stream. Requests
//! take such connections in turn. A connection with GOAWAY counts among the N until its streams have ended.
//!
//! Invariant: over HTTP/1.1 a connection is in `idle` exactly while its phase is idle. Over HTTP/2 it is there once if
//! `Multiplex::is_idle`; whoever takes it looks for room again. A key of a closed connection is skipped.

use std::collections::VecDeque;

use base::{Clock, Key, Nanos};
use record::Outcome;

use crate::engine::Engine;
use crate::engine::state::retry_queue::Again;
use crate::engine::state::session::{Phase, Session};
use crate::engine::wire::transport::Transport;

/// The most requests of one thread that wait for a connection: about 100 MiB.
const WAITING_MAX: usize = 1 << 20;

/// The connections that the requests of a thread share.
pub(in crate::engine) struct Pool {
    /// The most connections.
    most: usize,
    /// Connections without a request, the longest idle first.
    idle: VecDeque<Key>,
    /// Requests that are due, in the order in which they fell due.
    waiting: VecDeque<Waiting>,
}

/// A request that waits for a connection.
struct Waiting {
    session: Session,
    /// The start of its wait: its due time, or for a retry the time at which it was offered again.
    since: Nanos,
}

impl Pool {
    /// A pool of at most this number of connections.
    pub fn new(most: u32) -> Pool {
        Pool { most: most as usize, idle: VecDeque::new(), waiting: VecDeque::new() }
    }

    /// The number of requests that wait for a connection.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The time at which the request that waits for longest is given up.
    pub fn first_due(&self, timeout: Nanos) -> Option<Nanos> {
        self.waiting.front().map(|waiting| waiting.since.saturating_add(timeout))
    }

    /// Removes the requests that wait.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = Session> + use<> {
        std::mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.session)
    }

    /// Removes the request that waits for longest.
    fn next_waiting(&mut self) -> Option<Session> {
        self.waiting.pop_front().map(|waiting| waiting.session)
    }
}

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// Gives a request that is due a connection, or lets it wait for one.
    pub(in crate::engine) fn assign(&mut self, session: Session, now: Nanos) -> bool {
        let open = self.connections.len();
        let Some(pool) = &mut self.pool else { return self.connect(session, now) };
        // A place that has just become free belongs to those that wait.
        if pool.waiting.is_empty() {
            if open < pool.most {
                return self.connect(session, now);
            }
            if let Some(key) = self.take_idle() {
                self.begin(key, session, now);
                return true;
            }
        }
        let Some(pool) = &mut self.pool else { return false };
        if pool.waiting.len() == WAITING_MAX {
            self.end_session(session, Outcome::NoTime, now);
            return false;
        }
        // The wait of a retry is not that of the first attempt, whose due time is the intended one.
        let since = if session.retries > 0 { now } else { session.intended };
        pool.waiting.push_back(Waiting { session, since });
        true
    }

    /// Takes the connection that has been idle for longest.
    fn take_idle(&mut self) -> Option<Key> {
        loop {
            let key = self.pool.as_mut()?.idle.pop_front()?;
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let Some(http2) = &mut connection.http2 else { return Some(key) };
            http2.is_idle = false;
            if self.has_room(key) {
                return Some(key);
            }
        }
    }

    /// Gives a connection with room for a request the next one.
    fn begin(&mut self, key: Key, session: Session, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.http2.is_some() {
            connection.take_request(session);
            return self.carry_on(key, now);
        }
        connection.reader.expect_head(self.settings.workload.answers_head(session.request));
        connection.session = session;
        self.send_next(key, now);
    }

    /// Lets a connection go on to the next request after a reply, or be idle.
    pub(in crate::engine) fn reuse(&mut self, key: Key, persistent: bool, outcome: Outcome, now: Nanos) {
        let Some(connection) = self.connections.get(key) else { return };
        let again = Again::one(&connection.session);
        self.retry(again, outcome, now);
        if !persistent {
            self.close(key);
            return;
        }
        let (Some(pool), Some(connection)) = (&mut self.pool, self.connections.get_mut(key)) else { return };
        match pool.next_waiting() {
            Some(session) => self.begin(key, session, now),
            None => {
                connection.phase = Phase::Idle;
                self.put_idle(key);
            }
        }
    }

    /// Puts a connection behind those that are idle already.
    fn put_idle(&mut self, key: Key) {
        let Some(pool) = &mut self.pool else { return };
        // A pool with room for more connections takes no key out, so closed connections would fill the queue.
        if pool.idle.len() >= 2 * pool.most {
            pool.idle.retain(|key| self.connections.get(*key).is_some());
        }
        pool.idle.push_back(key);
    }

    /// Begins requests that wait on a connection over HTTP/2, as far as it has room.
    pub(in crate::engine) fn share(&mut self, key: Key, now: Nanos) {
        while self.has_room(key) {
            let Some(session) = self.pool.as_mut().and_then(Pool::next_waiting) else { break };
            let Some(connection) = self.connections.get_mut(key) else { return };
            connection.take_request(session);
            self.begin_streams(key, now);
        }
    }

    /// Notes that a connection over HTTP/2 has room for another request.
    pub(in crate::engine) fn offer_room(&mut self, key: Key) {
        let has_room = self.has_room(key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        if let Some(http2) = connection.http2.as_mut().filter(|http2| has_room && !http2.is_idle) {
            http2.is_idle = true;
            self.put_idle(key);
        }
    }

    /// Handles an event of an idle connection: the server has closed it, or sent bytes that nobody asked for.
    pub(in crate::engine) fn idle_ready(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !connection.wire.is_quiet(&mut self.transport, &mut self.scratch) {
            self.close(key);
        }
    }

    /// Opens connections for the requests that wait, in place of those that have ended, and gives up overdue ones.
    pub(in crate::engine) fn refill(&mut self, now: Nanos) {
        loop {
            let Some(pool) = &mut self.pool else { return };
            let is_overdue = pool.first_due(self.settings.request_timeout).is_some_and(|due| due <= now);
            if !is_overdue && self.connections.len() >= pool.most {
                return;
            }
            let Some(session) = pool.next_waiting() else { return };
            if is_overdue {
                self.end_session(session, Outcome::ResponseTimeout, now);
            } else {
                self.connect(session, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use base::{Clock, Nanos, PerSecond};

    use crate::engine::scripted::{Scripted, plan};
    use crate::engine::time::schedule::Schedule;
    use crate::plan::Plan;
    use crate::plan::choices::arrivals::{Lane, Process};
    use crate::plan::choices::tempo::Tempo;
    use crate::plan::config::{Client, Config, Sockets};

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

    /// A request every millisecond over two connections.
    fn sharing() -> Plan {
        sharing_at(1_000.0, 2, |_| {})
    }

    /// Requests at this rate over this number of connections, as `change` changes the plan.
    fn sharing_at(rate: f64, connections: u32, change: impl FnOnce(&mut Config)) -> Plan {
        plan(|config| {
            let (rate, arrivals) = (PerSecond(rate), Process::constant());
            config.client = Client::SClient { rate, arrivals, sockets: Sockets::Auto };
            config.connections = NonZeroU32::new(connections);
            change(config);
        })
    }

    fn schedule(plan: &Plan) -> Schedule {
        let Client::SClient { rate, arrivals, .. } = &plan.config.client else { panic!("it has a rate") };
        let lane = Lane { index: 0, count: 1 };
        let arrivals = arrivals.arrivals(*rate, plan.config.window().until, lane, plan.config.seed);
        Schedule::open(arrivals, Tempo::up_to(1.0))
    }

    /// The number of requests that a connection has carried.
    fn requests_heard(server: &Scripted, connection: usize) -> usize {
        server.peer(connection).heard.windows(4).filter(|end| end == b"\r\n\r\n").count()
    }

    #[test]
    fn waiting_requests_count_from_their_due_time() {
        let plan = sharing();
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), schedule(&plan));
        // Four requests fall due, and two connections are all there are.
        server.clock.advance(Nanos::from_micros(3_500));
        engine.start_sessions(engine.clock.now());
        let keys = engine.connections.keys();
        assert_eq!((keys.len(), engine.pool.as_ref().unwrap().waiting()), (2, 2));
        keys.iter().for_each(|key| engine.connect_ready(*key));
        server.clock.advance(Nanos::from_millis(10));
        server.peer(0).says = OK;
        engine.exchange_ready(keys[0]);
        assert_eq!(engine.pool.as_ref().unwrap().waiting(), 1, "the reply freed a connection");
        assert_eq!(requests_heard(&server, 0), 2);
        server.clock.advance(Nanos::from_millis(10));
        server.peer(0).says = OK;
        engine.exchange_ready(keys[0]);
        // The third request was due at 2 ms, and its reply came at 23.5 ms.
        assert!(engine.metrics.recorder.longest() >= Nanos::from_millis(21));
        assert_eq!(engine.metrics.ledger.all().offered(), 4);
        assert!(!server.peer(0).heard.windows(5).any(|part| part == b"close"), "the connection is kept");
    }

    #[test]
    fn closed_connections_are_opened_again_and_counted() {
        let plan = sharing();
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), schedule(&plan));
        engine.start_sessions(Nanos::ZERO);
        let key = engine.connections.keys()[0];
        engine.connect_ready(key);
        server.peer(0).says = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        engine.exchange_ready(key);
        assert_eq!(engine.connections.len(), 0);
        server.clock.advance(Nanos::from_micros(1_500));
        engine.start_sessions(engine.clock.now());
        assert_eq!((engine.connections.len(), engine.metrics.connections.attempted), (1, 2));
    }

    /// The server refuses the first request, and then takes its time with the second one. The retry is due meanwhile, later
    /// than a request timeout after the first attempt.
    #[test]
    fn a_waiting_retry_has_a_request_timeout_of_its_own() {
        let plan = sharing_at(10.0, 1, |config| {
            config.retry = "fixed:150ms,3".parse().unwrap();
            config.request_timeout = Nanos::from_millis(100);
        });
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), schedule(&plan));
        engine.start_sessions(Nanos::ZERO);
        let key = engine.connections.keys()[0];
        engine.connect_ready(key);
        server.peer(0).says = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
        engine.exchange_ready(key);
        server.clock.advance(Nanos::from_millis(100));
        engine.start_sessions(engine.clock.now());
        server.clock.advance(Nanos::from_millis(50));
        let now = engine.clock.now();
        engine.start_retries(now);
        engine.refill(now);
        let pool = engine.pool.as_ref().unwrap();
        assert_eq!(pool.waiting(), 1, "{:?}", engine.metrics.ledger.all().outcomes());
        assert_eq!(pool.first_due(plan.config.request_timeout), Some(Nanos::from_millis(250)));
        server.peer(0).says = OK;
        engine.exchange_ready(key);
        assert_eq!(requests_heard(&server, 0), 3, "the retry was sent");
    }

    #[test]
    fn newcomers_do_not_overtake_those_that_wait() {
        let plan = sharing();
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), schedule(&plan));
        server.clock.advance(Nanos::from_micros(3_500));
        engine.start_sessions(engine.clock.now());
        let key = engine.connections.keys()[0];
        engine.connect_ready(key);
        server.peer(0).says = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        engine.exchange_ready(key);
        server.clock.advance(Nanos::MILLISECOND);
        engine.start_sessions(engine.clock.now());
        assert_eq!((engine.connections.len(), engine.pool.as_ref().unwrap().waiting()), (1, 3));
        engine.refill(engine.clock.now());
        let keys = engine.connections.keys();
        let due = keys.iter().map(|key| engine.connections.get(*key).unwrap().session.intended);
        assert!(due.eq([2, 1].map(Nanos::from_millis)), "the request due at 2 ms has the place");
    }

    #[test]
    fn idle_connections_that_end_are_forgotten() {
        let plan = sharing();
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), schedule(&plan));
        for connection in 0..100 {
            engine.start_sessions(engine.clock.now());
            let key = engine.connections.keys()[0];
            engine.connect_ready(key);
            server.peer(connection).says = OK;
            engine.exchange_ready(key);
            server.peer(connection).is_reset = true;
            engine.exchange_ready(key);
            assert_eq!(engine.connections.len(), 0);
            server.clock.advance(Nanos::MILLISECOND);
        }
        let queue = engine.pool.as_ref().unwrap().idle.len();
        assert!(queue <= 4, "{queue} keys for two connections");
    }

    /// Frames of a server: SETTINGS, a whole reply on stream 1, and GOAWAY after stream 3 (RFC 9113, 4.1).
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const REPLY_1: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];
    const REPLY_5_GOAWAY: &[u8] =
        &[0, 0, 1, 1, 5, 0, 0, 0, 5, 0x88, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0];
    const REPLY_3: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 3, 0x88];

    /// A request every millisecond over one connection, with two streams at once.
    fn sharing_streams() -> Plan {
        sharing_at(1_000.0, 1, |config| config.streams = NonZeroU32::new(2))
    }

    #[test]
    fn requests_share_the_streams_of_kept_connections() {
        let plan = sharing_streams();
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), schedule(&plan));
        server.clock.advance(Nanos::from_micros(2_500));
        engine.start_sessions(engine.clock.now());
        let key = engine.connections.keys()[0];
        engine.connect_ready(key);
        let waiting = |engine: &crate::engine::Engine<'_, _, _>| engine.pool.as_ref().unwrap().waiting();
        assert_eq!((engine.streams.len(), waiting(&engine)), (2, 1), "two streams, and one request waits");
        server.clock.advance(Nanos::from_millis(10));
        server.peer(0).says = [SETTINGS, REPLY_1].concat().leak();
        engine.exchange_ready(key);
        assert_eq!((engine.streams.len(), waiting(&engine)), (2, 0), "the reply made room");
        server.peer(0).says = REPLY_3;
        engine.exchange_ready(key);
        server.clock.advance(Nanos::from_millis(10));
        server.peer(0).says = REPLY_5_GOAWAY;
        engine.exchange_ready(key);
        // The third request was due at 2 ms, and its reply came at 22.5 ms. Its connection takes no more.
        assert!(engine.metrics.recorder.longest() >= Nanos::from_millis(20));
        assert_eq!((engine.connections.len(), engine.metrics.connections.attempted), (0, 1));
        engine.start_sessions(engine.clock.now());
        engine.refill(engine.clock.now());
        assert_eq!((engine.connections.len(), engine.metrics.connections.attempted), (1, 2));
        let outcomes = engine.metrics.ledger.all().outcomes();
        assert_eq!((outcomes.get(record::Outcome::Ok), outcomes.total()), (3, 3), "{outcomes:?}");
    }
}
