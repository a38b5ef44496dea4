//! Two runs of the load generator side by side: the differences that exceed the noise within each run.
//!
//! A run's series shows its noise. The comparison draws the measured intervals, without the warm-up, again in blocks
//! ([`statistics::ratio_of_series`]). A row differs where 95 % of the ratios lie on one side of 1. Noise between two runs
//! of the same server (memory layout, other load on the machine) is not in two results; arithmetic cannot find it there.
//!
//! Owns the choice of figures and the warnings. A latency is the mean over the intervals of each interval's quantile,
//! because a run's series has no quantiles of all its replies. A quantile that falls among requests without a correct
//! reply is infinite, and longer than any other.

use base::{Nanos, Seed};
use record::{Latency, LoadResult, Outcome, Point, Verdict};
use serde::Serialize;
use statistics::{Interval, block_length, mean, ratio_of_series};

/// The schema of a comparison.
const SCHEMA: &str = "inrush.load-comparison/1";

/// The fewest measured intervals for a judgement. Fewer give too few blocks to draw from.
const FEWEST: usize = 10;

/// The change of the median latency within a run that means two states.
const TREND: f64 = 2.0;

/// The error of an interval's end by rounding, in seconds.
const ROUNDING_S: f64 = 1e-3;

/// The judgement of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The second run is better, by more than chance within the runs explains.
    Better,
    /// The second run is worse.
    Worse,
    /// The interval holds 1.
    NoneSeen,
    /// Too few intervals, or nothing to compare.
    Unknown,
}

/// One figure of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `goodput_per_s`, `replies_per_s`, `error_share`, `latency_p99_ns` and so on.
    pub metric: &'static str,
    /// The first run's figure, if it has one. A latency that falls among requests without a correct reply is
    /// infinite, in JSON null.
    pub first: Option<f64>,
    /// The second run's figure.
    pub second: Option<f64>,
    /// The second over the first; in JSON, null if it is infinite.
    pub ratio: Option<f64>,
    /// The 95 % interval of the ratio.
    pub ci95: Option<Interval>,
    /// The judgement.
    pub change: Change,
}

/// The comparison of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// `inrush.load-comparison/1`.
    pub schema: &'static str,
    /// The names of the runs.
    pub names: [String; 2],
    /// The measured intervals of each run.
    pub intervals: [usize; 2],
    /// The neighbouring intervals drawn together in each run.
    pub block: [usize; 2],
    /// The figures.
    pub rows: Vec<Row>,
    /// Reasons for doubt about the comparison, one sentence each.
    pub warnings: Vec<String>,
}

/// A run that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotComparable {
    /// The manifest does not record the measured intervals.
    #[error("{0}: its manifest does not say how long the warm-up was")]
    NoWarmup(String),
    /// The run has no measured interval.
    #[error("{0}: it has no measured interval: it ended in its warm-up, or in its first second")]
    NotMeasured(String),
}

/// An interval of a run, with its share of the requests that never ended.
///
/// Such requests are among no interval's outcomes, and the record has all of them in the latencies of the run's last
/// interval. A comparison needs them where the server hung: there, more requests are offered than end. So an interval's
/// share is in proportion to the requests offered in it, less those that ended in it.
#[derive(Clone, Copy)]
struct Slice<'a> {
    point: &'a Point,
    /// Negative if more requests ended than were offered.
    never_ended: f64,
    /// The requests among which its latencies rank: those that ended in the interval, and its share.
    ranked: f64,
}

impl Slice<'_> {
    /// Returns a quantile of the requests that ended in the interval and of those that never did. Infinite if it
    /// falls among those without a correct reply; `None` without requests.
    fn latency(&self, share: f64, quantile: fn(&Latency) -> Option<u64>) -> Option<f64> {
        let latency = &self.point.latency_intended_ns;
        let is_answered = share * self.ranked <= latency.answered.count as f64;
        // In the record's last interval, the requests that never ended may have taken the quantile's place.
        let known = quantile(latency).or_else(|| quantile(&latency.answered.into()));
        let value = known.filter(|_| is_answered).map_or(f64::INFINITY, |ns| ns as f64);
        (self.ranked > 0.0).then_some(value)
    }
}

/// A figure: its name, its direction, and its value in an interval.
struct Metric {
    name: &'static str,
    more_is_better: bool,
    of: fn(&[Slice<'_>]) -> Option<f64>,
}

const METRICS: [Metric; 7] = [
    Metric { name: "goodput_per_s", more_is_better: true, of: |slices| per_s(slices, |point| point.good) },
    Metric { name: "replies_per_s", more_is_better: true, of: |slices| per_s(slices, |point| point.replies) },
    Metric { name: "error_share", more_is_better: false, of: error_share },
    Metric { name: "latency_p50_ns", more_is_better: false, of: |slices| latency(slices, 0.5, |of| of.p50) },
    Metric { name: "latency_p90_ns", more_is_better: false, of: |slices| latency(slices, 0.9, |of| of.p90) },
    Metric { name: "latency_p99_ns", more_is_better: false, of: |slices| latency(slices, 0.99, |of| of.p99) },
    Metric {
        name: "latency_p999_ns",
        more_is_better: false,
        of: |slices| latency(slices, 0.999, |of| of.p999),
    },
];

fn per_s(slices: &[Slice<'_>], count: fn(&Point) -> u64) -> Option<f64> {
    let seconds: f64 = slices.iter().map(|slice| slice.point.interval_s).sum();
    let sum = || slices.iter().map(|slice| count(slice.point) as f64).sum::<f64>();
    (seconds > 0.0).then(|| sum() / seconds)
}

/// Returns the share without a correct reply, among the requests that ended and those that never did.
fn error_share(slices: &[Slice<'_>]) -> Option<f64> {
    let sum = |count: fn(&Slice<'_>) -> f64| slices.iter().map(count).sum::<f64>();
    let all = sum(|slice| slice.point.outcomes.total() as f64) + sum(|slice| slice.never_ended).max(0.0);
    (all > 0.0).then(|| 1.0 - sum(|slice| slice.point.outcomes.get(Outcome::Ok) as f64) / all)
}

fn latency(slices: &[Slice<'_>], share: f64, quantile: fn(&Latency) -> Option<u64>) -> Option<f64> {
    let values: Vec<f64> = slices.iter().filter_map(|slice| slice.latency(share, quantile)).collect();
    (!values.is_empty()).then(|| mean(&values))
}

/// Compares the second run with the first; each has a name.
///
/// # Errors
/// [`NotComparable`].
pub fn compare(runs: [(&str, &LoadResult); 2], seed: Seed) -> Result<Comparison, NotComparable> {
    let [first, second] = runs.map(|(name, run)| measured(name, run));
    let (first, second) = (first?, second?);
    let is_enough = first.len().min(second.len()) >= FEWEST;
    let rows = METRICS.iter().map(|metric| row(metric, &first, &second, is_enough, seed));
    let mut warnings = warnings(runs, [first.len(), second.len()]);
    let trends = runs.iter().zip([&first, &second]).filter_map(|((name, _), points)| trend(name, points));
    warnings.extend(trends);
    Ok(Comparison {
        schema: SCHEMA,
        names: runs.map(|(name, _)| name.to_owned()),
        intervals: [first.len(), second.len()],
        block: [block_length(first.len()), block_length(second.len())],
        rows: rows.collect(),
        warnings,
    })
}

/// Returns the intervals after the warm-up, without an incomplete last interval.
fn measured<'a>(name: &str, run: &'a LoadResult) -> Result<Vec<Slice<'a>>, NotComparable> {
    let warmup: Option<Nanos> = run.manifest.config.get("warmup").and_then(|text| text.parse().ok());
    let warmup_s = warmup.ok_or_else(|| NotComparable::NoWarmup(name.to_owned()))?.as_secs_f64();
    let longest_s = run.series.iter().map(|point| point.interval_s).fold(0.0, f64::max);
    let is_measured = |point: &&Point| {
        point.at_s - point.interval_s >= warmup_s - ROUNDING_S && point.interval_s > longest_s / 2.0
    };
    let points: Vec<&Point> = run.series.iter().filter(is_measured).collect();
    if points.is_empty() {
        return Err(NotComparable::NotMeasured(name.to_owned()));
    }
    let more = |point: &Point| point.offered as f64 - point.outcomes.total() as f64;
    let became: f64 = points.iter().map(|point| more(point)).sum();
    let never_ended = run.in_flight_at_end as f64;
    let share = if became > 0.0 { (never_ended / became).min(1.0) } else { 0.0 };
    let slice = |point: &'a Point| {
        let latency = &point.latency_intended_ns;
        let is_last = run.series.last().is_some_and(|last| std::ptr::eq(last, point));
        let shared_out = if is_last { share * became } else { 0.0 };
        let ended = latency.all() as f64 - shared_out.min(latency.unanswered as f64);
        let never_ended = share * more(point);
        Slice { point, never_ended, ranked: ended + never_ended.max(0.0) }
    };
    Ok(points.into_iter().map(slice).collect())
}

fn row(metric: &Metric, first: &[Slice<'_>], second: &[Slice<'_>], is_enough: bool, seed: Seed) -> Row {
    let (of_first, of_second) = ((metric.of)(first), (metric.of)(second));
    let ratio = of_first.zip(of_second).map(|(one, other)| if one == other { 1.0 } else { other / one });
    let mut rng = seed.child(metric.name).rng();
    let drawn = is_enough.then(|| ratio_of_series(first, second, &mut rng, metric.of));
    let ci95 = ratio.and(drawn).and_then(|drawn| drawn.ci95);
    let change = match ci95 {
        None => Change::Unknown,
        Some(ci95) if ci95.low > 1.0 && metric.more_is_better => Change::Better,
        Some(ci95) if ci95.high < 1.0 && !metric.more_is_better => Change::Better,
        Some(ci95) if ci95.low > 1.0 || ci95.high < 1.0 => Change::Worse,
        // No comparison holds for an interval whose ends are no numbers.
        Some(_) => Change::NoneSeen,
    };
    Row { metric: metric.name, first: of_first, second: of_second, ratio, ci95, change }
}

fn warnings(runs: [(&str, &LoadResult); 2], intervals: [usize; 2]) -> Vec<String> {
    let [(_, first), (_, second)] = runs;
    let mut found = Vec::new();
    if first == second {
        found.push("Both are the same run.".to_owned());
    }
    for ((name, run), count) in runs.into_iter().zip(intervals) {
        let doubt = match run.verdict {
            Verdict::Valid => None,
            Verdict::Degraded => Some("is degraded"),
            Verdict::Unreachable | Verdict::NotMeasured => Some("is not a valid run"),
            Verdict::GeneratorLimited => Some(
                "is not a valid run, the generator was the limit, so a difference may not be the server's",
            ),
        };
        found.extend(doubt.map(|doubt| format!("{name} {doubt}. {}", run.reasons.join(" "))));
        if 2 * run.failed() > run.offered {
            let percent = 100.0 * run.failed() as f64 / run.offered as f64;
            found.push(format!("{name}: {percent:.0} % of the requests had no correct reply."));
        }
        if count < FEWEST {
            found.push(format!(
                "{name} has {count} measured interval(s), too few to tell a difference from chance: at least {FEWEST} are \
                 needed."
            ));
        }
    }
    found.extend(settings(first, second));
    found
}

/// Warns of a run that had not settled: its typical latency changed from its beginning to its end. Drawing its
/// intervals again assumes one state.
fn trend(name: &str, slices: &[Slice<'_>]) -> Option<String> {
    let third = slices.len() / 3;
    let median = |part| latency(part, 0.5, |of| of.p50).filter(|median| median.is_finite());
    let (before, after) = (median(&slices[..third])?, median(&slices[slices.len() - third..])?);
    let is_trend = before.max(after) > TREND * before.min(after);
    is_trend.then(|| {
        let factor = after / before;
        format!(
            "{name} had not settled: the median latency of its last third is {factor:.2} times that of its first. Its \
             intervals say little; give it a longer warm-up, or less load."
        )
    })
}

/// Names the settings that differ. The seed may differ.
fn settings(first: &LoadResult, second: &LoadResult) -> Vec<String> {
    let of = |run: &LoadResult| {
        let manifest = &run.manifest;
        let mut all = manifest.config.clone();
        all.remove("seed");
        all.extend(manifest.sysctls.clone());
        let machine = [
            ("version of Inrush", manifest.version.clone()),
            ("kernel", manifest.kernel.clone()),
            ("cpu", manifest.cpu.clone()),
            ("cpus allowed", manifest.cpus_allowed.clone()),
        ];
        all.extend(machine.map(|(name, value)| (name.to_owned(), value)));
        all
    };
    let (one, other) = (of(first), of(second));
    let mut names: Vec<&String> = one.keys().chain(other.keys()).collect();
    names.sort();
    names.dedup();
    let shown = |value: Option<&String>| value.map_or("not given".to_owned(), |value| format!("'{value}'"));
    let differing = names.into_iter().filter(|name| one.get(*name) != other.get(*name));
    differing
        .map(|name| {
            let (one, other) = (shown(one.get(name)), shown(other.get(name)));
            format!("The runs differ in {name}: {one} in A, {other} in B.")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Distribution;
    use serde_json::json;

    /// A run with a second of warm-up, whose seconds have these latencies and goodputs; every other reply of a
    /// hundred fails where `fails`.
    fn run(seconds: &[(u64, u64)], errors: u64) -> LoadResult {
        let point = |at: usize, (p, good): (u64, u64)| {
            let times =
                json!({ "count": good, "mean": p, "p50": p, "p90": p, "p99": p, "p999": p, "max": p });
            json!({
                "at_s": at, "interval_s": 1.0, "offered": good, "sent": good, "replies": good, "good": good,
                "outcomes": { "ok": good, "reset": errors }, "latency_intended_ns": times, "lateness_ns": times,
                "sockets": 1,
            })
        };
        let warm = point(1, (1, 1));
        let measured = seconds.iter().enumerate().map(|(number, second)| point(number + 2, *second));
        let series: Vec<_> = [warm].into_iter().chain(measured).collect();
        let none = Distribution::default();
        serde_json::from_value(json!({
            "schema": record::load::SCHEMA, "duration_s": 1.0, "offered": 0, "in_flight_at_end": 0, "outcomes": {},
            "connections": { "attempted": 0, "established": 0, "sockets_peak": 0 }, "target_per_s": null,
            "offered_per_s": 0.0, "sent_per_s": 0.0, "replies_per_s": 0.0, "goodput_per_s": 0.0,
            "content_bytes_per_s": 0.0, "generator_cpu": 0.0, "latency_intended_ns": none, "latency_sent_ns": none,
            "connect_ns": none, "lateness_ns": none, "populations": {}, "verdict": "valid", "reasons": [],
            "series": series,
            "manifest": record::Manifest {
                config: [("warmup".to_owned(), "1s".to_owned())].into(), ..record::Manifest::default()
            },
        }))
        .unwrap()
    }

    /// Thirty seconds of 200 requests. The server answers these numbers per second, and never ends the others. As in a
    /// record, the last second's latencies have them all.
    fn hung(answered: u64) -> LoadResult {
        let mut run = run(&[(1_000, answered); 30], 0);
        run.series.iter_mut().skip(1).for_each(|point| point.offered = 200);
        let unanswered = 30 * (200 - answered);
        (run.offered, run.in_flight_at_end) = (6_000, unanswered);
        let among = (answered + unanswered) as f64;
        let known = |share: f64| (share * among <= answered as f64).then_some(1_000);
        let last = &mut run.series.last_mut().unwrap().latency_intended_ns;
        *last = Latency {
            unanswered,
            p50: known(0.5),
            p90: known(0.9),
            p95: known(0.95),
            p99: known(0.99),
            p999: known(0.999),
            max: None,
            ..*last
        };
        run
    }

    fn noisy(latency: u64, good: u64) -> Vec<(u64, u64)> {
        (0..30).map(|at| (latency + at * 7 % 5, good + at * 3 % 4)).collect()
    }

    fn compared(first: &LoadResult, second: &LoadResult) -> Comparison {
        compare([("a.json", first), ("b.json", second)], Seed(1)).unwrap()
    }

    #[track_caller]
    fn change(comparison: &Comparison, metric: &str) -> Change {
        comparison.rows.iter().find(|row| row.metric == metric).unwrap().change
    }

    #[test]
    fn clear_differences_get_the_right_direction() {
        let comparison = compared(&run(&noisy(1_000, 200), 2), &run(&noisy(1_500, 240), 1));
        assert_eq!(comparison.intervals, [30, 30]);
        assert_eq!(change(&comparison, "goodput_per_s"), Change::Better);
        assert_eq!(change(&comparison, "error_share"), Change::Better);
        assert_eq!(change(&comparison, "latency_p99_ns"), Change::Worse);
        let row = &comparison.rows[0];
        let (ratio, ci95) = (row.ratio.unwrap(), row.ci95.unwrap());
        assert!(ci95.low <= ratio && ratio <= ci95.high && (ratio - 1.2).abs() < 0.01, "{row:?}");
        assert!(comparison.warnings.is_empty(), "{:?}", comparison.warnings);
    }

    #[test]
    fn silent_server_is_worse_in_every_figure() {
        let comparison = compared(&run(&noisy(1_000, 200), 0), &hung(0));
        for row in &comparison.rows {
            assert_eq!(row.change, Change::Worse, "{row:?}");
        }
        let error_share = &comparison.rows[2];
        assert_eq!((error_share.first, error_share.second), (Some(0.0), Some(1.0)));
        assert_eq!(comparison.rows[3].second, Some(f64::INFINITY));
        assert!(
            comparison.warnings.contains(&"b.json: 100 % of the requests had no correct reply.".to_owned())
        );
        let the_other_way = compared(&hung(0), &run(&noisy(1_000, 200), 0));
        assert!(the_other_way.rows.iter().all(|row| row.change == Change::Better), "{the_other_way:?}");
    }

    #[test]
    fn server_answering_every_fifth_has_no_median() {
        let comparison = compared(&run(&noisy(1_000, 200), 0), &hung(40));
        assert_eq!(comparison.rows[2].second, Some(0.8));
        assert_eq!(comparison.rows[3].second, Some(f64::INFINITY), "{:?}", comparison.rows[3]);
        assert_eq!(change(&comparison, "latency_p50_ns"), Change::Worse);
        let both = compared(&hung(40), &hung(30));
        assert_eq!(change(&both, "latency_p99_ns"), Change::NoneSeen, "both are longer than could be seen");
    }

    #[test]
    fn requests_that_never_ended_count_once() {
        let comparison = compared(&run(&noisy(1_000, 200), 0), &hung(199));
        assert_eq!(comparison.rows[2].second.map(|share| (share * 1e6).round()), Some(5_000.0));
        let known: Vec<Option<f64>> = comparison.rows[3..].iter().map(|row| row.second).collect();
        let shorter = Some(1_000.0);
        assert_eq!(known, [shorter, shorter, shorter, Some(f64::INFINITY)], "one of 200 is beyond the 99th");
    }

    #[test]
    fn the_same_run_has_no_difference_and_a_remark() {
        let run = run(&noisy(1_000, 200), 0);
        let comparison = compared(&run, &run);
        assert!(comparison.rows.iter().all(|row| row.change == Change::NoneSeen), "{comparison:?}");
        assert_eq!(comparison.warnings, ["Both are the same run."]);
    }

    #[test]
    fn what_makes_it_doubtful_is_said() {
        let (mut first, mut second) = (run(&noisy(1_000, 200), 0), run(&noisy(1_000, 200)[..9], 0));
        first.manifest.config.insert("rate".to_owned(), "1000/s".to_owned());
        second.manifest.config.insert("seed".to_owned(), "9".to_owned());
        second.verdict = Verdict::GeneratorLimited;
        let comparison = compared(&first, &second);
        assert!(comparison.rows.iter().all(|row| row.change == Change::Unknown));
        let told = comparison.warnings.join("\n");
        for part in [
            "b.json is not a valid run, the generator was the limit",
            "b.json has 9 measured",
            "differ in rate: '1000/s' in A, not given in B",
        ] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(comparison.warnings.len(), 3, "{told}");
    }

    #[test]
    fn a_run_that_had_not_settled_is_told() {
        let rising: Vec<(u64, u64)> = (0..30).map(|at| (1_000 * (1 + at), 200)).collect();
        let comparison = compared(&run(&noisy(1_000, 200), 0), &run(&rising, 0));
        let [told] = &comparison.warnings[..] else { panic!("{:?}", comparison.warnings) };
        assert!(
            told.starts_with("b.json had not settled: the median latency of its last third is 4.64 times"),
            "{told}"
        );
    }

    #[test]
    fn errors_that_only_one_has_have_a_ratio_without_end() {
        let comparison = compared(&run(&noisy(1_000, 200), 0), &run(&noisy(1_000, 200), 3));
        let errors = &comparison.rows[2];
        assert_eq!((errors.ratio, errors.change), (Some(f64::INFINITY), Change::Worse));
        assert!(serde_json::to_value(errors).unwrap()["ratio"].is_null());
    }

    #[test]
    fn a_run_without_measured_seconds_is_named() {
        let (whole, none) = (run(&noisy(1_000, 200), 0), run(&[], 0));
        let refused = compare([("a", &whole), ("b", &none)], Seed(1)).unwrap_err();
        assert_eq!(refused, NotComparable::NotMeasured("b".to_owned()));
        let mut unknown = whole.clone();
        unknown.manifest.config.clear();
        let refused = compare([("a", &unknown), ("b", &whole)], Seed(1)).unwrap_err();
        assert!(refused.to_string().contains("does not say how long the warm-up was"), "{refused}");
    }
}
