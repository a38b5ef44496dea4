//! Thresholds on several runs of the load generator against several others, such as `p99>1.1x`.
//!
//! A figure of the second runs over that of the first is the ratio of their geometric means. Its 95 % interval is
//! Student's, from the spread of the runs' logarithms: one run each shows no spread, and then nothing is decided. The
//! interval decides: a threshold is crossed if the whole interval lies beyond it. Otherwise the judgement says how many
//! runs of each would decide it, if they scatter as these do.
//!
//! A percentile among requests without a correct reply counts as the longest time that the run could have seen.

use std::fmt;
use std::str::FromStr;

use record::{Latency, LoadResult};
use serde::Serialize;
use statistics::{Interval, exceeded_with, mean};

use crate::load_runs::{Change, Comparison};

/// The probability that the truth lies beyond one end of an interval.
const TAIL: f64 = 0.025;

/// More runs than this do not decide a threshold in practice.
const RUNS_MOST: usize = 200;

/// A figure of 0 has no logarithm; this is far below any other.
const LEAST: f64 = 1e-9;

/// The value of a figure in a result.
type Read = fn(&LoadResult) -> f64;

/// The figures by name.
const FIGURES: [(&str, Read); 9] = [
    ("goodput", |run| run.goodput_per_s),
    ("replies", |run| run.replies_per_s),
    ("p50", |run| quantile(&run.latency_intended_ns, |of| of.p50)),
    ("p90", |run| quantile(&run.latency_intended_ns, |of| of.p90)),
    ("p95", |run| quantile(&run.latency_intended_ns, |of| of.p95)),
    ("p99", |run| quantile(&run.latency_intended_ns, |of| of.p99)),
    ("p99.9", |run| quantile(&run.latency_intended_ns, |of| of.p999)),
    ("max", |run| quantile(&run.latency_intended_ns, |of| of.max)),
    ("mean", |run| run.latency_intended_ns.mean_at_least().unwrap_or(0.0)),
];

/// The first figures are rates, of which more is better.
const RATES: usize = 2;

fn quantile(latency: &Latency, of: fn(&Latency) -> Option<u64>) -> f64 {
    of(latency).unwrap_or(latency.beyond_ns) as f64
}

/// A threshold on the second runs over the first: a figure, `>` or `<`, and a factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    given: String,
    figure: usize,
    is_upper: bool,
    factor: f64,
}

/// The text is not a threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a threshold on a ratio: {why}; expected such as p99>1.1x or goodput<0.9x")]
pub struct NotAGate {
    given: String,
    why: String,
}

impl FromStr for Gate {
    type Err = NotAGate;

    fn from_str(given: &str) -> Result<Gate, NotAGate> {
        let refuse = |why: &str| NotAGate { given: given.to_owned(), why: why.to_owned() };
        let at = given.find(['<', '>']).ok_or_else(|| refuse("it has no > or <"))?;
        let (name, value) = (given[..at].trim(), given[at + 1..].trim());
        let figure = FIGURES.iter().position(|(figure, _)| *figure == name);
        let names = FIGURES.map(|(figure, _)| figure).join(", ");
        let figure = figure.ok_or_else(|| refuse(&format!("'{name}' is not one of {names}")))?;
        let factor = value.strip_suffix('x').ok_or_else(|| refuse("the factor does not end with x"))?;
        let factor = factor.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
        let factor = factor.ok_or_else(|| refuse("the factor is not a number above 0"))?;
        Ok(Gate { given: given.to_owned(), figure, is_upper: given[at..].starts_with('>'), factor })
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

/// The judgement of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval lies on the right side of the factor.
    Passed,
    /// The whole interval lies beyond the factor.
    Crossed,
    /// The interval holds the factor, or there is no interval.
    Undecided,
}

/// A threshold with the measured ratio.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The threshold as it was given.
    pub threshold: String,
    /// The figure of the second runs over that of the first, as geometric means.
    pub ratio: f64,
    /// The 95 % interval of the ratio; `None` with one run each.
    pub ci95: Option<Interval>,
    /// The judgement.
    pub verdict: Verdict,
    /// The runs of each that would decide it; `None` if it is decided, or if 200 would not decide it.
    pub runs_needed: Option<usize>,
}

/// One run of each, compared by the intervals within the runs, with thresholds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairComparison<'a> {
    /// The comparison without thresholds.
    #[serde(flatten)]
    pub comparison: &'a Comparison,
    /// The thresholds, in the order in which they were given.
    pub thresholds: &'a [Judged],
}

/// A figure of several runs of each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// `goodput`, `p99` and so on.
    pub name: &'static str,
    /// The second runs over the first, as geometric means.
    pub ratio: f64,
    /// The 95 % interval of the ratio; `None` with one run each.
    pub ci95: Option<Interval>,
    /// The judgement: a ratio of 1 lies outside the interval.
    pub change: Change,
}

/// Several runs of each, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunsComparison {
    /// `inrush.load-runs/1`.
    pub schema: &'static str,
    /// The names of the first runs, and of the second.
    pub names: [Vec<String>; 2],
    /// The figures.
    pub figures: Vec<Figure>,
    /// The thresholds, in the order in which they were given.
    pub thresholds: Vec<Judged>,
}

/// Compares every figure of at least one run each.
pub fn compare(
    names: [Vec<String>; 2],
    first: &[LoadResult],
    second: &[LoadResult],
    thresholds: Vec<Judged>,
) -> RunsComparison {
    let figures = FIGURES.iter().enumerate().map(|(number, (name, _))| {
        let even = Gate { given: String::new(), figure: number, is_upper: true, factor: 1.0 };
        let Judged { ratio, ci95, verdict, .. } = even.judge(first, second);
        let change = match (verdict, number < RATES) {
            _ if ci95.is_none() => Change::Unknown,
            (Verdict::Undecided, _) => Change::NoneSeen,
            (Verdict::Crossed, true) | (Verdict::Passed, false) => Change::Better,
            (Verdict::Crossed, false) | (Verdict::Passed, true) => Change::Worse,
        };
        // Equal runs without any scatter have an interval of 1 to 1, and nothing has changed.
        let change = if ratio == 1.0 { Change::NoneSeen } else { change };
        Figure { name, ratio, ci95, change }
    });
    RunsComparison { schema: "inrush.load-runs/1", names, figures: figures.collect(), thresholds }
}

/// Judges thresholds on at least one run each.
pub fn judge(gates: &[Gate], first: &[LoadResult], second: &[LoadResult]) -> Vec<Judged> {
    gates.iter().map(|gate| gate.judge(first, second)).collect()
}

impl Gate {
    fn judge(&self, first: &[LoadResult], second: &[LoadResult]) -> Judged {
        let (_, figure) = FIGURES[self.figure];
        let logs = |runs: &[LoadResult]| -> Vec<f64> {
            runs.iter().map(|run| figure(run).max(LEAST).ln()).collect()
        };
        let ratio = LogRatio::of(&logs(first), &logs(second));
        let ci95 = ratio
            .half_width()
            .map(|half| Interval { low: (ratio.value - half).exp(), high: (ratio.value + half).exp() });
        let beyond = |value: f64| if self.is_upper { value > self.factor } else { value < self.factor };
        let verdict = match ci95 {
            Some(ci95) if beyond(ci95.low) && beyond(ci95.high) => Verdict::Crossed,
            Some(ci95) if !beyond(ci95.low) && !beyond(ci95.high) => Verdict::Passed,
            _ => Verdict::Undecided,
        };
        let runs_needed = (verdict == Verdict::Undecided).then(|| ratio.runs_for(self.factor.ln())).flatten();
        Judged { threshold: self.given.clone(), ratio: ratio.value.exp(), ci95, verdict, runs_needed }
    }
}

/// The logarithm of a ratio, with the spread of the runs.
struct LogRatio {
    value: f64,
    counts: [usize; 2],
    /// The sum of the squared deviations from the mean of each side.
    squares: f64,
}

impl LogRatio {
    fn of(first: &[f64], second: &[f64]) -> LogRatio {
        let squares = |logs: &[f64]| {
            let mean = mean(logs);
            logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>()
        };
        LogRatio {
            value: mean(second) - mean(first),
            counts: [first.len(), second.len()],
            squares: squares(first) + squares(second),
        }
    }

    /// The variance of one run; `None` with one run each.
    fn variance(&self) -> Option<f64> {
        let freedom = freedom(self.counts);
        (freedom > 0).then(|| self.squares / freedom as f64)
    }

    /// Half of the 95 % interval.
    fn half_width(&self) -> Option<f64> {
        Some(half_width(self.variance()?, self.counts))
    }

    /// The runs of each with which an interval of half this width excludes the bound.
    fn runs_for(&self, bound: f64) -> Option<usize> {
        // Two runs each are the fewest that show a spread.
        let Some(variance) = self.variance() else { return Some(2) };
        let distance = (self.value - bound).abs();
        (2..=RUNS_MOST).find(|runs| half_width(variance, [*runs; 2]) < distance)
    }
}

/// The degrees of freedom of the spread of so many runs.
fn freedom([first, second]: [usize; 2]) -> usize {
    first + second - 2
}

/// Half of the 95 % interval of a ratio, for a variance of one run and so many runs of each.
fn half_width(variance: f64, counts: [usize; 2]) -> f64 {
    let per_run: f64 = counts.iter().map(|count| 1.0 / *count as f64).sum();
    exceeded_with(TAIL, freedom(counts)) * (variance * per_run).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(text: &str) -> Gate {
        text.parse().unwrap()
    }

    #[test]
    fn gates_name_figure_side_and_factor() {
        for text in ["p99>1.1x", "goodput<0.9x", "p99.9 > 2x"] {
            assert_eq!(gate(text).to_string(), text);
        }
        for (text, why) in [
            ("p99", "it has no > or <"),
            ("p98>1x", "'p98' is not one of goodput, "),
            ("p99>1.1", "the factor does not end with x"),
            ("p99>0x", "the factor is not a number above 0"),
        ] {
            let told = text.parse::<Gate>().unwrap_err().to_string();
            assert!(
                told.contains(why) && told.ends_with("expected such as p99>1.1x or goodput<0.9x"),
                "{told}"
            );
        }
    }

    #[test]
    fn single_runs_decide_nothing_and_ask_for_two() {
        let ratio = LogRatio::of(&[1.0], &[3.0]);
        assert_eq!((ratio.half_width(), ratio.runs_for(0.1)), (None, Some(2)));
    }

    #[test]
    fn equal_runs_decide_at_once() {
        let ratio = LogRatio::of(&[1.0, 1.0], &[3.0, 3.0]);
        assert_eq!((ratio.value, ratio.half_width()), (2.0, Some(0.0)));
    }

    /// With as many runs as are asked for, and the same scatter, the interval excludes the bound; with one less it does not.
    #[test]
    fn runs_needed_decide_the_bound() {
        for (distance, scatter) in [(0.05, 0.02), (0.1, 0.2), (0.5, 0.1), (1.0, 0.5), (2.0, 0.05)] {
            let few = [vec![-scatter, scatter], vec![distance - scatter, distance + scatter]];
            let ratio = LogRatio::of(&few[0], &few[1]);
            let variance = ratio.variance().unwrap();
            let half =
                |runs: usize| exceeded_with(TAIL, 2 * runs - 2) * (variance * 2.0 / runs as f64).sqrt();
            let runs = ratio.runs_for(0.0).unwrap();
            assert!(half(runs) < distance, "{distance} {scatter}: {runs}");
            assert!(runs == 2 || half(runs - 1) >= distance, "{distance} {scatter}: {runs}");
        }
    }
}
