//! HTTP/2 end to end: with a client of our own, curl and h2spec, in cleartext and under TLS.
//!
//! A client that is not installed is a printed skip.

use std::collections::BTreeMap;
use std::fs;

use assert_cmd::Command;
use rustix::process::Signal;

use super::architectures::on_every_architecture;
use super::tls::{Identity, installed, start};
use crate::common::{Client, Files, PATIENCE, Server, eventually, on_every_mechanism, pattern};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
/// Both windows of a client that has granted nothing (RFC 9113, 6.9.2).
const WINDOW: usize = 65_535;

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// A client that knows HTTP/2 in advance and grants credit only when told to.
struct Http2(Client);

impl Http2 {
    fn begin(server: &Server) -> Http2 {
        let mut client = Http2(server.client());
        client.0.send(PREFACE);
        client.send(SETTINGS, 0, 0, &[]);
        client
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = (payload.len() as u32).to_be_bytes();
        self.0.send([&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat());
    }

    /// Sends a GET that has no content. The fields are static, or literals that no table keeps (RFC 7541, 6.2.2).
    fn get(&mut self, stream: u32, path: &str) {
        let literal = |name: u8, value: &str| [&[name, value.len() as u8], value.as_bytes()].concat();
        let block = [&[0x82, 0x86][..], &literal(4, path), &literal(1, "localhost")].concat();
        self.send(HEADERS, END_STREAM | 4, stream, &block);
    }

    fn frame(&mut self) -> Frame {
        let head = self.0.take(9);
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Frame { kind: head[3], flags: head[4], stream, payload: self.0.take(length) }
    }

    /// The next frame of a kind. Drops other frames.
    fn await_frame(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame();
            if frame.kind == kind {
                return frame;
            }
        }
    }

    fn grant(&mut self, stream: u32, bytes: usize) {
        self.send(WINDOW_UPDATE, 0, stream, &(bytes as u32).to_be_bytes());
    }

    /// The contents of as many responses as end with status 200, by stream. Grants what it has read.
    fn contents(&mut self, responses: usize) -> BTreeMap<u32, Vec<u8>> {
        let (mut contents, mut ended) = (BTreeMap::<u32, Vec<u8>>::new(), 0);
        while ended < responses {
            let frame = self.frame();
            ended += usize::from(matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0);
            match frame.kind {
                DATA => {
                    contents.entry(frame.stream).or_default().extend(&frame.payload);
                    if !frame.payload.is_empty() {
                        self.grant(0, frame.payload.len());
                        self.grant(frame.stream, frame.payload.len());
                    }
                }
                // A change of the table's size comes before the first status.
                HEADERS => assert_eq!(frame.payload.iter().find(|byte| **byte != 0x20), Some(&0x88)),
                SETTINGS => {}
                other => panic!("a frame of kind {other} on stream {}", frame.stream),
            }
        }
        contents
    }
}

/// Runs curl for URLs of the server that share one connection. Returns its output.
fn curl(server: &Server, scheme: &str, paths: &[&str], flags: &[&str]) -> Vec<u8> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error"]).args(flags);
    command.args(if scheme == "https" {
        &["--http2", "--insecure"][..]
    } else {
        &["--http2-prior-knowledge"]
    });
    command.args(paths.iter().map(|path| format!("{scheme}://{}{path}", server.address)));
    command.timeout(PATIENCE).assert().success().get_output().stdout.clone()
}

fn curl_gets_what_there_is(server: &mut Server, scheme: &str, files: &Files) {
    let all = [Files::SMALL, Files::MEDIUM, Files::LARGE];
    if scheme == "https" {
        let got = curl(server, scheme, &all.map(|(name, _)| name), &[]);
        assert!(got == all.map(|(_, length)| pattern(length)).concat(), "{} bytes", got.len());
        server.eventually("one connection", |status| {
            status.count("http2_connections") == 1 && status.count("requests") == 3
        });
    }
    let get = |path: &str, flags: &[&str]| curl(server, scheme, &[path], flags);
    // Some versions of curl cannot reuse a connection that they began with prior knowledge.
    for (name, length) in all {
        assert!(get(name, &[]) == pattern(length), "{name}");
    }
    let text = |path: &str, flags: &[&str]| String::from_utf8(get(path, flags)).unwrap();
    let head = text(Files::LARGE.0, &["--head"]);
    assert!(head.starts_with("HTTP/2 200 ") && head.contains("content-length: 3000000\r\n"), "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let head = text(Files::LARGE.0, &["--include", "--header", &format!("If-None-Match: {tag}")]);
    assert!(head.starts_with("HTTP/2 304 ") && head.ends_with("\r\n\r\n"), "{head}");
    let range = get(Files::LARGE.0, &["--range", "1000000-2000000"]);
    assert!(range == pattern(3_000_000)[1_000_000..=2_000_000]);
    let show = ["--output", "/dev/null", "--write-out", "%{http_version} %{http_code}"];
    assert_eq!(text("/nothing", &show), "2 404");
    assert_eq!(text("/empty.txt", &show), "2 200");
    let content = format!("@{}", files.path(Files::MEDIUM.0).display());
    assert_eq!(text("/", &[&show[..], &["--data-binary", &content]].concat()), "2 405");
}

#[test]
fn curl_speaks_it_on_every_architecture() {
    if !installed("curl") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    on_every_architecture(|flags| {
        let mut server = Server::start(&files.root(), flags);
        curl_gets_what_there_is(&mut server, "http", &files);
        server.stop_well();
        let mut server = start(&files, &[&identity], flags);
        curl_gets_what_there_is(&mut server, "https", &files);
        server.stop_well();
    });
}

#[test]
fn h2spec_finds_nothing_on_any_architecture() {
    if !installed("h2spec") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    on_every_architecture(|flags| {
        // In cleartext a connection without the preface speaks HTTP/1.1, which case 3.5/2 forbids.
        const CASES: [&str; 8] =
            ["generic", "hpack", "http2/3.5/1", "http2/4", "http2/5", "http2/6", "http2/7", "http2/8"];
        for (identities, own, cases) in
            [(&[][..], &[][..], &CASES[..]), (&[&identity], &["--tls", "--insecure"], &[])]
        {
            let server = start(&files, identities, flags);
            let port = server.address.port().to_string();
            let output = Command::new("h2spec")
                .args(["--host", "127.0.0.1", "--port", &port, "--path", Files::SMALL.0, "--timeout", "5"])
                .args(own)
                .args(cases)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            server.stop_well();
        }
    });
}

#[test]
fn streams_share_a_connection_on_every_architecture() {
    let files = Files::new();
    on_every_architecture(|flags| {
        let mut server = Server::start(&files.root(), flags);
        many_streams(&mut server);
        server.stop_well();
    });
}

#[test]
fn many_streams_share_a_connection_on_every_mechanism() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &[]);
        many_streams(&mut server);
        server.stop_well();
    });
}

fn many_streams(server: &mut Server) {
    let mut client = Http2::begin(server);
    let mut asked = BTreeMap::new();
    for index in 0..100 {
        let (name, length) =
            [Files::SMALL, Files::MEDIUM, Files::LARGE][if index % 20 == 0 { 2 } else { index % 2 }];
        let stream = 2 * index as u32 + 1;
        client.get(stream, name);
        asked.insert(stream, pattern(length));
    }
    let got = client.contents(asked.len());
    assert!(
        got == asked,
        "{:?}",
        got.iter().map(|(stream, bytes)| (stream, bytes.len())).collect::<Vec<_>>()
    );
    drop(client);
    let status = server.eventually("none open", |status| status.connections() == 0);
    assert_eq!(
        ["http2_connections", "requests", "responses_2xx"].map(|name| status.count(name)),
        [1, 100, 100]
    );
    assert_eq!(["incomplete_responses", "http2_connection_errors"].map(|name| status.count(name)), [0, 0]);
}

#[test]
fn held_connections_give_way_at_the_limit() {
    let files = Files::new();
    for flags in
        [&["--arch=sped"][..], &["--arch=sped", "--driver=completion"], &["--arch=mt", "--workers=4"]]
    {
        let server = Server::start(&files.root(), &[flags, &["--max-connections=4"]].concat());
        let mut held: Vec<Http2> = (0..4).map(|_| Http2::begin(&server)).collect();
        for client in &mut held {
            // No content may be sent on any stream.
            client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
            client.get(1, Files::LARGE.0);
            client.await_frame(HEADERS);
        }
        // A newcomer is served once a connection is idle, a second later.
        eventually("a held connection gives way", || server.client().get(Files::SMALL.0).status == 200);
        drop(held);
        server.stop_well();
    }
}

#[test]
fn download_outlives_goaway_on_every_architecture() {
    let files = Files::new();
    let log = files.beside("access.log");
    on_every_architecture(|flags| {
        let own = [format!("--access-log={}", log.display()), "--drain-timeout=60s".to_owned()];
        let mut server = Server::start(&files.root(), &[flags, &[&own[0], &own[1]]].concat());
        let mut idle = Http2::begin(&server);
        idle.get(1, Files::SMALL.0);
        assert!(idle.contents(1)[&1] == pattern(Files::SMALL.1));
        let mut client = Http2::begin(&server);
        client.get(1, Files::LARGE.0);
        let mut content = Vec::new();
        while content.len() < WINDOW {
            content.extend(client.await_frame(DATA).payload);
        }
        assert_eq!(content.len(), WINDOW);
        // The server reads on while the windows are closed.
        client.send(PING, 0, 0, b"12345678");
        assert_eq!(client.frame().payload, b"12345678");
        // A small rest of a window waits for more of it, and for a timer of the driver in the end.
        client.grant(0, 1000);
        client.grant(1, 1000);
        content.extend(client.frame().payload);
        assert_eq!(content.len(), WINDOW + 1000);
        server.signal(Signal::TERM);
        assert_eq!(idle.await_frame(GOAWAY).payload, [0, 0, 0, 1, 0, 0, 0, 0]);
        assert!(idle.0.ends());
        assert_eq!(client.await_frame(GOAWAY).payload, [0, 0, 0, 1, 0, 0, 0, 0]);
        client.grant(0, WINDOW);
        client.grant(1, WINDOW);
        content.extend(client.contents(1).remove(&1).unwrap());
        assert!(content == pattern(Files::LARGE.1), "{} bytes", content.len());
        assert!(client.0.ends());
        drop((idle, client));
        assert_eq!(server.wait(), (Some(0), String::new()));
        let text = fs::read_to_string(&log).unwrap();
        let mut lines: Vec<_> =
            text.lines().filter_map(|line| line.split_once("] ")).map(|line| line.1).collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "\"GET /folder/large.bin HTTP/2.0\" 200 3000000 \"-\" \"-\"",
                "\"GET /small.bin HTTP/2.0\" 200 1000 \"-\" \"-\"",
            ]
        );
        fs::remove_file(&log).unwrap();
    });
}
