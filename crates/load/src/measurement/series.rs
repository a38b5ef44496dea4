//! The time series of a run, in constant memory.
//!
//! A series has at most [`POINTS_MAX`] points. When it is full, neighbours merge in pairs, and from then on a
//! point covers twice the time. Histograms merge exactly, so a long run loses only resolution in time.

use record::{Distribution, Latency, Point};

use crate::measurement::ledger;
use crate::measurement::recorder::Interval;

/// The most points of a series: more than a chart can show side by side.
pub const POINTS_MAX: usize = 512;

/// The series of a run, all threads together.
pub struct Series {
    intervals: Vec<Interval>,
    /// The number of intervals in each point, and in the last point so far.
    stride: u64,
    in_last: u64,
}

impl Default for Series {
    fn default() -> Series {
        Series { intervals: Vec::new(), stride: 1, in_last: 1 }
    }
}

impl Series {
    /// Adds the interval that follows all others.
    pub fn push(&mut self, interval: Interval) {
        match self.intervals.last_mut() {
            Some(last) if self.in_last < self.stride => {
                last.append(&interval);
                self.in_last += 1;
                return;
            }
            _ => {}
        }
        if self.intervals.len() == POINTS_MAX {
            self.merge_pairs();
        }
        self.intervals.push(interval);
        self.in_last = 1;
    }

    /// The points of the record.
    pub fn points(&self) -> Vec<Point> {
        self.intervals.iter().map(point).collect()
    }

    fn merge_pairs(&mut self) {
        let mut merged: Vec<Interval> = Vec::with_capacity(POINTS_MAX);
        for (number, interval) in self.intervals.drain(..).enumerate() {
            match merged.last_mut() {
                Some(last) if number % 2 == 1 => last.append(&interval),
                _ => merged.push(interval),
            }
        }
        self.intervals = merged;
        self.stride *= 2;
    }
}

/// The record of one interval.
pub fn point(interval: &Interval) -> Point {
    Point {
        at_s: interval.until.as_secs_f64(),
        interval_s: interval.until.saturating_sub(interval.from).as_secs_f64(),
        offered: interval.offered,
        retries: interval.retries,
        sent: interval.sent,
        replies: interval.replies,
        good: interval.good,
        outcomes: ledger::named(&interval.outcomes),
        statuses: interval.statuses.clone(),
        latency_intended_ns: Latency::new(&interval.latency_intended, interval.unanswered, interval.until.0),
        lateness_ns: Distribution::from(&interval.lateness),
        sockets: interval.sockets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn a_long_run_keeps_its_totals_and_its_bound(count in 1u64..3_000) {
            let mut series = Series::default();
            for number in 0..count {
                let mut interval = Interval::new(Nanos::SECOND * number);
                interval.until = Nanos::SECOND * (number + 1);
                interval.offered = number;
                interval.latency_intended.record(1_000 * (number + 1)).unwrap();
                series.push(interval);
            }
            let points = series.points();
            prop_assert!(points.len() <= POINTS_MAX);
            prop_assert_eq!(points.iter().map(|point| point.offered).sum::<u64>(), (0..count).sum::<u64>());
            prop_assert_eq!(points.iter().map(|point| point.latency_intended_ns.all()).sum::<u64>(), count);
            let mut at = 0.0;
            for point in &points {
                prop_assert_eq!(point.at_s - point.interval_s, at);
                at = point.at_s;
            }
            prop_assert_eq!(at, count as f64);
        }
    }
}
