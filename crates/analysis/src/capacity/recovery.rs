//! The moment of a server's recovery, from the intervals of a run.

use record::{Outcome, Point, Step};

use super::estimate;
use super::step::{KEEPS_UP, by_load};

/// The time for which a server must serve well to count as recovered, longer than a pause between two bad moments.
const WELL_FOR_S: f64 = 0.5;
/// The time for which a small load must be answered before the next run. Only the queue of the last run matters.
const ANSWERED_FOR_S: f64 = 0.3;
/// The multiple of the former 99th percentile above which a median means a queue, and not noise.
const SLOWER: f64 = 2.0;
/// The least median that counts as a queue: a scheduler's tick.
const SLOW_LEAST_NS: f64 = 5e6;

/// Returns the 99th percentile of latency, in nanoseconds, at the lowest load around the knee: its median over the
/// trials.
pub fn usual_p99_ns(knee: &[Step]) -> f64 {
    let groups = by_load(knee);
    let lowest = groups.first().map(Vec::as_slice).unwrap_or_default();
    estimate::median(lowest.iter().map(|step| step.latency_intended_ns.p99 as f64))
}

/// Returns the seconds from the run's start until the server served well for half a second: in full, and as fast as
/// before. Returns `None` if it never did.
pub fn time_s(points: &[Point], usual_p99_ns: f64) -> Option<f64> {
    let slow = (usual_p99_ns * SLOWER).max(SLOW_LEAST_NS);
    let fast = |point: &&Point| (point.latency_intended_ns.answered.p50 as f64) <= slow;
    windows(points, WELL_FOR_S)
        .find(|window| is_in_full(window) && window.iter().filter(fast).count() == window.len())
        .map(|window| window[0].at_s - window[0].interval_s)
}

/// Tells whether the last moments were answered in full, at any speed.
pub fn is_answered(points: &[Point]) -> bool {
    windows(points, ANSWERED_FOR_S).next_back().is_some_and(is_in_full)
}

/// Iterates over all windows of neighbouring points with this length.
fn windows(points: &[Point], seconds: f64) -> impl DoubleEndedIterator<Item = &[Point]> {
    let interval_s = points.first().map_or(seconds, |point| point.interval_s).max(1e-3);
    points.windows(((seconds / interval_s).round() as usize).max(1))
}

fn is_in_full(window: &[Point]) -> bool {
    let offered: u64 = window.iter().map(|point| point.offered).sum();
    let good: u64 = window.iter().map(|point| point.outcomes.get(Outcome::Ok)).sum();
    // A reply may be on its way at either end.
    good as f64 >= KEEPS_UP * offered as f64 - 1.0 && good > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Distribution;

    /// Intervals of a tenth of a second with ten requests each. Each item holds the number of answers and their
    /// latency in milliseconds.
    fn points(seen: &[(u64, u64)]) -> Vec<Point> {
        let point = |(number, (good, ms)): (usize, &(u64, u64))| {
            let mut point =
                Point { at_s: 0.1 * (number + 1) as f64, interval_s: 0.1, offered: 10, ..Point::default() };
            point.outcomes.add(Outcome::Ok, *good);
            point.latency_intended_ns =
                Distribution { p50: ms * 1_000_000, ..Distribution::default() }.into();
            point
        };
        seen.iter().enumerate().map(point).collect()
    }

    #[test]
    fn recovery_needs_full_answers_at_the_former_speed() {
        let usual = 10e6;
        let time =
            |seen: &[(u64, u64)]| time_s(&points(seen), usual).map(|seconds| (seconds * 10.0).round() / 10.0);
        assert_eq!(time(&[(10, 1); 5]), Some(0.0));
        assert_eq!(time(&[(10, 1); 4]), None, "not long enough to tell");
        assert_eq!(time(&[&[(2, 1); 3][..], &[(10, 1); 5]].concat()), Some(0.3));
        assert_eq!(
            time(&[&[(10, 500); 7][..], &[(10, 2); 5]].concat()),
            Some(0.7),
            "a queue is not a recovery"
        );
        assert_eq!(time(&[&[(10, 2); 4][..], &[(0, 0)], &[(10, 2); 5]].concat()), Some(0.5), "a relapse");
        assert_eq!(time(&[]), None);
    }

    #[test]
    fn a_trickle_counts_as_answered_at_its_end_only() {
        assert!(is_answered(&points(&[(0, 0), (10, 900), (10, 900), (10, 900)])));
        assert!(!is_answered(&points(&[(10, 1), (10, 1), (10, 1), (2, 1)])));
        assert!(!is_answered(&points(&[(10, 1), (10, 1)])));
    }
}
