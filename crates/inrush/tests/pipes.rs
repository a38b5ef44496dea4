//! Readers of standard output and standard error that are gone (EPIPE). No command panics because of them,
//! and none ends before its work is done.

#[allow(dead_code, unused_imports, reason = "shared with the tests of the server, which need more of it")]
#[path = "common/mod.rs"]
mod common;

#[path = "common/closed_port.rs"]
mod closed_port;

use std::io::{BufRead, BufReader, pipe};
use std::process::{Output, Stdio};

use closed_port::closed_port;
use common::{Client, Files, Server};
use rustix::process::{Pid, Signal, kill_process};
use sys::process::Program;

/// The end of a pipe without a reader.
fn unread() -> Stdio {
    let (_, writer) = pipe().unwrap();
    Stdio::from(writer)
}

/// Runs `inrush` with these standard streams.
#[allow(clippy::disallowed_methods, reason = "sys::process has no streams of the caller's choice")]
fn inrush(arguments: &[&str], out: Stdio, err: Stdio) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_inrush"));
    command.args(arguments).stdout(out).stderr(err).output().unwrap()
}

/// Asserts that a command ends as it does with readers: with the same exit code and without a message about them. A
/// machine too busy for a run of load gives one of the two runs 5 in place of its 0 or 4.
#[track_caller]
fn check(arguments: &[&str]) {
    let read = inrush(arguments, Stdio::piped(), Stdio::piped());
    let code = read.status.code().unwrap();
    assert!(!read.stdout.is_empty() || !read.stderr.is_empty(), "{arguments:?} says nothing");
    for (out, err) in [(unread(), Stdio::piped()), (Stdio::piped(), unread()), (unread(), unread())] {
        let output = inrush(arguments, out, err);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked") && !said.contains("Broken pipe"), "{arguments:?}: {said}");
        let ended = output.status.code().unwrap();
        let was_busy = [ended, code].contains(&5) && [0, 4, 5].contains(&ended.min(code));
        assert!(ended == code || was_busy, "{code} with readers: {output:?}");
    }
}

#[test]
fn commands_end_quietly_without_readers() {
    let files = Files::new();
    let (root, set) = (files.root(), files.root().join("set"));
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["no-such-command"],
        &["lab", "list"],
        &["lab", "check", "banga-5"],
        &["lab", "check", "/no/such/file"],
        &["doctor"],
        &["doctor", "--mechanisms", "--output=json"],
        &["completions", "bash"],
        &["fileset", set.to_str().unwrap(), "--directories=1"],
        &["serve", root.to_str().unwrap(), "--print-config"],
        &["serve", "/no/such/folder"],
        &["herd", "--wait=poll", "--waiters=1", "--samples=2", "--count-by=context-switches"],
        &["load", "http://127.0.0.1:9/", "--dry-run", "--rate=1M", "--arrivals=pareto:1.4"],
    ] {
        check(arguments);
    }
}

#[test]
fn runs_of_load_end_quietly_without_readers() {
    let files = Files::new();
    files.write("index.html", b"hello");
    let server = Server::start(&files.root(), &["--arch=sped"]);
    let url = format!("http://{}/index.html", server.address);
    let nobodys = closed_port();
    let closed = nobodys.local_addr().unwrap();
    let nobody = format!("http://{closed}/");
    for output in ["text", "json", "ndjson", "csv", "html"] {
        // Before the run, standard error has the port that Prometheus reads.
        let flags =
            ["--rate=20", "--warmup=0s", "--duration=300ms", "--prometheus=127.0.0.1:0", "--output", output];
        check(&[&["load", &url][..], &flags].concat());
    }
    check(&["load", &url, "--rate=20", "--warmup=0s", "--duration=300ms", "--fail-if=ok>0"]);
    check(&["load", &nobody, "--rate=20", "--warmup=0s", "--duration=300ms"]);
}

#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = inrush(&["lab", "list"], full.into(), Stdio::piped());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("inrush: cannot write the output: No space left"), "{said}");
}

#[test]
fn a_server_goes_on_when_nobody_reads_its_messages() {
    let files = Files::new();
    files.write("index.html", b"hello");
    let config = files.beside("serve.toml");
    std::fs::write(&config, "listen = [\"127.0.0.1:0\"]\n").unwrap();
    let (root, config_flag) = (files.root(), format!("--config={}", config.display()));
    let mut child = Program::new(env!("CARGO_BIN_EXE_inrush"))
        .arguments(["serve", root.to_str().unwrap(), &config_flag])
        .start()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
    drop(stderr);
    // After each signal the server reports the broken file.
    std::fs::write(&config, "listen = [").unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    for _ in 0..3 {
        kill_process(pid, Signal::HUP).unwrap();
        assert_eq!(Client::connect(address).get("/index.html").status, 200);
    }
    kill_process(pid, Signal::TERM).unwrap();
    let exit = child.wait(base::Nanos::from_secs(30)).unwrap().expect("it ends in order");
    assert_eq!(exit.status.code(), Some(0));
}
