//! `--fail-if`: a threshold that fails a run, such as `p99>300ms`, `goodput<1000` or `errors>1%`.
//!
//! A name, one of `> >= < <=`, and a value in the unit of the name:
//!
//! - `p50 p90 p99 p999 max mean`: latency from the intended time (a time);
//!   with `sent-`, `connect-` or `lateness-` before it, of those distributions;
//! - `offered retries sent replies goodput`: requests a second (a rate);
//! - `errors`: requests that ended otherwise than `ok`; or the name of one outcome, such as
//!   `connect_timeout` (a count, or with `%` the share of the offered ones that have ended).

use std::fmt;
use std::str::FromStr;

use base::{Nanos, PerSecond};
use record::{Distribution, LoadResult, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

const COMPARISONS: [(&str, Comparison); 4] = [
    // The longer ones first: `>=` begins with `>`.
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    (">", Comparison::Above),
    ("<", Comparison::Below),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantile {
    P50,
    P90,
    P99,
    P999,
    Max,
    Mean,
}

const QUANTILES: [(&str, Quantile); 6] = [
    ("p50", Quantile::P50),
    ("p90", Quantile::P90),
    ("p99", Quantile::P99),
    ("p999", Quantile::P999),
    ("max", Quantile::Max),
    ("mean", Quantile::Mean),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Intended,
    Sent,
    Connect,
    Lateness,
}

const TIMES: [(&str, Times); 4] = [
    ("sent-", Times::Sent),
    ("connect-", Times::Connect),
    ("lateness-", Times::Lateness),
    ("", Times::Intended),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    Offered,
    Retries,
    Sent,
    Replies,
    Goodput,
}

const RATES: [(&str, Rate); 5] = [
    ("offered", Rate::Offered),
    ("retries", Rate::Retries),
    ("sent", Rate::Sent),
    ("replies", Rate::Replies),
    ("goodput", Rate::Goodput),
];

/// What is compared, with the value it is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    Time(Times, Quantile, Nanos),
    Rate(Rate, PerSecond),
    /// Of one outcome, or of all but `ok`.
    Count(Option<Outcome>, u64),
    Share(Option<Outcome>, f64),
}

/// A checked threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    given: String,
    bound: Bound,
    comparison: Comparison,
}

/// Not a threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a threshold: {why}")]
pub struct NotAThreshold {
    given: String,
    why: String,
}

impl Threshold {
    /// The sentence that says how a result crosses it; nothing where it does not.
    pub fn crossed_by(&self, result: &LoadResult) -> Option<String> {
        let (measured, bound, shown) = match self.bound {
            Bound::Time(times, quantile, bound) => {
                let measured = quantile_of(distribution(result, times), quantile);
                (measured, bound.0 as f64, format!("{:.3}ms", measured / 1e6))
            }
            Bound::Rate(rate, bound) => {
                let measured = rate_of(result, rate);
                (measured, bound.0, format!("{measured:.1}/s"))
            }
            Bound::Count(outcome, bound) => {
                let measured = count_of(result, outcome);
                (measured as f64, bound as f64, measured.to_string())
            }
            Bound::Share(outcome, bound) => {
                let ended = result.outcomes.total().max(1);
                let measured = 100.0 * count_of(result, outcome) as f64 / ended as f64;
                (measured, bound, format!("{measured:.2}%"))
            }
        };
        let crossed = match self.comparison {
            Comparison::Above => measured > bound,
            Comparison::AtLeast => measured >= bound,
            Comparison::Below => measured < bound,
            Comparison::AtMost => measured <= bound,
        };
        crossed.then(|| format!("{}: measured {shown}", self.given))
    }
}

impl Threshold {
    /// The longest latency of a single reply under this objective. Only an upper bound on a high percentile of the
    /// latency from the intended time is one: a bound on the median allows half of the replies to be later.
    pub fn latency_bound(&self) -> Option<Nanos> {
        let is_upper = matches!(self.comparison, Comparison::Below | Comparison::AtMost);
        match self.bound {
            Bound::Time(Times::Intended, Quantile::P99 | Quantile::P999 | Quantile::Max, bound)
                if is_upper =>
            {
                Some(bound)
            }
            _ => None,
        }
    }
}

fn distribution(result: &LoadResult, times: Times) -> &Distribution {
    match times {
        Times::Intended => &result.latency_intended_ns,
        Times::Sent => &result.latency_sent_ns,
        Times::Connect => &result.connect_ns,
        Times::Lateness => &result.lateness_ns,
    }
}

fn quantile_of(distribution: &Distribution, quantile: Quantile) -> f64 {
    match quantile {
        Quantile::P50 => distribution.p50 as f64,
        Quantile::P90 => distribution.p90 as f64,
        Quantile::P99 => distribution.p99 as f64,
        Quantile::P999 => distribution.p999 as f64,
        Quantile::Max => distribution.max as f64,
        Quantile::Mean => distribution.mean,
    }
}

fn rate_of(result: &LoadResult, rate: Rate) -> f64 {
    match rate {
        Rate::Offered => result.offered_per_s,
        Rate::Retries => result.retries_per_s(),
        Rate::Sent => result.sent_per_s,
        Rate::Replies => result.replies_per_s,
        Rate::Goodput => result.goodput_per_s,
    }
}

fn count_of(result: &LoadResult, outcome: Option<Outcome>) -> u64 {
    match outcome {
        Some(outcome) => result.outcomes.get(outcome),
        None => result.outcomes.total() - result.outcomes.get(Outcome::Ok),
    }
}

impl FromStr for Threshold {
    type Err = NotAThreshold;

    fn from_str(given: &str) -> Result<Threshold, NotAThreshold> {
        let refuse = |why: String| NotAThreshold { given: given.to_owned(), why };
        let at =
            given.find(['<', '>']).ok_or_else(|| refuse("it has no > or <, as in p99>300ms".to_owned()))?;
        let (name, rest) = given.split_at(at);
        let (sign, comparison) = COMPARISONS
            .into_iter()
            .find(|(sign, _)| rest.starts_with(sign))
            .expect("every comparison begins with < or >");
        let bound = bound(name.trim(), rest[sign.len()..].trim()).map_err(refuse)?;
        Ok(Threshold { given: given.to_owned(), bound, comparison })
    }
}

fn bound(name: &str, value: &str) -> Result<Bound, String> {
    if let Some((times, quantile)) = time_name(name) {
        return value
            .parse()
            .map(|value| Bound::Time(times, quantile, value))
            .map_err(|error| format!("{error}"));
    }
    if let Some((_, rate)) = RATES.into_iter().find(|(rate, _)| *rate == name) {
        return value.parse().map(|value| Bound::Rate(rate, value)).map_err(|error| format!("{error}"));
    }
    let outcome = match name {
        "errors" => None,
        name => Some(
            Outcome::ALL
                .into_iter()
                .find(|outcome| outcome.name() == name)
                .ok_or_else(|| format!("'{name}' is not one of {}", names()))?,
        ),
    };
    match value.strip_suffix('%') {
        Some(percent) => match percent.trim().parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Bound::Share(outcome, percent)),
            _ => Err(format!("'{value}' is not a share from 0% to 100%")),
        },
        None => value
            .parse()
            .map(|count| Bound::Count(outcome, count))
            .map_err(|_| format!("'{value}' is not a count such as 10 or a share such as 1%")),
    }
}

/// The distribution and the quantile of a name such as `connect-p99`.
fn time_name(name: &str) -> Option<(Times, Quantile)> {
    TIMES.into_iter().find_map(|(prefix, times)| {
        let rest = name.strip_prefix(prefix)?;
        let (_, quantile) = QUANTILES.into_iter().find(|(quantile, _)| *quantile == rest)?;
        Some((times, quantile))
    })
}

fn names() -> String {
    let quantiles = QUANTILES.iter().map(|(name, _)| *name);
    let rates = RATES.iter().map(|(name, _)| *name);
    let outcomes = Outcome::ALL.iter().map(|outcome| outcome.name());
    quantiles.chain(rates).chain(["errors"]).chain(outcomes).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::result;

    #[track_caller]
    fn check(threshold: &str, crossed: Option<&str>) {
        let mut result = result();
        result.latency_intended_ns.p99 = 400_000_000;
        result.connect_ns.mean = 1_500_000.0;
        result.goodput_per_s = 900.0;
        result.outcomes.add(Outcome::Ok, 98);
        result.outcomes.add(Outcome::Reset, 2);
        let threshold: Threshold = threshold.parse().unwrap();
        assert_eq!(threshold.crossed_by(&result).as_deref(), crossed);
    }

    #[test]
    fn thresholds_are_crossed_or_not() {
        check("p99>300ms", Some("p99>300ms: measured 400.000ms"));
        check("p99>400ms", None);
        check("p99>=400ms", Some("p99>=400ms: measured 400.000ms"));
        check("connect-mean > 1ms", Some("connect-mean > 1ms: measured 1.500ms"));
        check("goodput<1k", Some("goodput<1k: measured 900.0/s"));
        check("goodput<=800/s", None);
        check("errors>1%", Some("errors>1%: measured 2.00%"));
        check("errors>2", None);
        check("reset>=2", Some("reset>=2: measured 2"));
        check("ok<99%", Some("ok<99%: measured 98.00%"));
    }

    #[test]
    fn an_upper_bound_on_a_high_percentile_bounds_every_reply() {
        let bound = |text: &str| text.parse::<Threshold>().unwrap().latency_bound();
        assert_eq!(bound("p99<100ms"), Some(Nanos::from_millis(100)));
        assert_eq!(bound("max <= 1s"), Some(Nanos::SECOND));
        for other in ["p50<100ms", "p99>100ms", "sent-p99<100ms", "mean<100ms", "errors<1%"] {
            assert_eq!(bound(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let why = |text: &str| text.parse::<Threshold>().unwrap_err().to_string();
        assert_eq!(why("p99"), "'p99' is not a threshold: it has no > or <, as in p99>300ms");
        assert!(why("p98>1ms").contains("'p98' is not one of p50, p90, p99, p999, max, mean, offered"));
        assert!(why("p99>300").contains("a time such as"));
        assert!(why("goodput<fast").contains("a rate a second"));
        assert!(why("errors>101%").contains("0% to 100%"));
        assert!(why("errors>few").contains("a count such as"));
    }
}
