//! The summary of a run in one line: the offered load, the replies in time, the failures.

use base::Nanos;
use base::digits::rate;
use record::{Latency, LoadResult, Outcome, Verdict};

use crate::plan::expected::Statuses;

/// The most outcomes that the line names; the others are one sum.
const NAMED_MOST: usize = 3;

/// The summary line of a run that expected these status codes. It says first when a run was not valid, and ends with
/// the remark on the replies' status codes.
pub(crate) fn of(result: &LoadResult, expected: &Statuses, remark: Option<&str>) -> String {
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

fn figures(result: &LoadResult, expected: &Statuses) -> String {
    let latency = &result.latency_intended_ns;
    let times = format!("p50 {}, p99 {}", shown(latency, latency.p50), shown(latency, latency.p99));
    let due_per_s = result.offered_per_s * result.due() as f64 / result.offered.max(1) as f64;
    let not_due = match result.not_due_at_end {
        0 => String::new(),
        count => format!(" {count} more requests of the sessions were not due yet."),
    };
    format!(
        "{} were offered for {}, and {} came back correct and in time ({times}); {}.{not_due}",
        rate(due_per_s),
        Nanos::from_secs_f64(result.duration_s).approximate(),
        rate(result.goodput_per_s),
        failed(result, expected)
    )
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
        .chain([(result.due_in_flight(), "in flight at the end".to_owned())])
        .filter(|(count, _)| *count > 0)
        .collect();
    ways.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let more: u64 = ways.drain(NAMED_MOST.min(ways.len())..).map(|(count, _)| count).sum();
    let mut named: Vec<String> = ways.into_iter().map(|(count, name)| format!("{count} {name}")).collect();
    named.extend((more > 0).then(|| format!("{more} otherwise")));
    format!("{} of {} failed: {}", result.failed(), result.due(), named.join(", "))
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
            of(&good, &Statuses::default(), None),
            "200/s were offered for 10 s, and 200/s came back correct and in time (p50 1.2 ms, p99 8.65 ms); none failed."
        );
        assert!(
            of(&good, &Statuses::default(), Some("All are redirects."))
                .ends_with("; none failed. All are redirects.")
        );
        (good.offered_per_s, good.goodput_per_s) = (12_345.6, 12_345.6);
        assert!(of(&good, &Statuses::default(), None).starts_with("12.3k/s were offered"), "as on the page");
        let hung = run(&[], 2_000);
        assert_eq!(
            of(&hung, &Statuses::default(), None),
            "200/s were offered for 10 s, and 0/s came back correct and in time (p50 > 10 s, p99 > 10 s); 2000 of 2000 \
             failed: 2000 in flight at the end."
        );
    }

    #[test]
    fn requests_that_were_not_due_are_not_offered_yet() {
        let mut thinking = run(&[(Outcome::Ok, 200)], 1_800);
        thinking.not_due_at_end = 1_800;
        let told = of(&thinking, &Statuses::default(), None);
        assert!(told.starts_with("20/s were offered for 10 s, and 20/s came back"), "{told}");
        assert!(
            told.ends_with("none failed. 1800 more requests of the sessions were not due yet."),
            "{told}"
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
        let told = of(&run, &Statuses::default(), None);
        let expected = "1000 of 2000 failed: 500 status_error (404), 400 connect_timeout, 95 in flight at the end, 5 otherwise.";
        assert!(told.ends_with(expected), "{told}");
    }

    #[test]
    fn a_run_that_is_not_valid_says_so_first() {
        let mut run = run(&[(Outcome::Ok, 2_000)], 0);
        run.verdict = Verdict::GeneratorLimited;
        assert!(
            of(&run, &Statuses::default(), None)
                .starts_with("Not valid, the generator was the limit: 200/s were offered")
        );
        (run.verdict, run.reasons) = (Verdict::NotMeasured, vec!["It was ended.".to_owned()]);
        assert_eq!(of(&run, &Statuses::default(), None), "Nothing was measured. It was ended.");
    }
}
