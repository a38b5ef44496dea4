//! `inrush herd` as users see it. The tests check structure only and do not depend on the machine's speed.

#[path = "common/schema.rs"]
mod schema;

use std::fs;
use std::process::Output;

use assert_cmd::Command;
use base::{Clock, Nanos, RealClock};
use rustix::process::Signal;
use schema::obeys_schema;
use serde_json::Value;
use sys::process::Program;

const WAITS: [&str; 10] = [
    "accept",
    "poll",
    "epoll",
    "epoll-exclusive",
    "epoll-shared",
    "reuseport",
    "steered",
    "wake-all",
    "wake-one",
    "mutex",
];

fn inrush(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_inrush")).args(arguments).output().unwrap()
}

fn points(arguments: &[&str]) -> Vec<Value> {
    let output = inrush(&[&["herd", "--output=json"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let points: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    points.iter().for_each(|point| obeys_schema(point, "herd"));
    points
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Checks the properties of every herd, whatever its way to wait.
fn check(point: &Value) {
    let wakeups = number(&point["wakeups_per_connection"]);
    let waiters = number(&point["waiters"]);
    match point["wait"].as_str().unwrap() {
        // All waiters were asleep, so all of them wake.
        "wake-all" | "poll" | "epoll" => assert!(wakeups >= waiters, "{point}"),
        "wake-one" => assert!((1.0..2.0).contains(&wakeups), "{point}"),
        _ => assert!(wakeups >= 1.0, "{point}"),
    }
    let settle = &point["settle_us"];
    assert!(number(&settle["p50"]) > 0.0, "{point}");
    assert!(number(&settle["p50"]) <= number(&settle["p95"]), "{point}");
    assert!(number(&settle["p95"]) <= number(&settle["max"]), "{point}");
    assert!(number(&point["cpu_us_per_connection"]) > 0.0, "{point}");
    let fairness = number(&point["fairness"]);
    assert!(fairness > 0.0 && fairness <= 1.0, "{point}");
}

#[test]
fn processes_wait_in_every_way() {
    let points = points(&["--as=processes", "--waiters=12", "--samples=8", "--count-by=context-switches"]);
    let waits: Vec<&str> = points.iter().map(|point| point["wait"].as_str().unwrap()).collect();
    assert_eq!(waits, WAITS);
    for point in &points {
        check(point);
        assert_eq!(point["as"], "processes");
        assert_eq!(point["counted_by"], "voluntary context switches");
        assert_eq!(number(&point["samples"]), 8.0);
        assert!(point["settle_log_slope"].is_null());
    }
}

#[test]
fn herd_of_threads_has_a_slope_and_counts() {
    let points = points(&["--wait=wake-all,wake-one", "--waiters=4,12", "--samples=6", "--seed=9"]);
    let order: Vec<(&str, f64)> =
        points.iter().map(|point| (point["wait"].as_str().unwrap(), number(&point["waiters"]))).collect();
    assert_eq!(order, [("wake-all", 4.0), ("wake-all", 12.0), ("wake-one", 4.0), ("wake-one", 12.0)]);
    for point in &points {
        check(point);
        assert_eq!(point["as"], "threads");
        let slope = &point["settle_log_slope"];
        assert!(number(&slope["ci95"]["low"]) <= number(&slope["ci95"]["high"]), "{point}");
        let interval = &point["wakeups_per_connection_ci95"];
        assert!(number(&interval["low"]) <= number(&point["wakeups_per_connection"]), "{point}");
        assert!(number(&interval["high"]) >= number(&point["wakeups_per_connection"]), "{point}");
    }
}

#[test]
fn herd_text_and_plot_hold_the_papers_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("herd.html");
    let plot = format!("--plot={}", file.display());
    let output = inrush(&["herd", "--wait=accept,poll", "--waiters=2,6", "--samples=4", &plot]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("poll ")).count(), 3, "{text}");
    assert!(text.contains("Counted by "), "{text}");
    assert!(text.contains("4.7 ms at 100 waiters and 177 ms at 1000"), "{text}");
    assert!(text.contains("task-exclusive in 0.65 and 1.8 ms, wake-one in 0.95 and 0.84 ms"), "{text}");
    let page = std::fs::read_to_string(file).unwrap();
    assert_eq!(page.matches("<svg class=\"chart").count(), 3);
    assert!(page.contains("data-name=\"Molloy 2000, unpatched\"") && page.contains("177 ms"));
    assert!(page.contains("data-name=\"Molloy 2000, wake-one\"") && !page.contains("2000, fixed"));
    assert!(!page.contains("<script"));
}

#[test]
fn mistakes_are_one_line_and_exit_2() {
    for (flag, says) in [
        ("--wait=knock", "'knock' is not a way to wait: expected accept, poll, epoll,"),
        ("--waiters=0", "expected a whole number from 1 to 10000"),
        ("--samples=0", "--samples"),
        ("--samples=999999999999999999", "1..=1000000"),
        ("--plot=herd.png", "expected a name that ends in .html"),
    ] {
        let output = inrush(&["herd", flag]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn interrupted_herd_prints_its_points_and_exits_1() {
    let arguments =
        ["herd", "--wait=accept", "--waiters=1", "--samples=1000000", "--count-by=context-switches"];
    let program = Program::new(env!("CARGO_BIN_EXE_inrush")).arguments(arguments);
    let running = program.arguments(["--output=json"]).start().unwrap();
    let threads = || fs::read_dir(format!("/proc/{}/task", running.id())).unwrap().flatten();
    // From the start of this thread on, the program takes the signal.
    let is_ready = || {
        threads().any(|thread| {
            fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name == "signals\n")
        })
    };
    let clock = RealClock::new();
    let end = clock.now() + Nanos::from_secs(30);
    while !is_ready() {
        assert!(clock.now() < end, "it never waits for signals");
        std::thread::yield_now();
    }
    running.signal(Signal::INT).unwrap();
    let output = running.output(Nanos::SECOND, || true).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.exit.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted, so the result is of 0 of 1 points"), "{said}");
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), Value::Array(Vec::new()));
}

#[test]
fn descriptors_for_all_waiters_are_asked_for() {
    // One less than 100 processes need with a listener each.
    let script = "ulimit -n 855; exec \"$0\" herd --as=processes --wait=reuseport --waiters=100";
    let output = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_inrush")]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("needs 856 descriptors and the hard limit is 855"), "{said}");
}

#[test]
fn a_waiter_is_started_by_a_herd_only() {
    for arguments in [&["herd-waiter"][..], &["herd-waiter", "accept", "0", "987654"]] {
        let output = inrush(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
    }
    let help = String::from_utf8(inrush(&["--help"]).stdout).unwrap();
    assert!(help.contains("herd") && !help.contains("herd-waiter"), "{help}");
}
