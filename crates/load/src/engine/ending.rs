//! The end of a run: nothing begins any more, and the engine waits for the replies on their way.
//!
//! A request that was sent just before the schedule's end has had no time to be answered. It gets the time of the
//! slowest correct reply: at least [`LAST_REPLIES_LEAST`], and at most the length of the run. Its own timeouts stay in
//! force. So the end of the run does not make an answering server look bad, and a server that hangs makes the run one
//! second longer.
//!
//! Nothing tells of this wait while it lasts. Those that wait for the engine know its bound ([`Plan::longest_wait`]).
//!
//! [`Plan::longest_wait`]: crate::plan::Plan::longest_wait

use base::{Clock, Nanos};

use super::{Ending, Engine};
use crate::engine::pair::handover::Role;
use crate::engine::state::connections::Pool;
use crate::engine::state::session::Session;
use crate::engine::state::unmade::Unmade;
use crate::engine::wire::transport::Transport;
use crate::error::LoadError;
use crate::measurement::ledger::Account;
use crate::measurement::recorder::Interval;
use crate::measurement::thread_metrics::ThreadReport;
use crate::plan::LAST_REPLIES_LEAST;
use crate::plan::requests::RequestId;

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
            self.enter_unmade(at);
        }
        self.unmade = Unmade::default();
        self.metrics.end_schedule(at);
        self.ending = Some(Ending { at, since: now, is_early: now < planned });
    }

    /// The time until which the engine waits for replies. After an early end it waits for the least time.
    pub(super) fn patience_ends(&self, ending: Ending) -> Nanos {
        let longest = if ending.is_early { Nanos::ZERO } else { self.metrics.recorder.longest() };
        // Replies that come during the wait are slower and slower, and would prolong it without end.
        ending.since + longest.min(self.settings.window.until).max(LAST_REPLIES_LEAST)
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

    /// Enters a request that the run's end has interrupted while it was under way or waited, in the ledger and under its name.
    pub(super) fn interrupt(&mut self, account: Account, request: RequestId, due: Nanos) {
        self.metrics.named_in_flight(self.settings.workload.name_of(request), due);
        self.record_in_flight(account, due);
    }

    fn interrupt_session(&mut self, session: Session) {
        if let Some(account) = session.account {
            self.interrupt(account, session.request, session.intended);
        }
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
        // Before the connections close all at once, which may fill the link.
        let (held, given_up) = (self.held(), self.retries.given_up());
        for key in self.connections.keys() {
            if self.settings.streams.is_some() {
                self.leave_in_flight(key, ending.at);
            }
            let Some(connection) = self.connections.remove(key) else { continue };
            self.transport.close(connection.wire.socket);
            self.interrupt_session(connection.session);
        }
        for session in self.pool.take().into_iter().flat_map(|mut pool| pool.take_waiting()) {
            self.interrupt_session(session);
        }
        for again in self.retries.take_all() {
            self.leave_unanswered(&again, None, ending.at);
        }
        let report = ThreadReport { given_up, ..self.metrics.close(ending.at, held, tell) };
        let clock = &self.clock;
        let ended = self.transport.finish(&|| clock.now());
        ended.map_err(LoadError::system("ending connections"))?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::num::NonZeroU32;

    use super::*;
    use crate::engine::scripted::{Scripted, plan};
    use crate::engine::time::schedule::Schedule;

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

    #[test]
    fn late_replies_wait_no_longer_than_the_run() {
        let seconds = Nanos::from_secs;
        let plan = plan(|config| {
            config.duration = seconds(3);
            config.request_timeout = seconds(60);
        });
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), Schedule::closed(2, Nanos::ZERO));
        engine.start_sessions(Nanos::ZERO);
        let keys = engine.connections.keys();
        keys.iter().for_each(|key| engine.connect_ready(*key));
        server.clock.advance(seconds(3));
        engine.end_schedule(engine.clock.now());
        let ending = engine.ending.unwrap();
        assert_eq!(engine.patience_ends(ending), seconds(4));
        server.clock.advance(seconds(2));
        server.peer(0).says = OK;
        engine.exchange_ready(keys[0]);
        assert!(engine.metrics.recorder.longest() >= seconds(5));
        assert_eq!(engine.patience_ends(ending), seconds(6));
        assert_eq!(seconds(3), plan.longest_wait(), "others know the bound");
    }

    #[test]
    fn requests_in_flight_at_the_end_have_names() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(br#"{"path": "/", "name": "login"}"#).unwrap();
        for streams in [None, NonZeroU32::new(1)] {
            let plan = plan(|config| {
                config.requests = Some(file.path().to_str().unwrap().parse().unwrap());
                config.streams = streams;
            });
            let server = Scripted::new();
            let mut engine = server.engine(&plan, server.clock.now(), Schedule::closed(2, Nanos::ZERO));
            engine.start_sessions(Nanos::ZERO);
            let key = engine.connections.keys()[0];
            engine.connect_ready(key);
            server.clock.advance(Nanos::SECOND);
            engine.end_schedule(engine.clock.now());
            let ending = engine.ending.unwrap();
            let report = engine.finish(ending, &mut |_| {}).unwrap();
            let login = report.named[0].record(Nanos::SECOND);
            assert_eq!((login.in_flight_at_end, login.failed()), (2, 2), "one was sent, and one was not");
            assert_eq!((login.latency_intended_ns.unanswered, report.totals.unanswered), (2, 2));
        }
    }
}
