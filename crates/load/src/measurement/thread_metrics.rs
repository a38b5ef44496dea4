//! The metrics of one thread of the generator, which it delivers interval by interval and at the end.
//!
//! Every engine keeps the same metrics, whatever its clients do: the ledger, the recorder, its connections and
//! its CPU time. [`ThreadMetrics::close`] turns them into the thread's report, once.

pub(crate) mod failures;
pub(crate) mod named;

use base::Nanos;
use record::Outcome;
use record::load::Connections;

use crate::measurement::ledger::{Account, Ledger};
use crate::measurement::recorder::{Interval, Recorder, Totals};
use crate::plan::terms::window::Window;
use failures::Failures;
use named::Named;

/// The figures of one engine after its run, or the sum of several.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct ThreadReport {
    pub ledger: Ledger,
    pub totals: Totals,
    pub connections: Connections,
    /// The first failed reply of each status.
    pub failures: Failures,
    /// The requests of each name.
    pub named: Vec<Named>,
    /// Failed requests that the retry policy wanted to retry and could not.
    pub given_up: u64,
    /// Packets lost since the measured window began because the thread's link to the server had no room.
    pub unsent_packets: u64,
    /// Established connections when the measured window began, and when the run ended.
    pub open: [u64; 2],
    /// The time at which the last engine began; 0 for engines that were ready at the run's start.
    pub began: Nanos,
    /// The time at which the engine ended its schedule.
    pub ended: Nanos,
    /// CPU time of the thread in the measured window.
    pub cpu: Nanos,
}

impl ThreadReport {
    /// Adds the report of another thread.
    pub fn merge(&mut self, other: &ThreadReport) {
        self.ledger.merge(&other.ledger);
        self.totals.merge(&other.totals);
        self.failures.merge(&other.failures);
        named::merge(&mut self.named, &other.named);
        self.connections.attempted += other.connections.attempted;
        self.connections.established += other.connections.established;
        self.connections.sockets_peak += other.connections.sockets_peak;
        self.given_up += other.given_up;
        self.unsent_packets += other.unsent_packets;
        self.open.iter_mut().zip(other.open).for_each(|(sum, open)| *sum += open);
        self.began = self.began.max(other.began);
        self.ended = self.ended.max(other.ended);
        self.cpu += other.cpu;
    }
}

/// The sockets that an engine has open at one moment, and its losses until then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// All sockets.
    pub sockets: u64,
    /// Connected sockets.
    pub established: u64,
    /// Packets lost so far because the link to the server had no room.
    pub unsent_packets: u64,
}

/// The metrics of one thread. Times are since the run's start.
pub(crate) struct ThreadMetrics {
    measured: Window,
    pub ledger: Ledger,
    pub recorder: Recorder,
    pub connections: Connections,
    pub failures: Failures,
    named: Vec<Named>,
    began: Nanos,
    /// The thread's CPU time and its open connections at the beginning of the measured window.
    at_window: Option<(Nanos, u64)>,
    /// Packets lost before the measured window.
    unsent_before: u64,
    /// The thread's CPU time at the schedule's end; the wait for the last replies follows.
    cpu_at_end: Option<Nanos>,
}

impl ThreadMetrics {
    /// Empty metrics for a run with this measured window.
    pub fn new(measured: Window, interval: Nanos) -> ThreadMetrics {
        ThreadMetrics {
            measured,
            ledger: Ledger::default(),
            recorder: Recorder::new(measured, interval),
            connections: Connections::default(),
            failures: Failures::default(),
            named: Vec::new(),
            began: Nanos::ZERO,
            at_window: None,
            unsent_before: 0,
            cpu_at_end: None,
        }
    }

    /// Notes the time at which the engine began.
    pub fn began(&mut self, at: Nanos) {
        self.began = at;
    }

    /// Opens the account of requests that fall due now; `counted` if they belong to the ledger.
    pub fn offer(&mut self, requests: u32, counted: bool) -> Account {
        self.recorder.offered(requests);
        self.ledger.offer(requests, counted)
    }

    /// Opens the account of a request that is offered again.
    pub fn offer_again(&mut self, counted: bool) -> Account {
        self.recorder.offered_again();
        self.ledger.offer_again(counted)
    }

    /// Ends the requests of an account with this outcome; `status` is that of their reply.
    pub fn end(&mut self, account: Account, outcome: Outcome, status: Option<u16>) {
        self.recorder.ended(outcome, account.requests());
        self.ledger.end(account, outcome, status);
    }

    /// Counts a request with a name, by the name's number, that ended while it was under way.
    pub fn named(&mut self, name: Option<usize>, outcome: Outcome, due: Nanos, now: Nanos) {
        if let Some(named) = self.figures_of(name, due) {
            named.ended(outcome, now.saturating_sub(due));
        }
    }

    /// Counts a request with a name, by the name's number, that the run's end has interrupted.
    pub fn named_in_flight(&mut self, name: Option<usize>, due: Nanos) {
        self.figures_of(name, due).into_iter().for_each(Named::interrupted);
    }

    /// The figures of a name; `None` without one, and for a request that was not due in the measured window.
    fn figures_of(&mut self, name: Option<usize>, due: Nanos) -> Option<&mut Named> {
        let name = name.filter(|_| self.measured.contains(due))?;
        self.named.resize_with(self.named.len().max(name + 1), Named::default);
        self.named.get_mut(name)
    }

    /// Counts a connect that was attempted for a session.
    pub fn attempted(&mut self, measured: bool) {
        self.connections.attempted += u64::from(measured);
    }

    /// Counts a connection that was established after `connect`.
    pub fn established(&mut self, connect: Nanos, measured: bool) {
        self.connections.established += u64::from(measured);
        self.recorder.established(connect, measured);
    }

    /// Ends the schedule at `at`, perhaps earlier than planned. The current interval is the last;
    /// [`ThreadMetrics::close`] closes it.
    pub fn end_schedule(&mut self, at: Nanos) {
        self.cpu_at_end = Some(sys::cpu::thread_time());
        self.measured.until = at;
        self.recorder.end_schedule(at);
    }

    /// The end of the current interval; `None` when the schedule ends first.
    pub fn interval_end(&self) -> Option<Nanos> {
        Some(self.recorder.interval_end()).filter(|end| *end < self.measured.until)
    }

    /// Counts an opened socket: `sockets` are open now.
    pub fn opened(&mut self, sockets: usize) {
        self.connections.sockets_peak = self.connections.sockets_peak.max(sockets as u64);
    }

    /// Closes the intervals that are over. Notes CPU time and open connections when the window begins, and what was lost
    /// before.
    pub fn close_intervals(&mut self, now: Nanos, held: Held, tell: &mut dyn FnMut(Interval)) {
        if self.at_window.is_none() {
            // The turn that ends here sent what was due when it began: in the window if there is no warm-up, and before it
            // otherwise.
            if self.measured.from > Nanos::ZERO {
                self.unsent_before = held.unsent_packets;
            }
            if now >= self.measured.from {
                self.at_window = Some((sys::cpu::thread_time(), held.established));
                self.connections.sockets_peak = held.sockets;
            }
        }
        while let Some(until) = self.interval_end().filter(|until| *until <= now) {
            tell(self.recorder.close_interval(until, held.sockets));
        }
    }

    /// Closes the last interval and reports. Every account must be in the ledger by then.
    pub fn close(mut self, end: Nanos, held: Held, tell: &mut dyn FnMut(Interval)) -> ThreadReport {
        tell(self.recorder.close_interval(end, held.sockets));
        let cpu_at_end = self.cpu_at_end.unwrap_or_else(sys::cpu::thread_time);
        let (cpu_before, open_at_start) = self.at_window.unwrap_or((cpu_at_end, 0));
        ThreadReport {
            ledger: self.ledger,
            totals: self.recorder.into_totals(),
            connections: self.connections,
            failures: self.failures,
            named: self.named,
            given_up: 0,
            unsent_packets: held.unsent_packets - self.unsent_before,
            began: self.began,
            open: [open_at_start, held.established],
            ended: end,
            cpu: cpu_at_end.saturating_sub(cpu_before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_the_window_alone_counts() {
        let spent = Nanos::from_millis(20);
        let spend = || {
            let began = sys::cpu::thread_time();
            while sys::cpu::thread_time() - began < spent {}
        };
        let window = Window { from: Nanos::ZERO, until: Nanos::SECOND };
        let mut metrics = ThreadMetrics::new(window, Nanos::SECOND);
        let held = Held::default();
        let began = sys::cpu::thread_time();
        spend();
        metrics.close_intervals(Nanos::ZERO, held, &mut |_| {});
        spend();
        metrics.end_schedule(Nanos::SECOND);
        spend();
        let report = metrics.close(Nanos::SECOND, held, &mut |_| {});
        let whole = sys::cpu::thread_time() - began;
        assert!(report.cpu >= spent && report.cpu <= whole - spent * 2, "{:?} of {whole:?}", report.cpu);
    }
}
