//! The end of a run: nothing begins any more, and the engine waits for the replies on their way.
//!
//! A request that was sent just before the schedule's end has had no time to be answered. It gets the time of the
//! slowest correct reply, and at least [`PATIENCE`]; its own timeouts stay in force. So the end of the run does not
//! make an answering server look bad, and a server that hangs makes the run one second longer.

use base::{Clock, Nanos};

use super::{Ending, Engine};
use crate::engine::pair::handover::Role;
use crate::engine::state::connections::Pool;
use crate::engine::state::session::Session;
use crate::engine::wire::transport::Transport;
use crate::error::LoadError;
use crate::measurement::ledger::Account;
use crate::measurement::recorder::Interval;
use crate::measurement::thread_metrics::ThreadReport;

/// The least time for which the engine waits for replies; also the most when the run was ended early.
const PATIENCE: Nanos = Nanos::SECOND;

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// Begins the sessions and requests that were due before the end, and none after it.
    pub(super) fn end_schedule(&mut self, now: Nanos) {
        let planned = self.settings.window.until;
        let at = now.min(planned);
        // A run that was stopped before its start begins nothing.
        if at > Nanos::ZERO {
            let last = at - Nanos(1);
            while let Some(intended) = self.schedule.take(last) {
                self.start_session(intended);
            }
            self.resume_thinkers(last);
        }
        self.metrics.end_schedule(at);
        self.ending = Some(Ending { at, since: now, is_early: now < planned });
    }

    /// The time until which the engine waits for replies.
    pub(super) fn patience_ends(&self, ending: Ending) -> Nanos {
        let longest = if ending.is_early { Nanos::ZERO } else { self.metrics.recorder.longest() };
        ending.since + longest.max(PATIENCE)
    }

    /// Returns true when nothing is on its way any more, or the wait is over.
    pub(super) fn is_settled(&self, ending: Ending, now: Nanos) -> bool {
        let to_hand_over = match &self.role {
            Role::Establisher(outbox) => outbox.waiting.len(),
            Role::Whole | Role::Handler(_) => 0,
        };
        let waiting = self.connections.connecting() + self.connections.awaiting() + self.streams.len();
        let for_a_connection = self.pool.as_ref().map_or(0, Pool::waiting);
        let on_their_way = waiting + to_hand_over + for_a_connection;
        on_their_way == 0 || now >= self.patience_ends(ending)
    }

    /// Enters offered requests that the run's end has interrupted: they have no latency.
    pub(super) fn record_in_flight(&mut self, account: Account, due: Nanos) {
        self.metrics.recorder.unanswered(account.requests(), self.settings.window.contains(due));
        self.metrics.ledger.in_flight(account);
    }

    /// Closes the connections, enters their unfinished sessions in the ledger, and turns the metrics into a report.
    ///
    /// # Errors
    /// Errors that no peer can cause.
    pub(super) fn finish(
        mut self,
        ending: Ending,
        tell: &mut dyn FnMut(Interval),
    ) -> Result<ThreadReport, LoadError> {
        let (held, given_up) = (self.connections.held(), self.retries.given_up());
        // Before the connections close all at once, which may fill the link.
        let unsent_packets = self.transport.unsent_packets();
        for key in self.connections.keys() {
            if self.settings.streams.is_some() {
                self.leave_in_flight(key, ending.at);
            }
            let Some(connection) = self.connections.remove(key) else { continue };
            let Session { account, intended, .. } = connection.session;
            account.into_iter().for_each(|account| self.record_in_flight(account, intended));
            self.transport.close(connection.wire.socket);
        }
        for session in self.pool.take().into_iter().flat_map(|mut pool| pool.take_waiting()) {
            let Session { account, intended, .. } = session;
            account.into_iter().for_each(|account| self.record_in_flight(account, intended));
        }
        for again in self.retries.take_all() {
            self.leave_unanswered(&again, None);
        }
        let report = ThreadReport { given_up, unsent_packets, ..self.metrics.close(ending.at, held, tell) };
        let clock = &self.clock;
        let ended = self.transport.finish(&|| clock.now());
        ended.map_err(LoadError::system("ending connections"))?;
        Ok(report)
    }
}
