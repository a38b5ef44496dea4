//! Failed requests are offered again, or entered as unanswered.

use base::{Clock, Nanos};
use record::Outcome;

use super::session::Session;
use super::{Engine, STARTS_PER_TURN};
use crate::draws::Draws;
use crate::retry::{Again, Retry};
use crate::transport::Transport;

impl Again {
    /// All that a session had left when it broke off.
    pub(super) fn rest(session: &Session) -> Again {
        Again {
            requests: session.account.left(),
            request: session.request,
            draws: session.draws,
            intended: session.intended,
            retries: session.retries,
            frees_client: session.frees_client,
        }
    }

    /// The one request that was answered last; its session goes on without it, unless that was all.
    pub(super) fn one(session: &Session) -> Again {
        // Draws of its own, without taking any from the session: what that asks for must not depend on
        // what the server answers.
        let draws = Draws::new(!session.draws.clone().bits());
        let frees_client = session.frees_client && session.account.left() == 0;
        Again { requests: 1, draws, frees_client, ..Again::rest(session) }
    }
}

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// A session is over, and its client is free, unless something is to be offered again: then it is busy
    /// until that is over.
    pub(super) fn over(&mut self, session: &Session, again: Again, outcome: Outcome, now: Nanos) {
        if !self.retry(again, outcome, now) && session.frees_client {
            let due = now + self.settings.workload.think_time(&mut session.draws.clone());
            self.schedule.session_ended(due);
        }
    }

    /// Has requests that ended offered again, if the outcome and the policy allow it, and returns whether they are.
    /// Failed requests that are not have no latency.
    pub(super) fn retry(&mut self, again: Again, outcome: Outcome, now: Nanos) -> bool {
        if outcome == Outcome::Ok {
            return false;
        }
        let (requests, measured) = (again.requests, self.settings.counted.contains(again.intended));
        let is_retried = Retry::is_worth_it(outcome) && {
            let delay = self.settings.retry.delay(again.retries, &mut self.retry_draws);
            let again = Again { retries: again.retries + 1, ..again };
            delay.is_some_and(|delay| self.retries.push(now + delay, again))
        };
        if !is_retried {
            self.books.recorder.unanswered(requests, measured);
        }
        is_retried
    }

    /// Begins the retries that are due.
    pub(super) fn start_retries(&mut self, now: Nanos) {
        for _ in 0..STARTS_PER_TURN {
            let Some((due, again)) = self.retries.take(now) else { break };
            let account = self.books.ledger.offer_again(again.requests, self.settings.counted.contains(due));
            self.books.recorder.offered_again(again.requests);
            let session = Session {
                account,
                draws: again.draws,
                request: again.request,
                intended: again.intended,
                retries: again.retries,
                frees_client: again.frees_client,
            };
            self.connect(session, now);
        }
    }
}
