//! The page of the admin interface and its stream of events: form, limits, and who gets them.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::admin::put;
use crate::common::{Client, Files, PATIENCE, Server};

/// The streams that a server has at once.
const STREAMS: usize = 8;

/// A stream of events, or the refusal of one.
struct Events {
    lines: BufReader<TcpStream>,
    /// Status line and fields.
    head: String,
}

impl Events {
    fn open(address: SocketAddr, fields: &str) -> Events {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "it ended: {head}");
        }
        Events { lines, head }
    }

    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// The lines up to the next empty one.
    fn block(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended");
            match line.strip_suffix('\n').expect("lines have ends") {
                "" => return lines,
                line => lines.push(line.to_owned()),
            }
        }
    }

    /// The next event: its name, its number and its data.
    fn next(&mut self) -> (String, u64, Value) {
        let block = self.block();
        let [name, number, data] = &block[..] else { panic!("{block:?}") };
        let after =
            |line: &str, field: &str| line.strip_prefix(field).unwrap_or_else(|| panic!("{line}")).to_owned();
        let data = serde_json::from_str(&after(data, "data: ")).unwrap();
        (after(name, "event: "), after(number, "id: ").parse().unwrap(), data)
    }
}

#[test]
fn event_stream_begins_with_history_then_samples() {
    let files = Files::new();
    let server = Server::start_with_control(
        &files.root(),
        &["--arch=per-core", "--driver=readiness", "--workers=2", "--queue-target=7ms"],
    );
    let mut events = Events::open(server.admin_address, "");
    assert_eq!(events.status(), 200);
    let head = events.head.to_ascii_lowercase();
    assert!(head.contains("\r\ncontent-type: text/event-stream\r\n"), "{head}");
    assert!(head.contains("\r\ncache-control: no-store\r\n") && !head.contains("content-length"), "{head}");
    assert_eq!(events.block(), ["retry: 2000"]);
    let (name, last, history) = events.next();
    assert_eq!((name.as_str(), history.as_array().unwrap().len() as u64), ("history", last));
    for _ in 0..20 {
        assert_eq!(server.client().get(Files::SMALL.0).status, 200);
    }
    let mut sums = [0.0; 2];
    for number in last + 1.. {
        let (name, found, sample) = events.next();
        assert_eq!((name.as_str(), found, sample["number"].as_u64()), ("sample", number, Some(number)));
        assert_eq!((&sample["state"], &sample["accept_limit"]), (&"open".into(), &"adaptive".into()));
        assert_eq!((&sample["refused_per_s"], &sample["queue_target_ms"]), (&0.0.into(), &7.0.into()));
        assert_eq!(sample["offered_per_s"], sample["admitted_per_s"]);
        for (sum, name) in sums.iter_mut().zip(["admitted_per_s", "goodput_per_s"]) {
            *sum += sample[name].as_f64().unwrap();
        }
        // A sample is about a second.
        if sums.iter().all(|sum| *sum >= 10.0) {
            break;
        }
    }
    let (name, last, history) = {
        let mut another = Events::open(server.admin_address, "");
        another.block();
        another.next()
    };
    assert_eq!(
        (name.as_str(), history.as_array().unwrap().last().unwrap()["number"].as_u64()),
        ("history", Some(last))
    );
    drop(events);
    server.stop_well();
}

#[test]
fn streams_have_places_of_their_own() {
    let files = Files::new();
    let mut server = Server::start_with_control(&files.root(), &[]);
    let mut open: Vec<Events> = (0..STREAMS).map(|_| Events::open(server.admin_address, "")).collect();
    assert!(open.iter().all(|events| events.status() == 200));
    let refused = Events::open(server.admin_address, "");
    assert_eq!(refused.status(), 503);
    assert!(refused.head.contains("\r\nRetry-After: 10\r\n"), "{}", refused.head);
    assert_eq!(server.status().count("admin_streams_refused"), 1);
    // More silent connections than the interface has room for close no stream, and a stream closes none of theirs.
    let silent: Vec<Client> = (0..80).map(|_| Client::connect(server.admin_address)).collect();
    server.admin = Client::connect(server.admin_address);
    server.status();
    for events in &mut open {
        while events.block()[0] != "event: sample" {}
    }
    drop(open.pop());
    server.eventually_of("room for another stream", |server| {
        let events = Events::open(server.admin_address, "");
        let found = events.status() == 200;
        open.push(events);
        found
    });
    // A client that sends more than it was to send is not heard.
    let mut talks = open.pop().unwrap();
    for _ in 0..3 {
        talks.lines.get_mut().write_all(b"GET /status HTTP/1.1\r\n\r\n").unwrap();
        while talks.block()[0] != "event: sample" {}
    }
    drop(silent);
    assert_eq!(server.status().count("admin_streams_cut"), 0);
    server.stop_well();
}

const HTML: &str = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n";

#[test]
fn browsers_get_the_page_and_other_programs_the_paths() {
    let files = Files::new();
    let mut server = Server::start_with_control(&files.root(), &["--arch=sped", "--driver=readiness"]);
    let page = server.admin.get_with("/", HTML);
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.field("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(page.text().contains("data-access=\"read\"") && page.text().contains("sped on epoll"));
    server.eventually_of("a row of figures", |server| {
        server.admin.get_with("/", HTML).text().contains("<tr><th>now</th><td>open</td>")
    });
    let help = server.admin.get("/");
    assert_eq!(help.field("content-type"), Some("text/plain; charset=utf-8"));
    for path in ["/events", "/status", "/metrics", "PUT /accept-limit", "PUT /queue-target"] {
        assert!(help.text().contains(path), "{}", help.text());
    }
    server.stop_well();
}

#[test]
fn target_delay_takes_only_valid_values() {
    let files = Files::new();
    let mut server = Server::start_with_control(&files.root(), &[]);
    let mut set = |value: &str| put(&mut server.admin, "/queue-target", "Host: localhost\r\n", value);
    assert_eq!(set(" 5ms\n"), (200, "5ms\n".to_owned()));
    for nonsense in ["", "0", "5", "999us", "-1s", "soon", "\u{e9}"] {
        let (status, text) = set(nonsense);
        assert!(status == 400 && text.starts_with("queue-target: ") && text.lines().count() == 1, "{text}");
    }
    assert_eq!(server.admin.get("/queue-target").text(), "5ms\n");
    assert_eq!(server.status().0["overload"]["queue_target_s"], 0.005);
    server.stop_well();
    let mut uncontrolled = Server::start_with_control(&files.root(), &["--overload=off"]);
    let (status, text) = put(&mut uncontrolled.admin, "/queue-target", "Host: localhost\r\n", "5ms");
    assert_eq!((status, text.as_str()), (404, "queue-target: this server has no overload control\n"));
    uncontrolled.stop_well();
}

#[test]
fn the_page_changes_nothing_without_a_token() {
    let files = Files::new();
    let mut server = Server::start_with_control(&files.root(), &["--driver=readiness"]);
    let own =
        format!("Host: {0}\r\nOrigin: http://{0}\r\nSec-Fetch-Site: same-origin\r\n", server.admin_address);
    for (path, value) in [("/accept-limit", "3"), ("/queue-target", "3ms")] {
        let (status, text) = put(&mut server.admin, path, &own, value);
        assert!(status == 403 && text.contains("--admin-token-file"), "{text}");
    }
    assert_eq!(Events::open(server.admin_address, "Origin: http://evil.example\r\n").status(), 403);
    assert_eq!(Events::open(server.admin_address, "Sec-Fetch-Site: cross-site\r\n").status(), 403);
    let status = server.status();
    assert_eq!(
        (&status.0["accept_limit"], &status.0["overload"]["queue_target_s"]),
        (&"adaptive".into(), &0.02.into())
    );
    server.stop_well();
}

/// The line that shows the token of the tests.
const SHOWN: &str = "Authorization: Bearer s3cret\r\n";

#[test]
fn token_page_has_no_figures_and_changes_settings() {
    let files = Files::new();
    let file = files.beside("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let socket = files.beside("admin.sock");
    let flag = format!("--admin-token-file={}", file.display());
    let server = super::admin::Unix::start(&files, &socket, &[&flag]);
    let page = server.ask(&format!("GET / HTTP/1.1\r\nHost: localhost\r\n{HTML}"));
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("data-access=\"token\""), "{page}");
    assert!(!page.contains("<tr><th>now"), "{page}");
    // A program that does not ask for HTML gets the page too: it says what is missing.
    let page = server.ask("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n");
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("--admin-token-file"), "{page}");
    for request in ["PUT / ", "GET /events ", "HEAD /events ", "GET /status ", "PUT /queue-target "] {
        let refused = server.ask(&format!("{request}HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"));
        assert!(refused.starts_with("HTTP/1.1 401 "), "{request}: {refused}");
    }
    let own = "Host: localhost\r\nOrigin: http://localhost\r\n";
    let fields = "Connection: close\r\nContent-Length: 3\r\n";
    let changed = server.exchange(&format!("PUT /queue-target HTTP/1.1\r\n{own}{SHOWN}{fields}\r\n9ms"));
    assert!(changed.starts_with("HTTP/1.1 200 ") && changed.ends_with("\r\n\r\n9ms\n"), "{changed}");
}
