//! Offers failed requests again, or enters them as unanswered.

use base::{Clock, Key, Nanos};
use record::Outcome;

use super::{Engine, STARTS_PER_TURN};
use crate::engine::state::retry_queue::Again;
use crate::engine::state::session::Session;
use crate::engine::time::schedule::Busy;
use crate::engine::wire::transport::Transport;
use crate::plan::choices::retry::Retry;
use crate::plan::requests::{RequestId, Workload};
use crate::plan::terms::draws::Draws;

impl Again {
    /// All requests that a session had left when it broke off, from the next that is due. The users of a closed loop have
    /// due times of their own.
    pub(super) fn rest(session: &Session, now: Nanos) -> Again {
        Again { intended: session.next_due().unwrap_or(now), ..Again::of(session) }
    }

    pub(super) fn of(session: &Session) -> Again {
        Again {
            requests: session.left,
            request: session.request,
            draws: session.draws,
            intended: session.intended,
            retries: session.retries,
            frees_place: session.frees_place,
        }
    }

    /// The request that was answered last. Its session continues without it, unless it was the last one.
    pub(super) fn one(session: &Session) -> Again {
        // The retry has its own draws and takes none from the session: the session's requests must not depend
        // on the server's replies.
        let draws = Draws::new(!session.draws.clone().bits());
        let frees_place = session.frees_place && session.left == 0;
        Again { requests: 1, draws, frees_place, ..Again::of(session) }
    }

    /// The requests behind the first one; `None` if that is the only one.
    fn behind_first(&self, workload: &Workload) -> Option<Again> {
        let requests = self.requests.checked_sub(1).filter(|rest| *rest > 0)?;
        let mut draws = self.draws;
        let think = workload.think_time(self.request, &mut draws);
        let request = workload.next(self.request, &mut draws);
        Some(Again { requests, request, draws, intended: self.intended + think, ..self.clone() })
    }

    /// The intended times before `until`, each with a number of requests.
    pub(super) fn due_before(&self, until: Nanos, workload: &Workload) -> Vec<(Nanos, u32)> {
        if !workload.thinks() {
            return Vec::from_iter((self.intended < until).then_some((self.intended, self.requests)));
        }
        let first = Some(self.clone()).filter(|again| again.requests > 0);
        let each = std::iter::successors(first, |again| again.behind_first(workload));
        each.map(|again| (again.intended, 1)).take_while(|(due, _)| *due < until).collect()
    }
}

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// Offers the request of an ended session again, or else frees the session's place, unless its connect has done so.
    /// The place of a request that will be offered again stays busy until that ends.
    pub(super) fn retry_or_free_place(
        &mut self,
        session: &Session,
        again: Again,
        outcome: Outcome,
        now: Nanos,
    ) {
        if !self.retry(again, outcome, now) {
            self.give_place_back(session, now);
        }
    }

    /// Frees the place of a session that has ended, unless its connect has done so.
    pub(super) fn give_place_back(&mut self, session: &Session, now: Nanos) {
        if session.frees_place {
            self.free_place(session.request, session.draws, now);
        }
    }

    /// Notes that a session's connect has succeeded. Its place is free again if it was for the connect only.
    pub(super) fn connected(&mut self, key: Key, now: Nanos) {
        if self.schedule.busy() != Some(Busy::Connecting) {
            return;
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        if std::mem::take(&mut connection.session.frees_place) {
            let (request, draws) = (connection.session.request, connection.session.draws);
            self.free_place(request, draws, now);
        }
    }

    fn free_place(&mut self, request: RequestId, mut draws: Draws, now: Nanos) {
        self.schedule.free(now.saturating_add(self.settings.workload.think_time(request, &mut draws)));
    }

    /// Queues requests to be offered again, if outcome and policy allow it, and returns true if it did. The first of them
    /// has ended. Failed requests without a retry have no latency, as far as they fall due before the run's end.
    pub(super) fn retry(&mut self, again: Again, outcome: Outcome, now: Nanos) -> bool {
        if outcome == Outcome::Ok {
            return false;
        }
        let is_retried = Retry::is_worth_it(outcome) && self.retries.put_in(again.clone(), now);
        if !is_retried {
            self.leave_unanswered(&again, Some(outcome), now);
        }
        is_retried
    }

    /// Enters requests that will have no answer. The first of them has ended; the others end with the session's outcome
    /// when they fall due, or are in flight at the run's end. The client of a closed loop makes no request before the reply
    /// to the last one.
    pub(super) fn leave_unanswered(&mut self, again: &Again, outcome: Option<Outcome>, now: Nanos) {
        let window = self.settings.window;
        let is_closed = self.schedule.busy() == Some(Busy::Whole);
        if is_closed || again.intended < window.until {
            self.metrics.recorder.unanswered(1, window.contains(again.intended));
        }
        if let Some(rest) = again.behind_first(self.settings.workload).filter(|_| !is_closed) {
            self.leave_unmade(rest, outcome, now);
        }
    }

    /// Enters requests that a session will not make: at once if they are due, and otherwise when they fall due. None falls
    /// due after the schedule's end.
    pub(super) fn leave_unmade(&mut self, again: Again, outcome: Option<Outcome>, now: Nanos) {
        let planned = self.settings.window.until;
        let until = self.ending.map_or_else(|| planned.min(now + Nanos(1)), |ending| ending.at);
        let left = self.enter_due(again, outcome, until);
        let to_come = left.filter(|left| self.ending.is_none() && left.intended < planned);
        match (to_come, outcome) {
            (Some(left), Some(outcome)) if !self.unmade.is_full() => self.unmade.put_in(left, outcome),
            (Some(left), _) => drop(self.enter_due(left, outcome, planned)),
            (None, _) => {}
        }
    }

    /// Enters the requests of broken sessions that were due before `until`.
    pub(super) fn enter_unmade(&mut self, until: Nanos) {
        while let Some((again, outcome)) = self.unmade.take_before(until) {
            let left = self.enter_due(again, Some(outcome), until);
            if let Some(left) = left.filter(|left| left.intended < self.settings.window.until) {
                self.unmade.put_in(left, outcome);
            }
        }
    }

    /// Enters the requests that are due before `until`, and returns the others. A request without an outcome is in flight.
    fn enter_due(&mut self, again: Again, outcome: Option<Outcome>, until: Nanos) -> Option<Again> {
        let (workload, window) = (self.settings.workload, self.settings.window);
        let mut left = Some(again);
        while let Some(again) = left.take_if(|again| again.intended < until) {
            // Without think times all are due together.
            let requests = if workload.thinks() { 1 } else { again.requests };
            self.metrics.recorder.unanswered(requests, window.contains(again.intended));
            let account = self.metrics.offer(requests, self.settings.counted.contains(again.intended));
            match outcome {
                Some(outcome) => self.metrics.end(account, outcome, None),
                None => self.metrics.ledger.in_flight(account),
            }
            left = again.behind_first(workload).filter(|_| workload.thinks());
        }
        left
    }

    /// Begins the retries that are due.
    pub(super) fn start_retries(&mut self, now: Nanos) {
        for _ in 0..STARTS_PER_TURN {
            let Some((due, again)) = self.retries.take(now) else { break };
            let counted = self.settings.counted.contains(due);
            let session = Session {
                left: again.requests,
                account: Some(self.metrics.offer_again(counted)),
                users: self.users(again.intended),
                // Requests of a script are not retried.
                story: None,
                detour: self.settings.follows_redirects.then(Box::default),
                draws: again.draws,
                request: again.request,
                intended: again.intended,
                retries: again.retries,
                frees_place: again.frees_place,
            };
            // Sessions may have connected in this turn after `now`, and deadlines are set in order.
            self.assign(session, self.clock.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scripted::{Scripted, plan};
    use crate::engine::time::schedule::Schedule;
    use crate::plan::choices::arrivals::{Lane, Process};
    use crate::plan::choices::tempo::Tempo;
    use crate::plan::config::{Client, Sockets};
    use base::{Nanos, PerSecond};
    use std::num::NonZeroU32;

    /// A session reconnects and a request is retried in the same turn. The one place of the client allows both, and
    /// connects begin in the order of their deadlines.
    #[test]
    fn a_retry_after_a_reconnect_has_the_later_deadline() {
        let plan = plan(|config| {
            config.requests_per_connection = Some("2".parse().unwrap());
            config.think = Some("1ms".parse().unwrap());
            config.retry = "fixed:1ms,1".parse().unwrap();
            config.client = Client::Closed { clients: NonZeroU32::MIN };
        });
        let server = Scripted::new();
        let mut engine = server.engine(&plan, server.clock.now(), Schedule::closed(1, Nanos::ZERO));
        engine.start_sessions(Nanos::ZERO);
        let key = engine.connections.keys()[0];
        engine.connect_ready(key);
        server.peer(0).says = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        engine.exchange_ready(key);
        server.clock.advance(Nanos::from_millis(1));
        let turn = engine.clock.now();
        server.clock.advance(Nanos::from_micros(1));
        engine.resume_thinkers(turn);
        engine.start_retries(turn);
        assert_eq!(engine.connections.connecting(), 2);
    }

    /// A session of four requests, a second apart, breaks off at once. The run is ended after two and a half seconds.
    #[test]
    fn requests_of_broken_sessions_count_when_due() {
        let (rate, arrivals) = (PerSecond(0.01), Process::constant());
        for streams in [None, NonZeroU32::new(1)] {
            let plan = plan(|config| {
                config.client = Client::SClient { rate, arrivals: arrivals.clone(), sockets: Sockets::Auto };
                config.requests_per_connection = Some("4".parse().unwrap());
                config.think = Some("1s".parse().unwrap());
                config.streams = streams;
            });
            let lane = Lane { index: 0, count: 1 };
            let arrivals = arrivals.arrivals(rate, plan.config.window().until, lane, plan.config.seed);
            let server = Scripted::new();
            let schedule = Schedule::open(arrivals, Tempo::up_to(1.0));
            let mut engine = server.engine(&plan, server.clock.now(), schedule);
            engine.start_sessions(Nanos::ZERO);
            let key = engine.connections.keys()[0];
            engine.connect_ready(key);
            server.peer(0).is_reset = true;
            engine.exchange_ready(key);
            let mut offered_at = |millis| {
                server.clock.advance(Nanos::from_millis(millis) - engine.clock.now());
                engine.enter_unmade(engine.clock.now());
                engine.metrics.ledger.all().offered()
            };
            assert_eq!([0, 900, 1_100, 2_100].map(&mut offered_at), [1, 1, 2, 3], "{streams:?}");
            server.clock.advance(Nanos::from_millis(400));
            engine.end_schedule(engine.clock.now());
            let ledger = engine.metrics.ledger.all();
            assert_eq!((ledger.offered(), ledger.outcomes().get(Outcome::Reset)), (3, 3), "{streams:?}");
        }
    }
}
