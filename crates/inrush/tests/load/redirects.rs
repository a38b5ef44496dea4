//! Redirects that `--follow` follows, and those that it does not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use super::{refused, written};

/// Redirects POST /login to /home with a cookie, /away to another server, and /loop to itself. /home needs the cookie.
fn redirecting_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let own = url.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let own = own.clone();
            thread::spawn(move || serve(&stream, &own));
        }
    });
    url
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, own: &str) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let length = lines
            .iter()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |text| text.parse().unwrap());
        reader.read_exact(&mut vec![0; length]).ok()?;
        let has_cookie = lines.iter().any(|line| line == "Cookie: id=7");
        let (status, fields) = match lines[0].as_str() {
            "POST /login HTTP/1.1" => (303, format!("Location: {own}/home\r\nSet-Cookie: id=7\r\n")),
            "GET /home HTTP/1.1" => (if has_cookie { 200 } else { 403 }, String::new()),
            "GET /relative HTTP/1.1" => (307, "Location: end?x\r\n".to_owned()),
            "GET /end?x HTTP/1.1" => (200, String::new()),
            "GET /loop HTTP/1.1" => (302, "Location: /loop\r\n".to_owned()),
            "GET /away HTTP/1.1" => (302, "Location: http://other.example/\r\n".to_owned()),
            other => panic!("{other}"),
        };
        let head = format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: 0\r\n\r\n");
        let mut stream = stream;
        stream.write_all(head.as_bytes()).ok()?;
    }
}

fn followed(url: &str, flags: &[&str]) -> Value {
    let fixed =
        ["--follow", "--rate=100", "--warmup=0", "--duration=500ms", "--output=json", "--connect-timeout=5s"];
    serde_json::from_slice(&written(&[&["load", url][..], &fixed, flags].concat())).unwrap()
}

#[test]
fn redirected_requests_end_with_their_last_reply() {
    let url = redirecting_server();
    let result = followed(&format!("{url}/relative"), &[]);
    assert_eq!((&result["offered"], &result["outcomes"]["ok"]), (&50.into(), &50.into()), "{result:#}");
    assert_eq!((&result["redirects"], &result["statuses"]["200"]), (&50.into(), &50.into()), "{result:#}");
    assert_eq!(result["statuses"]["307"], Value::Null, "a followed redirect has no outcome");
    assert_eq!(result["connections"]["attempted"], 50, "a redirect goes out on the same connection");
    let shared = followed(&format!("{url}/relative"), &["--connections=2"]);
    assert_eq!(
        (&shared["outcomes"]["ok"], &shared["connections"]["attempted"]),
        (&50.into(), &2.into()),
        "{shared:#}"
    );
}

#[test]
fn a_login_follows_its_redirect_with_the_cookie() {
    let (url, folder) = (redirecting_server(), tempfile::tempdir().unwrap());
    let file = folder.path().join("session.jsonl");
    std::fs::write(&file, r#"[{"path": "/login", "body": {"user": "ann"}}, {"path": "/home"}]"#).unwrap();
    let result = followed(&url, &["--requests", file.to_str().unwrap()]);
    assert_eq!(result["outcomes"]["ok"], result["offered"], "{result:#}");
    assert_eq!(result["redirects"], 50, "{result:#}");
}

#[test]
fn redirects_that_are_not_followed_are_named() {
    let url = redirecting_server();
    let away = followed(&format!("{url}/away"), &[]);
    assert_eq!((&away["outcomes"]["status_error"], &away["redirects"]), (&50.into(), &0.into()), "{away:#}");
    assert_eq!(away["failed_replies"]["302"], "to http://other.example/");
    let around = followed(&format!("{url}/loop"), &[]);
    assert_eq!(
        (&around["outcomes"]["status_error"], &around["redirects"]),
        (&50.into(), &500.into()),
        "{around:#}"
    );
    refused(&["load", &url, "--follow", "--http2"], 2, &["--http2: ", "leave --follow out"]);
}
