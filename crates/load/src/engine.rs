//! The S-client in one thread (Banga 1997, section 4.2).
//!
//! ```text
//!   schedule --due--> connecting --established, request sent--> awaiting a reply --reply--> next request,
//!                         |                                           |                    or the end
//!                         +-- T is over, refused: closed              +-- timeout, reset
//! ```
//!
//! The paper has two processes, an establisher and a handler, so that neither waits for the other. Here both
//! are one loop; `pair` has the paper's two processes. Each turn does a bounded amount of work: it begins
//! at most [`STARTS_PER_TURN`] sessions, then handles one batch of connects and one batch of replies. A
//! [`Transport`] provides the connections: kernel sockets or TCP in user space.
//!
//! A session that is due takes over the socket of a connect that timed out. Over kernel sockets an abandoned
//! attempt then costs two system calls. (This improves on the paper, which closes the socket and opens
//! another.)
//!
//! The loop catches up with the schedule by the intended times and never waits for the server. A session that
//! it cannot begin ends as a limit of the client. While the server answers, the loop wakes for each session.
//! While the server is silent, it wakes for several together, at most [`TOGETHER_MAX`] late.
//!
//! Failed requests that will be retried wait in a queue of their own and begin like sessions. The requests that a broken
//! session would have made count when they fall due. After the schedule's end the engine waits for the replies on their
//! way.
//!
//! The modules:
//!
//! - The rooms below the engine: `time` has the clock, the schedule and the deadlines; `wire` is a connection's bytes, over
//!   TCP and TLS; `state` has the sessions, connections, streams and retries. `settings` has what all threads share.
//! - The engine's work: `connect`, `exchange` (`streams` over HTTP/2), `retries`, and `ending`. `receive` reads replies.
//! - `pair` makes the engine one half of a pair.
//! - Beside the S-client: `holders`, clients that hold a connection, each kind in a loop of its own.
//! - For tests: `scripted`, a transport without a network.
//!
//! Invariants: every session that was offered ends in the ledger. All times are since the run's start.

mod connect;
mod ending;
mod exchange;
pub(crate) mod holders;
mod pair;
mod receive;
mod retries;
#[cfg(test)]
mod scripted;
pub(crate) mod settings;
mod state;
mod streams;
pub(crate) mod time;
pub(crate) mod wire;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::{Clock, Key, Nanos, Rng};
use rand::Rng as _;

use crate::error::LoadError;
use crate::measurement::recorder::Interval;
use crate::measurement::thread_metrics::{Held, ThreadMetrics, ThreadReport};
use pair::handover::Role;
use settings::Settings;
use state::connections::{Connections, Pool};
use state::multiplex::Streams;
use state::retry_queue::RetryQueue;
use state::unmade::Unmade;
use time::rests::Rests;
use time::run_clock::{RunClock, SLEEP_MAX};
use time::schedule::{Busy, Schedule};
use wire::transport::{Event, Transport};

/// Sessions begun in one turn: about a millisecond's work, so that the engine reads replies in between.
const STARTS_PER_TURN: usize = 256;

/// A session that is overdue by more is not begun. After a suspended process or machine, the burst of missed
/// sessions would be a load that the schedule never asked for.
pub const TOO_LATE: Nanos = Nanos::SECOND;

/// The slack of a request's timeout, so that the timeout need not wake the loop by itself.
const REPLY_SLACK: Nanos = Nanos::MILLISECOND;

/// An overdue connect's socket stays open for the connect timeout divided by this, so that a session can take
/// it over. At most this part, 3 %, is added to the sockets open at once.
const TAKEOVER_PART: u64 = 32;

/// A server is silent after this time without a connection, a refusal or a reply.
const SILENCE: Nanos = Nanos::from_millis(20);

/// The most that sessions may begin late together while the server is silent. It is half the lateness that a
/// valid run may have at its 99th percentile. A wake for each session costs several times the attempt itself.
/// A server that does not answer has no latency to measure precisely.
const TOGETHER_MAX: Nanos = Nanos::from_millis(5);

/// The sessions due within that time that make waiting worth while.
const TOGETHER_MIN: f64 = 4.0;

/// The size of the read buffer; one read takes most replies whole.
const SCRATCH_BYTES: usize = 64 * 1024;

/// The end of a run's schedule.
#[derive(Clone, Copy)]
struct Ending {
    /// The time of the end.
    at: Nanos,
    /// The time at which the engine noticed the end; a handler goes on as long as its establisher.
    since: Nanos,
    /// True for an end before the planned one.
    is_early: bool,
}

/// The generator of one thread.
pub(crate) struct Engine<'a, C, T: Transport> {
    clock: RunClock<C>,
    settings: Settings<'a>,
    schedule: Schedule,
    /// The source of each session's seed, drawn in the order of the schedule.
    session_seeds: Rng,
    /// The number of sessions that have begun.
    sessions: u64,
    retries: RetryQueue,
    /// What broken sessions would have requested.
    unmade: Unmade,
    transport: T,
    connections: Connections<T::Socket>,
    streams: Streams,
    /// Sessions between a reply and their next request, by the time it is due.
    thinking: BinaryHeap<Reverse<(Nanos, Key)>>,
    /// The time of the last sign of life from the server.
    heard: Nanos,
    /// Until this time, more connects may be pending than the schedule makes, because the engine stood still.
    crowded_until: Nanos,
    role: Role,
    /// The connections that requests share, in place of a connection for each session.
    pool: Option<Pool>,
    /// The state of the run's end; set from the schedule's end on.
    ending: Option<Ending>,
    metrics: ThreadMetrics,
    scratch: Box<[u8]>,
}

impl<'a, C: Clock, T: Transport> Engine<'a, C, T> {
    /// An engine that begins when the clock shows `origin`.
    pub(crate) fn new(
        clock: C,
        origin: Nanos,
        settings: Settings<'a>,
        schedule: Schedule,
        mut session_seeds: Rng,
        transport: T,
    ) -> Engine<'a, C, T> {
        let metrics = ThreadMetrics::new(settings.window, settings.interval);
        let pool = settings.kept_connections.map(Pool::new);
        Engine {
            clock: RunClock::new(clock, origin),
            schedule,
            retries: RetryQueue::new(settings.retry, session_seeds.next_u64()),
            unmade: Unmade::default(),
            settings,
            session_seeds,
            sessions: 0,
            transport,
            connections: Connections::default(),
            streams: Streams::default(),
            thinking: BinaryHeap::new(),
            heard: Nanos::ZERO,
            crowded_until: Nanos::ZERO,
            role: Role::Whole,
            pool,
            ending: None,
            metrics,
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
        }
    }

    /// Runs from the start to the window's end or until `should_stop`, and on until the last replies have
    /// arrived. A handler runs until its establisher has ended. Tells of every interval.
    ///
    /// # Errors
    /// A wait that fails for a reason that no peer can cause; the end of the other half of a pair.
    pub(crate) fn run(
        mut self,
        should_stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Interval),
    ) -> Result<ThreadReport, LoadError> {
        // A handler need not wait: its connections come after the start.
        if !matches!(self.role, Role::Handler(_)) {
            let waited = self.clock.await_start(&mut self.transport, should_stop);
            waited.map_err(LoadError::system("waiting for the start"))?;
        }
        let mut rests = Rests::of_this_thread();
        self.metrics.began(self.clock.now());
        loop {
            let now = self.clock.now();
            match self.ending {
                None if self.is_over(now, should_stop) => self.end_schedule(now),
                Some(ending) if self.is_settled(ending, now) => return self.finish(ending, tell),
                _ => {}
            }
            self.expire(now);
            if self.ending.is_none() {
                self.resume_thinkers(now);
                self.start_retries(now);
                self.start_sessions(now);
            }
            self.handle_connects()?;
            self.refill(self.clock.now());
            let (timeout, before) = (self.sleep_time(), self.clock.now());
            self.transport.wait(before, timeout).map_err(LoadError::system("waiting for replies"))?;
            rests.waited(before, self.clock.now());
            self.handle_events()?;
            let (now, held) = (self.clock.now(), self.held());
            self.enter_unmade(self.metrics.interval_end().map_or(now, |end| end.min(now)));
            self.metrics.close_intervals(now, held, tell);
        }
    }

    /// Returns true when the schedule ends. A handler has no schedule: it goes on until its establisher has
    /// ended, so that every account ends in one ledger.
    fn is_over(&self, now: Nanos, should_stop: &dyn Fn() -> bool) -> bool {
        match &self.role {
            Role::Handler(inbox) => inbox.is_over,
            Role::Whole | Role::Establisher(_) => now >= self.settings.window.until || should_stop(),
        }
    }

    fn held(&self) -> Held {
        Held { unsent_packets: self.transport.unsent_packets(), ..self.connections.held() }
    }

    /// Begins the sessions that are due, the longest overdue first.
    fn start_sessions(&mut self, now: Nanos) {
        self.schedule.follow(now);
        for _ in 0..STARTS_PER_TURN {
            let Some(intended) = self.schedule.take(now) else { break };
            self.start_session(intended);
        }
    }

    /// Handles one batch of connects that have completed or failed; does not block.
    fn handle_connects(&mut self) -> Result<(), LoadError> {
        // One look, unless connections were given away: the next look forgets and closes those.
        while self
            .transport
            .poll_connects(self.clock.now())
            .map_err(LoadError::system("waiting for connections"))?
        {
            self.handle_events()?;
        }
        Ok(())
    }

    fn handle_events(&mut self) -> Result<(), LoadError> {
        let failed = "looking for replies";
        while let Some(event) = self.transport.next(self.clock.now()).map_err(LoadError::system(failed))? {
            self.heard = self.clock.now();
            match event {
                Event::Connect(key) => {
                    self.connect_ready(key);
                    self.hand_over()?;
                }
                Event::Ready(key) => self.exchange_ready(key),
                Event::OtherHalf => self.attend_other_half()?,
            }
        }
        Ok(())
    }

    /// The time until something is due.
    fn sleep_time(&mut self) -> Nanos {
        let now = self.clock.now();
        let takeover_time = self.takeover_time();
        let due = [
            self.next_beginning(now),
            self.connections.first_connect_due().map(|due| due.saturating_add(takeover_time)),
            self.connections.first_reply_due().map(|due| due.saturating_add(REPLY_SLACK)),
            self.streams.first_due().map(|due| due.saturating_add(REPLY_SLACK)),
            self.pool.as_ref().and_then(|pool| pool.first_due(self.settings.request_timeout)),
            self.metrics.interval_end(),
            self.ending.map(|ending| self.patience_ends(ending)),
            self.transport.next_due(),
            Some(now + SLEEP_MAX),
        ];
        due.into_iter().flatten().min().unwrap_or(now).saturating_sub(now)
    }

    /// The time of the next beginning or of the schedule's end; `None` after that end.
    fn next_beginning(&mut self, now: Nanos) -> Option<Nanos> {
        if self.ending.is_some() {
            return None;
        }
        let together = self.together(now);
        let due = [
            self.schedule.next().map(|due| due.saturating_add(together)),
            self.thinking.peek().map(|Reverse((due, _))| *due),
            self.retries.next(),
            Some(self.settings.window.until).filter(|_| !matches!(self.role, Role::Handler(_))),
        ];
        due.into_iter().flatten().min()
    }

    /// The time for which a due session may wait so that others begin together with it.
    fn together(&self, now: Nanos) -> Nanos {
        let together = TOGETHER_MAX.min(self.takeover_time());
        let worth_while = self.settings.rate_peak.is_some_and(|rate| rate.times(together) >= TOGETHER_MIN);
        let silent = now.saturating_sub(self.heard) > SILENCE;
        if worth_while && silent { together } else { Nanos::ZERO }
    }

    /// The time for which an overdue connect's socket waits for a session to take it over. No session is due while its
    /// place is taken.
    fn takeover_time(&self) -> Nanos {
        match self.schedule.busy() {
            Some(Busy::Connecting) => Nanos::ZERO,
            _ => self.settings.connect_timeout / TAKEOVER_PART,
        }
    }

    /// The most connects pending at once.
    fn pending_max(&self) -> usize {
        let share = if self.settings.pending_follows_rate { self.schedule.share().max(1.0) } else { 1.0 };
        (f64::from(self.settings.pending_max) * share) as usize
    }
}
