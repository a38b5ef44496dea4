//! Requests at the times that a file has: JSON Lines with `at`, an HTTP archive, and an access log.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;

use super::{refused, written};

/// Answers one request on each connection and hands on its first line. Returns its address.
fn recording_server() -> (String, Receiver<String>) {
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
            let _ = tell.send(first);
        }
    });
    (address, heard)
}

/// Runs the requests of a file, and returns the result and the requests that the server has heard.
fn replayed(name: &str, text_for: impl FnOnce(&str) -> String) -> (Value, Vec<String>) {
    let (address, heard) = recording_server();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, text_for(&address)).unwrap();
    let url = format!("http://{address}/");
    let fixed = ["--warmup=0", "--duration=3s", "--output=json", "--connect-timeout=5s"];
    let run = [&["load", &url, "--requests", file.to_str().unwrap()][..], &fixed].concat();
    let result = serde_json::from_slice(&written(&run)).unwrap();
    (result, heard.try_iter().map(|line| line.trim_end_matches(" HTTP/1.1").to_owned()).collect())
}

#[test]
fn requests_with_times_are_made_at_them() {
    let lines = r#"{"path": "/late", "at": 101.5}
{"path": "/first", "at": 100}
{"path": "/second?{{counter}}", "at": 100.75}"#;
    let (result, heard) = replayed("requests.jsonl", |_| lines.to_owned());
    assert_eq!(heard, ["GET /first", "GET /second?1", "GET /late"]);
    assert_eq!((&result["offered"], &result["outcomes"]["ok"]), (&3.into(), &3.into()), "{result:#}");
    let arrivals = result["manifest"]["config"]["arrivals"].as_str().unwrap();
    assert!(arrivals.starts_with("replay:") && arrivals.ends_with("/requests.jsonl"), "{arrivals}");
}

#[test]
fn entries_of_an_archive_are_made_at_their_times() {
    let (result, heard) = replayed("page.har", |address| {
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
    });
    assert_eq!(heard, ["GET /index.html?a=b", "HEAD /style.css"]);
    assert_eq!(result["offered"], 2, "{result:#}");
}

#[test]
fn lines_of_a_log_are_made_at_their_times() {
    let line = |second: u32, request: &str| {
        format!("::1 - - [10/Oct/2000:13:55:{second} -0700] \"{request} HTTP/1.1\" 200 5 \"-\" \"curl\"\n")
    };
    let log = line(37, "GET /b") + &line(36, "GET /a?x=1") + &line(37, "POST /c");
    let (result, heard) = replayed("access.log", |_| log);
    assert_eq!(heard, ["GET /a?x=1", "GET /b"]);
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
