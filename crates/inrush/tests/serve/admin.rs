//! The admin interface: its answers, its refusals, and its clients.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::process::Signal;

use super::upgrade::{Upgrading, listening};
use crate::common::{Client, Files, PATIENCE, Server, Status, check_metrics, samples};

#[test]
fn status_and_metrics_tell_the_same() {
    let files = Files::new();
    for (flags, loops) in [
        (&["--arch=sped", "--driver=readiness"][..], 1),
        (&["--arch=per-core", "--workers=2", "--dispatch=poll"][..], 2),
    ] {
        // Overload control would change the length of the queues.
        let mut server = Server::start(&files.root(), flags);
        let mut client = server.client();
        for _ in 0..5 {
            client.get(Files::SMALL.0);
        }
        client.get("/nothing");
        let every_queue = |status: &Status| status.0["queue"]["limit"] == 4096 * loops;
        let status =
            server.eventually("counted", |status| status.count("requests") == 6 && every_queue(status));
        assert_eq!(status.0["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(status.0["architecture"], if loops == 1 { "sped" } else { "per-core" });
        assert_eq!(status.0["dispatch"], if loops == 1 { "epoll" } else { "poll" });
        assert_eq!(status.0["accept_limit"], "adaptive");
        assert_eq!(status.0["loops"].as_array().unwrap().len(), loops);
        assert_eq!(status.0["mean_accepted_per_phase"], 1.0);
        assert!(status.0["uptime_s"].as_f64().unwrap() >= 0.0);
        assert_eq!((status.count("responses_2xx"), status.count("responses_4xx")), (5, 1));
        assert_eq!((status.count("hits"), status.count("not_found")), (4, 1));
        assert_eq!(status.0["bytes"], status.count("sent_bytes"));

        let page = server.admin.get("/metrics");
        assert_eq!(page.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let (samples, later) = (samples(page.text()), server.status());
        // Some counters grow while the server is idle, but none shrinks.
        for name in status.0["counters"].as_object().unwrap().keys() {
            let sample = samples.get(&format!("inrush_{name}_total")).unwrap_or_else(|| panic!("no {name}"));
            let (least, most) = (status.count(name) as f64, later.count(name) as f64);
            assert!((least..=most).contains(sample), "{name}: {sample}, not in {least} to {most}");
        }
        for (name, value) in [
            ("accepts_total", 1.0),
            ("accept_phases_total", 1.0),
            ("mean_accepted_per_phase", 1.0),
            ("connections", 1.0),
            ("requests_total", 6.0),
            ("sent_bytes_total", status.0["bytes"].as_f64().unwrap()),
            ("accept_queue_depth", 0.0),
            ("accept_queue_limit", status.0["queue"]["limit"].as_f64().unwrap()),
            ("listener_drops_total", 0.0),
            ("limit_connections_total", 0.0),
            ("stale_events_total", 0.0),
        ] {
            assert_eq!(samples[&format!("inrush_{name}")], value, "{name}");
        }
        assert!(samples["inrush_accept_limit"].is_nan());
        server.stop_well();
    }
}

#[test]
fn every_metric_of_every_architecture_has_its_help() {
    let files = Files::new();
    for flags in [
        &["--arch=per-core"][..],
        &["--arch=amped", "--helpers=2"],
        &["--arch=mp", "--workers=2"],
        &["--arch=smped", "--smped=initial=2"],
        &["--arch=mt", "--workers=2"],
        &["--arch=seda"],
    ] {
        println!("{flags:?}");
        let mut server = Server::start(&files.root(), flags);
        let page = server.admin.get("/metrics");
        samples(page.text());
        check_metrics(page.text());
        server.stop_well();
    }
}

/// A change of a setting: the status and the text of the answer.
pub fn put(client: &mut Client, path: &str, fields: &str, value: &str) -> (u16, String) {
    let length = value.len();
    client.send(format!("PUT {path} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{value}"));
    let response = client.response();
    (response.status, response.text().to_owned())
}

fn put_limit(client: &mut Client, value: &str) -> (u16, String) {
    put(client, "/accept-limit", "Host: localhost\r\n", value)
}

#[test]
fn accept_limit_takes_only_valid_values() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &[]);
    assert_eq!(put_limit(&mut server.admin, "inf"), (200, "inf\n".to_owned()));
    assert!(server.admin.get("/metrics").text().contains("\ninrush_accept_limit +Inf\n"));
    assert_eq!(put_limit(&mut server.admin, "adaptive"), (200, "adaptive\n".to_owned()));
    assert_eq!(put_limit(&mut server.admin, " 12\n"), (200, "12\n".to_owned()));
    assert!(server.admin.get("/metrics").text().contains("\ninrush_accept_limit 12\n"));
    for nonsense in ["", "0", "-1", "1.5", "many", "99999999999", "\u{e9}"] {
        let (status, text) = put_limit(&mut server.admin, nonsense);
        assert_eq!(status, 400, "{nonsense:?}");
        assert!(text.starts_with("accept-limit: ") && text.contains("inf, or adaptive"), "{text}");
    }
    assert_eq!(server.admin.get("/accept-limit").text(), "12\n");
    let (status, _) = put_limit(&mut Client::connect(server.admin_address), &"1".repeat(65));
    assert_eq!(status, 413);
    assert_eq!(server.admin.get("/accept-limit").text(), "12\n");
    server.stop_well();
}

#[test]
fn other_methods_and_paths_are_refused() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &[]);
    for (method, path, status, allow) in [
        ("POST", "/status", 405, Some("GET, HEAD")),
        ("PUT", "/metrics", 405, Some("GET, HEAD")),
        ("DELETE", "/accept-limit", 405, Some("GET, HEAD, PUT")),
        ("GET", "/small.bin", 404, None),
        ("GET", "/", 200, None),
    ] {
        server
            .admin
            .send(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
        let response = server.admin.response();
        assert_eq!((response.status, response.field("allow")), (status, allow), "{method} {path}");
    }
    // The site and the admin interface do not mix.
    assert_eq!(server.client().get("/status").status, 404);
    assert_eq!(server.eventually("counted", |status| status.count("closed") == 1).count("requests"), 1);
    server.stop_well();
}

/// Sends a request with these lines. Returns the status and the first line of the answer.
fn ask(client: &mut Client, request: &str, lines: &str) -> (u16, String) {
    client.send(format!("{request} HTTP/1.1\r\n{lines}Content-Length: 0\r\n\r\n"));
    let response = client.response();
    let text = response.text();
    if response.status == 403 {
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    (response.status, text.to_owned())
}

#[test]
fn a_web_page_cannot_use_it() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &["--admin-host=admin.example", "--driver=readiness"]);
    let own = format!("Host: {0}\r\nOrigin: http://{0}\r\n", server.admin_address);
    for (lines, status, says) in [
        ("Host: localhost:1\r\n", 400, "accept-limit: "),
        ("Host: admin.example\r\n", 400, "accept-limit: "),
        // The first looks like DNS rebinding, the second like a form of another page.
        (
            "Host: evil.example\r\n",
            403,
            "Host evil.example: expected an IP address, localhost or a name given with",
        ),
        ("Host: evil.example\r\nOrigin: http://evil.example\r\n", 403, "--admin-host"),
        ("Host: 127.0.0.1\r\nOrigin: http://evil.example\r\n", 403, "another web page"),
        ("Host: 127.0.0.1\r\nSec-Fetch-Site: cross-site\r\n", 403, "another web page"),
        ("Host: 127.0.0.1\r\nSec-Fetch-Site: same-site\r\n", 403, "another web page"),
    ] {
        let (found, text) = ask(&mut server.admin, "PUT /accept-limit", lines);
        assert_eq!(found, status, "{lines:?}: {text}");
        assert!(text.contains(says), "{lines:?}: {text}");
        let (found, _) = ask(&mut server.admin, "GET /status", lines);
        assert_eq!(found, if status == 403 { 403 } else { 200 }, "{lines:?}");
    }
    // The server's own page reads, and changes nothing without a token.
    for lines in [own.as_str(), "Host: admin.example\r\nSec-Fetch-Site: same-origin\r\n"] {
        let (found, text) = ask(&mut server.admin, "PUT /accept-limit", lines);
        assert!(
            found == 403 && text.starts_with("a change by a web page needs a token"),
            "{lines:?}: {text}"
        );
        assert_eq!(ask(&mut server.admin, "GET /status", lines).0, 200, "{lines:?}");
    }
    // The server refuses the request before it asks for the content.
    server.admin.send("PUT /accept-limit HTTP/1.1\r\nHost: evil.example\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    let refused = server.admin.response();
    assert_eq!((refused.status, refused.says_close()), (403, true));
    server.admin = Client::connect(server.admin_address);
    let status = server.status();
    assert_eq!((status.count("admin_refused"), status.0["accept_limit"].as_str()), (13, Some("adaptive")));
    server.stop_well();
}

#[test]
fn a_token_is_asked_of_everybody() {
    let files = Files::new();
    let file = files.beside("token");
    std::fs::write(&file, "the-secret\n").unwrap();
    let socket = files.beside("admin.sock");
    let server = Unix::start(&files, &socket, &[&format!("--admin-token-file={}", file.display())]);
    let ask = |lines: &str| server.ask(&format!("GET /status HTTP/1.1\r\nHost: localhost\r\n{lines}"));
    assert!(ask("Authorization: Bearer the-secret\r\n").starts_with("HTTP/1.1 200 "));
    for lines in ["", "Authorization: Bearer wrong\r\n"] {
        let refused = ask(lines);
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        assert!(refused.contains("\r\nWWW-Authenticate: Bearer realm=\"inrush\"\r\n"), "{refused}");
        assert!(
            refused.ends_with("expected Authorization: Bearer with the token of this server\n"),
            "{refused}"
        );
    }
}

/// A server whose admin interface is a socket file.
pub struct Unix {
    socket: std::path::PathBuf,
    child: sys::process::Child,
    stderr: std::io::BufReader<std::process::ChildStderr>,
}

impl Unix {
    pub fn start(files: &Files, socket: &std::path::Path, flags: &[&str]) -> Unix {
        let admin = format!("--admin=unix:{}", socket.display());
        let root = files.root().display().to_string();
        let arguments = [&["serve", "--listen=127.0.0.1:0", &admin, &root], flags].concat();
        let program = sys::process::Program::new(env!("CARGO_BIN_EXE_inrush"));
        let mut child = program.arguments(arguments).start().unwrap();
        let mut said = String::new();
        let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let expected = format!("admin on unix:{}\n", socket.display());
        while !said.ends_with(&expected) {
            assert!(std::io::BufRead::read_line(&mut stderr, &mut said).unwrap() > 0, "{said}");
        }
        Unix { socket: socket.to_owned(), child, stderr }
    }

    /// The next line on stderr.
    fn says(&mut self) -> String {
        let mut line = String::new();
        assert!(std::io::BufRead::read_line(&mut self.stderr, &mut line).unwrap() > 0, "it ended");
        line
    }

    /// The answer to a head without its last line.
    pub fn ask(&self, head: &str) -> String {
        self.exchange(&format!("{head}Connection: close\r\n\r\n"))
    }

    /// All that the server sends upon a request, which it is to close the connection after.
    pub fn exchange(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn failed_upgrade_leaves_the_socket_file() {
    let files = Files::new();
    let (socket, config) = (files.beside("admin.sock"), files.beside("serve.toml"));
    std::fs::write(&config, "").unwrap();
    let flag = format!("--config={}", config.display());
    let mut server = Unix::start(&files, &socket, &["--arch=sped", "--upgrade=on", &flag]);
    std::fs::write(&config, "tls-cert = \"/no/such/file\"\ntls-key = \"/no/such/file\"\n").unwrap();
    server.child.signal(Signal::USR2).unwrap();
    while !server.says().contains("; this one goes on") {}
    let answer = server.ask("GET /accept-limit HTTP/1.1\r\nHost: anything\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn admin_socket_file_is_out_of_browsers_reach() {
    let files = Files::new();
    let socket = files.beside("admin.sock");
    let mut first = Unix::start(&files, &socket, &["--driver=readiness"]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // The request may use any host name.
    let answer = first.ask("GET /accept-limit HTTP/1.1\r\nHost: anything\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nadaptive\n"), "{answer}");
    // A second server does not touch the socket file.
    let root = files.root().display().to_string();
    let admin = format!("--admin=unix:{}", socket.display());
    let mut second = assert_cmd::Command::new(env!("CARGO_BIN_EXE_inrush"));
    let refused = second.args(["serve", "--listen=127.0.0.1:0", &admin, &root]).assert().code(1);
    let said = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    // The C library words the rest.
    let expected = format!("inrush: cannot listen on unix:{}: ", socket.display());
    assert!(said.starts_with(&expected) && said.ends_with(" (os error 98)\n"), "{said}");
    assert_eq!(said.lines().count(), 1);
    assert!(first.ask("GET /status HTTP/1.1\r\nHost: x\r\n").starts_with("HTTP/1.1 200 "));
    // A killed server leaves its file behind, and the next one replaces it. A server that ends removes its
    // file.
    first.child.kill().unwrap();
    first.child.wait(base::Nanos::from_secs(30)).unwrap().expect("it ends");
    assert!(socket.exists());
    let mut third = Unix::start(&files, &socket, &[]);
    assert!(third.ask("GET /status HTTP/1.1\r\nHost: x\r\n").starts_with("HTTP/1.1 200 "));
    third.child.ask_to_end().unwrap();
    third.child.wait(base::Nanos::from_secs(30)).unwrap().expect("it ends");
    assert!(!socket.exists());
}

#[test]
fn silent_connections_make_room_for_newcomers() {
    const SILENT: usize = 100;
    /// Maximum connections of the interface.
    const HELD: usize = 64;
    let files = Files::new();
    let mut server = Server::start(&files.root(), &[]);
    let mut silent: Vec<Client> = (0..SILENT).map(|_| Client::connect(server.admin_address)).collect();
    let mut newcomer = Client::connect(server.admin_address);
    let status = newcomer.get("/status");
    assert_eq!(status.status, 200);
    // The newcomer has replaced the longest-silent connections, the test's own first. The last silent ones
    // remain.
    let gone = SILENT + 2 - HELD;
    for client in &mut silent[..gone - 1] {
        assert!(client.ends());
    }
    for client in &mut silent[gone - 1..] {
        assert_eq!(client.get("/accept-limit").status, 200);
    }
    server.admin = newcomer;
    assert_eq!(server.status().count("admin_evicted"), gone as u64);
    server.stop_well();
}

/// Tells whether a process has the socket of this number open.
fn has_open(process: u32, socket: &str) -> bool {
    let name = PathBuf::from(format!("socket:[{socket}]"));
    let mut descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    descriptors.any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == name))
}

#[test]
fn predecessor_leaves_the_admin_address() {
    let files = Files::new();
    let mut server = Upgrading::start(&files, &["--arch=sped"]);
    // The predecessor lives until it has answered this client once more.
    let mut client = Client::connect(server.address());
    assert_eq!(client.get(Files::SMALL.0).status, 200);
    let (before, admin) = (server.process, listening(server.server.admin_address));
    assert_eq!(admin.len(), 1, "{admin:?}");
    let admin = admin.first().unwrap();
    assert!(has_open(before, admin));
    server.hand_over();
    server.server.eventually_of("the predecessor has left", |_| !has_open(before, admin));
    assert_eq!(client.get(Files::SMALL.0).status, 200);
}
