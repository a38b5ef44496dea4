//! What a thread of the generator writes down, and hands over interval by interval and at the end.
//!
//! Every engine keeps the same books, whatever its clients do: the ledger, the recorder, its connections,
//! its CPU time. They are closed once, and then they are the thread's report.

use base::Nanos;
use record::Outcome;
use record::load::Connections;

use crate::ledger::{Account, Ledger, Window};
use crate::recorder::{Interval, Recorder, Totals};

/// What an engine has to say when its run is over, or several of them together.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Report {
    pub ledger: Ledger,
    pub totals: Totals,
    pub connections: Connections,
    /// Requests that were to be retried and were not.
    pub given_up: u64,
    /// Established connections when the measured window began, and when the run ended.
    pub open: [u64; 2],
    /// When it ended.
    pub ended: Nanos,
    /// CPU time of its thread in the measured window.
    pub cpu: Nanos,
}

impl Report {
    /// Adds another thread's.
    pub fn merge(&mut self, other: &Report) {
        self.ledger.merge(&other.ledger);
        self.totals.merge(&other.totals);
        self.connections.attempted += other.connections.attempted;
        self.connections.established += other.connections.established;
        self.connections.sockets_peak += other.connections.sockets_peak;
        self.given_up += other.given_up;
        self.open.iter_mut().zip(other.open).for_each(|(sum, open)| *sum += open);
        self.ended = self.ended.max(other.ended);
        self.cpu += other.cpu;
    }
}

/// The sockets that an engine has at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// All of them.
    pub sockets: u64,
    /// Those that are connected.
    pub established: u64,
}

/// The books of one thread. Times are since the run's start.
pub(crate) struct Books {
    measured: Window,
    pub ledger: Ledger,
    pub recorder: Recorder,
    pub connections: Connections,
    /// The thread's CPU time, and the connections that are open, at the beginning of the measured window.
    at_window: Option<(Nanos, u64)>,
}

impl Books {
    /// Empty books of a run with that window.
    pub fn new(measured: Window, interval: Nanos) -> Books {
        Books {
            measured,
            ledger: Ledger::default(),
            recorder: Recorder::new(measured, interval),
            connections: Connections::default(),
            at_window: None,
        }
    }

    /// A session is over; what it had left shares the outcome.
    pub fn end(&mut self, account: Account, outcome: Outcome) {
        let requests = self.ledger.end_rest(account, outcome);
        self.recorder.ended(outcome, requests);
    }

    /// A connect was attempted for a session.
    pub fn attempted(&mut self, measured: bool) {
        self.connections.attempted += u64::from(measured);
    }

    /// The attempt became a connection.
    pub fn established(&mut self, connect: Nanos, measured: bool) {
        self.connections.established += u64::from(measured);
        self.recorder.established(connect, measured);
    }

    /// The schedule has ended, perhaps earlier than planned. The interval in progress is the last one, and is closed
    /// with the books.
    pub fn end_schedule(&mut self, at: Nanos) {
        self.measured.until = at;
        self.recorder.end_schedule(at);
    }

    /// When a page is to be turned, before the schedule's end.
    pub fn next_page(&self) -> Option<Nanos> {
        Some(self.recorder.interval_end()).filter(|end| *end < self.measured.until)
    }

    /// A socket was opened; now there are so many.
    pub fn opened(&mut self, sockets: usize) {
        self.connections.sockets_peak = self.connections.sockets_peak.max(sockets as u64);
    }

    /// Closes the intervals that are over, and notes what there is when the window begins.
    pub fn turn_page(&mut self, now: Nanos, held: Held, tell: &mut dyn FnMut(Interval)) {
        if self.at_window.is_none() && now >= self.measured.from {
            self.at_window = Some((sys::cpu::thread_time(), held.established));
            self.connections.sockets_peak = held.sockets;
        }
        while let Some(until) = self.next_page().filter(|until| *until <= now) {
            tell(self.recorder.close_interval(until, held.sockets));
        }
    }

    /// Closes the books, when every account is in the ledger.
    pub fn close(mut self, end: Nanos, held: Held, tell: &mut dyn FnMut(Interval)) -> Report {
        tell(self.recorder.close_interval(end, held.sockets));
        let (cpu_before, open_at_start) = self.at_window.unwrap_or((sys::cpu::thread_time(), 0));
        Report {
            ledger: self.ledger,
            totals: self.recorder.into_totals(),
            connections: self.connections,
            given_up: 0,
            open: [open_at_start, held.established],
            ended: end,
            cpu: sys::cpu::thread_time().saturating_sub(cpu_before),
        }
    }
}
