//! The requests that sessions would have made if they had not broken off. Each is counted when it falls due.

use std::collections::BTreeMap;

use base::Nanos;
use record::Outcome;

use crate::engine::state::retry_queue::Again;

/// The most broken sessions of one thread with requests to come: about 100 MiB.
const SESSIONS_MAX: usize = 1 << 20;

/// The requests of broken sessions that have not fallen due, with the outcome that each will have.
#[derive(Default)]
pub(crate) struct Unmade {
    /// By the due time of a session's next request, and a number that no other session has.
    sessions: BTreeMap<(Nanos, u64), (Again, Outcome)>,
    put_in: u64,
}

impl Unmade {
    /// Returns true if there is no room for another session.
    pub fn is_full(&self) -> bool {
        self.sessions.len() >= SESSIONS_MAX
    }

    /// Adds the requests of a session.
    pub fn put_in(&mut self, again: Again, outcome: Outcome) {
        self.sessions.insert((again.intended, self.put_in), (again, outcome));
        self.put_in += 1;
    }

    /// Removes the session whose next request is due first, if that is due before `until`.
    pub fn take_before(&mut self, until: Nanos) -> Option<(Again, Outcome)> {
        let first = self.sessions.first_entry().filter(|first| first.key().0 < until)?;
        Some(first.remove())
    }
}
