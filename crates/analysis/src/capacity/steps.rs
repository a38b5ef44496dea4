//! Steps of a run with several loads, cut from its intervals.
//!
//! An event counts in its own interval. A reply to a request of an earlier step belongs to the step in which it
//! arrives, with all of its latency. Quantiles of a whole do not follow from quantiles of its parts. So a step's
//! quantile is the median over its intervals, weighted by their replies. The maximum is exact.

use base::Nanos;
use record::{Distribution, Outcomes, Point, Step};

/// Far less than an interval: times are sums of binary fractions.
const EPSILON_S: f64 = 1e-6;

/// The greatest lateness of sessions at the 99th percentile: a tick of the scheduler, as for a run of one load.
const LATENESS_P99_MAX_NS: u64 = 10_000_000;

/// Returns the begin of an interval, in seconds since the run began.
pub fn begin_s(point: &Point) -> f64 {
    point.at_s - point.interval_s + EPSILON_S
}

/// Tells whether the points reach that time, or end at most one interval before it.
pub fn reach(points: &[Point], until: Nanos) -> bool {
    points.last().is_some_and(|last| last.at_s + last.interval_s + EPSILON_S >= until.as_secs_f64())
}

/// Makes the step between two times from the intervals that lie wholly in it. Leaves the objective open.
pub fn step(points: &[Point], asked_per_s: f64, from: Nanos, until: Nanos) -> Step {
    let first = points.partition_point(|point| begin_s(point) < from.as_secs_f64());
    let last = points.partition_point(|point| point.at_s - EPSILON_S <= until.as_secs_f64());
    let points = &points[first.min(last)..last];
    let duration_s: f64 = points.iter().map(|point| point.interval_s).sum();
    let mut outcomes = Outcomes::default();
    points.iter().for_each(|point| outcomes.merge(&point.outcomes));
    let offered: u64 = points.iter().map(|point| point.offered).sum();
    let rate = |count: u64| if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 };
    let late = points.iter().any(|point| point.lateness_ns.p99 > LATENESS_P99_MAX_NS);
    let mut step = Step {
        asked_per_s,
        offered_per_s: rate(offered),
        goodput_per_s: rate(points.iter().map(|point| point.good).sum()),
        duration_s,
        latency_intended_ns: latency(points),
        in_flight_at_end: offered.saturating_sub(outcomes.total()),
        outcomes,
        slo_held: true,
        generator_limited: late,
        reasons: Vec::new(),
    };
    if late {
        step.reasons.push("The generator was late by more than 10 ms at times.".to_owned());
    }
    if step.sent_share() < 1.0 {
        step.generator_limited = true;
        step.reasons.push("The generator had no time, port or descriptor for all of it.".to_owned());
    }
    step
}

fn latency(points: &[Point]) -> Distribution {
    let answered: Vec<&Distribution> = points
        .iter()
        .map(|point| &point.latency_intended_ns.answered)
        .filter(|part| part.count > 0)
        .collect();
    let total: u64 = answered.iter().map(|part| part.count).sum();
    let of = |value: fn(&Distribution) -> u64| {
        let mut seen: Vec<(u64, u64)> = answered.iter().map(|part| (value(part), part.count)).collect();
        seen.sort_unstable();
        let mut below = 0;
        let reaches_half = |(_, count): &&(u64, u64)| {
            below += count;
            below >= total.div_ceil(2)
        };
        seen.iter().find(reaches_half).map_or(0, |(value, _)| *value)
    };
    let sum: f64 = answered.iter().map(|part| part.mean * part.count as f64).sum();
    Distribution {
        count: total,
        mean: if total > 0 { sum / total as f64 } else { 0.0 },
        p50: of(|part| part.p50),
        p90: of(|part| part.p90),
        p95: of(|part| part.p95),
        p99: of(|part| part.p99),
        p999: of(|part| part.p999),
        max: answered.iter().map(|part| part.max).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Outcome;

    #[test]
    fn a_step_has_the_intervals_that_lie_wholly_in_it() {
        let points: Vec<Point> = (1..=20_u64)
            .map(|number| {
                let latency =
                    Distribution { count: number, p50: number, max: number, ..Distribution::default() };
                let mut point = Point {
                    at_s: number as f64 / 10.0,
                    interval_s: 0.1,
                    offered: 20,
                    good: number / 2,
                    latency_intended_ns: latency.into(),
                    ..Point::default()
                };
                point.outcomes.add(Outcome::Ok, number);
                point
            })
            .collect();
        let step = step(&points, 200.0, Nanos::from_millis(500), Nanos::from_millis(1_050));
        assert!((step.duration_s - 0.5).abs() < 1e-9);
        assert!((step.offered_per_s - 200.0).abs() < 1e-6);
        assert_eq!(step.outcomes.get(Outcome::Ok), 6 + 7 + 8 + 9 + 10);
        assert!((step.goodput_per_s * step.duration_s - 19.0).abs() < 1e-6, "late replies are none");
        assert_eq!((step.in_flight_at_end, step.offered()), (60, 100));
        assert_eq!((step.latency_intended_ns.p50, step.latency_intended_ns.max), (8, 10));
        assert!(!step.generator_limited);
        assert_eq!(super::step(&points, 200.0, Nanos::from_secs(5), Nanos::from_secs(6)).offered(), 0);
    }
}
