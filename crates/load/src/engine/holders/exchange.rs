//! The bytes of one connection, sent and read at the client's pace, and its end.

use std::io;

use base::{Clock, Key, Nanos};
use http_semantics::Reply;
use record::Outcome;

use super::{Connection, Holders, PAUSE, Phase, SCRATCH, STEP};
use crate::engine::connect::connect_failure;
use crate::engine::receive::{Ears, Received, receive};
use crate::engine::wire::transport::Transport;
use crate::measurement::recorder::Correct;
use crate::plan::choices::population::Manner;
use crate::plan::requests::Workload;

/// The bytes that a slow client moves at a time, and the time between two portions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    bytes: usize,
    every: Nanos,
}

impl Pace {
    /// Portions of a tenth of a second, or single bytes at rates where a portion would be less than one byte.
    fn new(bytes_per_s: u64) -> Pace {
        let portion = (u128::from(bytes_per_s) * u128::from(STEP.0) / u128::from(Nanos::SECOND.0)).max(1);
        let bytes = portion.min(u128::from(SCRATCH.0)) as u64;
        Pace { bytes: bytes as usize, every: Nanos(bytes * Nanos::SECOND.0 / bytes_per_s) }
    }
}

impl<S> Connection<S> {
    /// Sends what waits in the TLS session, and then at most `most` bytes of the request. Returns the number of bytes that
    /// have moved.
    ///
    /// # Errors
    /// The connection failed.
    fn send_portion<T: Transport<Socket = S>>(
        &mut self,
        transport: &mut T,
        workload: &Workload,
        most: usize,
    ) -> io::Result<usize> {
        let waited = self.wire.catch_up(transport)?;
        if self.rest.is_empty() || self.wire.is_behind() {
            return Ok(waited);
        }
        let bytes = &workload.bytes(self.request, true)[self.rest.clone()];
        let sent = self.wire.send(transport, &bytes[..bytes.len().min(most)])?;
        self.rest.start += sent;
        Ok(waited + sent)
    }
}

impl<C: Clock, T: Transport> Holders<'_, C, T> {
    /// Handles an event of a connecting socket.
    pub(super) fn connected(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match self.transport.established(&connection.wire.socket) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return self.end(key, connect_failure(&error), now),
        }
        if let Err(error) = connection.wire.greet(&mut self.transport) {
            return self.end(key, connect_failure(&error), now);
        }
        let length = self.settings.workload.bytes(connection.request, true).len();
        (connection.phase, connection.rest) = match self.manner {
            Manner::Idle { half_request: false } => (Phase::Holding, 0..0),
            Manner::Idle { half_request: true } => (Phase::Sending, 0..length / 2),
            _ => (Phase::Sending, 0..length),
        };
        connection.heard = now;
        self.pending -= 1;
        let connect = now.saturating_sub(connection.began);
        self.metrics.established(connect, connection.account.is_counted());
        self.transport.watch(&connection.wire.socket, key, false);
        self.wake_at(key, Nanos::MAX);
        self.send(key, now);
    }

    /// Sends the next portion; a client that does not send slowly sends everything.
    pub(super) fn send(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let portion = match self.manner {
            Manner::SlowSend { bytes_per_s } => Pace::new(bytes_per_s.get()),
            _ => Pace { bytes: usize::MAX, every: STEP },
        };
        match connection.send_portion(&mut self.transport, self.settings.workload, portion.bytes) {
            Ok(0) => {}
            Ok(_) => connection.heard = now,
            Err(_) => return self.end(key, Outcome::Reset, now),
        }
        let has_more = !connection.rest.is_empty() || connection.wire.is_behind();
        let awaits_handshake = connection.phase == Phase::Sending && connection.wire.is_handshaking();
        if !has_more && !awaits_handshake {
            return self.sent(key, now);
        }
        let silent_at = match self.manner {
            // It holds a connection whose server does not greet, too.
            Manner::Idle { .. } if !has_more => Nanos::MAX,
            _ => connection.heard.saturating_add(self.settings.request_timeout),
        };
        if now >= silent_at {
            return self.give_up(key, now);
        }
        // Counted from the planned time, so that a late turn does not slow the pace.
        let next = connection.wake.min(now) + portion.every;
        self.wake_at(key, if has_more { next } else { silent_at });
    }

    /// Continues after the last byte has been sent.
    fn sent(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        (connection.sent, connection.heard) = (now, now);
        if let Manner::Idle { .. } = self.manner {
            connection.phase = Phase::Holding;
            return self.wake_at(key, Nanos::MAX);
        }
        connection.phase = Phase::Reading;
        self.metrics.recorder.sent(now);
        if let Manner::SlowRead { bytes_per_s } = self.manner {
            // The clock alone decides when to read: more received bytes are no reason.
            self.transport.unwatch(&connection.wire.socket);
            self.wake_at(key, now + Pace::new(bytes_per_s.get()).every);
        } else {
            self.wake_at(key, now.saturating_add(self.settings.request_timeout));
        }
    }

    /// Reads a portion; a client that does not read slowly reads everything available.
    pub(super) fn read(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let slow = match (self.manner, connection.phase) {
            (Manner::SlowRead { bytes_per_s }, Phase::Reading) => Some(Pace::new(bytes_per_s.get())),
            _ => None,
        };
        let room = slow.map_or(self.scratch.len(), |pace| pace.bytes);
        let Connection { wire, reader, hasher, .. } = &mut *connection;
        let ears = Ears { hasher, story: None, detour: None, example: None };
        match receive(&mut self.transport, wire, reader, ears, &mut self.scratch[..room]) {
            Received::Over(outcome) => return self.end(key, outcome, now),
            Received::Reply(reply) => return self.replied(key, &reply, now),
            Received::Part(_) => connection.heard = now,
            Received::Nothing => {}
        }
        if connection.phase == Phase::Sending && connection.rest.is_empty() {
            // The handshake may have ended. The clock alone decides about further portions.
            return self.send(key, now);
        }
        let silent_at = connection.heard.saturating_add(self.settings.request_timeout);
        if connection.phase == Phase::Reading && now >= silent_at {
            return self.give_up(key, now);
        }
        match slow {
            Some(pace) => {
                let since = connection.wake.min(now);
                self.wake_at(key, since + pace.every);
            }
            // Only after a wake: an entry for every portion would fill the heap.
            None if connection.phase == Phase::Reading && connection.wake <= now => {
                self.wake_at(key, silent_at)
            }
            None => {}
        }
    }

    /// Ends a connection whose server was silent for the request timeout.
    fn give_up(&mut self, key: Key, now: Nanos) {
        let Some(connection) = self.connections.get(key) else { return };
        let has_it = self.transport.is_acknowledged(&connection.wire.socket);
        let outcome = if has_it { Outcome::ResponseTimeout } else { Outcome::Dropped };
        self.end(key, outcome, now);
    }

    /// Handles a complete reply. A server may time out or refuse a request before all of it was sent.
    fn replied(&mut self, key: Key, reply: &Reply, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let statuses = self.settings.workload.statuses(connection.request);
        let outcome = self.settings.expected.outcome(reply, connection.hasher.finish(), statuses);
        self.metrics.recorder.reply(now, connection.intended, reply.status);
        if outcome == Outcome::Ok {
            let latency_intended = now.saturating_sub(connection.intended);
            let correct = Correct {
                latency_intended,
                latency_sent: now.saturating_sub(connection.sent),
                // Populations have no figures of first bytes and gaps.
                first_byte: now.saturating_sub(connection.sent),
                longest_gap: Nanos::ZERO,
                content_bytes: reply.body_bytes,
                in_time: self.settings.expected.in_time(latency_intended),
            };
            self.metrics.recorder.correct(now, correct, connection.account.is_counted());
        }
        self.end(key, outcome, now);
    }

    /// Ends a connection; its client comes back.
    pub(super) fn end(&mut self, key: Key, outcome: Outcome, now: Nanos) {
        let Some(connection) = self.connections.remove(key) else { return };
        self.transport.close(connection.wire.socket);
        self.pending -= usize::from(connection.phase == Phase::Connecting);
        self.end_account(connection.account, outcome);
        self.come_back(outcome, now);
    }

    /// Schedules the client's next connect: at once after a correct reply, otherwise after a pause. The pause
    /// is partly random, so that clients that were turned away together do not come back together.
    pub(super) fn come_back(&mut self, outcome: Outcome, now: Nanos) {
        let pause = match outcome {
            Outcome::Ok => Nanos::ZERO,
            _ => PAUSE / 2 + Nanos(self.draws.between(0, PAUSE.0)),
        };
        self.schedule.free(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::engine::scripted::identity::identity;
    use crate::engine::scripted::{Peer, Scripted, plan};
    use crate::engine::settings::Settings;
    use crate::engine::time::schedule::Schedule;
    use crate::plan::choices::population::Population;
    use crate::plan::choices::tls::Trust;
    use crate::plan::terms::draws::Draws;
    use proptest::prelude::*;

    #[test]
    fn failure_before_tls_greeting_is_not_pending() {
        let plan = plan(|config| {
            config.urls = vec!["https://127.0.0.1/".parse().unwrap()];
            config.tls.trust = Trust::Anybody;
        });
        let server = Scripted::new();
        let (clock, start, settings) = (server.clock.clone(), server.clock.now(), Settings::of(&plan));
        let (manner, schedule) = (Manner::Idle { half_request: false }, Schedule::closed(1, Nanos::ZERO));
        let mut holders =
            Holders::new(clock, start, settings, manner, schedule, Draws::new(1), server.clone());
        holders.begin_those_due(Nanos::ZERO);
        assert_eq!(holders.pending, 1);
        let key = holders.connections.keys().next().unwrap();
        server.peer(0).is_reset = true;
        holders.connected(key, Nanos::ZERO);
        assert_eq!((holders.pending, holders.connections.len()), (0, 0));
        assert_eq!(holders.metrics.ledger.all().outcomes().get(Outcome::Reset), 1);
    }

    /// The server's turn of a TLS connection: returns the content that it has received.
    fn answer_tls(server: &mut rustls::ServerConnection, peer: &mut Peer) -> Vec<u8> {
        let (heard, mut content) = (std::mem::take(&mut peer.heard), Vec::new());
        let mut bytes = &heard[..];
        while !bytes.is_empty() {
            server.read_tls(&mut bytes).unwrap();
            server.process_new_packets().unwrap();
            // It ends with the bytes that are there.
            let _ = server.reader().read_to_end(&mut content);
        }
        let mut said = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut said).unwrap();
        }
        peer.says = said.leak();
        content
    }

    #[test]
    fn slow_readers_send_the_rest_of_a_request_over_tls() {
        let plan = plan(|config| {
            config.urls = vec!["https://127.0.0.1/".parse().unwrap()];
            config.tls.trust = Trust::Anybody;
            config.form.body = Some("x".repeat(100_000).parse().unwrap());
        });
        let server = Scripted::new();
        let (clock, start, settings) = (server.clock.clone(), server.clock.now(), Settings::of(&plan));
        let slow: Population = "slow-read:1,1KiB/s".parse().unwrap();
        let (manner, schedule) = (slow.manner, Schedule::closed(1, Nanos::ZERO));
        let mut holders =
            Holders::new(clock, start, settings, manner, schedule, Draws::new(1), server.clone());
        holders.begin_those_due(Nanos::ZERO);
        let key = holders.connections.keys().next().unwrap();
        holders.connected(key, Nanos::ZERO);
        let mut tls = rustls::ServerConnection::new(identity().config).unwrap();
        let mut content = Vec::new();
        while tls.is_handshaking() {
            content.extend(answer_tls(&mut tls, &mut server.peer(0)));
            server.peer(0).room = 20_000;
            holders.read(key, Nanos::ZERO);
        }
        let connection = holders.connections.get(key).unwrap();
        assert_eq!((connection.phase, connection.wire.is_behind()), (Phase::Sending, true));
        server.peer(0).room = usize::MAX;
        holders.wake_those_due(STEP);
        content.extend(answer_tls(&mut tls, &mut server.peer(0)));
        let connection = holders.connections.get(key).unwrap();
        assert_eq!((connection.phase, connection.sent), (Phase::Reading, STEP));
        assert_eq!(content.len(), plan.workload.bytes(connection.request, true).len());
    }

    #[test]
    fn a_server_that_never_greets_over_tls_is_given_up() {
        let plan = plan(|config| {
            config.urls = vec!["https://127.0.0.1/".parse().unwrap()];
            config.tls.trust = Trust::Anybody;
        });
        for (population, timeouts) in [("slow-read:1,1KiB/s", 1), ("idle:1,half-request", 0), ("idle:1", 0)] {
            let server = Scripted::new();
            let (clock, start, settings) = (server.clock.clone(), server.clock.now(), Settings::of(&plan));
            let population: Population = population.parse().unwrap();
            let (manner, schedule) = (population.manner, Schedule::closed(1, Nanos::ZERO));
            let mut holders =
                Holders::new(clock, start, settings, manner, schedule, Draws::new(1), server.clone());
            holders.begin_those_due(Nanos::ZERO);
            let key = holders.connections.keys().next().unwrap();
            holders.connected(key, Nanos::ZERO);
            holders.wake_those_due(plan.config.request_timeout);
            let ended = holders.metrics.ledger.all().outcomes().get(Outcome::ResponseTimeout);
            assert_eq!(ended, timeouts, "{population}");
        }
    }

    #[test]
    fn slow_clients_move_bytes_or_tenths_of_a_second() {
        assert_eq!(Pace::new(10), Pace { bytes: 1, every: Nanos::from_millis(100) });
        assert_eq!(Pace::new(1), Pace { bytes: 1, every: Nanos::SECOND });
        assert_eq!(Pace::new(1_000), Pace { bytes: 100, every: Nanos::from_millis(100) });
    }

    proptest! {
        #[test]
        fn the_pace_is_what_was_asked_for(bytes_per_s in 1u64..100_000_000) {
            let pace = Pace::new(bytes_per_s);
            let moved_per_s = pace.bytes as f64 / pace.every.as_secs_f64();
            prop_assert!((moved_per_s / bytes_per_s as f64 - 1.0).abs() < 1e-4, "{pace:?}");
        }
    }
}
