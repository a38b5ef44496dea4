//! Offers failed requests again, or enters them as unanswered.

use base::{Clock, Nanos};
use record::Outcome;

use super::session::Session;
use super::{Engine, STARTS_PER_TURN};
use crate::engine::retry_queue::Again;
use crate::engine::transport::Transport;
use crate::plan::draws::Draws;
use crate::plan::retry::Retry;

impl Again {
    /// All requests that a session had left when it broke off.
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

    /// The request that was answered last. Its session continues without it, unless it was the last one.
    pub(super) fn one(session: &Session) -> Again {
        // The retry has its own draws and takes none from the session: the session's requests must not depend
        // on the server's replies.
        let draws = Draws::new(!session.draws.clone().bits());
        let frees_client = session.frees_client && session.account.left() == 0;
        Again { requests: 1, draws, frees_client, ..Again::rest(session) }
    }
}

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// Ends a session and frees its client. A client whose request will be offered again stays busy until
    /// that ends.
    pub(super) fn over(&mut self, session: &Session, again: Again, outcome: Outcome, now: Nanos) {
        if !self.retry(again, outcome, now) && session.frees_client {
            let due = now + self.settings.workload.think_time(&mut session.draws.clone());
            self.schedule.session_ended(due);
        }
    }

    /// Queues ended requests to be offered again, if outcome and policy allow it, and returns true if it did.
    /// Failed requests without a retry have no latency.
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
            self.metrics.recorder.unanswered(requests, measured);
        }
        is_retried
    }

    /// Begins the retries that are due.
    pub(super) fn start_retries(&mut self, now: Nanos) {
        for _ in 0..STARTS_PER_TURN {
            let Some((due, again)) = self.retries.take(now) else { break };
            let account =
                self.metrics.ledger.offer_again(again.requests, self.settings.counted.contains(due));
            self.metrics.recorder.offered_again(again.requests);
            let users = self.users(again.intended);
            let session = Session {
                account,
                users,
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
