//! The ledger: every offered request ends in exactly one outcome.
//!
//! A session offers all its requests at the moment it is scheduled. A request belongs to the ledger if that moment
//! lies in the measured window, whenever the request ends. A request that ends reduces its session's [`Account`] by
//! one. If a session breaks off, the rest of its account gets the outcome that ended it. At the end of the run, the
//! rest of an account was in flight. The session's requests after the one in progress were not due yet, so no
//! server failed to answer them.
//!
//! A retried request is offered again and gets a new account ([`crate::plan::retry`]). It counts among all requests
//! like any other, and also among the retries.
//!
//! Invariant: `offered = sum of outcomes + in flight`, once every account has been closed, of all requests
//! and of the retries. The three are counted separately, so that the check can fail.

use record::{Outcome, Outcomes, Statuses};
use serde::{Deserialize, Serialize};

/// The requests that one session has not ended yet. An account cannot be copied and must not be dropped: it
/// ends in [`Ledger::end_rest`] or [`Ledger::in_flight`].
#[derive(Debug)]
pub struct Account {
    left: u32,
    measured: bool,
    retry: bool,
}

impl Account {
    /// The account of a session of one request that another process has offered and this one has to end. The
    /// other process drops its account.
    pub fn taken_on(measured: bool) -> Account {
        Account { left: 1, measured, retry: false }
    }

    /// Requests that have not ended.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Returns true for a session scheduled in the measured window.
    pub fn measured(&self) -> bool {
        self.measured
    }
}

/// Offered requests, outcomes, and requests in flight.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    offered: u64,
    in_flight_at_end: u64,
    not_due_at_end: u64,
    outcomes: [u64; Outcome::ALL.len()],
    statuses: Statuses,
}

impl Counts {
    /// Requests offered by the sessions scheduled in the window.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Requests that had not ended when the run ended.
    pub fn in_flight_at_end(&self) -> u64 {
        self.in_flight_at_end
    }

    /// The requests among [`Counts::in_flight_at_end`] that were not due yet.
    pub fn not_due_at_end(&self) -> u64 {
        self.not_due_at_end
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
        self.not_due_at_end += other.not_due_at_end;
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
    /// Opens the account of a session with this number of requests.
    pub fn offer(&mut self, requests: u32, measured: bool) -> Account {
        self.open(Account { left: requests, measured, retry: false })
    }

    /// Opens the account of requests that are offered again.
    pub fn offer_again(&mut self, requests: u32, measured: bool) -> Account {
        self.open(Account { left: requests, measured, retry: true })
    }

    /// Ends one request of a session; the account has at least one left. `status` is that of its reply.
    pub fn end_one(&mut self, account: &mut Account, outcome: Outcome, status: Option<u16>) {
        account.left -= 1;
        self.enter(account, |counts| {
            counts.outcomes[outcome as usize] += 1;
            status.into_iter().for_each(|status| counts.statuses.add(status, 1));
        });
    }

    /// Ends a session; its remaining requests all get this outcome. Returns their number.
    pub fn end_rest(&mut self, account: Account, outcome: Outcome) -> u32 {
        self.enter(&account, |counts| counts.outcomes[outcome as usize] += u64::from(account.left));
        account.left
    }

    /// Closes the account of a session that the end of the run interrupted; `due` of its remaining requests
    /// were due.
    pub fn in_flight(&mut self, account: Account, due: u32) {
        self.enter(&account, |counts| {
            counts.in_flight_at_end += u64::from(account.left);
            counts.not_due_at_end += u64::from(account.left.saturating_sub(due));
        });
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
        self.enter(&account, |counts| counts.offered += u64::from(account.left));
        account
    }

    /// Makes an entry in the counts that an account belongs to.
    fn enter(&mut self, account: &Account, entry: impl Fn(&mut Counts)) {
        if account.measured {
            entry(&mut self.all);
        }
        if account.measured && account.retry {
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
    use crate::plan::window::Window;
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

    /// An event of a session; its number chooses among the living sessions.
    #[derive(Clone, Debug)]
    enum Step {
        Schedule { requests: u32, measured: bool, retry: bool },
        Reply { session: usize, outcome: usize },
        Break { session: usize, outcome: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u32..20, any::<bool>(), any::<bool>()).prop_map(|(requests, measured, retry)| Step::Schedule {
                requests,
                measured,
                retry
            }),
            (any::<usize>(), 0..Outcome::ALL.len())
                .prop_map(|(session, outcome)| Step::Reply { session, outcome }),
            (any::<usize>(), 0..Outcome::ALL.len())
                .prop_map(|(session, outcome)| Step::Break { session, outcome }),
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
                    Step::Schedule { requests, measured, retry } => {
                        let counted = if measured { u64::from(requests) } else { 0 };
                        expected += counted;
                        expected_again += if retry { counted } else { 0 };
                        living.push(match retry {
                            true => ledger.offer_again(requests, measured),
                            false => ledger.offer(requests, measured),
                        });
                    }
                    Step::Reply { session, outcome } if !living.is_empty() => {
                        let at = session % living.len();
                        ledger.end_one(&mut living[at], Outcome::ALL[outcome], Some(200));
                        if living[at].left() == 0 {
                            living.swap_remove(at);
                        }
                    }
                    Step::Break { session, outcome } if !living.is_empty() => {
                        let account = living.swap_remove(session % living.len());
                        ledger.end_rest(account, Outcome::ALL[outcome]);
                    }
                    Step::Reply { .. } | Step::Break { .. } => {}
                }
            }
            let mut expected_not_due = 0;
            for account in living {
                expected_not_due += if account.measured() { u64::from(account.left() - 1) } else { 0 };
                ledger.in_flight(account, 1);
            }
            prop_assert_eq!(ledger.all().not_due_at_end(), expected_not_due);
            for (counts, expected) in [(ledger.all(), expected), (ledger.retries(), expected_again)] {
                prop_assert_eq!(counts.offered(), expected);
                prop_assert_eq!(counts.offered(), counts.outcomes().total() + counts.in_flight_at_end());
            }
        }
    }
}
