//! Requests of a file from the command line: results by name, thresholds by name, and the first failed reply.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::written;

/// Answers POST with 400 and a reason, and everything else with 200. Returns its URL.
fn reasonable_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    url
}

/// Answers one request of a connection.
fn answer(mut stream: TcpStream) {
    let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
    while !heard.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(length @ 1..) => heard.extend_from_slice(&buffer[..length]),
            _ => return,
        }
    }
    let (status, content) = if heard.starts_with(b"POST") { (400, "need\njson") } else { (200, "fine") };
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close", content.len());
    // The client may have closed the connection.
    let _ = stream.write_all(format!("{head}\r\n\r\n{content}").as_bytes());
}

#[test]
fn results_by_name_and_the_first_failure_are_shown() {
    let (url, folder) = (reasonable_server(), tempfile::tempdir().unwrap());
    let file = folder.path().join("requests.jsonl");
    let lines =
        [r#"{"name": "list", "path": "/a"}"#, r#"{"name": "create", "path": "/b", "body": {"c": 1}}"#];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let fixed = ["--rate=200", "--duration=500ms", "--warmup=0", "--fail-if=create:status_error>99%"];
    let mut arguments = vec!["load", &url, "--requests", file.to_str().unwrap()];
    arguments.extend(fixed);
    let json: serde_json::Value =
        serde_json::from_slice(&written(&[&arguments[..], &["--output=json"]].concat())).unwrap();
    assert_eq!(json["failed_replies"]["400"], "need json");
    let of = |name: &str, outcome: &str| json["requests"][name]["outcomes"][outcome].as_u64().unwrap();
    let counts =
        [of("list", "ok"), of("list", "status_error"), of("create", "status_error"), of("create", "ok")];
    assert!(counts[0] > 0 && counts[2] > 0 && counts[1] == 0 && counts[3] == 0, "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), json["offered"].as_u64().unwrap());
    assert_eq!(json["thresholds"][0]["crossed"], true);
    let text = String::from_utf8(written(&arguments)).unwrap();
    let line =
        |begins: &str| text.lines().find(|line| line.trim_start().starts_with(begins)).unwrap().to_owned();
    assert!(line("400 ").ends_with("need json"), "{text}");
    let count = line("create ").split_whitespace().nth(1).map(str::parse::<u64>);
    assert!(matches!(count, Some(Ok(1..))), "{text}");
}
