//! `inrush fleet` with the real program and a real nats-server.

#[path = "../common/listening.rs"]
mod listening;
mod machines;
mod slurm;
#[path = "../common/stand_ins.rs"]
mod stand_ins;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;

use base::Nanos;
use hdrhistogram::Histogram;
use machines::Machines;
use serde_json::Value;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Prints a skip unless nats-server can be run.
#[allow(clippy::disallowed_methods, reason = "a test may start processes")]
fn has_nats() -> bool {
    let found = Command::new("nats-server").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: nats-server is not on PATH");
    }
    found
}

/// The URL of a server that answers every request with `ok`.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {
                    let _ = stream.write_all(REPLY);
                }
            });
        }
    });
    url
}

#[allow(clippy::disallowed_methods, reason = "a test may start processes")]
fn fleet(url: &str, agents: u32, flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
    command.args(["fleet", "run", "--local", &agents.to_string(), "--", "load", url, "--output", "json"]);
    command.args(flags.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The result on a child's standard output.
fn result(child: Child) -> (Option<i32>, Value, String) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let result = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no result: {said}"));
    (output.status.code(), result, said)
}

fn sum(result: &Value, field: &str) -> u64 {
    result["agents"].as_array().unwrap().iter().filter_map(|agent| agent["part"][field].as_u64()).sum()
}

/// Asserts that this many agents have offered this many requests, and that all they have measured is in the result.
fn check_the_sums(result: &Value, agents: usize, offered: u64) {
    assert_eq!(result["offered"], offered, "evenly spaced arrivals are exact");
    assert_eq!(sum(result, "offered"), offered);
    let parts = result["agents"].as_array().unwrap();
    assert_eq!(parts.len(), agents);
    let counts = |of: &Value| of["latency_intended_ns"]["count"].as_u64().unwrap();
    let samples: u64 = parts.iter().map(|agent| counts(&agent["part"])).sum();
    assert_eq!(counts(result), samples, "every sample is in the merged histogram");
}

#[test]
fn the_shares_of_all_agents_are_the_whole_load() {
    if !has_nats() {
        return;
    }
    let flags = "--rate 300 --warmup 200ms --duration 2s --population idle:7";
    let (_, result, said) = result(fleet(&server(), 3, flags).spawn().unwrap());
    println!("{said}");
    check_the_sums(&result, 3, 600);
    assert_eq!(result["populations"]["idle:7"]["clients"], 7);
}

#[test]
fn a_killed_agent_leaves_a_partial_result() {
    if !has_nats() {
        return;
    }
    let mut child = fleet(&server(), 3, "--rate 300 --warmup 0s --duration 6s").spawn().unwrap();
    let parent = child.id();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("local-2: offering share") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "the run ended");
    }
    let victim = children(parent).into_iter().find(|(_, words)| words.contains("--name=local-2")).unwrap().0;
    let victim = rustix::process::Pid::from_raw(victim).unwrap();
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
    thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    let (code, result, _) = result(child);
    assert_eq!((code, result["verdict"].as_str()), (Some(5), Some("generator-limited")));
    assert!(
        result["conclusion"].as_str().unwrap().starts_with("Partial, 2 of 3 agents"),
        "{}",
        result["conclusion"]
    );
    assert_eq!(result["agents"][1]["state"], "lost");
    assert_eq!(result["offered"].as_u64(), Some(sum(&result, "offered")));
}

/// With FLEET_RUNS=20 there are twenty runs. The start skew of all of them is printed.
#[test]
fn fleet_run_in_namespaces_is_the_sum_of_its_parts() {
    const AGENTS: u8 = 4;
    if !has_nats() {
        return;
    }
    let Some(machines) = Machines::start(AGENTS) else { return };
    let runs = std::env::var("FLEET_RUNS").map_or(1, |runs| runs.parse().expect("FLEET_RUNS is a number"));
    let mut skews = Histogram::<u64>::new(3).unwrap();
    for run in 1..=runs {
        let result = machines.offer(AGENTS, &["--rate", "2k", "--warmup", "1s", "--duration", "5s"]);
        println!("run {run} of {runs}: {} offered, {}", result["offered"], result["verdict"]);
        check_the_sums(&result, AGENTS.into(), 10_000);
        for agent in result["agents"].as_array().unwrap() {
            skews.record(agent["part"]["start_late_ns"].as_u64().unwrap()).unwrap();
        }
    }
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|part| Nanos(skews.value_at_quantile(part)).approximate());
    println!("start skew of {} starts: p50 {p50}, p99 {p99}, most {most}", skews.len());
}

#[test]
fn fleet_run_does_not_wait_for_a_stopped_agent() {
    if !has_nats() {
        return;
    }
    let Some(mut machines) = Machines::start(1) else { return };
    machines.stop_the_last_agent();
    let output = machines.run(1, &["--duration", "1s"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.exit.status.code(), Some(1), "{said}");
    assert!(said.contains("no answer from a1"), "{said}");
}

/// With FLEET_STEP=1s each trial takes a second, and the figures are worth reading.
#[test]
fn two_agents_that_share_d_show_the_clean_rate_of_one() {
    if !has_nats() {
        return;
    }
    let Some(machines) = Machines::start(2) else { return };
    let step = std::env::var("FLEET_STEP").unwrap_or_else(|_| "100ms".to_owned());
    let found = machines.calibrate(&step);
    let trials = found["trials"].as_array().unwrap();
    assert!(!trials.is_empty(), "{found}");
    for trial in trials {
        println!("D = {}: {} and {}", trial["sockets"], trial["one_per_s"], trial["two_per_s"]);
        let [one, two] = ["one_per_s", "two_per_s"].map(|field| trial[field].as_f64().unwrap());
        assert!(one > 0.0 && two > 0.0, "{trial}");
        assert_eq!(trial["parted"], two > one * 1.02, "{trial}");
    }
    println!("clean: {} at D = {}", found["clean_per_s"], found["sockets"]);
    let clean = trials.iter().rfind(|trial| trial["parted"] == false);
    let at = |field: &str| clean.map_or(0.0, |trial| trial[field].as_f64().unwrap());
    assert_eq!(found["sockets"].as_f64(), Some(at("sockets")));
    assert_eq!(found["clean_per_s"].as_f64(), Some(at("one_per_s")));
}

/// The process ids and command lines of a process's children.
fn children(parent: u32) -> Vec<(i32, String)> {
    let read =
        |pid: i32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let ids = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|pid| read(*pid, "status").contains(&format!("PPid:\t{parent}\n")))
        .map(|pid| (pid, read(pid, "cmdline").replace('\0', " ")))
        .collect()
}

/// Asserts that `inrush fleet run` refuses these words in one line.
#[track_caller]
#[allow(clippy::disallowed_methods, reason = "a test may start processes")]
fn check_refused(words: &str, expected: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
    let output = command.args(["fleet", "run"]).args(words.split_whitespace()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains(expected), "{said}");
}

#[test]
fn tasks_beside_a_run_are_refused() {
    check_refused("--agents 1 --nats ftp://b -- load http://127.0.0.1:1/", "expected nats://HOST:4222");
    check_refused("--local 1 -- load compare a.json b.json", "compare is for one machine");
    check_refused("--local 1 -- load calibrate", "calibrate is for one machine");
}

#[test]
fn access_to_nats_is_refused_for_a_local_fleet() {
    let load = "-- load http://127.0.0.1:9/";
    check_refused(&format!("--local 1 --nats nats://127.0.0.1:9 {load}"), "leave --nats out");
    check_refused(&format!("--local 1 --tlscert a --tlskey b {load}"), "cannot be used with");
}

#[test]
fn settings_of_one_machine_are_refused() {
    let refused = |flags: &str, expected: &str| {
        check_refused(&format!("--local 2 -- load http://127.0.0.1:9/ {flags}"), expected);
    };
    refused("--source-ip 127.0.0.9", "--source-ip is for one machine");
    refused("--processes 2", "--processes is for one machine");
    refused("--server-cpus 0", "--server-cpus is for one machine");
    refused("--insecure", "--insecure is for https");
    refused("--streams 4", "--streams 4 is for HTTP/2");
    refused("--client s-client-pair", "--client s-client-pair is for one machine");
}

#[test]
fn thresholds_of_unknown_requests_are_refused() {
    let load = "--local 1 -- load http://127.0.0.1:9/";
    check_refused(&format!("{load} --fail-if roof:p99>1s"), "no request has the name 'roof'; known are none");
}
