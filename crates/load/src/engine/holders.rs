//! Clients that hold a connection: idle clients, and clients that send or read slowly.
//!
//! ```text
//!   due --> connecting --> holding                    idle, until the server ends it
//!                 |
//!                 +------> sending --> reading        slow in the one or in the other
//! ```
//!
//! A client has one connection at a time, and a connection is one request in the ledger. When it ends, the
//! client connects again: at once after a correct reply, otherwise after [`PAUSE`] on average. The pause
//! keeps a server that turns idle clients away from being loaded by them. At most [`PENDING_MAX`] connects
//! are pending, so that thousands of clients do not fill the accept queue that the measured traffic needs.
//!
//! A slow client moves a portion of bytes every tenth of a second. The slow reader also has a small receive
//! buffer ([`SLOW_BUFFER`]). A larger one would take in a whole short reply, and the server would notice
//! nothing. While bytes move, no timeout ends the connection; the request timeout limits the silence. Over TLS, a
//! request is sent when it has left the TLS session.
//!
//! Invariants: `pending` is the number of connections that are connecting. The `wake` of a connection is its
//! one valid entry in `wakes`; other entries are ignored. All times are since the run's start.
//!
//! `exchange` moves the bytes of one connection.

mod exchange;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;

use base::{Bytes, Clock, Key, Nanos, Slab};
use http1::client::Reader;
use record::Outcome;

use crate::engine::connect::connect_failure;
use crate::engine::settings::Settings;
use crate::engine::time::run_clock::{RunClock, SLEEP_MAX};
use crate::engine::time::schedule::Schedule;
use crate::engine::wire::Wire;
use crate::engine::wire::transport::{Event, Transport};
use crate::error::LoadError;
use crate::measurement::ledger::Account;
use crate::measurement::recorder::Interval;
use crate::measurement::thread_metrics::{Held, ThreadMetrics, ThreadReport};
use crate::plan::choices::population::Manner;
use crate::plan::requests::RequestId;
use crate::plan::terms::digest::Hasher;
use crate::plan::terms::draws::Draws;

/// The most pending connects of one population: half of a usual accept queue of 128.
const PENDING_MAX: usize = 64;

/// The mean time from the end of a connection without a correct reply to the client's next connect.
const PAUSE: Nanos = Nanos::SECOND;

/// The time between two portions of a slow client.
const STEP: Nanos = Nanos::from_millis(100);

/// The receive buffer of a slow reader. The kernel grants at least about half of it.
pub(crate) const SLOW_BUFFER: u32 = 4096;

/// The operation's name in errors.
const WAITING: &str = "waiting for a population";

/// The size of the read buffer of clients that do not read slowly.
const SCRATCH: Bytes = Bytes(16 * 1024);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Holding,
    Sending,
    Reading,
}

struct Connection<S> {
    wire: Wire<S>,
    account: Account,
    phase: Phase,
    reader: Reader,
    hasher: Hasher,
    request: RequestId,
    /// The time at which the client was due; `began` is the time of its connect.
    intended: Nanos,
    began: Nanos,
    /// The time at which the whole request was sent.
    sent: Nanos,
    /// The part of the request that is still to send.
    rest: Range<usize>,
    /// The time of the last byte received, for connections that wait for bytes.
    heard: Nanos,
    /// The time of the next turn without an event.
    wake: Nanos,
}

/// A population of holders in one thread.
pub(crate) struct Holders<'a, C, T: Transport> {
    clock: RunClock<C>,
    settings: Settings<'a>,
    manner: Manner,
    schedule: Schedule,
    draws: Draws,
    transport: T,
    connections: Slab<Connection<T::Socket>>,
    pending: usize,
    wakes: BinaryHeap<Reverse<(Nanos, Key)>>,
    metrics: ThreadMetrics,
    scratch: Box<[u8]>,
}

impl<'a, C: Clock, T: Transport> Holders<'a, C, T> {
    /// A population that begins when the clock shows `origin`.
    pub(crate) fn new(
        clock: C,
        origin: Nanos,
        settings: Settings<'a>,
        manner: Manner,
        schedule: Schedule,
        draws: Draws,
        transport: T,
    ) -> Holders<'a, C, T> {
        let metrics = ThreadMetrics::new(settings.window, settings.interval);
        Holders {
            clock: RunClock::new(clock, origin),
            settings,
            manner,
            schedule,
            draws,
            transport,
            connections: Slab::new(),
            pending: 0,
            wakes: BinaryHeap::new(),
            metrics,
            scratch: vec![0; SCRATCH.0 as usize].into_boxed_slice(),
        }
    }

    /// Runs from the start to the window's end or until `should_stop`, and tells of every interval.
    ///
    /// # Errors
    /// A wait that fails for a reason that no peer can cause.
    pub(crate) fn run(
        mut self,
        should_stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Interval),
    ) -> Result<ThreadReport, LoadError> {
        let end = self.settings.window.until;
        let waited = self.clock.await_start(&mut self.transport, should_stop);
        waited.map_err(LoadError::system(WAITING))?;
        loop {
            let now = self.clock.now();
            if now >= end || should_stop() {
                return self.finish(now.min(end), tell);
            }
            self.begin_those_due(now);
            self.wake_those_due(now);
            while self.transport.poll_connects(self.clock.now()).map_err(LoadError::system(WAITING))? {
                self.handle_events()?;
            }
            let timeout = self.sleep_time();
            self.transport.wait(self.clock.now(), timeout).map_err(LoadError::system(WAITING))?;
            self.handle_events()?;
            let held = self.held();
            self.metrics.close_intervals(self.clock.now(), held, tell);
            // The measured traffic may wait for this CPU; a population is never urgent.
            std::thread::yield_now();
        }
    }

    fn held(&self) -> Held {
        let sockets = self.connections.len();
        Held {
            sockets: sockets as u64,
            established: (sockets - self.pending) as u64,
            unsent_packets: self.transport.unsent_packets(),
        }
    }

    fn sleep_time(&mut self) -> Nanos {
        let now = self.clock.now();
        let due = [
            self.schedule.next().filter(|_| self.pending < PENDING_MAX),
            self.wakes.peek().map(|Reverse((due, _))| *due),
            self.metrics.interval_end(),
            self.transport.next_due(),
            Some(self.settings.window.until),
            Some(now + SLEEP_MAX),
        ];
        due.into_iter().flatten().min().unwrap_or(now).saturating_sub(now)
    }

    fn begin_those_due(&mut self, now: Nanos) {
        while self.pending < PENDING_MAX {
            let Some(intended) = self.schedule.take(now) else { break };
            self.connect(intended, now);
        }
    }

    fn connect(&mut self, intended: Nanos, now: Nanos) {
        let request = self.settings.workload.pick(&mut self.draws);
        let account = self.metrics.offer(1, self.settings.counted.contains(intended));
        let key = self.connections.next_key();
        let socket = match self.transport.connect(key) {
            Ok(socket) => socket,
            Err(error) => return self.not_connected(account, &error, now),
        };
        self.metrics.attempted(account.is_counted());
        self.metrics.recorder.late(now.saturating_sub(intended), account.is_counted());
        let mut reader = Reader::new();
        reader.expect_head(self.settings.workload.answers_head(request));
        self.connections.insert(Connection {
            wire: Wire::new(socket, self.settings.tls),
            account,
            phase: Phase::Connecting,
            reader,
            hasher: self.settings.expected.hasher(),
            request,
            intended,
            began: now,
            sent: now,
            rest: 0..0,
            heard: now,
            wake: Nanos::MAX,
        });
        self.pending += 1;
        self.metrics.opened(self.connections.len());
        self.wake_at(key, now.saturating_add(self.settings.connect_timeout));
    }

    fn not_connected(&mut self, account: Account, error: &io::Error, now: Nanos) {
        let outcome = connect_failure(error);
        self.metrics.attempted(!outcome.is_client_limit() && account.is_counted());
        self.end_account(account, outcome);
        self.come_back(outcome, now);
    }

    /// Enters the outcome of a connection.
    fn end_account(&mut self, account: Account, outcome: Outcome) {
        if outcome != Outcome::Ok {
            self.without_latency(&account);
        }
        self.metrics.end(account, outcome, None);
    }

    /// Counts a request that has no latency. An idle client sends no request, so it cannot be unanswered.
    fn without_latency(&mut self, account: &Account) {
        if !matches!(self.manner, Manner::Idle { .. }) {
            self.metrics.recorder.unanswered(account.requests(), account.is_counted());
        }
    }

    fn wake_at(&mut self, key: Key, at: Nanos) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.wake = at;
        if at < Nanos::MAX {
            self.wakes.push(Reverse((at, key)));
        }
    }

    fn wake_those_due(&mut self, now: Nanos) {
        while let Some(Reverse((due, key))) = self.wakes.peek().copied() {
            if due > now {
                break;
            }
            self.wakes.pop();
            let Some(connection) = self.connections.get(key) else { continue };
            if connection.wake != due {
                continue;
            }
            match connection.phase {
                Phase::Connecting => self.end(key, Outcome::ConnectTimeout, now),
                Phase::Holding => {}
                Phase::Sending => self.send(key, now),
                Phase::Reading => self.read(key, now),
            }
        }
    }

    fn handle_events(&mut self) -> Result<(), LoadError> {
        while let Some(event) = self.transport.next(self.clock.now()).map_err(LoadError::system(WAITING))? {
            let now = self.clock.now();
            let (key, of_connect) = match event {
                Event::Connect(key) => (key, true),
                Event::Ready(key) => (key, false),
                Event::OtherHalf => continue,
            };
            match self.connections.get(key).map(|connection| connection.phase) {
                Some(Phase::Connecting) => self.connected(key, now),
                Some(Phase::Holding | Phase::Sending | Phase::Reading) if !of_connect => self.read(key, now),
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(mut self, end: Nanos, tell: &mut dyn FnMut(Interval)) -> Result<ThreadReport, LoadError> {
        let held = self.held();
        let keys: Vec<Key> = self.connections.keys().collect();
        for key in keys {
            let Some(connection) = self.connections.remove(key) else { continue };
            self.without_latency(&connection.account);
            self.metrics.ledger.in_flight(connection.account);
            self.transport.close(connection.wire.socket);
        }
        let report = self.metrics.close(end, held, tell);
        let clock = &self.clock;
        let ended = self.transport.finish(&|| clock.now());
        ended.map_err(LoadError::system("ending connections"))?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scripted::{Scripted, plan};

    #[test]
    fn nobody_connects_before_the_start() {
        let (plan, server) = (plan(|config| config.duration = Nanos::SECOND), Scripted::new());
        let start = server.clock.now() + Nanos::from_millis(200);
        let (clock, settings, schedule) =
            (server.clock.clone(), Settings::of(&plan), Schedule::closed(1, Nanos::ZERO));
        let manner = Manner::Idle { half_request: false };
        let holders = Holders::new(clock, start, settings, manner, schedule, Draws::new(1), server.clone());
        holders.run(&|| false, &mut |_| {}).unwrap();
        server.assert_begun_after(start);
    }
}
