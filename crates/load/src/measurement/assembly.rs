//! Assembles the intervals of several threads, in order.
//!
//! Each thread delivers its intervals in order and with the same boundaries, but not at the same time. An
//! interval is complete when every thread has delivered it. When the threads have ended, incomplete intervals
//! count too: a stopped run ends in the middle of one.

use std::collections::VecDeque;

use base::Nanos;
use record::{Outcome, Outcomes, Point};

use crate::measurement::ledger;
use crate::measurement::observer::{Observer, Snapshot, Standing};
use crate::measurement::recorder::Interval;
use crate::measurement::series::{Series, point};
use crate::measurement::verdict;
use crate::plan::choices::population::Population;
use crate::plan::terms::window::Window;

/// The figures of a run in progress.
pub(crate) struct Assembly {
    window: Window,
    /// The number of intervals that each thread has delivered; `None` for a thread that delivers no more.
    told: Vec<Option<usize>>,
    /// The intervals that some thread has not delivered yet, oldest first.
    open: VecDeque<Interval>,
    /// The number of complete intervals.
    complete: usize,
    series: Series,
    outcomes: [u64; Outcome::ALL.len()],
    established: u64,
    reached: Nanos,
    populations: Vec<Standing>,
    /// The sockets of each population at its last interval, per process.
    population_sockets: Vec<Vec<u64>>,
}

impl Assembly {
    /// An assembly for `threads` threads in `processes` processes, beside these populations.
    pub(crate) fn new(threads: u32, processes: u32, window: Window, populations: &[Population]) -> Assembly {
        let standing =
            |population: &Population| Standing { name: population.to_string(), ..Standing::default() };
        Assembly {
            window,
            told: vec![Some(0); threads as usize],
            open: VecDeque::new(),
            complete: 0,
            series: Series::default(),
            outcomes: [0; Outcome::ALL.len()],
            established: 0,
            reached: Nanos::ZERO,
            populations: populations.iter().map(standing).collect(),
            population_sockets: populations.iter().map(|_| vec![0; processes as usize]).collect(),
        }
    }

    /// Takes the next interval of a process's share of a population. The observer sees it with the next
    /// interval of the measured traffic.
    pub(crate) fn add_population(&mut self, number: usize, process: u32, interval: &Interval) {
        let standing = &mut self.populations[number];
        let sockets = &mut self.population_sockets[number];
        sockets[process as usize] = interval.sockets;
        standing.sockets = sockets.iter().sum();
        standing.replies += interval.replies;
        standing.outcomes.merge(&ledger::named(&interval.outcomes));
    }

    /// Takes the next interval of a thread and shows the observer each interval that is now complete.
    pub(crate) fn add(&mut self, thread: u32, interval: Interval, observer: &mut dyn Observer) {
        let Some(number) = self.told[thread as usize] else { return };
        self.told[thread as usize] = Some(number + 1);
        match self.open.get_mut(number - self.complete) {
            Some(open) => open.merge_thread(&interval),
            None => self.open.push_back(interval),
        }
        self.close_intervals(observer);
    }

    /// Waits no longer for the intervals of a thread. Its delivered intervals stay in the figures.
    pub(crate) fn forget_thread(&mut self, thread: u32, observer: &mut dyn Observer) {
        self.told[thread as usize] = None;
        self.close_intervals(observer);
    }

    /// Shows the observer each interval that every thread has delivered.
    fn close_intervals(&mut self, observer: &mut dyn Observer) {
        while self.told.iter().flatten().all(|told| *told > self.complete) {
            let Some(interval) = self.open.pop_front() else { break };
            self.complete += 1;
            self.count(&interval);
            observer.interval(&Snapshot {
                elapsed: self.reached,
                total: self.window.until,
                warming_up: interval.from < self.window.from,
                point: &point(&interval),
                latency_intended: &interval.latency_intended,
                lateness: &interval.lateness,
                outcomes: &ledger::named(&self.outcomes),
                established: self.established,
                populations: &self.populations,
            });
            self.series.push(interval);
        }
    }

    /// The end of the last complete interval.
    pub(crate) fn reached(&self) -> Nanos {
        self.reached
    }

    /// Returns true while the target has refused every connection.
    pub(crate) fn nobody_is_there(&self) -> bool {
        verdict::unreachable(&ledger::named(&self.outcomes), self.established).is_some()
    }

    /// The outcomes of the whole run and the number of established connections. Call it after the threads
    /// have ended.
    pub(crate) fn totals(&self) -> (Outcomes, u64) {
        let (mut outcomes, mut established) = (self.outcomes, self.established);
        for interval in &self.open {
            established += interval.established;
            outcomes.iter_mut().zip(interval.outcomes).for_each(|(sum, count)| *sum += count);
        }
        (ledger::named(&outcomes), established)
    }

    /// The time series. Call it after the threads have ended.
    pub(crate) fn into_points(mut self) -> Vec<Point> {
        for interval in std::mem::take(&mut self.open) {
            self.count(&interval);
            self.series.push(interval);
        }
        self.series.points()
    }

    fn count(&mut self, interval: &Interval) {
        self.reached = interval.until;
        self.established += interval.established;
        self.outcomes.iter_mut().zip(interval.outcomes).for_each(|(sum, count)| *sum += count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { from: Nanos::SECOND, until: Nanos::from_secs(3) };

    fn interval(number: u64, refused: u64) -> Interval {
        let mut interval = Interval::new(Nanos::SECOND * number);
        interval.until = Nanos::SECOND * (number + 1);
        interval.outcomes[Outcome::Refused as usize] = refused;
        interval
    }

    #[test]
    fn a_lost_thread_holds_nobody_up() {
        let mut assembly = Assembly::new(2, 1, WINDOW, &[]);
        let mut seen = 0;
        let mut observer = |_: &Snapshot<'_>| seen += 1;
        assembly.add(0, interval(0, 1), &mut observer);
        assembly.add(0, interval(1, 1), &mut observer);
        assembly.forget_thread(1, &mut observer);
        assembly.add(1, interval(0, 1), &mut observer);
        assembly.add(0, interval(2, 1), &mut observer);
        assert_eq!((seen, assembly.totals().0.get(Outcome::Refused)), (3, 3), "a lost thread is not heard");
    }

    #[test]
    fn interval_is_published_after_every_thread_reports() {
        let mut assembly = Assembly::new(2, 1, WINDOW, &[]);
        let mut seen = Vec::new();
        let mut observer = |snapshot: &Snapshot<'_>| {
            seen.push((snapshot.elapsed, snapshot.warming_up, snapshot.outcomes.get(Outcome::Refused)));
        };
        assembly.add(0, interval(0, 1), &mut observer);
        assembly.add(0, interval(1, 2), &mut observer);
        assembly.add(1, interval(0, 4), &mut observer);
        assert!(assembly.nobody_is_there() && assembly.reached() == Nanos::SECOND);
        assembly.add(1, interval(1, 8), &mut observer);
        assembly.add(1, interval(2, 16), &mut observer);
        assert_eq!(seen, [(Nanos::SECOND, true, 5), (Nanos::from_secs(2), false, 15)]);
        assert_eq!(assembly.totals().0.get(Outcome::Refused), 31, "the incomplete one counts in the end");
        assert_eq!(assembly.into_points().len(), 3);
    }
}
