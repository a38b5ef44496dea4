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

    /// The intended times before `until`, each with a number of requests.
    pub(super) fn due_before(&self, until: Nanos, workload: &Workload) -> Vec<(Nanos, u32)> {
        let (mut draws, mut due, mut request) = (self.draws, self.intended, self.request);
        if !workload.thinks() {
            return Vec::from_iter((due < until).then_some((due, self.requests)));
        }
        let mut next = || {
            let think = workload.think_time(request, &mut draws);
            request = workload.next(request, &mut draws);
            let this = due;
            due += think;
            this
        };
        let times = (0..self.requests).map(|_| (next(), 1));
        times.take_while(|(due, _)| *due < until).collect()
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
            self.leave_unanswered(&again, Some(outcome));
        }
        is_retried
    }

    /// Enters requests that will have no answer. The first of them has ended; the others end with the session's outcome,
    /// or are in flight at the run's end. The client of a closed loop makes no request before the reply to the last one.
    pub(super) fn leave_unanswered(&mut self, again: &Again, outcome: Option<Outcome>) {
        let window = self.settings.window;
        let is_closed = self.schedule.busy() == Some(Busy::Whole);
        let mut due = again.due_before(window.until, self.settings.workload);
        if is_closed {
            due = vec![(again.intended, 1)];
        }
        let mut ended = 1;
        for (due, requests) in due {
            self.metrics.recorder.unanswered(requests, window.contains(due));
            let rest = requests - std::mem::take(&mut ended);
            if rest > 0 {
                let account = self.metrics.offer(rest, self.settings.counted.contains(due));
                match outcome {
                    Some(outcome) => self.metrics.end(account, outcome, None),
                    None => self.metrics.ledger.in_flight(account),
                }
            }
        }
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
    use crate::plan::config::Client;
    use base::Nanos;
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
}
