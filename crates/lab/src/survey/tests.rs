//! The whole survey, on simulated servers.

use analysis::capacity::{answered_share, by_load};
use record::{CapacityResult, CapacityVerdict, Manifest};
use report::capacity::table;

use super::simulated::Simulated;
use super::*;

fn plan(seed: Seed) -> Survey {
    Survey {
        trials: 3,
        step: Nanos::from_secs(2),
        past: 3.0,
        deadline: Nanos::SECOND,
        session_length: 1.0,
        thinking: Nanos::ZERO,
        seed,
    }
}

fn surveyed(server: &mut Simulated, seed: Seed, slo: Option<&str>) -> CapacityResult {
    let Ok(probe) = probe(server, Nanos::from_secs(10));
    let plan = Survey { deadline: server.deadline, ..plan(seed) };
    let (findings, Ok(())) = carry_out(&plan, &probe, server);
    conclude(findings, slo.map(str::to_owned), Manifest::default())
}

#[track_caller]
fn check_capacity(result: &CapacityResult, capacity: f64, ratios: std::ops::RangeInclusive<f64>) {
    let ratio = result.capacity_per_s / capacity;
    let [low, high] = result.interval_per_s;
    assert!(ratios.contains(&ratio), "{capacity}: {} {:?}", result.capacity_per_s, result.interval_per_s);
    assert!(low <= result.capacity_per_s && result.capacity_per_s <= high, "{:?}", result.interval_per_s);
    assert!(low <= capacity && capacity <= high * 1.001, "{capacity} not in {:?}", result.interval_per_s);
}

#[test]
fn a_server_that_holds() {
    for capacity in [30.0, 700.0, 4_321.0, 90_000.0] {
        let mut server = Simulated::new(capacity, Seed(1));
        let result = surveyed(&mut server, Seed(1), None);
        check_capacity(&result, capacity, 0.93..=1.02);
        assert_eq!(result.verdict, CapacityVerdict::Holds, "{}", result.text);
        assert!(result.recovery_s.is_some_and(|seconds| seconds < 0.1), "{:?}", result.recovery_s);
        assert!(result.text.contains("holds: at 3× the capacity it answers"), "{}", result.text);
        assert!(
            result.text.contains("as on the way up. Then it serves 0.8× the capacity as before at once.")
        );
    }
}

#[test]
fn unanswered_excess_counts_as_dropped() {
    for silence in [Outcome::ConnectTimeout, Outcome::ResponseTimeout] {
        let mut server = Simulated::new(1_000.0, Seed(1));
        server.excess = silence;
        let result = surveyed(&mut server, Seed(1), None);
        assert_eq!(result.verdict, CapacityVerdict::Drops, "{}", result.text);
        assert!(result.text.contains("Past it the server drops requests: at 3×"), "{}", result.text);
        assert!(result.text.contains(", but 67 % of the requests get no answer."), "{}", result.text);
        assert!(!result.text.contains("holds"), "{}", result.text);
    }
}

#[test]
fn standing_queue_sags_at_any_goodput() {
    let mut server = Simulated::new(1_000.0, Seed(1));
    server.full_queue_ns = 400e6;
    let result = surveyed(&mut server, Seed(1), None);
    assert_eq!(result.verdict, CapacityVerdict::Sags, "{}", result.text);
    assert!(result.text.contains(", but replies wait in a queue."), "{}", result.text);
}

#[test]
fn late_replies_are_no_goodput() {
    let mut server = Simulated::new(1_000.0, Seed(1));
    (server.full_queue_ns, server.excess) = (1.3e9, Outcome::ConnectTimeout);
    let result = surveyed(&mut server, Seed(1), Some("p99<1s"));
    let largest = result.past.last().unwrap();
    assert!(largest.outcomes.get(Outcome::Ok) > 0 && largest.goodput_per_s < 500.0, "{largest:?}");
    assert_eq!(result.verdict, CapacityVerdict::Collapses, "{}", result.text);
    assert!(result.text.contains("of the capacity; "), "{}", result.text);
    assert!(result.text.contains("replies wait in a queue"), "{}", result.text);
    assert!(result.text.contains("% of the requests get no answer"), "{}", result.text);
}

#[test]
fn missed_objective_past_capacity_does_not_hold() {
    let mut server = Simulated::new(10_000.0, Seed(1));
    // As of an objective such as 'errors<1%': nothing is late, and yet it does not hold.
    server.p99_most_ns = 12e6;
    let result = surveyed(&mut server, Seed(1), Some("p50<4ms"));
    assert_eq!(result.verdict, CapacityVerdict::Sags, "{}", result.text);
    assert!(result.text.contains("more than at the capacity, but p50<4ms does not hold."), "{}", result.text);
}

#[test]
fn a_server_that_recovers_late_or_never_does_not_hold() {
    let mut server = Simulated::new(1_000.0, Seed(1));
    let Ok(probe) = probe(&mut server, Nanos::from_secs(10));
    let (mut findings, Ok(())) = carry_out(&plan(Seed(1)), &probe, &mut server);
    for (recovery_s, verdict, words) in [
        (Some(0.9), CapacityVerdict::Holds, "the server holds"),
        (Some(1.1), CapacityVerdict::Sags, "but it recovers slowly."),
        (None, CapacityVerdict::Collapses, "but it does not recover."),
    ] {
        findings.recovery_s = recovery_s;
        let result = conclude(findings.clone(), None, Manifest::default());
        assert_eq!(result.verdict, verdict, "{}", result.text);
        assert!(result.text.contains(words), "{}", result.text);
    }
}

#[test]
fn replies_are_due_by_objective_second_or_latency() {
    let probe = |p99_ms: u64| {
        let Ok(mut step) = probe(&mut Simulated::new(1_000.0, Seed(1)), Nanos::SECOND);
        step.latency_intended_ns.p99 = Nanos::from_millis(p99_ms).0;
        step
    };
    assert_eq!(deadline(&probe(1), Some(Nanos::from_millis(100))), Nanos::from_millis(100));
    assert_eq!(deadline(&probe(1), None), Nanos::SECOND);
    assert_eq!(deadline(&probe(800), None), Nanos::from_millis(1_600));
}

#[test]
fn survey_columns_stay_within_the_whole() {
    for (debt_per_s, generator_most) in [(0.0, f64::INFINITY), (1.0, f64::INFINITY), (0.0, 2_000.0)] {
        let mut server = Simulated::new(1_000.0, Seed(1));
        (server.debt_per_s, server.generator_most) = (debt_per_s, generator_most);
        let mut result = surveyed(&mut server, Seed(1), None);
        // A backlog that is answered on the way back: more replies than requests.
        if let Some(last) = result.back.last_mut() {
            last.goodput_per_s = 1.5 * last.offered_per_s;
            let backlog = (0.5 * last.offered_per_s * last.duration_s) as u64;
            last.outcomes.add(Outcome::Ok, backlog);
        }
        // The generator falls far short of the largest load, and a little of another.
        if let [_, short, .., largest] = result.past.as_mut_slice() {
            largest.offered_per_s *= 0.3;
            short.offered_per_s *= 0.96;
        }
        let steps = [&result.knee, &result.past, &result.back];
        assert!(steps.into_iter().flatten().all(|step| answered_share(step) <= 1.0));
        let page = report::capacity::html(&result);
        for line in page.split("<path class=\"line\" d=\"").skip(1) {
            // A path is M x y L x y ..., and a legend's sample ends in H.
            let path = line.split('"').next().unwrap();
            let corners = path.split(['M', 'L']).filter(|corner| !corner.is_empty() && !corner.contains('H'));
            let across: Vec<f64> =
                corners.map(|corner| corner.split_whitespace().next().unwrap().parse().unwrap()).collect();
            assert!(across.is_sorted(), "{path}");
        }
    }
}

#[test]
fn slow_server_is_not_drowned_by_the_search() {
    let mut server = Simulated::new(4.0, Seed(1));
    let result = surveyed(&mut server, Seed(1), None);
    check_capacity(&result, 4.0, 0.9..=1.05);
    let most = server.offers.iter().map(|offer| offer.per_s).fold(0.0, f64::max);
    assert!(most <= PROBE_PER_S, "{most}");
}

#[test]
fn sessions_beyond_a_step_do_not_lower_capacity() {
    // A request of an idle server takes 1 ms.
    for (session_length, thinking) in [(3_000.0, Nanos::ZERO), (20.0, Nanos::from_secs(3))] {
        let mut server = Simulated::new(1_000.0, Seed(1));
        server.session_s = session_length * 1e-3 + thinking.as_secs_f64();
        let Ok(probe) = probe(&mut server, Nanos::from_secs(10));
        let plan = Survey { session_length, thinking, ..plan(Seed(1)) };
        let (findings, Ok(())) = carry_out(&plan, &probe, &mut server);
        let result = conclude(findings, None, Manifest::default());
        check_capacity(&result, 1_000.0, 0.93..=1.02);
    }
}

#[test]
fn the_loads_go_past_the_capacity_and_back() {
    let mut server = Simulated::new(1_000.0, Seed(1));
    let result = surveyed(&mut server, Seed(1), None);
    let multiples = |steps: &[Step]| -> Vec<f64> {
        steps.iter().map(|step| (100.0 * step.asked_per_s / result.capacity_per_s).round() / 100.0).collect()
    };
    assert_eq!(multiples(&result.past), [1.32, 1.73, 2.28, 3.0]);
    assert_eq!(multiples(&result.back), [2.28, 1.73, 1.32]);
    let knee: Vec<f64> = result.knee.iter().map(|step| step.asked_per_s).collect();
    assert_eq!(by_load(&result.knee).iter().map(Vec::len).collect::<Vec<_>>(), [3; 4]);
    assert!(!knee.is_sorted(), "in random order");
    let again = surveyed(&mut Simulated::new(1_000.0, Seed(1)), Seed(1), None);
    assert_eq!(again, result, "the same seed, the same survey");
}

#[test]
fn a_server_that_sags_and_one_that_collapses() {
    for (collapse, verdict, word) in
        [(0.15, CapacityVerdict::Sags, "sags"), (0.4, CapacityVerdict::Collapses, "collapses")]
    {
        let mut server = Simulated::new(2_500.0, Seed(1));
        (server.collapse, server.excess) = (collapse, Outcome::ConnectTimeout);
        let result = surveyed(&mut server, Seed(1), None);
        check_capacity(&result, 2_500.0, 0.9..=1.02);
        assert_eq!(result.verdict, verdict, "{}", result.text);
        assert!(result.text.contains(word), "{}", result.text);
        assert!(result.loss["connect_timeout"] > 0.5, "{:?}", result.loss);
        assert!(result.text.contains("got no connection in time"), "{}", result.text);
    }
}

#[test]
fn a_server_that_needs_time_to_recover() {
    let mut server = Simulated::new(3_000.0, Seed(1));
    server.debt_per_s = 1.0;
    let result = surveyed(&mut server, Seed(1), None);
    check_capacity(&result, 3_000.0, 0.9..=1.02);
    assert_eq!(result.verdict, CapacityVerdict::Collapses, "{}", result.text);
    let recovery_s = result.recovery_s.expect("it recovers");
    assert!(recovery_s > 0.5, "{recovery_s}");
    assert!(result.text.contains("has an after-effect"), "{}", result.text);
    assert!(result.text.contains(&format!("as before after {recovery_s:.1} s")), "{}", result.text);
    server.debt_s = 0.0;
    server.debt_per_s = 10.0;
    let result = surveyed(&mut server, Seed(1), None);
    assert_eq!(result.recovery_s, None);
    assert!(
        result.text.contains("it still did not serve 0.8× the capacity as before 10 s later"),
        "{}",
        result.text
    );
}

#[test]
fn noisy_capacity_interval_holds_the_truth() {
    let mut inside = 0;
    for seed in (0..100).map(Seed) {
        let capacity = 1_000.0 + 313.0 * seed.0 as f64;
        let mut server = Simulated::new(capacity, seed);
        (server.noise, server.collapse) = (0.04, 0.1);
        let result = surveyed(&mut server, seed, None);
        let ratio = result.capacity_per_s / capacity;
        assert!((0.88..=1.06).contains(&ratio), "seed {seed}: {capacity}: {}", result.capacity_per_s);
        inside += usize::from(result.interval_per_s[0] <= capacity && capacity <= result.interval_per_s[1]);
    }
    assert!(inside >= 90, "{inside} of 100");
}

#[test]
fn objective_knee_lies_below_throughput_knee() {
    let mut server = Simulated::new(10_000.0, Seed(1));
    // p99 is three times 1 ms / (1 - utilisation): 12 ms at three quarters of the capacity.
    server.p99_most_ns = 12e6;
    server.deadline = Nanos::from_millis(12);
    let result = surveyed(&mut server, Seed(1), Some("p99<12ms"));
    check_capacity(&result, 7_500.0, 0.9..=1.1);
    assert!(result.text.contains("with p99<12ms"), "{}", result.text);
    assert_eq!(result.verdict, CapacityVerdict::Collapses, "{}", result.text);
    assert!(result.text.contains("p99<12ms does not hold"), "{}", result.text);
}

#[test]
fn exhausted_generator_makes_capacity_a_lower_bound() {
    let mut server = Simulated::new(1e6, Seed(1));
    server.generator_most = 30_000.0;
    let result = surveyed(&mut server, Seed(1), None);
    assert_eq!(result.verdict, CapacityVerdict::GeneratorLimited);
    assert!((25_000.0..=30_001.0).contains(&result.capacity_per_s), "{}", result.capacity_per_s);
    assert!(result.past.is_empty() && result.back.is_empty());
    assert!(result.text.contains("at least") && result.text.contains("No descriptor."), "{}", result.text);
}

#[test]
fn a_load_that_could_not_be_offered_is_not_judged() {
    let mut server = Simulated::new(10_000.0, Seed(1));
    (server.generator_most, server.collapse) = (20_000.0, 0.2);
    let result = surveyed(&mut server, Seed(1), None);
    assert_eq!(result.verdict, CapacityVerdict::Sags);
    assert!(result.text.contains("sags: at 1.73×"), "{}", result.text);
    assert!(
        result.text.contains("3× could not be offered: The generator had no time, port or descriptor"),
        "{}",
        result.text
    );
}

#[test]
fn a_server_that_does_not_answer_says_how() {
    let mut server = Simulated::new(1e-9, Seed(1));
    let Ok(step) = probe(&mut server, Nanos::from_secs(10));
    let result = unreachable(&step, None, Manifest::default());
    assert_eq!(result.verdict, CapacityVerdict::Unreachable);
    assert!(result.text.contains("shed 100 %"), "{}", result.text);
}

#[test]
fn it_takes_about_as_long_as_was_said() {
    for capacity in [300.0, 5_000.0, 60_000.0] {
        let mut server = Simulated::new(capacity, Seed(1));
        let Ok(probe) = probe(&mut server, Nanos::from_secs(10));
        let told = plan(Seed(1)).expected_time(&probe).as_secs_f64();
        assert!((40.0..=65.0).contains(&told), "{told}");
        surveyed(&mut server, Seed(1), None);
        assert!((0.7..=1.3).contains(&(server.time_s / told)), "{capacity}: {} of {told}", server.time_s);
    }
}

#[test]
fn the_table_has_a_line_for_each_load() {
    let mut server = Simulated::new(1_000.0, Seed(1));
    let result = surveyed(&mut server, Seed(1), None);
    let table = table(&result);
    assert_eq!(table.lines().count(), 1 + 4 + 4 + 3 + 2 + 2, "{table}");
    assert!(table.contains("\n\nGoodput: correct replies within 1 s"), "{table}");
    assert!(table.ends_with(&format!("\n\n{}\n", result.text)));
}

/// A server with an interrupt after a number of runs, or of intervals past its capacity.
struct Impatient {
    server: Simulated,
    runs: usize,
    intervals: usize,
}

#[derive(Debug)]
struct Interrupted;

impl Target for Impatient {
    type Error = Interrupted;

    fn offer(&mut self, offer: Offer) -> Result<Step, Interrupted> {
        self.runs = self.runs.checked_sub(1).ok_or(Interrupted)?;
        let Ok(step) = self.server.offer(offer);
        Ok(step)
    }

    fn watch(
        &mut self,
        levels: &[Level],
        enough: &mut dyn FnMut(&[Point]) -> bool,
    ) -> Result<Vec<Point>, Interrupted> {
        let most = if levels.len() > 1 { self.intervals } else { usize::MAX };
        let Ok(points) = self.server.watch(levels, &mut |points| enough(points) || points.len() >= most);
        if points.len() >= most { Err(Interrupted) } else { Ok(points) }
    }

    fn slo_held(&self, step: &Step) -> bool {
        self.server.slo_held(step)
    }
}

fn interrupted_after(runs: usize, intervals: usize) -> CapacityResult {
    let mut server = Impatient { server: Simulated::new(1_000.0, Seed(1)), runs: usize::MAX, intervals };
    let probe = probe(&mut server, Nanos::from_secs(10)).unwrap();
    server.runs = runs;
    let (findings, ended) = carry_out(&plan(Seed(1)), &probe, &mut server);
    ended.unwrap_err();
    interrupted(findings, None, Manifest::default())
}

#[test]
fn interrupted_survey_reports_its_findings() {
    let nothing = interrupted_after(0, 0);
    assert_eq!((nothing.verdict, nothing.capacity_per_s), (CapacityVerdict::Interrupted, 0.0));
    assert!(
        nothing.text.ends_with("So far no load was kept up with, and nothing was too much."),
        "{}",
        nothing.text
    );
    let searching = interrupted_after(2, 0);
    assert_eq!(searching.search.len(), 2);
    assert_eq!(searching.interval_per_s, [400.0, 0.0]);
    assert!(
        searching.text.contains("after 2 runs, while the capacity was searched for"),
        "{}",
        searching.text
    );
}

#[test]
fn interrupted_survey_keeps_loads_past_capacity() {
    // A load takes 2 s: two of them, and a part of the third.
    let past = interrupted_after(usize::MAX, 45);
    check_capacity(&past, 1_000.0, 0.93..=1.02);
    assert_eq!((past.past.len(), past.back.len(), past.recovery_s), (2, 0, None));
    assert!(past.text.contains("past the capacity. The capacity is"), "{}", past.text);
    assert!(past.text.contains("So far, at 1.73× the capacity it answers"), "{}", past.text);
    let back = interrupted_after(usize::MAX, 130);
    assert_eq!((back.past.len(), back.back.len()), (4, 2), "{}", back.text);
}

#[test]
fn a_survey_is_a_page_however_far_it_came() {
    let whole = surveyed(&mut Simulated::new(1_000.0, Seed(1)), Seed(1), None);
    let page = report::capacity::html(&whole);
    for part in
        ["The server holds.", "id=\"goodput\"", "id=\"latency\"", "every request answered", "p99, back"]
    {
        assert!(page.contains(part), "no {part}");
    }
    let nothing = report::capacity::html(&interrupted_after(0, 0));
    assert!(nothing.contains("Interrupted.") && !nothing.contains("<figure class"));
}
