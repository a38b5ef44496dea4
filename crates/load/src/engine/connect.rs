//! The establisher: begins sessions; connects complete, fail or are abandoned.

use std::io;

use base::{Clock, Key, Nanos};
use http1::client::Reader;
use rand::Rng as _;
use record::Outcome;
use sys::errno::{Failure, classify};

use super::exchange::transmit;
use super::{Engine, TOO_LATE};
use crate::engine::state::retry_queue::Again;
use crate::engine::state::session::story::Story;
use crate::engine::state::session::{Connection, Phase, Session};
use crate::engine::time::schedule::Busy;
use crate::engine::wire::Wire;
use crate::engine::wire::transport::Transport;
use crate::measurement::thread_metrics::failures::Example;
use crate::measurement::verdict::LATENESS_P99_MAX;
use crate::plan::choices::retry::Retry;
use crate::plan::terms::draws::Draws;

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// Offers a session's requests and connects for the first of them.
    pub(super) fn start_session(&mut self, intended: Nanos) {
        let workload = self.settings.workload;
        let mut draws = Draws::new(self.session_seeds.next_u64());
        let lane = self.settings.lane;
        let number = self.sessions * u64::from(lane.count) + u64::from(lane.index);
        self.sessions += 1;
        let (mut requests, request) = workload.begin(number, &mut draws);
        if self.schedule.is_in_mid_session() {
            requests = draws.between(1, requests.into()) as u32;
        }
        let story = workload.script().map(|script| Box::new(Story::new(script, &draws, number)));
        let measured = self.settings.counted.contains(intended);
        let mut session = Session {
            left: requests,
            account: Some(self.metrics.offer(1, measured)),
            draws,
            request,
            intended,
            retries: 0,
            frees_place: true,
            story,
            detour: self.settings.follows_redirects.then(Box::default),
            users: self.users(intended),
        };
        session.write_request(&self.settings, self.clock.wall());
        let now = self.clock.now();
        let lateness = now.saturating_sub(intended);
        if lateness > TOO_LATE {
            return self.end_session(session, Outcome::NoTime, now);
        }
        if lateness > LATENESS_P99_MAX {
            self.crowded_until = now.saturating_add(self.settings.connect_timeout);
        }
        if self.assign(session, now) {
            self.metrics.recorder.late(lateness, measured);
        }
    }

    /// Begins a connect for a session's next request and returns true, or ends the session because of a limit
    /// of the client. After the engine stood still, the sessions of that time fill all places at once. A
    /// session that then finds no place lacked time, not a descriptor.
    pub(super) fn connect(&mut self, session: Session, now: Nanos) -> bool {
        if let Some(key) = self.connections.overdue_connect(now) {
            return self.replace(key, session, now);
        }
        // Places bound their sessions themselves, and retries may connect beside these.
        let is_bounded = self.schedule.busy().is_none();
        if is_bounded && self.connections.connecting() >= self.pending_max() {
            let outcome = if now < self.crowded_until { Outcome::NoTime } else { Outcome::NoDescriptor };
            self.end_session(session, outcome, now);
            return false;
        }
        let key = self.connections.next_key();
        let socket = match self.transport.connect(key) {
            Ok(socket) => socket,
            Err(error) => return self.cannot_connect(session, &error, now),
        };
        self.metrics.attempted(session.is_counted(self.settings.counted));
        let phase = Phase::Connecting { since: now };
        let mut reader = Reader::new();
        reader.expect_head(self.settings.workload.answers_head(session.request));
        let hasher = self.settings.expected.hasher();
        let (wire, is_kept) = (Wire::new(socket, self.settings.tls), self.pool.is_some());
        let connection = Connection {
            wire,
            session,
            phase,
            reader,
            hasher,
            is_kept,
            has_replied: false,
            unsent: 0,
            http2: None,
            example: Example::default(),
            pieces: None,
        };
        self.connections.add_connecting(connection, now.saturating_add(self.settings.connect_timeout));
        self.metrics.opened(self.connections.len());
        true
    }

    /// Abandons a connect that timed out and gives its socket to another session. The key stays.
    fn replace(&mut self, key: Key, session: Session, now: Nanos) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let measured = session.is_counted(self.settings.counted);
        connection.reader.expect_head(self.settings.workload.answers_head(session.request));
        let abandoned = std::mem::replace(&mut connection.session, session);
        connection.phase = Phase::Connecting { since: now };
        let begun = self.transport.connect_again(&mut connection.wire.socket, key);
        self.end_session(abandoned, Outcome::ConnectTimeout, now);
        if let Err(error) = begun {
            let Some(session) = self.close(key) else { return false };
            return self.cannot_connect(session, &error, now);
        }
        self.metrics.attempted(measured);
        self.connections.connects_again(key, now.saturating_add(self.settings.connect_timeout));
        true
    }

    /// Ends a session whose connect failed at once; returns true if the connect counts as an attempt.
    fn cannot_connect(&mut self, session: Session, error: &io::Error, now: Nanos) -> bool {
        let outcome = connect_failure(error);
        let attempted = !outcome.is_client_limit();
        self.metrics.attempted(attempted && session.is_counted(self.settings.counted));
        self.end_session(session, outcome, now);
        attempted
    }

    /// Handles an event of a connecting socket. Writing the request tells its state and saves the system call
    /// that asks.
    pub(super) fn connect_ready(&mut self, key: Key) {
        let now = self.clock.now();
        // The set also reports later events of established connections; this function ignores those.
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Phase::Connecting { since } = connection.phase else { return };
        let begun = match self.settings.streams {
            None => transmit(&mut self.transport, self.settings.workload, connection),
            Some(_) => self.open_http2(key, since, now).map(|()| 0),
        };
        match begun {
            Ok(0) => {}
            Ok(_) => {
                let Some(connection) = self.connections.get(key) else { return };
                let measured = connection.session.is_counted(self.settings.counted);
                self.connections.has_connected(key);
                self.metrics.established(now.saturating_sub(since), measured);
                self.connected(key, now);
                self.first_request_sent(key, now);
            }
            Err(error) => {
                let outcome = connect_failure(&error);
                if let Some(session) = self.close(key) {
                    self.end_session(session, outcome, now);
                }
            }
        }
    }

    /// Abandons connects and requests that timed out. A connect is abandoned only after its takeover time has
    /// passed too. Closing a socket in SYN-SENT sends nothing.
    pub(super) fn expire(&mut self, now: Nanos) {
        let long_due = now.saturating_sub(self.takeover_time());
        while let Some(key) = self.connections.overdue_connect(long_due) {
            if let Some(session) = self.close(key) {
                self.end_session(session, Outcome::ConnectTimeout, now);
            }
        }
        while let Some(key) = self.connections.overdue_reply(now) {
            let outcome = self.without_reply(key);
            self.break_off(key, outcome, now);
        }
        self.expire_streams(now);
    }

    /// The outcome of a request that timed out: `Dropped` if the server acknowledged none of it, because such
    /// a server does not have the connection.
    pub(super) fn without_reply(&mut self, key: Key) -> Outcome {
        match self.connections.get(key) {
            Some(connection) if !self.transport.is_acknowledged(&connection.wire.socket) => Outcome::Dropped,
            _ => Outcome::ResponseTimeout,
        }
    }

    /// Closes a connection and returns its session.
    pub(super) fn close(&mut self, key: Key) -> Option<Session> {
        let connection = self.connections.remove(key)?;
        self.transport.close(connection.wire.socket);
        Some(connection.session)
    }

    /// Ends a session: the request in progress gets this outcome, and so do the others as far as they fall due, unless the
    /// retry policy offers them again.
    pub(super) fn end_session(&mut self, session: Session, outcome: Outcome, now: Nanos) {
        let again = Again::rest(&session, now);
        self.end_rest(session, again, outcome, now);
    }

    /// Ends what is left of a session: `again`, of which no request is under way but the one with the session's account.
    pub(super) fn end_rest(&mut self, mut session: Session, again: Again, outcome: Outcome, now: Nanos) {
        let is_closed = self.schedule.busy() == Some(Busy::Whole);
        let is_to_come = session.account.is_none() && !self.has_come(again.intended, now);
        if is_to_come && !is_closed && self.settings.retry == Retry::Never {
            // The connection, over HTTP/2, broke between two requests.
            self.leave_unmade(again, Some(outcome), now);
            return self.give_place_back(&session, now);
        }
        let counted = self.settings.counted.contains(again.intended);
        let account = session.account.take().unwrap_or_else(|| self.metrics.offer(1, counted));
        self.metrics.end(account, outcome, None);
        let name = self.settings.workload.name_of(session.request);
        self.metrics.named(name, outcome, again.intended, now);
        self.retry_or_free_place(&session, again, outcome, now);
    }
}

/// The outcome that the ledger enters for a failed connect.
pub(crate) fn connect_failure(error: &io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => return Outcome::Refused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => return Outcome::Reset,
        io::ErrorKind::TimedOut => return Outcome::ConnectTimeout,
        _ => {}
    }
    match classify(error) {
        Failure::NoPort => Outcome::NoPort,
        Failure::NoDescriptor | Failure::NoMemory => Outcome::NoDescriptor,
        // No route, a filter's EPERM or EACCES, or a source address that is not ours: the server did not
        // refuse.
        Failure::PeerGone | Failure::Other | Failure::Retry | Failure::WouldBlock => Outcome::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::settings::Settings;
    use crate::engine::time::schedule::Schedule;
    use crate::engine::wire::transport::KernelSockets;
    use crate::engine::wire::transport::sources::Sources;
    use crate::plan::choices::arrivals::{Lane, Process};
    use crate::plan::choices::tempo::Tempo;
    use crate::plan::config::{Client, Config, Sockets};
    use crate::plan::preflight::prepare;
    use base::{PerSecond, SimulatedClock, WallTime};
    use record::Outcomes;
    use rustix::io::Errno;
    use std::net::TcpListener;

    /// The outcomes of sessions at 2000/s that an engine begins at these times, in milliseconds. Their
    /// connects stay pending.
    fn begun(sockets: Sockets, times_ms: &[u64]) -> Outcomes {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let (rate, arrivals) = (PerSecond(2_000.0), Process::constant());
        let client = Client::SClient { rate, arrivals: arrivals.clone(), sockets };
        let connect_timeout = Nanos::from_millis(100);
        let config = Config { warmup: Nanos::ZERO, connect_timeout, ..Config::new(vec![url], client) };
        let plan = prepare(config).unwrap();
        let (clock, seed) = (SimulatedClock::new(WallTime::default()), plan.config.seed);
        let arrivals = arrivals.arrivals(rate, Nanos::SECOND, Lane { index: 0, count: 1 }, seed);
        let schedule = Schedule::open(arrivals, Tempo::default());
        let (origin, sockets) =
            (clock.now(), KernelSockets::new(&plan.target, Sources::of_thread(&plan, 0)).unwrap());
        let mut engine =
            Engine::new(clock.clone(), origin, Settings::of(&plan), schedule, seed.rng(), sockets);
        for at in times_ms {
            clock.advance((origin + Nanos::from_millis(*at)).saturating_sub(clock.now()));
            // A turn begins a bounded number of sessions.
            for _ in 0..4 {
                engine.start_sessions(engine.clock.now());
            }
        }
        engine.metrics.ledger.all().outcomes()
    }

    #[test]
    fn late_sessions_without_a_slot_had_no_time() {
        let stalled = begun(Sockets::Auto, &[400]);
        assert_eq!(
            stalled.get(Outcome::NoTime),
            801 - 210,
            "210 places, 5 % more than 2000/s need: {stalled:?}"
        );
        assert_eq!(stalled.total(), stalled.get(Outcome::NoTime));
    }

    #[test]
    fn mid_session_clients_have_half_their_requests_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let clients = std::num::NonZeroU32::new(400).unwrap();
        let requests = Some("20".parse().unwrap());
        let client = Client::Closed { clients };
        let warmup = Nanos::ZERO;
        let config = Config { requests_per_connection: requests, warmup, ..Config::new(vec![url], client) };
        let plan = prepare(config).unwrap();
        let clock = SimulatedClock::new(WallTime::default());
        let offered = |schedule: Schedule| {
            let sockets = KernelSockets::new(&plan.target, Sources::of_thread(&plan, 0)).unwrap();
            let (origin, seeds) = (clock.now(), plan.config.seed.rng());
            let mut engine =
                Engine::new(clock.clone(), origin, Settings::of(&plan), schedule, seeds, sockets);
            (0..100).for_each(|_| engine.start_sessions(Nanos::ZERO));
            let keys = engine.connections.keys();
            let left =
                |key: &Key| engine.connections.get(*key).map_or(0, |connection| connection.session.left);
            keys.iter().map(left).sum::<u32>()
        };
        let new = || Schedule::closed(clients.get(), Nanos::ZERO);
        assert_eq!(offered(new()), 400 * 20);
        let mean = f64::from(offered(new().with_clients_in_mid_session())) / 400.0;
        // The mean of 1 to 20 is 10.5; that of 400 draws has a standard error of 0.29.
        assert!((9.3..11.7).contains(&mean), "{mean}");
    }

    #[test]
    fn punctual_sessions_without_slot_had_no_descriptor() {
        let two = Sockets::AtMost(std::num::NonZeroU32::new(2).unwrap());
        let bounded = begun(two, &[0, 1, 2, 3, 4]);
        assert_eq!((bounded.get(Outcome::NoDescriptor), bounded.total()), (7, 7), "{bounded:?}");
    }

    #[test]
    fn every_failure_has_its_outcome() {
        for (errno, outcome) in [
            (Errno::CONNREFUSED, Outcome::Refused),
            (Errno::CONNRESET, Outcome::Reset),
            (Errno::TIMEDOUT, Outcome::ConnectTimeout),
            (Errno::HOSTUNREACH, Outcome::Unreachable),
            (Errno::NETUNREACH, Outcome::Unreachable),
            (Errno::PERM, Outcome::Unreachable),
            (Errno::ADDRNOTAVAIL, Outcome::NoPort),
            (Errno::MFILE, Outcome::NoDescriptor),
            (Errno::NFILE, Outcome::NoDescriptor),
            (Errno::NOBUFS, Outcome::NoDescriptor),
        ] {
            assert_eq!(connect_failure(&errno.into()), outcome, "{errno:?}");
        }
    }
}
