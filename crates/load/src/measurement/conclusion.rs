//! The summary of a run in one line: the offered load, the replies in time, the failures.

use base::Nanos;
use base::digits::rate;
use record::{Latency, LoadResult, Outcome, Verdict};

use crate::plan::choices::expected::{Expected, Statuses};

/// The share of the replies from which the line names those to requests of the warm-up.
const SHOWN: f64 = 0.01;

/// The most outcomes that the line names; the others are one sum.
const NAMED_MOST: usize = 3;

/// The summary line of a run that expected these status codes. It says first when a run was not valid, and ends with
/// the remark on the replies' status codes.
pub(crate) fn of(result: &LoadResult, expected: &Expected, remark: Option<&str>) -> String {
    if let Some(cause) = result.total_failure() {
        return all_failed(result, expected, cause);
    }
    let figures = || match (figures(result, expected), remark) {
        (figures, Some(remark)) => format!("{figures} {remark}"),
        (figures, None) => figures,
    };
    let first_reason = || result.reasons.first().map_or("", String::as_str);
    match result.verdict {
        Verdict::Unreachable => format!("Nobody was reached. {}", first_reason()),
        Verdict::NotMeasured => format!("Nothing was measured. {}", first_reason()),
        Verdict::GeneratorLimited => format!("Not valid, the generator was the limit: {}", figures()),
        Verdict::Valid | Verdict::Degraded => figures(),
    }
}

fn figures(result: &LoadResult, expected: &Expected) -> String {
    let latency = &result.latency_intended_ns;
    let times = format!("p50 {}, p99 {}", shown(latency, latency.p50), shown(latency, latency.p99));
    let duration = Nanos::from_secs_f64(result.duration_s).approximate();
    let good = if expected.deadline.is_some() { "correct and in time" } else { "correct" };
    let of_warmup = match result.replies_of_warmup as f64 {
        // A share below what the rates show needs no words.
        early if early <= SHOWN * result.replies_per_s * result.duration_s => String::new(),
        early => format!(", {early} of the replies to requests of the warm-up"),
    };
    format!(
        "{} were offered for {duration}, and {} came back {good}{of_warmup} ({times}); {}.",
        rate(result.offered_per_s),
        rate(result.goodput_per_s),
        failed(result, &expected.status)
    )
}

/// The summary of a run in which every request failed, with the cause first.
fn all_failed(result: &LoadResult, expected: &Expected, cause: &str) -> String {
    let duration = Nanos::from_secs_f64(result.duration_s).approximate();
    let (offered, failed) = (rate(result.offered_per_s), failed(result, &expected.status));
    format!("Every request failed. {cause} {offered} were offered for {duration}; {failed}.")
}

fn shown(latency: &Latency, value: Option<u64>) -> String {
    match value {
        Some(ns) => Nanos(ns).approximate(),
        None => format!("> {}", Nanos(latency.beyond_ns).approximate()),
    }
}

/// The number of failed requests and their outcomes, such as
/// `12 of 2000 failed: 10 status_error (404), 2 in flight at the end`.
fn failed(result: &LoadResult, expected: &Statuses) -> String {
    if result.failed() == 0 {
        return "none failed".to_owned();
    }
    let mut ways: Vec<(u64, String)> = result
        .outcomes
        .iter()
        .filter(|(outcome, _)| *outcome != Outcome::Ok)
        .map(|(outcome, count)| (count, with_status(result, outcome, expected)))
        .chain([(result.in_flight_at_end, "in flight at the end".to_owned())])
        .filter(|(count, _)| *count > 0)
        .collect();
    ways.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let more: u64 = ways.drain(NAMED_MOST.min(ways.len())..).map(|(count, _)| count).sum();
    let mut named: Vec<String> = ways.into_iter().map(|(count, name)| format!("{count} {name}")).collect();
    named.extend((more > 0).then(|| format!("{more} otherwise")));
    format!("{} of {} failed: {}", result.failed(), result.offered, named.join(", "))
}

/// The name of an outcome; for a wrong status also the most frequent code.
fn with_status(result: &LoadResult, outcome: Outcome, expected: &Statuses) -> String {
    let errors = result.statuses.iter().filter(|(code, _)| !expected.contains(*code) && *code != 503);
    match errors.max_by_key(|(_, count)| *count) {
        Some((code, _)) if outcome == Outcome::StatusError => format!("{} ({code})", outcome.name()),
        _ => outcome.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::verdict::tests::result;

    /// Two thousand requests in ten seconds.
    fn run(counts: &[(Outcome, u64)], in_flight: u64) -> LoadResult {
        let mut run = result();
        counts.iter().for_each(|(outcome, count)| run.outcomes.add(*outcome, *count));
        (run.offered, run.in_flight_at_end) = (run.outcomes.total() + in_flight, in_flight);
        (run.duration_s, run.offered_per_s) = (10.0, run.offered as f64 / 10.0);
        run.goodput_per_s = run.outcomes.get(Outcome::Ok) as f64 / 10.0;
        run.latency_intended_ns.beyond_ns = 10_000_000_000;
        run
    }

    #[test]
    fn what_was_offered_answered_and_lost_is_one_line() {
        let mut good = run(&[(Outcome::Ok, 2_000)], 0);
        (good.latency_intended_ns.p50, good.latency_intended_ns.p99) = (Some(1_200_000), Some(8_650_000));
        assert_eq!(
            of(&good, &Expected::default(), None),
            "200/s were offered for 10 s, and 200/s came back correct (p50 1.2 ms, p99 8.65 ms); none failed."
        );
        assert!(
            of(&good, &Expected::default(), Some("All are redirects."))
                .ends_with("; none failed. All are redirects.")
        );
        (good.offered_per_s, good.goodput_per_s) = (12_345.6, 12_345.6);
        assert!(of(&good, &Expected::default(), None).starts_with("12.3k/s were offered"), "as on the page");
        let hung = run(&[], 2_000);
        assert_eq!(
            of(&hung, &Expected::default(), None),
            "200/s were offered for 10 s, and 0/s came back correct (p50 > 10 s, p99 > 10 s); 2000 of 2000 failed: 2000 in \
             flight at the end."
        );
    }

    #[test]
    fn replies_to_the_warmup_are_named() {
        let mut long = run(&[(Outcome::Ok, 2_000)], 0);
        (long.replies_per_s, long.goodput_per_s, long.replies_of_warmup) = (210.0, 210.0, 100);
        let told = of(&long, &Expected::default(), None);
        let named = "and 210/s came back correct, 100 of the replies to requests of the warm-up (";
        assert!(told.contains(named), "{told}");
        long.replies_of_warmup = 10;
        let told = of(&long, &Expected { deadline: Some(Nanos::SECOND), ..Expected::default() }, None);
        assert!(told.contains("came back correct and in time ("), "{told}");
    }

    #[test]
    fn total_failures_begin_with_their_cause() {
        let mut refused = run(&[(Outcome::StatusError, 2_000)], 0);
        refused.statuses.add(401, 2_000);
        refused.reasons = vec!["Every reply had status 401.".to_owned()];
        assert_eq!(
            of(&refused, &Expected::default(), None),
            "Every request failed. Every reply had status 401. 200/s were offered for 10 s; 2000 of 2000 failed: 2000 \
             status_error (401)."
        );
    }

    #[test]
    fn the_most_common_failures_are_named() {
        let counts = [
            (Outcome::Ok, 1_000),
            (Outcome::StatusError, 500),
            (Outcome::Reset, 3),
            (Outcome::ConnectTimeout, 400),
            (Outcome::Malformed, 2),
        ];
        let mut run = run(&counts, 95);
        for (code, count) in [(200, 1_000), (404, 490), (500, 10)] {
            run.statuses.add(code, count);
        }
        let told = of(&run, &Expected::default(), None);
        let expected = "1000 of 2000 failed: 500 status_error (404), 400 connect_timeout, 95 in flight at the end, 5 otherwise.";
        assert!(told.ends_with(expected), "{told}");
    }

    #[test]
    fn a_run_that_is_not_valid_says_so_first() {
        let mut run = run(&[(Outcome::Ok, 2_000)], 0);
        run.verdict = Verdict::GeneratorLimited;
        assert!(
            of(&run, &Expected::default(), None)
                .starts_with("Not valid, the generator was the limit: 200/s were offered")
        );
        (run.verdict, run.reasons) = (Verdict::NotMeasured, vec!["It was ended.".to_owned()]);
        assert_eq!(of(&run, &Expected::default(), None), "Nothing was measured. It was ended.");
    }
}
