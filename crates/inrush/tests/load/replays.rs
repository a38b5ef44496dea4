//! Requests at the times that a file has: JSON Lines with `at`, an HTTP archive, and an access log.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use base::{Clock, Nanos, RealClock};
use serde_json::Value;

use super::{refused, written};

/// A request as the recording server has heard it.
struct Heard {
    /// Method and target.
    line: String,
    /// The time since the server's start.
    at: Nanos,
}

/// Answers one request on each connection and hands on its first line. Returns its address.
fn recording_server() -> (String, Receiver<Heard>) {
    let (clock, began) = (RealClock::new(), RealClock::new().now());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, heard) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines();
            let Some(Ok(first)) = lines.next() else { continue };
            // The head ends with an empty line; the requests of these tests have no content.
            lines.map_while(Result::ok).find(String::is_empty);
            let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let line = first.trim_end_matches(" HTTP/1.1").to_owned();
            let _ = tell.send(Heard { line, at: clock.now().saturating_sub(began) });
        }
    });
    (address, heard)
}

/// Runs the requests of a file, and asserts that the server has heard these, none before its time since the run's start.
/// Returns the result.
#[track_caller]
fn replay(name: &str, text_for: impl FnOnce(&str) -> String, expected: &[(&str, Nanos)]) -> Value {
    let (address, heard) = recording_server();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, text_for(&address)).unwrap();
    let url = format!("http://{address}/");
    let fixed = ["--warmup=0", "--duration=3s", "--output=json", "--connect-timeout=5s"];
    let run = [&["load", &url, "--requests", file.to_str().unwrap()][..], &fixed].concat();
    let result: Value = serde_json::from_slice(&written(&run)).unwrap();
    let heard: Vec<Heard> = heard.try_iter().collect();
    let lines: Vec<&str> = heard.iter().map(|heard| &*heard.line).collect();
    assert_eq!(lines, expected.iter().map(|(line, _)| *line).collect::<Vec<_>>());
    for (Heard { line, at }, (_, due)) in heard.iter().zip(expected) {
        assert!(at >= due, "{line} came {at} after the server's start, and is due {due} after the run's");
    }
    result
}

#[test]
fn requests_with_times_are_made_at_them() {
    let lines = r#"{"path": "/late", "at": 101.5}
{"path": "/first", "at": 100}
{"path": "/second?{{counter}}", "at": 100.75}"#;
    let expected = [("GET /first", 0), ("GET /second?1", 750), ("GET /late", 1500)];
    let expected = expected.map(|(line, due_ms)| (line, Nanos::from_millis(due_ms)));
    let result = replay("requests.jsonl", |_| lines.to_owned(), &expected);
    assert_eq!((&result["offered"], &result["outcomes"]["ok"]), (&3.into(), &3.into()), "{result:#}");
    let arrivals = result["manifest"]["config"]["arrivals"].as_str().unwrap();
    assert!(arrivals.starts_with("replay:") && arrivals.ends_with("/requests.jsonl"), "{arrivals}");
}

#[test]
fn entries_of_an_archive_are_made_at_their_times() {
    let expected = [("GET /index.html?a=b", Nanos::ZERO), ("HEAD /style.css", Nanos::from_millis(1250))];
    let archive = |address: &str| {
        let entry = |time: &str, method: &str, url: &str| {
            let request = serde_json::json!({"method": method, "url": url, "headers": [{"name": "Host", "value": "h"}]});
            serde_json::json!({"startedDateTime": format!("2026-01-01T10:00:{time}Z"), "request": request})
        };
        let entries = [
            entry("01.5", "HEAD", &format!("http://{address}/style.css")),
            entry("00.25", "GET", &format!("http://{address}/index.html?a=b")),
            entry("00.5", "GET", "http://cdn.example.org/font"),
        ];
        serde_json::json!({"log": {"entries": entries}}).to_string()
    };
    let result = replay("page.har", archive, &expected);
    assert_eq!(result["offered"], 2, "{result:#}");
}

#[test]
fn lines_of_a_log_are_made_at_their_times() {
    let line = |second: u32, request: &str| {
        format!("::1 - - [10/Oct/2000:13:55:{second} -0700] \"{request} HTTP/1.1\" 200 5 \"-\" \"curl\"\n")
    };
    let log = line(37, "GET /b") + &line(36, "GET /a?x=1") + &line(37, "POST /c");
    let expected = [("GET /a?x=1", Nanos::ZERO), ("GET /b", Nanos::SECOND)];
    let result = replay("access.log", |_| log, &expected);
    assert_eq!(result["offered"], 2, "{result:#}");
}

#[test]
fn other_times_beside_those_of_requests_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("requests.jsonl");
    std::fs::write(&file, "{\"path\": \"/\", \"at\": 0}\n").unwrap();
    let check = |flag: &str, expected: &[&str]| {
        refused(&["load", "http://127.0.0.1:9/", "--requests", file.to_str().unwrap(), flag], 2, expected);
    };
    check("--rate=200", &["--rate 200", "times of their own (\"at\")", "leave --rate"]);
    check("--arrivals=poisson", &["--arrivals poisson", "times of their own"]);
    check("--client=closed", &["--client closed", "times of their own"]);
    check("--requests-per-connection=5", &["leave --requests-per-connection 5 out"]);
    std::fs::write(folder.path().join("other.har"), r#"{"log": {"entries": [{"startedDateTime": "2026-01-01T10:00:00Z", "request": {"method": "GET", "url": "http://h/"}}]}}"#).unwrap();
    let har = folder.path().join("other.har");
    refused(
        &["load", "http://127.0.0.1:9/", "--requests", har.to_str().unwrap()],
        2,
        &["it has no request to 127.0.0.1:9"],
    );
}
