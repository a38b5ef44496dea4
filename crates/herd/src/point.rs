//! One point of the experiment: a way to wait, a number of waiters, and the measurements of many connections.

use base::Seed;
use serde::Serialize;
use statistics::{Estimate, Interval, log_slope, mean, mean_with_interval, median, quantile};

use crate::fairness::fairness;
use crate::population::Tasks;
use crate::sample::Sample;
use crate::wait::Wait;
use crate::watch::CountedBy;

/// The time until the herd slept again, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settle {
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The maximum.
    pub max: f64,
}

/// The reported figures of a point. The field names are part of the command line's contract.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The way to wait, by its name on the command line.
    pub wait: Wait,
    /// The number of waiters.
    pub waiters: usize,
    /// The number of connections, made one after the other.
    pub samples: usize,
    /// Mean wake-ups of waiters per connection. The acceptor of wake-all and wake-one is not counted.
    pub wakeups_per_connection: f64,
    /// The interval of that mean.
    pub wakeups_per_connection_ci95: Interval,
    /// The time from just before connect() until the last woken waiter slept again.
    pub settle_us: Settle,
    /// The mean of that time, with its interval.
    pub settle_us_mean: Estimate,
    /// The mean of the settle times' greatest errors: a settle time may be too long by that much. 0 if the watch
    /// saw the last return to sleep.
    pub settle_us_late_by: f64,
    /// Mean CPU time of all waiters, the acceptor and the connect() call, in microseconds.
    pub cpu_us_per_connection: f64,
    /// The interval of that mean.
    pub cpu_us_per_connection_ci95: Interval,
    /// Jain's index of the connections of each waiter, divided by its maximum: 1 is as even as possible.
    pub fairness: f64,
    /// The number of different waiters that got a connection.
    pub winners: usize,
    /// The kind of task that the waiters ran in.
    #[serde(rename = "as")]
    pub tasks: Tasks,
    /// The source of wake-ups and settle times.
    pub counted_by: CountedBy,
    /// The slope of ln(median settle time) over ln(waiters), over all points with this way to wait. `None` if
    /// they all have the same number of waiters.
    pub settle_log_slope: Option<Estimate>,
    /// The same slope for the mean wake-ups.
    pub wakeups_log_slope: Option<Estimate>,
}

/// A point with its samples, before the slopes are computed.
#[derive(Clone, Debug)]
pub(crate) struct SampledPoint {
    pub wait: Wait,
    pub waiters: usize,
    pub samples: Vec<Sample>,
}

impl SampledPoint {
    fn of(&self, quantity: fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(quantity).collect()
    }

    fn connections(&self) -> Vec<u64> {
        let mut counts = vec![0; self.waiters];
        for sample in &self.samples {
            counts[sample.winner] += 1;
        }
        counts
    }

    fn point(&self, tasks: Tasks, counted_by: CountedBy, seed: Seed) -> Point {
        let mut rng = seed.child(&format!("{} {}", self.wait, self.waiters)).rng();
        let wakeups = mean_with_interval(&self.of(wakeups), &mut rng);
        let cpu = mean_with_interval(&self.of(|sample| sample.cpu.0 as f64 / 1e3), &mut rng);
        let mut settle = self.of(settle_us);
        let settle_us_mean = mean_with_interval(&settle, &mut rng);
        settle.sort_by(f64::total_cmp);
        let connections = self.connections();
        Point {
            wait: self.wait,
            waiters: self.waiters,
            samples: self.samples.len(),
            wakeups_per_connection: wakeups.value,
            wakeups_per_connection_ci95: wakeups.ci95,
            settle_us: Settle {
                p50: quantile(&settle, 0.5),
                p95: quantile(&settle, 0.95),
                max: quantile(&settle, 1.0),
            },
            settle_us_mean,
            settle_us_late_by: mean(&self.of(|sample| sample.settle_late_by.0 as f64 / 1e3)),
            cpu_us_per_connection: cpu.value,
            cpu_us_per_connection_ci95: cpu.ci95,
            fairness: fairness(&connections).expect("every sample has a winner"),
            winners: connections.iter().filter(|count| **count > 0).count(),
            tasks,
            counted_by,
            settle_log_slope: None,
            wakeups_log_slope: None,
        }
    }
}

fn wakeups(sample: &Sample) -> f64 {
    sample.wakeups as f64
}

fn settle_us(sample: &Sample) -> f64 {
    sample.settle.0 as f64 / 1e3
}

/// All points with their slopes, sorted by way to wait and number of waiters. Each measured point has at
/// least one sample.
pub(crate) fn points(
    mut all: Vec<SampledPoint>,
    tasks: Tasks,
    counted_by: CountedBy,
    seed: Seed,
) -> Vec<Point> {
    all.sort_by_key(|measured| (measured.wait, measured.waiters));
    let mut points: Vec<Point> = all.iter().map(|one| one.point(tasks, counted_by, seed)).collect();
    for wait in Wait::ALL {
        let mut rng = seed.child(&format!("slope {wait}")).rng();
        let mut slope = |quantity: fn(&Sample) -> f64, statistic: fn(&[f64]) -> f64| {
            let same = all.iter().filter(|one| one.wait == wait);
            let groups: Vec<(f64, Vec<f64>)> =
                same.map(|one| (one.waiters as f64, one.of(quantity))).collect();
            let groups: Vec<(f64, &[f64])> = groups.iter().map(|(x, ys)| (*x, &ys[..])).collect();
            log_slope(&groups, statistic, &mut rng)
        };
        let (of_settle, of_wakeups) = (slope(settle_us, median), slope(wakeups, mean));
        for point in points.iter_mut().filter(|point| point.wait == wait) {
            (point.settle_log_slope, point.wakeups_log_slope) = (of_settle, of_wakeups);
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;

    fn measured(wait: Wait, waiters: usize, wakeups: u64, settle_us: u64) -> SampledPoint {
        let sample = |winner| Sample {
            wakeups,
            settle: Nanos::from_micros(settle_us),
            settle_late_by: Nanos::ZERO,
            cpu: Nanos::from_micros(7),
            winner,
        };
        SampledPoint { wait, waiters, samples: (0..4).map(sample).collect() }
    }

    #[test]
    fn a_herd_that_grows_is_told_from_one_that_does_not() {
        let all = vec![
            measured(Wait::WakeOne, 1000, 1, 100),
            measured(Wait::WakeAll, 1000, 1000, 3000),
            measured(Wait::WakeAll, 100, 100, 300),
            measured(Wait::WakeOne, 100, 1, 100),
        ];
        let points = points(all, Tasks::Threads, CountedBy::Switches, Seed(1));
        let order: Vec<_> = points.iter().map(|point| (point.wait.name(), point.waiters)).collect();
        assert_eq!(order, [("wake-all", 100), ("wake-all", 1000), ("wake-one", 100), ("wake-one", 1000)]);
        let slopes: Vec<f64> = points.iter().map(|point| point.settle_log_slope.unwrap().value).collect();
        assert!((slopes[0] - 1.0).abs() < 1e-9 && slopes[2].abs() < 1e-9, "{slopes:?}");
        assert!((points[1].wakeups_log_slope.unwrap().value - 1.0).abs() < 1e-9);
        assert_eq!(points[0].settle_us, Settle { p50: 300.0, p95: 300.0, max: 300.0 });
        assert_eq!((points[0].fairness, points[0].winners), (1.0, 4));
        assert_eq!(points[0].cpu_us_per_connection, 7.0);
    }
}
