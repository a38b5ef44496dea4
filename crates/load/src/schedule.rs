//! When the next session is due: the difference between the open and the closed client.
//!
//! The open schedule is fixed before the run by an arrival process and does not know the server. The
//! closed one has a place for each client, which is due again when its session has ended and it has
//! thought (Banga 1997, section 2: the simple client, which can never offer more than the server takes).
//!
//! Invariant: every intended time before the end is yielded exactly once, late or not; nothing is
//! skipped, and nothing is yielded before its time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;

use base::Nanos;

use crate::arrivals::Arrivals;

/// The sessions to come of one thread. All times are since the run's start.
pub enum Schedule {
    /// By an arrival process, up to the run's end.
    Open(Peekable<Arrivals>),
    /// By the clients that have none in progress, each with the time it is due.
    Closed(BinaryHeap<Reverse<Nanos>>),
}

impl Schedule {
    /// The schedule of an arrival process.
    pub fn open(arrivals: Arrivals) -> Schedule {
        Schedule::Open(arrivals.peekable())
    }

    /// The schedule of so many clients, due for the first time evenly over a span from the start.
    pub fn closed(clients: u32, spread: Nanos) -> Schedule {
        let first = |client| spread * u64::from(client) / u64::from(clients);
        Schedule::Closed((0..clients).map(|client| Reverse(first(client))).collect())
    }

    /// When the next session is due; none where every client is busy, or the arrivals are over.
    pub fn next(&mut self) -> Option<Nanos> {
        match self {
            Schedule::Open(arrivals) => arrivals.peek().copied(),
            Schedule::Closed(free) => free.peek().map(|due| due.0),
        }
    }

    /// Takes the next session if it is due; returns its intended time.
    pub fn take(&mut self, now: Nanos) -> Option<Nanos> {
        self.next().filter(|due| *due <= now)?;
        match self {
            Schedule::Open(arrivals) => arrivals.next(),
            Schedule::Closed(free) => free.pop().map(|due| due.0),
        }
    }

    /// A session has ended; a closed client is due again at the given time.
    pub fn session_ended(&mut self, due: Nanos) {
        if let Schedule::Closed(free) = self {
            free.push(Reverse(due));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::{Lane, Process};
    use base::{Clock, PerSecond, Seed, SimulatedClock, WallTime};
    use proptest::prelude::*;

    const ALONE: Lane = Lane { index: 0, count: 1 };

    proptest! {
        /// However irregularly the loop gets around to it, every arrival is taken once, in order, and
        /// not before its time.
        #[test]
        fn nothing_is_skipped_and_nothing_early(
            pauses_us in prop::collection::vec(0u64..5_000, 1..200), batch in 1usize..64, seed: u64,
        ) {
            let clock = SimulatedClock::new(WallTime::default());
            let origin = clock.now();
            let arrivals = || Process::Poisson.arrivals(PerSecond(10_000.0), Nanos::SECOND, ALONE, Seed(seed));
            let (mut schedule, mut taken) = (Schedule::open(arrivals()), Vec::new());
            for pause in pauses_us {
                clock.advance(Nanos::from_micros(pause));
                let now = clock.now() - origin;
                for _ in 0..batch {
                    let Some(intended) = schedule.take(now) else { break };
                    prop_assert!(intended <= now);
                    taken.push(intended);
                }
            }
            let now = clock.now() - origin;
            while let Some(intended) = schedule.take(now) {
                taken.push(intended);
            }
            prop_assert_eq!(taken, arrivals().take_while(|at| *at <= now).collect::<Vec<_>>());
        }

        /// The clients come one after another until all are there.
        #[test]
        fn closed_clients_come_over_their_span(clients in 1u32..500, span_ms in 0u64..5_000) {
            let span = Nanos::from_millis(span_ms);
            let mut schedule = Schedule::closed(clients, span);
            let due: Vec<Nanos> = std::iter::from_fn(|| schedule.take(Nanos::MAX)).collect();
            prop_assert_eq!(due.len(), clients as usize);
            prop_assert!(due.is_sorted() && due[0] == Nanos::ZERO);
            prop_assert!(due.iter().all(|due| *due < span.max(Nanos(1))));
        }

        /// A closed client has never more sessions in progress than clients.
        #[test]
        fn a_closed_client_waits_for_its_session(clients in 1u32..50, ended in prop::collection::vec(any::<bool>(), 1..300)) {
            let (mut schedule, mut busy, mut now) = (Schedule::closed(clients, Nanos::ZERO), 0, Nanos::ZERO);
            for ended in ended {
                now += Nanos(10);
                if ended && busy > 0 {
                    busy -= 1;
                    schedule.session_ended(now + Nanos(5));
                } else if schedule.take(now).is_some() {
                    busy += 1;
                }
                prop_assert!(busy <= clients);
                prop_assert!(busy == clients || schedule.next().is_some());
            }
        }
    }
}
