//! `inrush load --http2` against our own server, nginx and h2o, and beside h2load. A program that is not installed is
//! a printed skip.

use std::fs;

use assert_cmd::Command;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use sys::process::find_program;

use super::common::{Files, Server};
use super::others::Other;
use super::processes::server;
use super::{PATIENCE, inrush, said};
use crate::schema::obeys_schema;

/// Twenty sessions.
///
/// No session begins in the last second, so that a machine which stands still for a moment ends them all in time.
const WORK: [&str; 4] =
    ["--arrivals=steps:20x975ms,0x1s", "--duration=2s", "--warmup=0s", "--connect-timeout=5s"];

/// The requests of a session, and those of all twenty.
const EACH: &str = "--requests-per-connection=32";
const REQUESTS: u64 = 640;

fn result(url: &str, flags: &[&str]) -> Value {
    let always = ["load", url, "--http2", "--output=json"];
    let run = Command::new(env!("CARGO_BIN_EXE_inrush"))
        .args(always)
        .args(WORK)
        .args(flags)
        .timeout(PATIENCE)
        .assert();
    // On a busy machine the generator is late, which changes the exit code but not the ledger.
    let run = run.code(&[0, 5][..]);
    let result = serde_json::from_slice(&run.get_output().stdout).unwrap();
    obeys_schema(&result, "load-result");
    result
}

#[track_caller]
fn assert_all_ok(result: &Value, requests: u64) {
    assert_eq!(
        (&result["offered"], &result["outcomes"]["ok"]),
        (&requests.into(), &requests.into()),
        "{result:#}"
    );
    assert_eq!(result["in_flight_at_end"], 0);
    assert_eq!(result["latency_intended_ns"]["count"], requests);
}

/// Writes a certificate for localhost and its key, and returns their files.
pub fn identity(files: &Files) -> [String; 2] {
    let pair = KeyPair::generate().unwrap();
    let made = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&pair).unwrap();
    let paths = [files.beside("crt"), files.beside("key")];
    fs::write(&paths[0], made.pem()).unwrap();
    fs::write(&paths[1], pair.serialize_pem()).unwrap();
    paths.map(|path| path.display().to_string())
}

/// Asserts that server and client counted the same.
#[track_caller]
fn check_against_our_server(secure: bool, flags: &[&str], requests: u64) {
    let files = Files::new();
    let [certificate, key] = identity(&files);
    let tls = [format!("--tls-cert={certificate}"), format!("--tls-key={key}")];
    let serve: Vec<&str> = tls.iter().map(String::as_str).filter(|_| secure).collect();
    let mut server = Server::start(&files.root(), &serve);
    let url = match secure {
        true => format!("https://localhost:{}{}", server.address.port(), Files::SMALL.0),
        false => format!("http://{}{}", server.address, Files::SMALL.0),
    };
    let ca = if secure { &["--ca", &certificate][..] } else { &[] };
    let result = result(&url, &[ca, flags].concat());
    assert_all_ok(&result, requests);
    let status = server.eventually("closed", |status| status.connections() == 0);
    assert_eq!(status.count("requests"), requests, "{status:?}");
    let connections = result["connections"]["established"].as_u64().unwrap();
    assert_eq!((status.count("http2_connections"), status.count("accepts")), (connections, connections));
    let mistakes = ["http2_connection_errors", "http2_stream_errors", "http2_resets"];
    assert_eq!(mistakes.map(|name| status.count(name)), [0; 3], "{status:?}");
    assert!(!secure || result["handshakes"]["full"].as_u64() > Some(0));
}

#[test]
fn our_server_counts_what_the_client_counts() {
    check_against_our_server(false, &[EACH, "--expect-length=1000"], REQUESTS);
    check_against_our_server(false, &[EACH, "--streams=1", "--method=HEAD", "--expect-length=0"], REQUESTS);
    check_against_our_server(false, &[EACH, "--processes=2", "--streams=3"], REQUESTS);
    check_against_our_server(false, &["--requests-per-connection=300", "--streams=200"], 20 * 300);
}

#[test]
fn our_server_counts_what_the_client_counts_under_tls() {
    check_against_our_server(true, &[EACH, "--streams=8"], REQUESTS);
    check_against_our_server(true, &[EACH, "--handshakes=full", "--close=rst"], REQUESTS);
}

/// The figures that h2load prints: requests that were done, succeeded and failed.
fn h2load(url: &str) -> [u64; 3] {
    let flags = ["-n640", "-c20", "-m8", "-r20", url];
    let output =
        Command::new("h2load").args(flags).timeout(PATIENCE).assert().success().get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap();
    let counts = text.lines().find_map(|line| line.strip_prefix("requests: ")).unwrap();
    let count = |name: &str| {
        let part = counts.split(", ").find_map(|part| part.strip_suffix(name));
        part.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap()
    };
    [count("done"), count("succeeded"), count("failed")]
}

#[test]
fn h2load_counts_the_same() {
    if find_program("h2load").is_none() {
        return println!("skipped: h2load is not installed");
    }
    let files = Files::new();
    let mut server = Server::start(&files.root(), &[]);
    let url = format!("http://{}{}", server.address, Files::SMALL.0);
    let mut seen_of = |run: &mut dyn FnMut()| {
        let names = ["requests", "responses_2xx", "http2_connections", "accepts"];
        let before = server.status();
        run();
        let after = server.eventually("closed", |status| status.connections() == 0);
        names.map(|name| after.count(name) - before.count(name))
    };
    let ours = seen_of(&mut || assert_all_ok(&result(&url, &[EACH, "--streams=8"]), REQUESTS));
    let theirs = seen_of(&mut || assert_eq!(h2load(&url), [REQUESTS, REQUESTS, 0]));
    assert_eq!(ours, theirs, "the server saw the same of both");
    assert_eq!(ours, [REQUESTS, REQUESTS, 20, 20]);
}

/// Checks that a server of others answers every stream.
fn check_other(other: &Other) {
    let url = format!("https://localhost:{}{}", other.port, Files::SMALL.0);
    let length = format!("--expect-length={}", Files::SMALL.1);
    assert_all_ok(&result(&url, &[EACH, "--insecure", &length, "--streams=8"]), REQUESTS);
}

#[test]
fn nginx_answers_every_stream() {
    let files = Files::new();
    let [certificate, key] = identity(&files);
    let (root, pid) = (files.root(), files.beside("pid"));
    let (root, pid) = (root.display(), pid.display());
    let config = |port| {
        format!(
            "daemon off; user root; pid {pid}; error_log stderr; events {{}} http {{ access_log off; server {{ \
             listen 127.0.0.1:{port} ssl http2; ssl_certificate {certificate}; ssl_certificate_key {key}; root {root}; }} }}"
        )
    };
    if let Some(nginx) = Other::start("nginx", &files, config, &["-c"]) {
        check_other(&nginx);
    }
}

#[test]
fn h2o_answers_every_stream() {
    let files = Files::new();
    let [certificate, key] = identity(&files);
    let root = files.root();
    let root = root.display();
    let config = |port| {
        format!(
            "hosts:\n  default:\n    listen:\n      host: 127.0.0.1\n      port: {port}\n      ssl:\n        \
             certificate-file: {certificate}\n        key-file: {key}\n    paths:\n      /:\n        file.dir: {root}\n"
        )
    };
    if let Some(h2o) = Other::start("h2o", &files, config, &["-c"]) {
        check_other(&h2o);
    }
}

#[test]
fn a_server_without_http2_is_one_line_and_exit_3() {
    let url = format!("http://{}/", server());
    let run = inrush(&["load", &url, "--http2", "--duration=2s", "--warmup=0s", "--output=json"], 3);
    assert_eq!(said(&run), "inrush: The server does not speak HTTP/2 on that port; leave --http2 out.\n");
    let result: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    assert_eq!(result["verdict"], "unreachable");
    assert!(result["outcomes"]["not_http2"].as_u64() > Some(0), "{result:#}");
}
