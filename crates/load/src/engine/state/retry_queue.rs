//! The retries of one thread, by the policy that says when they are due.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use base::Nanos;

use crate::plan::choices::retry::Retry;
use crate::plan::requests::RequestId;
use crate::plan::terms::draws::Draws;

/// The most retries of one thread that wait for their time: about 64 MiB. A client whose retry finds no room
/// gives up, and a counter counts it.
const WAITING_MAX: usize = 1 << 20;

/// Requests to be offered again.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    /// The number of requests: those that the session had left.
    pub requests: u32,
    /// The first of the requests.
    pub request: RequestId,
    /// The session's draws, for the requests after the first.
    pub draws: Draws,
    /// The intended time of the first attempt.
    pub intended: Nanos,
    /// The number of retries of the request, this one included.
    pub retries: u32,
    /// True if a place in the schedule becomes free when these requests end.
    pub frees_place: bool,
}

struct Waiting {
    due: Nanos,
    /// The position in the order of insertion; retries that are due together keep that order.
    number: u64,
    again: Again,
}

/// The retries of one thread that wait for their time.
pub(crate) struct RetryQueue {
    policy: Retry,
    /// The source of the delays.
    draws: Draws,
    waiting: BinaryHeap<Reverse<Waiting>>,
    put_in: u64,
    given_up: u64,
}

impl RetryQueue {
    /// An empty queue; `seed` decides the delays.
    pub fn new(policy: Retry, seed: u64) -> RetryQueue {
        RetryQueue { policy, draws: Draws::new(seed), waiting: BinaryHeap::new(), put_in: 0, given_up: 0 }
    }

    /// Adds requests that failed now to be offered again; returns false if the policy says no or the queue is full.
    pub fn put_in(&mut self, again: Again, now: Nanos) -> bool {
        let delay = self.policy.delay(again.retries, &mut self.draws);
        let again = Again { retries: again.retries + 1, ..again };
        delay.is_some_and(|delay| self.push(now.saturating_add(delay), again))
    }

    fn push(&mut self, due: Nanos, again: Again) -> bool {
        let room = self.waiting.len() < WAITING_MAX;
        if room {
            self.waiting.push(Reverse(Waiting { due, number: self.put_in, again }));
            self.put_in += 1;
        } else {
            self.given_up += u64::from(again.requests);
        }
        room
    }

    /// The time at which the next retry is due.
    pub fn next(&self) -> Option<Nanos> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.due)
    }

    /// Takes the next retry if it is due, with the time at which it was due.
    pub fn take(&mut self, now: Nanos) -> Option<(Nanos, Again)> {
        self.next().filter(|due| *due <= now)?;
        self.waiting.pop().map(|Reverse(waiting)| (waiting.due, waiting.again))
    }

    /// Removes all waiting retries, in no particular order.
    pub fn take_all(&mut self) -> impl Iterator<Item = Again> + use<> {
        std::mem::take(&mut self.waiting).into_iter().map(|Reverse(waiting)| waiting.again)
    }

    /// Requests that were not retried because the queue was full.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_due_together_keep_their_order() {
        let mut queue = RetryQueue::new(Retry::Never, 0);
        let workload = crate::plan::requests::tests::workload(&["http://a/"], Default::default(), None);
        let mut draws = Draws::new(1);
        let again = |requests| Again {
            requests,
            request: workload.pick(&mut draws.clone()),
            draws: Draws::new(0),
            intended: Nanos::ZERO,
            retries: 1,
            frees_place: true,
        };
        for (due, requests) in [(7, 1), (5, 2), (5, 3)] {
            assert!(queue.push(Nanos(due), again(requests)));
        }
        draws.bits();
        assert_eq!(queue.next(), Some(Nanos(5)));
        assert!(queue.take(Nanos(4)).is_none());
        let taken = std::iter::from_fn(|| queue.take(Nanos(9))).map(|(due, again)| (due.0, again.requests));
        assert_eq!(taken.collect::<Vec<_>>(), [(5, 2), (5, 3), (7, 1)]);
    }
}
