//! The ledger: every offered request ends in exactly one outcome.
//!
//! A request is offered when it falls due, and gets an [`Account`] then. It belongs to the ledger if that moment lies in
//! the measured window, whenever its session began and whenever the request ends. A session that breaks off makes no
//! more requests: in an open loop the rest of them fall due all the same, by their think times, and share the outcome that
//! ended the session. A closed-loop client makes a request only after the reply before it, so its session has no rest.
//!
//! A retried request is offered again and gets a new account ([`crate::plan::choices::retry`]). It counts among all requests
//! like any other, and also among the retries.
//!
//! Invariant: `offered = sum of outcomes + in flight`, once every account has been closed, of all requests
//! and of the retries. The three are counted separately, so that the check can fail.

use record::{Outcome, Outcomes, Statuses};
use serde::{Deserialize, Serialize};

/// Requests that were offered together and have not ended: one, or the rest of a session that broke off. An account
/// cannot be copied and must not be dropped: it ends in [`Ledger::end`] or [`Ledger::in_flight`].
#[derive(Debug)]
pub struct Account {
    requests: u32,
    counted: bool,
    retry: bool,
}

impl Account {
    /// The account of a request that another process has offered and this one has to end. The other process drops its
    /// account.
    pub fn taken_on(counted: bool) -> Account {
        Account { requests: 1, counted, retry: false }
    }

    /// The number of requests.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Returns true for requests that belong to the ledger.
    pub fn is_counted(&self) -> bool {
        self.counted
    }
}

/// Offered requests, outcomes, and requests in flight.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    offered: u64,
    in_flight_at_end: u64,
    outcomes: [u64; Outcome::ALL.len()],
    statuses: Statuses,
}

impl Counts {
    /// Requests that fell due in the window.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Requests that had not ended when the run ended.
    pub fn in_flight_at_end(&self) -> u64 {
        self.in_flight_at_end
    }

    /// The outcomes of the requests that ended.
    pub fn outcomes(&self) -> Outcomes {
        named(&self.outcomes)
    }

    /// The replies among the outcomes, by status code.
    pub fn statuses(&self) -> &Statuses {
        &self.statuses
    }

    fn merge(&mut self, other: &Counts) {
        self.statuses.merge(&other.statuses);
        self.offered += other.offered;
        self.in_flight_at_end += other.in_flight_at_end;
        for (sum, count) in self.outcomes.iter_mut().zip(other.outcomes) {
            *sum += count;
        }
    }
}

/// The counts of all requests, and separately those of the retries among them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    all: Counts,
    retries: Counts,
}

impl Ledger {
    /// Opens the account of requests that fall due now; `counted` if that is in the window.
    pub fn offer(&mut self, requests: u32, counted: bool) -> Account {
        self.open(Account { requests, counted, retry: false })
    }

    /// Opens the account of a request that is offered again.
    pub fn offer_again(&mut self, counted: bool) -> Account {
        self.open(Account { requests: 1, counted, retry: true })
    }

    /// Ends the requests of an account with this outcome; `status` is that of their reply.
    pub fn end(&mut self, account: Account, outcome: Outcome, status: Option<u16>) {
        let requests = u64::from(account.requests);
        self.enter(&account, |counts| {
            counts.outcomes[outcome as usize] += requests;
            status.into_iter().for_each(|status| counts.statuses.add(status, requests));
        });
    }

    /// Closes an account that the end of the run interrupted.
    pub fn in_flight(&mut self, account: Account) {
        self.enter(&account, |counts| counts.in_flight_at_end += u64::from(account.requests));
    }

    /// Adds the ledger of another thread.
    pub fn merge(&mut self, other: &Ledger) {
        self.all.merge(&other.all);
        self.retries.merge(&other.retries);
    }

    /// The counts of all requests.
    pub fn all(&self) -> &Counts {
        &self.all
    }

    /// The counts of the retries among them.
    pub fn retries(&self) -> &Counts {
        &self.retries
    }

    fn open(&mut self, account: Account) -> Account {
        self.enter(&account, |counts| counts.offered += u64::from(account.requests));
        account
    }

    /// Makes an entry in the counts that an account belongs to.
    fn enter(&mut self, account: &Account, entry: impl Fn(&mut Counts)) {
        if account.counted {
            entry(&mut self.all);
        }
        if account.counted && account.retry {
            entry(&mut self.retries);
        }
    }
}

/// Names counts that are in the order of [`Outcome::ALL`].
pub(crate) fn named(counts: &[u64; Outcome::ALL.len()]) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for outcome in Outcome::ALL {
        outcomes.add(outcome, counts[outcome as usize]);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::terms::window::Window;
    use base::Nanos;
    use proptest::prelude::*;

    #[test]
    fn outcomes_are_numbered_as_they_are_listed() {
        for (number, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number);
        }
    }

    #[test]
    fn a_window_holds_its_start_and_not_its_end() {
        let window = Window { from: Nanos(10), until: Nanos(20) };
        assert!(window.contains(Nanos(10)) && window.contains(Nanos(19)));
        assert!(!window.contains(Nanos(9)) && !window.contains(Nanos(20)));
        assert_eq!(window.length(), Nanos(10));
    }

    /// An event of a request; its number chooses among the living accounts.
    #[derive(Clone, Debug)]
    enum Step {
        Due { requests: u32, counted: bool, retry: bool },
        End { account: usize, outcome: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u32..20, any::<bool>(), any::<bool>()).prop_map(|(requests, counted, retry)| Step::Due {
                requests,
                counted,
                retry
            }),
            (any::<usize>(), 0..Outcome::ALL.len())
                .prop_map(|(account, outcome)| Step::End { account, outcome }),
        ]
    }

    proptest! {
        #[test]
        fn ledger_balances_after_any_events_and_end(
            steps in prop::collection::vec(step(), 0..300),
        ) {
            let (mut ledger, mut living) = (Ledger::default(), Vec::<Account>::new());
            let (mut expected, mut expected_again) = (0u64, 0u64);
            for step in steps {
                match step {
                    Step::Due { requests, counted, retry } => {
                        let requests = if retry { 1 } else { requests };
                        let counts = if counted { u64::from(requests) } else { 0 };
                        expected += counts;
                        expected_again += if retry { counts } else { 0 };
                        living.push(match retry {
                            true => ledger.offer_again(counted),
                            false => ledger.offer(requests, counted),
                        });
                    }
                    Step::End { account, outcome } if !living.is_empty() => {
                        let account = living.swap_remove(account % living.len());
                        ledger.end(account, Outcome::ALL[outcome], Some(200));
                    }
                    Step::End { .. } => {}
                }
            }
            living.into_iter().for_each(|account| ledger.in_flight(account));
            for (counts, expected) in [(ledger.all(), expected), (ledger.retries(), expected_again)] {
                prop_assert_eq!(counts.offered(), expected);
                prop_assert_eq!(counts.offered(), counts.outcomes().total() + counts.in_flight_at_end());
            }
        }
    }
}
