//! An establisher and a handler give one result, whatever ends the run.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::ChildStdout;

use assert_cmd::Command;
use base::Nanos;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sys::process::{Child, Program};

use super::processes::server;
use super::{PATIENCE, refused};

const PAIR: [&str; 2] = ["--rate=400", "--client=s-client-pair"];

fn assert_balanced(result: &Value) {
    let outcomes = result["outcomes"].as_object().unwrap().values();
    let ended: u64 = outcomes.map(|count| count.as_u64().unwrap()).sum();
    let in_flight = result["in_flight_at_end"].as_u64().unwrap();
    assert_eq!(result["offered"].as_u64().unwrap(), ended + in_flight, "{result:#}");
}

#[test]
fn their_books_are_one() {
    let url = format!("http://{}/", server());
    let more = ["--duration=500ms", "--warmup=300ms", "--population=idle:5", "--connect-timeout=5s"];
    let mut program = Command::new(env!("CARGO_BIN_EXE_inrush"));
    program.args(["load", &url, "--output=json"]).args(PAIR).args(more).timeout(PATIENCE);
    // On a busy machine the generator is late, which changes the exit code but not the ledger.
    let result = serde_json::from_slice(&program.assert().code(&[0, 5][..]).get_output().stdout).unwrap();
    assert_balanced(&result);
    assert_eq!((&result["offered"], &result["lateness_ns"]["count"]), (&200.into(), &200.into()));
    assert!(result["outcomes"]["ok"].as_u64().unwrap() > 0, "{result:#}");
    assert_eq!(result["latency_intended_ns"]["count"], result["outcomes"]["ok"]);
    assert_eq!(result["populations"]["idle:5"]["offered"], 5);
    let points = result["series"].as_array().unwrap().iter();
    assert_eq!(points.map(|point| point["offered"].as_u64().unwrap()).sum::<u64>(), 320);
}

/// A run of an hour in progress, with its remaining output and its handler's process number.
fn long_run() -> (Child, BufReader<ChildStdout>, Pid) {
    let url = format!("http://{}/", server());
    let arguments = ["load", &url, "--output=ndjson", "--duration=1h", "--warmup=0"];
    let program = Program::new(env!("CARGO_BIN_EXE_inrush")).arguments(arguments).arguments(PAIR);
    let mut child = program.start().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut point = String::new();
    stdout.read_line(&mut point).unwrap();
    assert!(point.contains(r#""type":"point""#), "{point}");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let handler = children.trim().parse().unwrap();
    (child, stdout, Pid::from_raw(handler).unwrap())
}

/// Ends a run. Returns its exit code, its result if there is one, and its messages on standard error.
fn end(mut child: Child, stdout: BufReader<ChildStdout>) -> (Option<i32>, Option<Value>, String) {
    let lines = stdout.lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let result = lines.filter(|line| line["type"] == "result").last();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let exit = child.wait(Nanos::from_secs(PATIENCE.as_secs())).unwrap().unwrap();
    (exit.status.code(), result, said)
}

#[test]
fn a_run_that_is_interrupted_is_whole() {
    let (child, stdout, _) = long_run();
    child.signal(Signal::INT).unwrap();
    let (code, result, said) = end(child, stdout);
    assert!(matches!(code, Some(0 | 5)), "{code:?}: {said}");
    let result = result.unwrap();
    assert!(result["offered"].as_u64().unwrap() > 0, "{result:#}");
    assert_balanced(&result);
}

#[test]
fn a_handler_that_is_killed_is_named() {
    let (child, stdout, handler) = long_run();
    kill_process(handler, Signal::KILL).unwrap();
    let (code, result, said) = end(child, stdout);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the handler of the pair: it ended before the run did (signal: 9"), "{said}");
    assert_eq!(result, None);
}

#[test]
fn settings_that_make_no_sense_with_it_are_refused() {
    let pair = ["load", "http://127.0.0.1:9/", "--client=s-client-pair"];
    for (setting, expected) in [
        ("--processes=3", "--processes 3: s-client-pair is two"),
        ("--threads=2", "leave --threads out"),
        ("--retry=fixed:1s,2", "leave --retry out"),
        ("--requests-per-connection=5", "--requests-per-connection 1"),
        ("--workload=specweb99", "--requests-per-connection 1"),
    ] {
        refused(&[&pair[..], &[setting]].concat(), 2, &[expected]);
    }
    refused(&["load", "https://127.0.0.1:9/", "--client=s-client-pair"], 2, &["expected http://"]);
}
