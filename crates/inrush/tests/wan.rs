//! `inrush wan` as users see it. Tests that need root or TUN print a skip without it. They do not depend on
//! the machine's speed, because a path is never faster than its conditions.

#[path = "common/schema.rs"]
mod schema;

use std::io::{BufRead, BufReader};
use std::process::Output;

use assert_cmd::Command;
use base::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use schema::obeys_schema;
use serde_json::Value;
use sys::process::Program;

const LONG: Nanos = Nanos::from_secs(60);
const MILLISECOND_NS: f64 = 1e6;

fn inrush(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_inrush")).args(arguments).output().unwrap()
}

fn wan(arguments: &[&str]) -> Output {
    inrush(&[&["wan"], arguments].concat())
}

/// Returns true if such networks are possible here, and prints the reason if not.
fn possible() -> bool {
    let output = wan(&["check", "--probes=1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot make two networks") {
        println!("skipped: {}", said.trim());
        return false;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    true
}

fn checked(arguments: &[&str]) -> Value {
    let output = wan(&[&["check", "--output=json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let checked = serde_json::from_slice(&output.stdout).unwrap();
    obeys_schema(&checked, "wan-checked");
    checked
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// True if a process runs. A process that is dead and not yet reaped does not run.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// True if this process was started with a signal ignored. Its children inherit that.
fn is_ignored(signal: rustix::process::Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
}

/// Asserts that every packet of a direction has an outcome.
fn balanced(direction: &Value) {
    let count = |name: &str| direction["packets"][name].as_u64().unwrap();
    let sum = ["forwarded", "lost", "queue_full", "too_many", "on_their_way"].map(count).iter().sum::<u64>();
    assert_eq!(count("received"), sum, "{direction}");
    assert_eq!(count("never_read"), 0, "{direction}");
}

#[test]
fn wan_delays_probes_and_repeats_losses_by_seed() {
    if !possible() {
        return;
    }
    let flags = ["--delay=20ms", "--loss=5%", "--down=delay=10ms,loss=0%", "--every=1ms", "--seed=3"];
    let (first, second) = (checked(&flags), checked(&flags));
    for check in [&first, &second] {
        assert!(number(&check["round_trip_ns"]["min"]) >= 30.0 * MILLISECOND_NS, "{check}");
        assert_eq!(number(&check["round_trip_asked_ns"]), 30.0 * MILLISECOND_NS);
        assert_eq!(check["path"]["seed"], 3);
        balanced(&check["path"]["up"]);
        balanced(&check["path"]["down"]);
    }
    let lost = |check: &Value| check["path"]["up"]["packets"]["lost"].as_u64().unwrap();
    assert_eq!(lost(&first), lost(&second));
    // 25 of 500 losses are expected, with five standard deviations to either side.
    assert!((1..=49).contains(&lost(&first)), "{first}");
    assert_eq!(number(&first["sent"]) - number(&first["returned"]), lost(&first) as f64);
}

#[test]
fn wan_reaches_a_server_and_returns_the_exit_code() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), vec![b'x'; 100_000]).unwrap();
    let program = env!("CARGO_BIN_EXE_inrush");
    let server = format!("'{program}' serve '{}' --listen 10.79.0.1:8080", folder.path().display());
    let file = folder.path().join("path.json");
    let output = wan(&[
        "run",
        "--delay=15ms",
        &format!("--server={server}"),
        "--output=json",
        &format!("--report={}", file.display()),
        "--",
        program,
        "load",
        "http://10.79.0.1:8080/a",
        "--rate=40",
        "--duration=1s",
        "--warmup=0",
        "--output=json",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    // On a busy machine the generator may be the limit.
    assert!(matches!(output.status.code(), Some(0 | 5)), "{said}");
    let load: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(number(&load["outcomes"]["ok"]) > 0.0, "{load}");
    assert!(number(&load["connect_ns"]["p50"]) >= 30.0 * MILLISECOND_NS, "{load}");
    let path: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    obeys_schema(&path, "wan-report");
    assert_eq!((&path["schema"], &path["engine"]), (&Value::from("inrush.wan/1"), &Value::from("router")));
    assert_eq!(path["exit_code"].as_i64(), output.status.code().map(i64::from));
    assert!(number(&path["down"]["bytes_forwarded"]) > 100_000.0, "{path}");
    balanced(&path["up"]);
    balanced(&path["down"]);
}

#[test]
fn a_connect_time_out_below_the_round_trip_is_told() {
    if !possible() {
        return;
    }
    let load = [env!("CARGO_BIN_EXE_inrush"), "load", "http://10.79.0.1:9/", "--rate=10", "--duration=100ms"];
    let output =
        wan(&[&["run", "--delay=15ms", "--"], &load[..], &["--warmup=0", "--connect-timeout=20ms"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--connect-timeout 20ms is below the round trip"), "{said}");
}

#[test]
fn the_commands_streams_are_left_to_it() {
    if !possible() {
        return;
    }
    let output = wan(&["run", "--", "sh", "-c", "echo data; echo message >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "data\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("message\nWAN by router, "), "{said}");
    let output = wan(&["run", "--output=json", "--", "sh", "-c", "echo data; kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137));
    let said = String::from_utf8_lossy(&output.stdout);
    let account: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((said.lines().next(), &account["exit_code"]), (Some("data"), &Value::from(137)));
}

#[test]
fn nothing_that_was_started_outlives_the_command() {
    if !possible() {
        return;
    }
    let server = "sleep 1000 & echo server $! >&2; exec nothing-listens-here";
    let output = wan(&["run", &format!("--server={server}"), "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--server: the server ended before it listened: exit status: 127"), "{said}");
    let pid = |text: &str, before: &str| {
        text.lines().find_map(|line| line.strip_prefix(before)).unwrap().trim().to_owned()
    };
    assert!(!runs(&pid(&said, "server ")));

    let output = wan(&["run", "--", "sh", "-c", "setsid sleep 1000 >&- 2>&- & echo left $!"]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!runs(&pid(&said, "left ")));
}

#[test]
fn killed_wan_ends_a_server_behind_a_shell() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let serve = format!("'{}' serve '{}'", env!("CARGO_BIN_EXE_inrush"), folder.path().display());
    let server =
        format!("--server=sh -c 'echo server $$ >&2; exec \"$@\"' - {serve} --listen 10.79.0.1:8080; true");
    let arguments = ["wan", "run", &server, "--", "sh", "-c", "echo begun; exec sleep 1000"];
    let mut running = Program::new(env!("CARGO_BIN_EXE_inrush")).arguments(arguments).start().unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
    let server = lines.find_map(|line| line.strip_prefix("server ").map(str::to_owned)).unwrap();
    let mut begun = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut begun).unwrap();
    assert_eq!(begun, "begun\n");
    let process = Pid::from_raw(server.trim().parse().unwrap()).unwrap();
    let end = pidfd_open(process, PidfdFlags::empty()).expect("it runs");
    running.kill().unwrap();
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ended = retry_on_intr(|| poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&patience)));
    assert_eq!(ended, Ok(1), "process {server} is left");
}

#[test]
fn signal_ends_wan_command_and_prints_the_account() {
    if !possible() {
        return;
    }
    for (signal, code) in [(rustix::process::Signal::TERM, 143), (rustix::process::Signal::INT, 130)] {
        if is_ignored(signal) {
            println!(
                "skipped: {signal:?} is ignored here, as in the background of a shell, and so by the command"
            );
            continue;
        }
        let program = Program::new(env!("CARGO_BIN_EXE_inrush")).arguments([
            "wan",
            "run",
            "--delay=5ms",
            "--",
            "sh",
            "-c",
            "echo $$; exec sleep 1000",
        ]);
        let mut running = program.start().unwrap();
        let mut command = String::new();
        BufReader::new(running.stdout.take().unwrap()).read_line(&mut command).unwrap();
        assert!(runs(&command));
        running.signal(signal).unwrap();
        let stderr = running.stderr.take().unwrap();
        let said: Vec<String> = BufReader::new(stderr).lines().map(Result::unwrap).collect();
        assert_eq!(running.wait(LONG).unwrap().unwrap().status.code(), Some(code), "{said:?}");
        assert!(said[0].starts_with("WAN by router"), "{said:?}");
        assert!(!runs(&command));
    }
}

#[test]
fn ignored_hang_up_does_not_end_the_wan_command() {
    if !possible() {
        return;
    }
    let nohup = "trap '' HUP; exec \"$0\" \"$@\"";
    let command = "trap 'exit 7' USR2; echo begun; while :; do sleep 0.05; done";
    let arguments =
        ["-c", nohup, env!("CARGO_BIN_EXE_inrush"), "wan", "run", "--delay=5ms", "--", "sh", "-c", command];
    let mut running = Program::new("sh").arguments(arguments).start().unwrap();
    let mut begun = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut begun).unwrap();
    assert_eq!(begun, "begun\n");
    // Of pending signals, the one with the lower number comes first.
    running.signal(rustix::process::Signal::HUP).unwrap();
    running.signal(rustix::process::Signal::USR2).unwrap();
    assert_eq!(running.wait(LONG).unwrap().unwrap().status.code(), Some(7));
}

#[test]
fn netem_works_or_is_refused_with_the_reason() {
    if !possible() {
        return;
    }
    let output = wan(&["run", "--engine=netem", "--delay=5ms", "--", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    match output.status.code() {
        Some(0) => assert!(said.starts_with("WAN by netem"), "{said}"),
        Some(2) => {
            assert!(said.starts_with("inrush: --engine netem: netem cannot be used here: "), "{said}");
            assert_eq!(said.lines().count(), 1);
            println!("skipped: {}", said.trim());
        }
        other => panic!("{other:?}: {said}"),
    }
}

#[test]
fn mistakes_are_one_line_and_exit_2() {
    for (flag, says) in [
        ("--loss=2", "'2' is not a share from 0% to 100%"),
        ("--rate=100", "'100' is not a rate from 1bit to 1000Gbit"),
        ("--jitter=5ms", "client to server: a jitter of 5ms exceeds the delay of 0s"),
        ("--reorder=1%", "client to server: reordering needs a delay"),
        ("--down=queue=64KiB", "server to client: a queue needs a rate"),
        ("--up=lag=5ms", "'lag=5ms' is not one of delay=, jitter=,"),
        ("--engine=dummynet", "expected router or netem"),
        ("--report=/no/such/folder/file", "--report /no/such/folder/file: cannot write the path's report"),
    ] {
        let output = wan(&["run", flag, "--", "true"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(wan(&["run"]).status.code(), Some(2));
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    std::fs::write(&report, "of an earlier run").unwrap();
    let flag = format!("--report={}", report.display());
    assert!(!wan(&["run", &flag, "--", "no-such-program"]).status.success());
    assert_eq!(std::fs::read_to_string(&report).unwrap(), "of an earlier run");
    std::fs::remove_file(&report).unwrap();
    assert!(!wan(&["run", &flag, "--", "no-such-program"]).status.success());
    assert!(!report.exists());
    let useless = wan(&["check", "--engine=netem", "--cpu=0"]);
    assert_eq!(useless.status.code(), Some(2));
    let said = String::from_utf8(useless.stderr).unwrap();
    assert_eq!(said, "inrush: --cpu 0 ties the router; leave it out with --engine netem\n");
    assert_eq!(wan(&["check", "--every=0"]).status.code(), Some(2));
    if possible() {
        for arguments in [["--cpu=4000", "--", "true"], ["--delay=1ms", "--", "no-such-program"]] {
            let output = wan(&[&["run"], &arguments[..]].concat());
            assert_eq!(output.status.code(), Some(2));
            assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
        }
    }
}
