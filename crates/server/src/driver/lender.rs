//! The resources that the connections of one thread borrow in turn: the service, settings, buffers, the time, and
//! totals.
//!
//! A loop, a thread that serves one connection, and a stage each own one [`Lender`]. It reads the time once a turn and
//! keeps the `Date` field current. Its owner publishes the totals.
//!
//! Invariant: a machine sees one time during a turn.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use base::{Clock, Nanos, RealClock};
use connection::{Lent, LiveSettings, Machine, SocketService};
use http_semantics::HttpDate;
use http_semantics::server::{Buffers, Context};
use overload::law::Sessions;
use sys::socket::since_received;

use crate::ground::counters::{Counters, LoopCounts, PUBLISH_EVERY};
use crate::observation::access_log::LoopLog;

/// The most bytes of a read, and the most that a slow client can make the server read ahead.
pub(super) const RECEIVE_BYTES: usize = 64 * 1024;
/// The greatest age of the `Date` field.
const DATE_EVERY: Nanos = Nanos::from_millis(100);
/// The range of the number of buffers that are kept. A thread rarely has more busy connections between two waits.
const KEPT_BUFFERS: std::ops::RangeInclusive<usize> = 2..=64;
/// The most bytes of a kept buffer; a full outbox fits.
const KEPT_BYTES: usize = 128 * 1024;

/// The resources that the connections of one thread share.
pub struct Lender<S, C = RealClock> {
    /// Answers requests.
    pub service: S,
    /// Limits and timeouts of the protocol.
    pub settings: LiveSettings,
    /// The time, the same for all threads of a server.
    pub clock: C,
    /// The access log, if one is kept.
    pub log: Option<LoopLog>,
    /// The loop's totals.
    pub counts: LoopCounts,
    /// The totals of HTTP.
    pub http: http_semantics::server::Counts,
    /// The totals of HTTP/2 alone.
    pub http2: http2::Counts,
    /// The buffer of received bytes until the machine has processed them.
    pub(super) scratch: Box<[u8]>,
    buffers: Buffers,
    now: Nanos,
    date: HttpDate,
    dated: Nanos,
    published: Nanos,
    unpublished: bool,
    /// The last turn was that of a connection whose first request had not come before.
    serves_newcomer: bool,
}

impl<S: SocketService, C: Clock> Lender<S, C> {
    /// Makes a lender for a thread that serves `side_by_side` connections at once.
    pub fn new(
        service: S,
        settings: LiveSettings,
        log: Option<LoopLog>,
        clock: C,
        side_by_side: usize,
    ) -> Self {
        let kept = side_by_side.clamp(*KEPT_BUFFERS.start(), *KEPT_BUFFERS.end());
        Lender {
            service,
            settings,
            log,
            counts: LoopCounts::default(),
            http: http_semantics::server::Counts::default(),
            http2: http2::Counts::default(),
            scratch: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            buffers: Buffers::new(kept, KEPT_BYTES),
            now: clock.now(),
            date: HttpDate::new(clock.wall()),
            dated: Nanos::ZERO,
            published: Nanos::ZERO,
            unpublished: false,
            serves_newcomer: false,
            clock,
        }
    }

    /// The time of this turn.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Begins a turn of the thread: reads the time and changed settings.
    pub(super) fn begin_turn(&mut self) {
        self.now = self.clock.now();
        self.settings.refresh();
        if self.now - self.dated >= DATE_EVERY {
            let wall = self.clock.wall();
            self.date = HttpDate::new(wall);
            self.dated = self.now;
            if let Some(log) = &mut self.log {
                log.wall = wall;
            }
        }
    }

    /// Lends a connection the resources of its machine.
    pub(super) fn lend(&mut self, peer: Option<SocketAddr>) -> Lent<'_, S> {
        let log = self.log.as_mut().map(|log| {
            log.peer = peer;
            log as &mut dyn http_semantics::server::Log
        });
        let custody = self.settings.custody();
        let context = Context {
            service: &mut self.service,
            settings: &self.settings,
            buffers: &mut self.buffers,
            date: &self.date,
            counts: &mut self.http,
            log,
            client: peer.map(|peer| peer.ip()),
            now: self.now,
        };
        Lent {
            context,
            scratch: &mut self.scratch,
            counts: &mut self.counts.peers,
            http2: &mut self.http2,
            custody,
        }
    }

    /// Begins the turn of a thread that serves one connection at a time.
    pub(super) fn turn(&mut self, peer: Option<SocketAddr>) -> Lent<'_, S> {
        self.begin_turn();
        self.unpublished = true;
        self.lend(peer)
    }

    /// Obeys overload control before a turn of a connection that may bring bytes. If they have waited for too long in the
    /// accept queue and the socket, their requests are refused, unless the client is exempt.
    pub(super) fn obey(&mut self, sessions: Sessions, socket: BorrowedFd<'_>, machine: &mut Machine) {
        if sessions.close_after_response {
            machine.retire();
        }
        self.count_refused();
        self.serves_newcomer = machine.is_new();
        let waited = || since_received(socket).unwrap_or_default();
        let is_exempt = || {
            let exempts = |client| self.settings.clients().is_some_and(|clients| clients.is_exempt(client));
            machine.client().is_some_and(exempts)
        };
        self.service.refuse(sessions.late_after.is_some_and(|late| waited() > late && !is_exempt()));
    }

    /// The totals of the loop, which are about to change and to be published.
    pub fn counting(&mut self) -> &mut LoopCounts {
        self.unpublished = true;
        &mut self.counts
    }

    /// The time at which the totals are to be published; `None` while no total has changed.
    pub fn publish_due(&self) -> Option<Nanos> {
        self.unpublished.then(|| self.published + PUBLISH_EVERY)
    }

    /// Returns the totals so far and hands over log lines.
    pub(super) fn publish(&mut self) -> Counters {
        self.hand_over(self.now);
        Counters {
            loops: self.counts.clone(),
            http: self.http.clone(),
            http2: self.http2.clone(),
            service: self.service.counts(),
            ..Counters::default()
        }
    }

    /// Takes the totals since the last call, for an owner that adds them up, and hands over log lines.
    pub fn take_totals(&mut self, now: Nanos) -> Counters {
        self.hand_over(now);
        Counters {
            loops: std::mem::take(&mut self.counts),
            http: std::mem::take(&mut self.http),
            http2: std::mem::take(&mut self.http2),
            ..Counters::default()
        }
    }

    /// Returns the number of connections whose first request was refused because it had waited too long, among the
    /// totals.
    pub fn late_connections(&mut self) -> u64 {
        self.count_refused();
        self.counts.late_connections
    }

    /// Counts the requests that the last turn refused because they had waited too long.
    fn count_refused(&mut self) {
        let refused = self.service.take_refused();
        self.counts.refused_late += refused;
        self.counts.late_connections += u64::from(self.serves_newcomer && refused > 0);
    }

    fn hand_over(&mut self, now: Nanos) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
        self.count_refused();
        self.published = now;
        self.unpublished = false;
    }
}
