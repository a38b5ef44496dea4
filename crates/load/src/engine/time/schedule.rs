//! The times at which sessions are due: the difference between the open and the closed client.
//!
//! An arrival process fixes the open schedule before the run, independent of the server. The other schedules have
//! places, and each place is due again after a think time:
//!
//! ```text
//!   the simple client    busy while its session lasts      never offers more than the server takes (Banga 1997, section 2)
//!   the S-client's D     busy while its connect is pending   offers D / T a second to a server that takes none (section 3)
//! ```
//!
//! The run's [`Tempo`] speeds an open schedule up or slows it down.
//!
//! Invariant: every intended time before the end is yielded exactly once, late or not. No time is skipped or
//! yielded early.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;

use base::Nanos;

use crate::plan::choices::arrivals::Arrivals;
use crate::plan::choices::tempo::{Passage, Tempo};

/// The future sessions of one thread. All times are since the run's start.
pub enum Schedule {
    /// Sessions by an arrival process, up to the run's end.
    Open { arrivals: Peekable<Arrivals>, tempo: Tempo, passage: Passage },
    /// Sessions by the free places, each with the time it is due.
    Places {
        free: BinaryHeap<Reverse<Nanos>>,
        busy: Busy,
        /// Number of coming sessions that begin in the middle.
        in_mid_session: u32,
    },
}

/// The time for which a session keeps its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Until its connect has ended.
    Connecting,
    /// Until it has ended.
    Whole,
}

impl Schedule {
    /// The schedule of an arrival process.
    pub fn open(arrivals: Arrivals, tempo: Tempo) -> Schedule {
        Schedule::Open { arrivals: arrivals.peekable(), tempo, passage: Passage::AS_ASKED }
    }

    /// The schedule of `clients` simple clients; their first sessions are spread evenly over `spread` from the
    /// start.
    pub fn closed(clients: u32, spread: Nanos) -> Schedule {
        Schedule::places(clients, spread, Busy::Whole)
    }

    /// The schedule of an S-client that keeps `connects` connects pending; the first ones are spread evenly over
    /// `spread` from the start.
    pub fn pending(connects: u32, spread: Nanos) -> Schedule {
        Schedule::places(connects, spread, Busy::Connecting)
    }

    fn places(count: u32, spread: Nanos, busy: Busy) -> Schedule {
        let first = |place| spread * u64::from(place) / u64::from(count);
        let free = (0..count).map(|place| Reverse(first(place))).collect();
        Schedule::Places { free, busy, in_mid_session: 0 }
    }

    /// Lets the first session of each place begin in the middle, so that the clients are a stationary population from the
    /// start. Otherwise all of them would end their sessions, and reconnect, at about the same time.
    pub fn with_clients_in_mid_session(mut self) -> Schedule {
        if let Schedule::Places { free, in_mid_session, .. } = &mut self {
            *in_mid_session = free.len() as u32;
        }
        self
    }

    /// Returns true if the session that was taken last begins in the middle.
    pub fn is_in_mid_session(&mut self) -> bool {
        match self {
            Schedule::Places { in_mid_session, .. } if *in_mid_session > 0 => {
                *in_mid_session -= 1;
                true
            }
            _ => false,
        }
    }

    /// The time for which a session keeps its place; `None` without places.
    pub fn busy(&self) -> Option<Busy> {
        match self {
            Schedule::Open { .. } => None,
            Schedule::Places { busy, .. } => Some(*busy),
        }
    }

    /// Applies a change of the tempo from now on.
    pub fn follow(&mut self, now: Nanos) {
        if let Schedule::Open { tempo, passage, .. } = self {
            passage.follow(tempo.share(), now);
        }
    }

    /// The rate currently offered, as a multiple of the configured rate.
    pub fn share(&self) -> f64 {
        match self {
            Schedule::Open { passage, .. } => passage.share(),
            Schedule::Places { .. } => 1.0,
        }
    }

    /// The time of the next session; `None` while every place is busy, after the last arrival, or during a
    /// pause.
    pub fn next(&mut self) -> Option<Nanos> {
        match self {
            Schedule::Open { arrivals, passage, .. } => passage.on_the_clock(*arrivals.peek()?),
            Schedule::Places { free, .. } => free.peek().map(|due| due.0),
        }
    }

    /// Takes the next session if it is due; returns its intended time.
    pub fn take(&mut self, now: Nanos) -> Option<Nanos> {
        let due = self.next().filter(|due| *due <= now)?;
        match self {
            Schedule::Open { arrivals, .. } => drop(arrivals.next()),
            Schedule::Places { free, .. } => drop(free.pop()),
        }
        Some(due)
    }

    /// Frees a place, which is due again at `due`.
    pub fn free(&mut self, due: Nanos) {
        if let Schedule::Places { free, .. } = self {
            free.push(Reverse(due));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::choices::arrivals::{Lane, Process};
    use base::{Clock, PerSecond, Seed, SimulatedClock, WallTime};
    use proptest::prelude::*;

    /// Tells whether the first sessions of this number of places come at equal distances, to 1 ns.
    fn are_spread(due: &[Nanos], places: u32, span: Nanos) -> bool {
        let apart = span / u64::from(places);
        due.windows(2).all(|pair| (pair[1] - pair[0]).0.abs_diff(apart.0) <= 1)
    }

    const ALONE: Lane = Lane { index: 0, count: 1 };

    #[test]
    fn a_pause_and_a_doubled_rate_are_carried_out() {
        let (tempo, mut now) = (Tempo::default(), Nanos::ZERO);
        let arrivals = Process::constant().arrivals(PerSecond(1000.0), Nanos::SECOND * 3, ALONE, Seed(1));
        let mut schedule = Schedule::open(arrivals, tempo.clone());
        let mut second = |share| {
            tempo.set(share);
            schedule.follow(now);
            now += Nanos::SECOND;
            let taken: Vec<Nanos> = std::iter::from_fn(|| schedule.take(now - Nanos(1))).collect();
            assert!(taken.is_sorted() && taken.iter().all(|due| (now - Nanos::SECOND..now).contains(due)));
            taken.len()
        };
        assert_eq!([1.0, 0.0, 2.0, 0.5].map(&mut second), [1000, 0, 2000, 500]);
    }

    proptest! {
        /// Every arrival is taken once, in order and not before its time, however irregularly the loop runs.
        #[test]
        fn nothing_is_skipped_and_nothing_early(
            pauses_us in prop::collection::vec(0u64..5_000, 1..200), batch in 1usize..64, seed: u64,
        ) {
            let clock = SimulatedClock::new(WallTime::default());
            let origin = clock.now();
            let arrivals = || "poisson".parse::<Process>().unwrap().arrivals(PerSecond(10_000.0), Nanos::SECOND, ALONE, Seed(seed));
            let (mut schedule, mut taken) = (Schedule::open(arrivals(), Tempo::default()), Vec::new());
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

        /// The first sessions of the clients are spread over the span.
        #[test]
        fn closed_clients_come_over_their_span(clients in 1u32..500, span_ms in 0u64..5_000) {
            let span = Nanos::from_millis(span_ms);
            let mut schedule = Schedule::closed(clients, span);
            let due: Vec<Nanos> = std::iter::from_fn(|| schedule.take(Nanos::MAX)).collect();
            prop_assert_eq!(due.len(), clients as usize);
            prop_assert!(due.is_sorted() && due[0] == Nanos::ZERO);
            prop_assert!(due.iter().all(|due| *due < span.max(Nanos(1))));
            prop_assert!(are_spread(&due, clients, span));
        }

        /// Each place begins once in its span, and again only when it is free.
        #[test]
        fn pending_connects_fill_their_places(connects in 1u32..50, ended in 1u32..50) {
            let span = Nanos::from_millis(500);
            let mut schedule = Schedule::pending(connects, span);
            let begun: Vec<Nanos> = std::iter::from_fn(|| schedule.take(span)).collect();
            prop_assert_eq!((begun.len(), schedule.busy()), (connects as usize, Some(Busy::Connecting)));
            prop_assert!(are_spread(&begun, connects, span));
            let ended = ended.min(connects);
            (0..ended).for_each(|_| schedule.free(Nanos::SECOND));
            let again = std::iter::from_fn(|| schedule.take(Nanos::SECOND)).count();
            prop_assert_eq!(again, ended as usize);
        }

        /// Closed clients never have more sessions in progress than there are clients.
        #[test]
        fn a_closed_client_waits_for_its_session(clients in 1u32..50, ended in prop::collection::vec(any::<bool>(), 1..300)) {
            let (mut schedule, mut busy, mut now) = (Schedule::closed(clients, Nanos::ZERO), 0, Nanos::ZERO);
            for ended in ended {
                now += Nanos(10);
                if ended && busy > 0 {
                    busy -= 1;
                    schedule.free(now + Nanos(5));
                } else if schedule.take(now).is_some() {
                    busy += 1;
                }
                prop_assert!(busy <= clients);
                prop_assert!(busy == clients || schedule.next().is_some());
            }
        }
    }
}
