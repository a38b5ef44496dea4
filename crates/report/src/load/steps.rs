//! The steps of a run whose rate changes, a row each, and the time that the server took to recover after a step down.
//!
//! Owns the division of a run's series. A series has no percentiles over several intervals, so a row shows the worst
//! interval's 99th percentile. A point belongs to the step in which its middle lies.

use base::{Nanos, PerSecond};
use record::{LoadResult, Outcome, Point};

use super::tables::quantile;
use crate::columns::aligned;
use crate::format::{percent, rate};

/// The most rows of a ramp. A short run has fewer: each row has an interval of the series at least.
const RAMP_PARTS: usize = 10;
/// The most rows of bursts; a run with more is better drawn.
const BURST_ROWS_MAX: usize = 40;

/// A server has recovered when no interval's 99th percentile exceeds that of the first step by more.
const RECOVERED: f64 = 2.0;

/// A part of a run.
struct Step<'a> {
    from_s: f64,
    until_s: f64,
    points: Vec<&'a Point>,
}

/// The steps of a run as a table; empty for a run with one rate.
pub fn steps(result: &LoadResult) -> String {
    let steps = divided(result);
    if steps.len() < 2 {
        return String::new();
    }
    let head = ["from", "to", "offered", "goodput", "failed", "worst p99"].map(str::to_owned);
    let rows: Vec<[String; 6]> = [head].into_iter().chain(steps.iter().map(row)).collect();
    let mut out = aligned(&rows, &[]);
    recoveries(&steps).iter().for_each(|recovery| out.push_str(&format!("{recovery}\n")));
    out
}

/// Divides the measured time by the arrival process.
fn divided(result: &LoadResult) -> Vec<Step<'_>> {
    let config = &result.manifest.config;
    let time = |name: &str| config.get(name)?.parse::<Nanos>().ok().map(Nanos::as_secs_f64);
    let arrivals = config.get("arrivals").map_or("", String::as_str);
    let Some(warmup) = time("warmup") else { return Vec::new() };
    let end = warmup + result.duration_s;
    let interval = result.series.first().map_or(result.duration_s, |point| point.interval_s);
    let ends: Vec<f64> = if let Some(steps) = arrivals.strip_prefix("steps:") {
        ends_of(steps, end)
    } else if arrivals.starts_with("ramp:") {
        let parts = RAMP_PARTS.min((result.duration_s / interval).round() as usize);
        let part = result.duration_s / parts as f64;
        (1..=parts).map(|number| warmup + part * number as f64).collect()
    } else if let Some(bursts) = arrivals.strip_prefix("on-off:") {
        ends_of_bursts(bursts, end, interval).unwrap_or_default()
    } else {
        Vec::new()
    };
    let mut from_s = 0.0_f64;
    let mut steps = Vec::new();
    for until_s in ends {
        let middle = |point: &Point| point.at_s - point.interval_s / 2.0;
        let within = |point: &&Point| (from_s.max(warmup)..until_s).contains(&middle(point));
        let points: Vec<&Point> = result.series.iter().filter(within).collect();
        if !points.is_empty() {
            steps.push(Step { from_s: from_s.max(warmup) - warmup, until_s: until_s - warmup, points });
        }
        from_s = until_s;
    }
    steps
}

/// The ends of steps such as `100x10s,1000x5s`; the last one holds until the run's end.
fn ends_of(steps: &str, end: f64) -> Vec<f64> {
    let length = |step: &str| step.split_once('x')?.1.parse::<Nanos>().ok().map(Nanos::as_secs_f64);
    let Some(lengths) = steps.split(',').map(length).collect::<Option<Vec<f64>>>() else { return Vec::new() };
    let mut at = 0.0;
    let mut ends: Vec<f64> = Vec::new();
    for length in lengths {
        at += length;
        ends.push(at.min(end));
    }
    ends.last_mut().into_iter().for_each(|last| *last = end);
    ends
}

/// The ends of the quiet parts and of the bursts of `6,0.05,100s`: a period begins with its quiet part. `None` if there are
/// too many for a table, or if a part is shorter than an interval of the series.
fn ends_of_bursts(bursts: &str, end: f64, interval: f64) -> Option<Vec<f64>> {
    let [_, fraction, period] = bursts.split(',').collect::<Vec<_>>()[..] else { return None };
    let (fraction, period) = (fraction.parse::<f64>().ok()?, period.parse::<Nanos>().ok()?.as_secs_f64());
    let (quiet, burst) = (period * (1.0 - fraction), period * fraction);
    let rows = 2.0 * end / period;
    if quiet.min(burst) < interval || rows > BURST_ROWS_MAX as f64 {
        return None;
    }
    let parts =
        (0..rows.ceil() as usize).map(|part| (part / 2) as f64 * period + quiet + burst * (part % 2) as f64);
    Some(parts.take_while(|until| *until < end).chain([end]).collect())
}

impl Step<'_> {
    fn sum(&self, count: impl Fn(&Point) -> u64) -> f64 {
        self.points.iter().map(|point| count(point)).sum::<u64>() as f64
    }

    fn offered_per_s(&self) -> f64 {
        self.sum(|point| point.offered) / self.seconds()
    }

    /// True if clearly less is offered than in another step.
    fn is_below(&self, other: &Step<'_>) -> bool {
        self.offered_per_s() < 0.9 * other.offered_per_s()
    }

    fn seconds(&self) -> f64 {
        self.points.iter().map(|point| point.interval_s).sum()
    }

    /// The share of the requests that ended, and ended without a correct reply.
    fn failed(&self) -> f64 {
        let ended = self.sum(|point| point.outcomes.total());
        let good = self.sum(|point| point.outcomes.get(Outcome::Ok));
        if ended > 0.0 { 1.0 - good / ended } else { 0.0 }
    }

    /// The largest 99th percentile of an interval; infinite among requests without a correct reply.
    fn worst(&self) -> f64 {
        self.points.iter().map(|point| p99(point)).fold(0.0, f64::max)
    }
}

fn p99(point: &Point) -> f64 {
    let latency = &point.latency_intended_ns;
    match latency.p99 {
        Some(ns) => ns as f64,
        None if latency.all() == 0 => 0.0,
        None => f64::INFINITY,
    }
}

fn row(step: &Step<'_>) -> [String; 6] {
    let worst = step.points.iter().max_by(|one, other| p99(one).total_cmp(&p99(other)));
    [
        format!("{:.0} s", step.from_s),
        format!("{:.0} s", step.until_s),
        rate(step.offered_per_s()),
        rate(step.sum(|point| point.good) / step.seconds()),
        percent(step.failed()),
        worst.map_or("–".to_owned(), |point| {
            quantile(&point.latency_intended_ns, point.latency_intended_ns.p99)
        }),
    ]
}

/// A sentence for each step down after a step in which the server was worse than in the first one. A run that begins with
/// its rush has nothing to compare with.
fn recoveries(steps: &[Step<'_>]) -> Vec<String> {
    if steps[1].is_below(&steps[0]) {
        return Vec::new();
    }
    let bound = RECOVERED * steps[0].worst();
    let is_well =
        |point: &Point| p99(point) <= bound && point.outcomes.total() == point.outcomes.get(Outcome::Ok);
    let after = |pair: &[Step<'_>]| {
        let [before, now] = pair else { return None };
        let was_bad = !before.points.iter().all(|point| is_well(point));
        if !was_bad || !now.is_below(before) {
            return None;
        }
        let rate = PerSecond(now.offered_per_s()).approximate();
        let ill = now.points.iter().rposition(|point| !is_well(point));
        Some(match ill {
            None => format!("At {rate} the server recovered at once."),
            Some(last) if last + 1 == now.points.len() => {
                format!("At {rate} the server did not recover within {:.0} s.", now.until_s - now.from_s)
            }
            Some(last) => {
                let begin = now.points[0].at_s - now.points[0].interval_s;
                format!("At {rate} the server recovered after {:.0} s.", now.points[last].at_s - begin)
            }
        })
    };
    steps.windows(2).filter_map(after).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use record::Latency;

    /// A run with this 99th percentile in each second, by steps.
    fn stepped(arrivals: &str, seconds: &[(u64, u64)]) -> LoadResult {
        let mut result = run(4);
        let set = [("arrivals", arrivals), ("warmup", "0s")];
        result.manifest.config.extend(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
        result.duration_s = seconds.len() as f64;
        let point = |(number, (offered, ms)): (usize, &(u64, u64))| {
            let mut point =
                Point { at_s: number as f64 + 1.0, interval_s: 1.0, offered: *offered, ..Point::default() };
            point.outcomes.add(Outcome::Ok, *offered);
            point.good = *offered;
            let mut latency = Latency { p99: Some(ms * 1_000_000), ..Latency::default() };
            latency.answered.count = *offered;
            point.latency_intended_ns = latency;
            point
        };
        result.series = seconds.iter().enumerate().map(point).collect();
        result
    }

    #[test]
    fn steps_are_rows_and_recoveries_are_timed() {
        let seconds = [(100, 5), (100, 6), (900, 400), (900, 800), (100, 700), (100, 90), (100, 9), (100, 8)];
        let text = steps(&stepped("steps:100x2s,900x2s,100x1h", &seconds));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 5, "{text}");
        assert!(rows[2].contains("900/s") && rows[2].contains("800 ms"), "{text}");
        assert!(rows[3].contains("4 s") && rows[3].contains("8 s"), "{text}");
        assert!(
            rows[4].starts_with("At 100") && rows[4].ends_with("the server recovered after 2 s."),
            "{text}"
        );
        let text = steps(&stepped("steps:100x2s,900x2s,100x1h", &seconds[..6]));
        assert!(text.trim_end().ends_with("did not recover within 2 s."), "{text}");
    }

    #[test]
    fn bursts_are_rows_with_their_recoveries() {
        let period = [(50, 5), (50, 6), (50, 5), (250, 400)];
        let after = [(50, 300), (50, 7), (50, 6), (250, 400)];
        let seconds = [&period[..], &after[..]].concat();
        let text = steps(&stepped("on-off:2.5,0.25,4s", &seconds));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 6, "a head, four parts and a recovery: {text}");
        assert!(rows[2].contains("250/s") && rows[2].contains("400 ms"), "{text}");
        assert!(rows[3].contains("4 s") && rows[3].contains("7 s") && rows[3].contains("50/s"), "{text}");
        assert!(rows[5].ends_with("the server recovered after 1 s."), "{text}");
        for without in ["on-off:2.5,0.2,4s", "on-off:2.5,0.5,300ms"] {
            assert_eq!(steps(&stepped(without, &seconds)), "", "bursts shorter than an interval: {without}");
        }
        let many: Vec<(u64, u64)> = (0..90).map(|second| (second % 2 * 50 + 10, 5)).collect();
        assert_eq!(steps(&stepped("on-off:1.5,0.5,2s", &many)), "", "too many rows");
    }

    #[test]
    fn rush_at_the_beginning_has_no_recovery() {
        let text = steps(&stepped("steps:900x2s,100x1h", &[(900, 400), (900, 900), (100, 500), (100, 5)]));
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn ramps_have_ten_rows_and_constant_rates_none() {
        let ramp: Vec<(u64, u64)> = (1..=20).map(|number| (number * 10, number)).collect();
        assert_eq!(steps(&stepped("ramp:10..200", &ramp)).lines().count(), 11);
        let short = steps(&stepped("ramp:10..200", &ramp[..4]));
        assert_eq!(short.lines().count(), 5, "a row has a whole second: {short}");
        assert_eq!(steps(&stepped("constant", &ramp)), "");
    }
}
