//! The S-client in one thread (Banga 1997, section 3; SYSTEMS.md, section 4).
//!
//! ```text
//!   schedule --due--> connecting --established, request sent--> awaiting a reply --reply--> next request,
//!                         |                                           |                    or the end
//!                         +-- T is over, refused: closed              +-- time-out, reset
//! ```
//!
//! The paper has two processes, an establisher and a handler, so that neither waits for the other. Here
//! they are one loop, or the paper's two processes where they are asked for ([`pair`]). Each turn does a bounded
//! amount of work: begin at most [`STARTS_PER_TURN`] sessions, handle one batch of connects, handle one batch of
//! replies. Connections are those of a [`Transport`]: kernel sockets or TCP in user space. A session that is
//! due takes over the socket of a connect whose time is over: over kernel sockets an abandoned attempt costs two
//! system calls (an improvement on the paper, which closes the socket and makes another).
//!
//! The loop catches up with the schedule by the intended times and never waits for the server: what it
//! cannot begin ends as a limit of the client. It wakes for each session while the server answers, and
//! for several together, at most [`TOGETHER_MAX`] late, while it is silent.
//!
//! What failed and is to be retried waits in a queue of its own and is begun like a session ([`retries`]). At the end of
//! the schedule the replies that are on their way are waited for ([`ending`]).
//!
//! Invariants: a connection is in `connect_deadlines` exactly while it is connecting, in
//! `reply_deadlines` exactly while it awaits a reply; every session that was offered ends in the ledger.
//! All times are since the run's start.

mod connect;
mod ending;
mod exchange;
mod pair;
mod retries;
mod session;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::{Clock, Key, Nanos, PerSecond, Rng, Slab};
use rand::Rng as _;

use crate::LoadError;
use crate::books::{Books, Held, Report};
use crate::deadlines::Deadlines;
use crate::draws::Draws;
use crate::expected::Expected;
use crate::ledger::Window;
use crate::recorder::Interval;
use crate::retry::{Queue, Retry};
use crate::schedule::Schedule;
use crate::tls::Tls;
use crate::transport::{Event, Transport};
use crate::workload::Workload;
pub(crate) use connect::connect_failure;
use ending::Ending;
use pair::Role;
use session::Connection;

/// Sessions begun in one turn: a millisecond's work, so that replies are read in between.
const STARTS_PER_TURN: usize = 256;

/// A session that is due for so long is not begun any more: after a suspended process or machine, the
/// missed sessions in one burst would be a load that nobody asked for.
pub const TOO_LATE: Nanos = Nanos::SECOND;

/// How late a request's time-out may be noticed, so that it need not wake the loop by itself.
const REPLY_SLACK: Nanos = Nanos::MILLISECOND;

/// The part of the connect time-out for which an overdue connect's socket stays open for a session to
/// take it over; it adds at most as much, 3 %, to the sockets open at once.
const TAKEOVER_PART: u64 = 32;

/// A server that has said nothing for so long - no connection, no refusal, no reply - is silent.
const SILENCE: Nanos = Nanos::from_millis(20);

/// How late sessions may begin together while the server is silent, half the lateness a valid run may
/// have at its 99th percentile. Waking for each costs several times what the attempt itself does, and
/// with nobody answering there is no latency that the precision would serve.
const TOGETHER_MAX: Nanos = Nanos::from_millis(5);

/// Sessions that have to be due in that time for it to be worth while.
const TOGETHER_MIN: f64 = 4.0;

/// How long the loop sleeps at most: a request to stop is noticed then.
const SLEEP_MAX: Nanos = Nanos::from_millis(50);

/// Replies are read in pieces of this size; one read takes most of them whole.
const SCRATCH_BYTES: usize = 64 * 1024;

/// What an engine does, as far as it is the same in all threads.
#[derive(Clone)]
pub(crate) struct Settings<'a> {
    /// Where it speaks TLS.
    pub tls: Option<&'a Tls>,
    pub workload: &'a Workload,
    pub connect_timeout: Nanos,
    pub request_timeout: Nanos,
    pub expected: &'a Expected,
    pub retry: Retry,
    /// The most connects pending at once in this thread.
    pub pending_max: u32,
    /// Whether that was worked out from the rate, and grows with it.
    pub pending_follows_rate: bool,
    /// The most sessions a second in this thread, where they have a rate.
    pub rate_peak: Option<PerSecond>,
    /// The measured window.
    pub window: Window,
    /// Sessions scheduled in it are in the ledger, and requests in the latencies: the measured window, or for a
    /// population the whole run.
    pub counted: Window,
    pub interval: Nanos,
}

/// One thread's generator.
pub(crate) struct Engine<'a, C, T: Transport> {
    clock: C,
    /// The run's start on the clock.
    origin: Nanos,
    settings: Settings<'a>,
    schedule: Schedule,
    /// Each session's own draws are seeded from here, in the order of the schedule.
    session_seeds: Rng,
    /// Requests that failed and are to be offered again, and what their delays are drawn from.
    retries: Queue,
    retry_draws: Draws,
    transport: T,
    connections: Slab<Connection<T::Socket>>,
    connect_deadlines: Deadlines,
    reply_deadlines: Deadlines,
    /// Sessions between a reply and their next request, by the time it is due.
    thinking: BinaryHeap<Reverse<(Nanos, Key)>>,
    /// When the server last said something.
    heard: Nanos,
    /// Until when the connects pending at once may be more than the schedule makes, because the engine stood still.
    crowded_until: Nanos,
    role: Role,
    /// From the schedule's end on.
    ending: Option<Ending>,
    books: Books,
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
        let books = Books::new(settings.window, settings.interval);
        Engine {
            clock,
            origin,
            settings,
            schedule,
            retry_draws: Draws::new(session_seeds.next_u64()),
            session_seeds,
            retries: Queue::default(),
            transport,
            connections: Slab::new(),
            connect_deadlines: Deadlines::default(),
            reply_deadlines: Deadlines::default(),
            thinking: BinaryHeap::new(),
            heard: Nanos::ZERO,
            crowded_until: Nanos::ZERO,
            role: Role::Whole,
            ending: None,
            books,
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
        }
    }

    /// Runs to the window's end or until it should stop, a handler until its establisher has ended, and on until the
    /// last replies are there. Tells of every interval.
    ///
    /// # Errors
    /// A wait that fails for a reason no peer can cause; the other half of a pair has ended.
    pub(crate) fn run(
        mut self,
        should_stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Interval),
    ) -> Result<Report, LoadError> {
        loop {
            let now = self.now();
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
            let timeout = self.sleep_time();
            self.handle_replies(timeout)?;
            let (now, held) = (self.now(), self.held());
            self.books.turn_page(now, held, tell);
        }
    }

    /// Whether the schedule ends. A handler has none: it goes on until its establisher has ended, so that every
    /// account ends in one ledger.
    fn is_over(&self, now: Nanos, should_stop: &dyn Fn() -> bool) -> bool {
        match &self.role {
            Role::Handler(inbox) => inbox.is_over(),
            Role::Whole | Role::Establisher(_) => now >= self.settings.window.until || should_stop(),
        }
    }

    /// Time since the run's start; zero before it.
    fn now(&self) -> Nanos {
        self.clock.now().saturating_sub(self.origin)
    }

    /// Begins the sessions that are due, the longest overdue first.
    fn start_sessions(&mut self, now: Nanos) {
        self.schedule.follow(now);
        for _ in 0..STARTS_PER_TURN {
            let Some(intended) = self.schedule.take(now) else { break };
            self.start_session(intended);
        }
    }

    /// Handles one batch of connects that have completed or failed; does not wait.
    fn handle_connects(&mut self) -> Result<(), LoadError> {
        // Once, unless connections were given away: those are forgotten by another look, and closed.
        while self.transport.look(self.now()).map_err(LoadError::system("waiting for connections"))? {
            self.handle_events()?;
        }
        Ok(())
    }

    /// Waits for replies, connects or the timeout, and handles one batch of events.
    fn handle_replies(&mut self, timeout: Nanos) -> Result<(), LoadError> {
        let now = self.now();
        self.transport.wait(now, timeout).map_err(LoadError::system("waiting for replies"))?;
        self.handle_events()
    }

    fn handle_events(&mut self) -> Result<(), LoadError> {
        let failed = "looking for replies";
        while let Some(event) = self.transport.next(self.now()).map_err(LoadError::system(failed))? {
            self.heard = self.now();
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

    /// How long nothing is due.
    fn sleep_time(&mut self) -> Nanos {
        let now = self.now();
        let takeover_time = self.takeover_time();
        let due = [
            self.next_beginning(now),
            self.connect_deadlines.first().map(|(due, _)| due.saturating_add(takeover_time)),
            self.reply_deadlines.first().map(|(due, _)| due.saturating_add(REPLY_SLACK)),
            self.books.next_page(),
            self.ending.map(|ending| self.patience_ends(ending)),
            self.transport.next_due(),
            Some(now + SLEEP_MAX),
        ];
        due.into_iter().flatten().min().unwrap_or(now).saturating_sub(now)
    }

    /// When something is to be begun, or the schedule ends; nothing after that.
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

    /// For how long a due session may wait for others to be begun together with it.
    fn together(&self, now: Nanos) -> Nanos {
        let together = TOGETHER_MAX.min(self.takeover_time());
        let worth_while = self.settings.rate_peak.is_some_and(|rate| rate.times(together) >= TOGETHER_MIN);
        let silent = now.saturating_sub(self.heard) > SILENCE;
        if worth_while && silent { together } else { Nanos::ZERO }
    }

    /// How long an overdue connect's socket waits for a session to take it over.
    fn takeover_time(&self) -> Nanos {
        self.settings.connect_timeout / TAKEOVER_PART
    }

    /// The most connects pending at once.
    fn pending_max(&self) -> usize {
        let share = if self.settings.pending_follows_rate { self.schedule.share().max(1.0) } else { 1.0 };
        (f64::from(self.settings.pending_max) * share) as usize
    }

    fn held(&self) -> Held {
        let sockets = self.connections.len() as u64;
        Held { sockets, established: sockets - self.connect_deadlines.len() as u64 }
    }
}
