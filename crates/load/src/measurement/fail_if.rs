//! `--fail-if`: a threshold that fails a run, such as `p99>300ms`, `goodput<1000` or `errors>1%`.
//!
//! A name, one of `> >= < <=`, and a value in the unit of the name:
//!
//! - `p50 p90 p95 p99 p99.9 max mean`: latency from the intended time (a time), of all requests that were
//!   due. A request without a correct reply counts as longer than any bound. In `mean` it counts as the longest
//!   time that the run could have seen, so the mean is a lower bound. The prefixes `sent-`,
//!   `first-byte-`, `gap-`, `connect-` and `lateness-` select other distributions.
//! - `offered retries sent replies goodput`: requests per second (a rate).
//! - `errors`: requests without a correct reply when the run ended ([`LoadResult::failed`]).
//!   The value is a count, or with `%` a share of the offered requests.
//! - The name of one outcome, such as `connect_timeout`, in the same units.
//!
//! `NAME:` before it selects the requests of one name: `login:p99>300ms`, `login:errors>1%`. They have the latency from the
//! intended time, and outcomes.

use std::fmt;
use std::str::FromStr;

use base::{Nanos, PerSecond};
use record::load::{Judged, NamedRequests};
use record::{Latency, LoadResult, Outcome, Verdict};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

const COMPARISONS: [(&str, Comparison); 4] = [
    // Longer signs first: `>=` begins with `>`.
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    (">", Comparison::Above),
    ("<", Comparison::Below),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantile {
    P50,
    P90,
    P95,
    P99,
    P999,
    Max,
    Mean,
}

impl Quantile {
    /// The fewest values to judge by. Among fewer, a percentile is the largest value.
    fn samples_least(self) -> u64 {
        match self {
            Quantile::P50 => 2,
            Quantile::P90 => 10,
            Quantile::P95 => 20,
            Quantile::P99 => 100,
            Quantile::P999 => 1_000,
            Quantile::Max | Quantile::Mean => 1,
        }
    }
}

const QUANTILES: [(&str, Quantile); 8] = [
    ("p50", Quantile::P50),
    ("p90", Quantile::P90),
    ("p95", Quantile::P95),
    ("p99", Quantile::P99),
    ("p99.9", Quantile::P999),
    ("p999", Quantile::P999),
    ("max", Quantile::Max),
    ("mean", Quantile::Mean),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Intended,
    Sent,
    FirstByte,
    Gap,
    Connect,
    Lateness,
}

const TIMES: [(&str, Times); 6] = [
    ("sent-", Times::Sent),
    ("first-byte-", Times::FirstByte),
    ("gap-", Times::Gap),
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

/// A measured quantity and the value of its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    Time(Times, Quantile, Nanos),
    Rate(Rate, PerSecond),
    /// The count of one outcome; `None` for all failures.
    Count(Option<Outcome>, u64),
    Share(Option<Outcome>, f64),
}

/// A parsed threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    given: String,
    /// The requests of one name; `None` for all.
    request: Option<String>,
    bound: Bound,
    comparison: Comparison,
}

/// The text is not a threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a threshold: {why}")]
pub struct NotAThreshold {
    given: String,
    why: String,
}

/// Judges a result by thresholds. A percentile of too few requests degrades the verdict.
pub fn judge_all(thresholds: &[Threshold], result: &mut LoadResult) {
    result.thresholds = thresholds.iter().map(|threshold| threshold.judge(result)).collect();
    let too_few: Vec<String> = thresholds.iter().filter_map(|threshold| threshold.too_few(result)).collect();
    if result.verdict == Verdict::Valid && !too_few.is_empty() {
        result.verdict = Verdict::Degraded;
    }
    result.reasons.extend(too_few);
}

/// A measured figure, as a number and as text.
struct Figure {
    value: f64,
    shown: String,
}

impl Threshold {
    /// Compares a result with the threshold. A figure without any measurement crosses every threshold.
    pub fn judge(&self, result: &LoadResult) -> Judged {
        let measured = self.measure(result);
        Judged {
            threshold: self.given.clone(),
            crossed: measured.as_ref().is_none_or(|measured| self.compares(measured.value)),
            measured: measured.map_or_else(|| "nothing".to_owned(), |measured| measured.shown),
        }
    }

    /// Returns true for a result that satisfies the comparison. An objective has the same syntax as a
    /// threshold.
    pub fn is_met_by(&self, result: &LoadResult) -> bool {
        self.measure(result).is_some_and(|measured| self.compares(measured.value))
    }

    /// A remark on a percentile that no request lies beyond, so that it is the slowest request.
    fn too_few(&self, result: &LoadResult) -> Option<String> {
        let Bound::Time(times, quantile, _) = self.bound else { return None };
        let least = quantile.samples_least();
        let all = match &self.request {
            Some(name) => result.requests.get(name)?.latency_intended_ns.all(),
            None => latency_of(result, times).all(),
        };
        (0 < all && all < least).then(|| {
            format!(
                "{}: this percentile is the largest of only {all} values, and {least} are needed; raise --rate or --duration.",
                self.given
            )
        })
    }

    /// Reads an objective: a sentence that holds for a good result, such as `p99<300ms`.
    ///
    /// # Errors
    /// A text that is not a threshold, or a threshold that names the failure, such as `p99>300ms`.
    pub fn objective(given: &str) -> Result<Threshold, String> {
        let objective: Threshold = given.parse().map_err(|error: NotAThreshold| error.to_string())?;
        let (is_below, opposite) = match objective.comparison {
            Comparison::Above | Comparison::AtLeast => (false, given.replace('>', "<")),
            Comparison::Below | Comparison::AtMost => (true, given.replace('<', ">")),
        };
        let less_is_good = match objective.bound {
            Bound::Time(..) | Bound::Rate(Rate::Retries, _) => true,
            Bound::Rate(..) => false,
            Bound::Count(outcome, _) | Bound::Share(outcome, _) => outcome != Some(Outcome::Ok),
        };
        if is_below == less_is_good {
            Ok(objective)
        } else {
            Err(format!("an objective says what a good result has; did you mean '{opposite}'?"))
        }
    }

    fn compares(&self, value: f64) -> bool {
        let bound = match self.bound {
            Bound::Time(_, _, bound) => bound.0 as f64,
            Bound::Rate(_, bound) => bound.0,
            Bound::Count(_, bound) => bound as f64,
            Bound::Share(_, bound) => bound,
        };
        match self.comparison {
            Comparison::Above => value > bound,
            Comparison::AtLeast => value >= bound,
            Comparison::Below => value < bound,
            Comparison::AtMost => value <= bound,
        }
    }

    /// The measured figure; `None` without any measurement.
    fn measure(&self, result: &LoadResult) -> Option<Figure> {
        if let Some(name) = &self.request {
            return self.measure_named(result.requests.get(name)?);
        }
        match self.bound {
            Bound::Time(times, quantile, _) => of_latency(&latency_of(result, times), quantile),
            Bound::Rate(rate, _) => {
                let value = rate_of(result, rate);
                Some(Figure { value, shown: format!("{value:.1}/s") })
            }
            Bound::Count(outcome, _) => {
                let count = count_of(result, outcome);
                Some(Figure { value: count as f64, shown: count.to_string() })
            }
            Bound::Share(outcome, _) => {
                let value = 100.0 * count_of(result, outcome) as f64 / result.offered as f64;
                (result.offered > 0).then(|| Figure { value, shown: format!("{value:.2}%") })
            }
        }
    }
}

impl Threshold {
    /// The figure of the requests of one name.
    fn measure_named(&self, requests: &NamedRequests) -> Option<Figure> {
        let all = requests.offered();
        let count = |outcome: Option<Outcome>| match outcome {
            Some(outcome) => requests.outcomes.get(outcome),
            None => requests.failed(),
        };
        match self.bound {
            Bound::Time(_, quantile, _) => of_latency(&requests.latency_intended_ns, quantile),
            Bound::Rate(..) => None,
            Bound::Count(outcome, _) => {
                let count = count(outcome);
                Some(Figure { value: count as f64, shown: count.to_string() })
            }
            Bound::Share(outcome, _) => {
                let value = 100.0 * count(outcome) as f64 / all as f64;
                (all > 0).then(|| Figure { value, shown: format!("{value:.2}%") })
            }
        }
    }

    /// The name of the requests that the threshold is about; `None` for all requests.
    pub fn request(&self) -> Option<&str> {
        self.request.as_deref()
    }

    /// The longest latency of a single reply under this objective. Only an upper bound on a high percentile
    /// of the latency from the intended time limits it. A bound on the median allows half of the replies to
    /// be later.
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

fn latency_of(result: &LoadResult, times: Times) -> Latency {
    match times {
        Times::Intended => result.latency_intended_ns,
        Times::Sent => result.latency_sent_ns,
        Times::FirstByte => result.first_byte_ns,
        Times::Gap => result.gap_ns,
        Times::Connect => result.connect_ns,
        Times::Lateness => Latency::from(result.lateness_ns),
    }
}

/// A percentile of all requests; infinite when it falls among the unanswered ones.
fn of_latency(latency: &Latency, quantile: Quantile) -> Option<Figure> {
    let value = match quantile {
        Quantile::P50 => latency.p50,
        Quantile::P90 => latency.p90,
        Quantile::P95 => latency.p95,
        Quantile::P99 => latency.p99,
        Quantile::P999 => latency.p999,
        Quantile::Max => latency.max,
        Quantile::Mean => {
            let at_least = if latency.unanswered > 0 { "at least " } else { "" };
            let of_mean = |value: f64| Figure { value, shown: format!("{at_least}{:.3}ms", value / 1e6) };
            return latency.mean_at_least().map(of_mean);
        }
    };
    let unanswered = || Figure {
        value: f64::INFINITY,
        shown: format!(
            "> {} ({} of {} without an answer)",
            Nanos(latency.beyond_ns).approximate(),
            latency.unanswered,
            latency.all()
        ),
    };
    let known = |value: u64| Figure { value: value as f64, shown: format!("{:.3}ms", value as f64 / 1e6) };
    (latency.all() > 0).then(|| value.map_or_else(unanswered, known))
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
        None => result.failed(),
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
        let (request, name) = match name.rsplit_once(':') {
            Some((request, name)) => (Some(request.trim().to_owned()), name),
            None => (None, name),
        };
        let bound = bound(name.trim(), rest[sign.len()..].trim()).map_err(&refuse)?;
        let is_of_all = match bound {
            Bound::Time(times, ..) => times != Times::Intended,
            Bound::Rate(..) => true,
            Bound::Count(..) | Bound::Share(..) => false,
        };
        if request.is_some() && is_of_all {
            return Err(refuse("the requests of one name have p50 to max, errors and outcomes".to_owned()));
        }
        Ok(Threshold { given: given.to_owned(), request, bound, comparison })
    }
}

fn bound(name: &str, value: &str) -> Result<Bound, String> {
    if let Some((times, quantile)) = time_name(name) {
        let time = value.parse().map(|value| Bound::Time(times, quantile, value));
        return time.map_err(|error| match value.parse::<f64>() {
            Ok(_) => format!("'{value}' has no unit; did you mean {value}ms?"),
            Err(_) => error.to_string(),
        });
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
    use crate::measurement::verdict::tests::result;
    use record::{Distribution, Outcomes};

    /// A hundred requests: 98 correct, two reset.
    fn some() -> LoadResult {
        let mut result = result();
        result.offered = 100;
        result.latency_intended_ns.unanswered = 2;
        result.latency_intended_ns.answered.count = 98;
        result.latency_intended_ns.p95 = Some(400_000_000);
        result.latency_intended_ns.beyond_ns = 4_000_000_000;
        result.connect_ns.answered =
            Distribution { count: 100, mean: 1_500_000.0, ..Distribution::default() };
        result.first_byte_ns.answered =
            Distribution { count: 100, mean: 3_000_000.0, ..Distribution::default() };
        result.goodput_per_s = 900.0;
        result.outcomes.add(Outcome::Ok, 98);
        result.outcomes.add(Outcome::Reset, 2);
        result
    }

    #[track_caller]
    fn check(result: &LoadResult, threshold: &str, measured: &str, crossed: bool) {
        let judged = threshold.parse::<Threshold>().unwrap().judge(result);
        assert_eq!((judged.measured.as_str(), judged.crossed), (measured, crossed), "{threshold}");
    }

    #[test]
    fn thresholds_are_crossed_or_not() {
        let some = some();
        check(&some, "p95>300ms", "400.000ms", true);
        check(&some, "p95>400ms", "400.000ms", false);
        check(&some, "p95>=400ms", "400.000ms", true);
        check(&some, "connect-mean > 1ms", "1.500ms", true);
        check(&some, "first-byte-mean>2ms", "3.000ms", true);
        check(&some, "mean>100ms", "at least 80.000ms", false);
        check(&some, "goodput<1k", "900.0/s", true);
        check(&some, "goodput<=800/s", "900.0/s", false);
        check(&some, "errors>1%", "2.00%", true);
        check(&some, "errors>2", "2", false);
        check(&some, "reset>=2", "2", true);
        check(&some, "ok<99%", "98.00%", true);
    }

    #[test]
    fn percentile_among_unanswered_exceeds_any_bound() {
        for quantile in ["p99", "p99.9", "p999", "max"] {
            let shown = "> 4 s (2 of 100 without an answer)";
            check(&some(), &format!("{quantile}>1h"), shown, true);
            check(&some(), &format!("{quantile}<1h"), shown, false);
        }
    }

    #[test]
    fn what_never_ended_is_an_error() {
        let mut hung = result();
        (hung.offered, hung.in_flight_at_end) = (800, 800);
        hung.latency_intended_ns =
            Latency { unanswered: 800, beyond_ns: 4_000_000_000, ..Latency::default() };
        check(&hung, "errors>1%", "100.00%", true);
        check(&hung, "errors>799", "800", true);
        check(&hung, "p50>1s", "> 4 s (800 of 800 without an answer)", true);
        check(&hung, "mean>3s", "at least 4000.000ms", true);
        check(&hung, "ok<1", "0", true);
    }

    #[test]
    fn unmeasured_value_crosses_every_threshold() {
        for threshold in ["p99>1h", "p99<1h", "connect-p50>1h", "lateness-max>1h", "errors>99%"] {
            check(&result(), threshold, "nothing", true);
            assert!(!threshold.parse::<Threshold>().unwrap().is_met_by(&result()), "{threshold}");
        }
        assert!("p95<=400ms".parse::<Threshold>().unwrap().is_met_by(&some()));
        assert!(!"p99<1h".parse::<Threshold>().unwrap().is_met_by(&some()));
    }

    #[test]
    fn objective_in_the_opposite_sense_is_refused() {
        for (wrong, meant) in [
            ("p99>300ms", "p99<300ms"),
            ("errors >= 1%", "errors <= 1%"),
            ("goodput<1k", "goodput>1k"),
            ("ok<=99%", "ok>=99%"),
            ("login:p50>1s", "login:p50<1s"),
        ] {
            let said = format!("an objective says what a good result has; did you mean '{meant}'?");
            assert_eq!(Threshold::objective(wrong), Err(said));
            assert_eq!(Threshold::objective(meant), Ok(meant.parse().unwrap()));
        }
        assert!(Threshold::objective("p98<1s").unwrap_err().contains("'p98' is not one of"));
    }

    #[test]
    fn bound_on_a_high_percentile_bounds_every_reply() {
        let bound = |text: &str| text.parse::<Threshold>().unwrap().latency_bound();
        assert_eq!(bound("p99<100ms"), Some(Nanos::from_millis(100)));
        assert_eq!(bound("max <= 1s"), Some(Nanos::SECOND));
        for other in ["p50<100ms", "p99>100ms", "sent-p99<100ms", "mean<100ms", "errors<1%"] {
            assert_eq!(bound(other), None, "{other}");
        }
    }

    #[test]
    fn a_percentile_of_too_few_requests_degrades_a_run() {
        let thresholds = ["p99>1h", "p99.9>1h", "max>1h", "errors>99%"].map(|text| text.parse().unwrap());
        let mut some = some();
        judge_all(&thresholds, &mut some);
        assert_eq!((some.thresholds.len(), some.verdict), (4, Verdict::Degraded));
        let told = "p99.9>1h: this percentile is the largest of only 100 values, and 1000 are needed";
        assert!(some.reasons.len() == 1 && some.reasons[0].starts_with(told), "{:?}", some.reasons);
        let mut limited = LoadResult { verdict: Verdict::GeneratorLimited, ..some };
        judge_all(&thresholds, &mut limited);
        assert_eq!(limited.verdict, Verdict::GeneratorLimited);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let why = |text: &str| text.parse::<Threshold>().unwrap_err().to_string();
        assert_eq!(why("p99"), "'p99' is not a threshold: it has no > or <, as in p99>300ms");
        assert!(why("p98>1ms").contains("'p98' is not one of p50, p90, p95, p99, p99.9, p999, max, mean"));
        assert!(why("p99>300").contains("'300' has no unit; did you mean 300ms?"));
        assert!(why("p99>soon").contains("a time such as"));
        assert!(why("goodput<fast").contains("a rate per second"));
        assert!(why("errors>101%").contains("0% to 100%"));
        assert!(why("errors>few").contains("a count such as"));
    }

    #[test]
    fn requests_of_a_name_have_thresholds_of_their_own() {
        let mut result = some();
        let mut login = NamedRequests {
            outcomes: Outcomes::default(),
            in_flight_at_end: 0,
            latency_intended_ns: result.latency_intended_ns,
        };
        let hung = NamedRequests { in_flight_at_end: 4, ..login.clone() };
        login.outcomes.add(Outcome::Ok, 3);
        login.outcomes.add(Outcome::StatusError, 1);
        result.requests.insert("log in".to_owned(), login);
        result.requests.insert("pay".to_owned(), hung);
        let judged = |text: &str| text.parse::<Threshold>().unwrap().judge(&result);
        assert_eq!(judged("log in:errors>20%").measured, "25.00%");
        assert_eq!(judged("log in:status_error>0").measured, "1");
        assert_eq!(judged("log in:p50>1h").measured, judged("p50>1h").measured);
        assert_eq!(
            (judged("pay:errors>1%").measured.as_str(), judged("pay:errors>3").crossed),
            ("100.00%", true)
        );
        assert!(judged("log out:errors>1%").crossed, "nothing was measured");
        let refused = "log in:goodput<5".parse::<Threshold>().unwrap_err().to_string();
        assert!(
            refused.ends_with("the requests of one name have p50 to max, errors and outcomes"),
            "{refused}"
        );
    }
}
