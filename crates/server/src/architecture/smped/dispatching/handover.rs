//! Connections on their way from the dispatcher to a worker, and their owners.
//!
//! ```text
//!   placed ──> waiting ──sent──> passed ──claimed by the worker──> the worker's
//!                                  │
//!                                  └─ not within 100 ms, or the worker has died ──> placed anew
//! ```
//!
//! Connections are numbered in the order of sending. Two words of shared memory show the worker's progress:
//! [`NEXT`], the first unclaimed number, and [`SEEN`], the count of received connections. The worker claims a
//! connection, or the dispatcher takes it back ([`words::claims`]). The dispatcher keeps a connection's descriptor
//! until the connection is claimed. A worker that is stopped or waits for its disk thus loses no connection that it has not begun.
//!
//! Invariant: a connection is in one place: waiting, passed, or claimed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Nanos;
use words::claims;

use super::messages::{Handed, pack};
use crate::architecture::smped::settings::ANSWER_WITHIN;
use crate::ground::scoreboard::IDLE_FROM;
use crate::processes::{Fleet, Sent};

/// The words of a worker in shared memory, beside [`IDLE_FROM`].
pub const NEXT: usize = IDLE_FROM + 1;
pub const SEEN: usize = NEXT + 1;
pub const WORDS: usize = SEEN + 1;

/// The dispatcher's side of one worker.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<Handed>,
    /// Connections that were sent and are not known to be claimed, with the time of sending.
    passed: VecDeque<(Handed, Nanos)>,
    /// The number of the first connection in `passed`.
    first: u64,
}

impl Outbox {
    /// Adds a connection that was placed with the worker.
    pub fn push(&mut self, handed: Handed) {
        self.waiting.push_back(handed);
    }

    /// True if the worker has claimed every connection.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.passed.is_empty()
    }

    /// Sends the waiting connections, as far as the worker's socket takes them. Returns true if some are left
    /// for another attempt.
    pub fn send(&mut self, fleet: &Fleet, slot: usize, now: Nanos) -> bool {
        while !self.waiting.is_empty() {
            let (bytes, sockets) = pack(self.waiting.iter());
            let count = sockets.len();
            match fleet.send(slot, &bytes, &sockets) {
                Ok(Sent::Yes) => self.passed.extend(self.waiting.drain(..count).map(|handed| (handed, now))),
                // A worker that has gone will be reported dead, and its unbegun connections placed anew.
                Ok(Sent::Gone) => return false,
                Ok(Sent::Full) | Err(_) => return true,
            }
        }
        false
    }

    /// Removes the connections that the worker has claimed. If it has not claimed the next one in time, also takes back and
    /// returns all others.
    pub fn take_back_if_late(&mut self, words: &[AtomicU64], now: Nanos) -> Option<Vec<Handed>> {
        self.remove_claimed(words);
        let is_late = self.answer_due().is_some_and(|due| due <= now);
        is_late.then(|| self.take_back(words).collect())
    }

    fn remove_claimed(&mut self, words: &[AtomicU64]) {
        self.let_go(words[NEXT].load(Ordering::Acquire));
    }

    fn let_go(&mut self, next: u64) {
        while self.first < next && self.passed.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// The time by which the worker must claim its next connection; `None` if it has claimed all.
    pub fn answer_due(&self) -> Option<Nanos> {
        self.passed.front().map(|(_, at)| *at + ANSWER_WITHIN)
    }

    /// Takes back every unclaimed connection. The worker cannot claim them any more.
    pub fn take_back(&mut self, words: &[AtomicU64]) -> impl Iterator<Item = Handed> {
        let end = self.end();
        let claimed = claims::take_back(&words[NEXT], end);
        self.let_go(claimed);
        self.first = end;
        self.passed.drain(..).map(|(handed, _)| handed).chain(self.waiting.drain(..))
    }

    /// True if the worker has received every sent connection.
    pub fn is_answered(&self, words: &[AtomicU64]) -> bool {
        words[SEEN].load(Ordering::Acquire) >= self.end()
    }

    /// The number of the next connection to send.
    fn end(&self) -> u64 {
        self.first + self.passed.len() as u64
    }
}

/// Claims a connection on the worker's side. Returns false for a connection that was taken back.
pub fn claim(words: &[AtomicU64], number: u64) -> bool {
    claims::claim(&words[NEXT], number)
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

    /// Passes connections as [`Outbox::send`] does, without a worker.
    fn pass(outbox: &mut Outbox, count: usize, now: Nanos) {
        outbox.passed.extend((0..count).map(|_| (handed(), now)));
    }

    #[test]
    fn unclaimed_connections_can_be_taken_back() {
        let (mut outbox, words) = (Outbox::default(), words());
        pass(&mut outbox, 3, Nanos(7));
        outbox.push(handed());
        assert_eq!(outbox.answer_due(), Some(Nanos(7) + ANSWER_WITHIN));
        assert!(claim(&words, 0));
        outbox.remove_claimed(&words);
        assert_eq!(outbox.passed.len(), 2);
        assert!(claim(&words, 1));
        assert_eq!(outbox.take_back(&words).count(), 2, "one that was passed, one that waited");
        assert!(!claim(&words, 2), "taken back");
        assert!(outbox.is_empty() && outbox.answer_due().is_none());
        pass(&mut outbox, 1, Nanos(9));
        assert!(claim(&words, 3), "the numbers go on");
        outbox.remove_claimed(&words);
        assert!(outbox.is_empty());
    }

    #[test]
    fn worker_is_late_only_after_its_time() {
        let (mut outbox, words) = (Outbox::default(), words());
        let prompt = ANSWER_WITHIN.0 - 1;
        for number in 0..1000 {
            // Each claim comes just in time, and before another connection is passed.
            let now = Nanos(prompt * number);
            assert!(number == 0 || claim(&words, number - 1));
            assert!(outbox.take_back_if_late(&words, now).is_none(), "{number}");
            pass(&mut outbox, 1, now);
        }
        let last = Nanos(prompt * 999);
        pass(&mut outbox, 1, last + Nanos(5));
        assert!(outbox.take_back_if_late(&words, last + Nanos(prompt)).is_none());
        let taken_back = outbox.take_back_if_late(&words, last + ANSWER_WITHIN);
        assert_eq!(taken_back.map(|taken_back| taken_back.len()), Some(2), "with the younger one");
    }

    #[test]
    fn worker_has_answered_after_receiving_everything() {
        let (mut outbox, words) = (Outbox::default(), words());
        assert!(outbox.is_answered(&words));
        pass(&mut outbox, 2, Nanos(1));
        drop(outbox.take_back(&words));
        assert!(!outbox.is_answered(&words));
        words[SEEN].store(2, Ordering::Release);
        assert!(outbox.is_answered(&words));
    }

    proptest! {
        /// In every order of their actions, each connection belongs to the worker or to the dispatcher.
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
                    _ => outbox.remove_claimed(&words),
                }
                prop_assert!(claimed + taken_back + outbox.passed.len() as u64 >= sent);
            }
            while read < sent {
                claimed += u64::from(claim(&words, read));
                read += 1;
            }
            outbox.remove_claimed(&words);
            prop_assert!(outbox.is_empty());
            prop_assert_eq!(claimed + taken_back, sent);
        }
    }
}
