//! Connections on their way from the dispatcher to a worker, and whose they are.
//!
//! ```text
//!   placed ──> waiting ──sent──> passed ──claimed by the worker──> the worker's
//!                                  │
//!                                  └─ not within 100 ms, or the worker has died ──> placed anew
//! ```
//!
//! Connections are numbered in the order in which they are sent. Two words of shared memory say how far the worker is:
//! [`NEXT`], the first number that nobody has claimed, and [`SEEN`], how many it has received. The worker claims a connection
//! by moving [`NEXT`] on by one, and the dispatcher takes back all that are left by moving it to the end: one of them
//! succeeds. Until a connection is claimed the dispatcher keeps its descriptor. A worker that is stopped, or whose disk
//! is, so loses nothing that it has not begun.
//!
//! Invariant: a connection is in one place: waiting, passed, or claimed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Nanos;

use super::messages::{Handed, pack};
use crate::processes::{Fleet, IDLE_FROM, Sent};

/// The words of a worker in shared memory, beside [`IDLE_FROM`].
pub const NEXT: usize = IDLE_FROM + 1;
pub const SEEN: usize = NEXT + 1;
pub const WORDS: usize = SEEN + 1;

/// How long a worker may take to claim a connection: many turns of a loop, and less than anybody waits.
pub const ANSWER_WITHIN: Nanos = Nanos::from_millis(100);

/// The dispatcher's side of one worker.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<Handed>,
    /// Sent and not yet known to be claimed, with the time when they were.
    passed: VecDeque<(Handed, Nanos)>,
    /// The number of the first in `passed`.
    first: u64,
}

impl Outbox {
    /// Adds a connection that was placed with the worker.
    pub fn push(&mut self, handed: Handed) {
        self.waiting.push_back(handed);
    }

    /// Whether every connection is the worker's.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.passed.is_empty()
    }

    /// Sends what waits, as far as the worker's socket takes it. Returns whether some is left that it may take later.
    pub fn send(&mut self, fleet: &Fleet, slot: usize, now: Nanos) -> bool {
        while !self.waiting.is_empty() {
            let (bytes, sockets) = pack(self.waiting.iter());
            let count = sockets.len();
            match fleet.send(slot, &bytes, &sockets) {
                Ok(Sent::Yes) => self.passed.extend(self.waiting.drain(..count).map(|handed| (handed, now))),
                // One that has gone will be reported dead, and what it has not begun placed anew.
                Ok(Sent::Gone) => return false,
                Ok(Sent::Full) | Err(_) => return true,
            }
        }
        false
    }

    /// Lets go of what the worker has claimed.
    pub fn settle(&mut self, words: &[AtomicU64]) {
        self.let_go(words[NEXT].load(Ordering::Acquire));
    }

    fn let_go(&mut self, next: u64) {
        while self.first < next && self.passed.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// When the worker must have claimed its next connection; nothing while it has claimed all.
    pub fn answer_due(&self) -> Option<Nanos> {
        self.passed.front().map(|(_, at)| *at + ANSWER_WITHIN)
    }

    /// Takes back everything that the worker has not claimed, and cannot claim from now on.
    pub fn take_back(&mut self, words: &[AtomicU64]) -> impl Iterator<Item = Handed> {
        let end = self.end();
        let claimed = words[NEXT].fetch_max(end, Ordering::AcqRel);
        self.let_go(claimed);
        self.first = end;
        self.passed.drain(..).map(|(handed, _)| handed).chain(self.waiting.drain(..))
    }

    /// Whether the worker has received everything that was sent.
    pub fn is_answered(&self, words: &[AtomicU64]) -> bool {
        words[SEEN].load(Ordering::Acquire) >= self.end()
    }

    /// The number of the connection that is sent next.
    fn end(&self) -> u64 {
        self.first + self.passed.len() as u64
    }
}

/// The worker's side: claims the connection of a number. Returns false for one that was taken back.
pub fn claim(words: &[AtomicU64], number: u64) -> bool {
    words[NEXT].compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;

    fn words() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn handed() -> Handed {
        Handed { socket: File::open("/dev/null").unwrap().into(), peer: None }
    }

    /// As [`Outbox::send`] does, without a worker.
    fn pass(outbox: &mut Outbox, count: usize, now: Nanos) {
        outbox.passed.extend((0..count).map(|_| (handed(), now)));
    }

    #[test]
    fn what_is_claimed_is_the_workers_and_the_rest_can_be_taken_back() {
        let (mut outbox, words) = (Outbox::default(), words());
        pass(&mut outbox, 3, Nanos(7));
        outbox.push(handed());
        assert_eq!(outbox.answer_due(), Some(Nanos(7) + ANSWER_WITHIN));
        assert!(claim(&words, 0));
        outbox.settle(&words);
        assert_eq!(outbox.passed.len(), 2);
        assert!(claim(&words, 1));
        assert_eq!(outbox.take_back(&words).count(), 2, "one that was passed, one that waited");
        assert!(!claim(&words, 2), "taken back");
        assert!(outbox.is_empty() && outbox.answer_due().is_none());
        pass(&mut outbox, 1, Nanos(9));
        assert!(claim(&words, 3), "the numbers go on");
        outbox.settle(&words);
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_worker_has_answered_when_it_has_received_everything() {
        let (mut outbox, words) = (Outbox::default(), words());
        assert!(outbox.is_answered(&words));
        pass(&mut outbox, 2, Nanos(1));
        drop(outbox.take_back(&words));
        assert!(!outbox.is_answered(&words));
        words[SEEN].store(2, Ordering::Release);
        assert!(outbox.is_answered(&words));
    }

    proptest! {
        /// In whatever order both act, each connection is the worker's or the dispatcher's.
        #[test]
        fn each_connection_has_one_owner(steps in prop::collection::vec(0..4, 0..200)) {
            let (mut outbox, words) = (Outbox::default(), words());
            let (mut sent, mut read, mut claimed, mut taken_back) = (0, 0, 0, 0);
            for step in steps {
                match step {
                    0 => {
                        pass(&mut outbox, 1, Nanos(1));
                        sent += 1;
                    }
                    1 if read < sent => {
                        claimed += u64::from(claim(&words, read));
                        read += 1;
                    }
                    2 => taken_back += outbox.take_back(&words).count() as u64,
                    _ => outbox.settle(&words),
                }
                prop_assert!(claimed + taken_back + outbox.passed.len() as u64 >= sent);
            }
            while read < sent {
                claimed += u64::from(claim(&words, read));
                read += 1;
            }
            outbox.settle(&words);
            prop_assert!(outbox.is_empty());
            prop_assert_eq!(claimed + taken_back, sent);
        }
    }
}
