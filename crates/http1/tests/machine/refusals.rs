//! The requests that the server refuses, by section of the RFC. Every refusal ends the connection, with
//! lingering so that the client can read it.

use http_semantics::server::{Limits, Settings, Wants};

use crate::support::{Peer, exchange, replies};

/// Checks that `input`, in any pieces, gets one final reply with this status that closes the connection. The
/// server must not read the following bytes.
#[track_caller]
fn check(input: impl AsRef<[u8]>, status: u16) {
    check_with(&Settings::default(), input, status);
}

#[track_caller]
fn check_with(settings: &Settings, input: impl AsRef<[u8]>, status: u16) {
    let input = [input.as_ref(), b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"].concat();
    let shown = String::from_utf8_lossy(&input[..input.len().min(200)]);
    let mut peer = Peer::new(settings.clone());
    peer.send(&input);
    peer.drain_output(usize::MAX);
    let found = replies(&peer.output).expect("a refusal is HTTP");
    assert_eq!(found.iter().map(|reply| reply.status).collect::<Vec<_>>(), [status], "{shown}");
    assert!(!found[0].persistent, "{shown}");
    assert_eq!((peer.connection.wants(), peer.shut_down), (Wants::Receive, true), "lingers: {shown}");
    assert_eq!(peer.service.served, 0, "{shown}");
    assert_eq!(exchange(input.chunks(1), usize::MAX, settings), peer.outcome(), "bytewise: {shown}");
}

/// A request with these lines between `Host` and the empty line.
fn with(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// Checks that `input` is refused at its last byte and not before. No byte follows it.
#[track_caller]
fn check_at_last_byte(input: &[u8], status: u16) {
    let mut peer = Peer::new(Settings::default());
    let (last, before) = input.split_last().expect("there is a byte");
    peer.send(before);
    assert_eq!(peer.connection.wants(), Wants::Receive, "too early: {}", input.escape_ascii());
    assert!(peer.output.is_empty(), "too early: {}", input.escape_ascii());
    peer.send(&[*last]);
    peer.drain_output(usize::MAX);
    let found = replies(&peer.output).expect("a refusal is HTTP");
    assert_eq!(
        found.iter().map(|reply| reply.status).collect::<Vec<_>>(),
        [status],
        "{}",
        input.escape_ascii()
    );
    assert!(peer.shut_down, "lingers: {}", input.escape_ascii());
    check(input, status);
}

#[test]
fn other_protocol_is_refused_at_an_impossible_byte() {
    // The record of a TLS ClientHello, and the hello of SSL 2.
    check_at_last_byte(b"\x16", 400);
    check_at_last_byte(b"\x80", 400);
    // The banner of an SSH client, without and with a comment.
    check_at_last_byte(b"SSH-2.0-Go\r", 400);
    check_at_last_byte(b"SSH-2.0-OpenSSH_9.2p1 D", 400);
    check_at_last_byte(b"PRI * HTTP/2", 505);
    check_at_last_byte(b"GET / HTTP/5", 505);
    check_at_last_byte(b"GET / R", 400);
    check_at_last_byte(b"OPTIONS s", 400);
    check_at_last_byte(b"GET /\n", 400);
    check_at_last_byte(b"EHLO e", 400);
    check_at_last_byte(b"[", 400);
    check_at_last_byte(b"CONNECT ", 501);
    check_at_last_byte(b"GET / HTTP/1.1\r\nHost: h\r\n ", 400);
    check_at_last_byte(b"GET / HTTP/1.1\r\nHost: h\r\nA\0", 400);
}

#[test]
fn partial_head_above_a_lowered_limit_is_refused() {
    let mut peer = Peer::new(Settings::default());
    peer.send(&[b"GET / HTTP/1.1\r\nHost: h\r\nA: ", &[b'a'; 9900][..]].concat());
    peer.settings.limits.head_bytes = 2048;
    peer.send(b"a");
    peer.drain_output(usize::MAX);
    let found = replies(&peer.output).expect("a refusal is HTTP");
    assert_eq!(found.iter().map(|reply| reply.status).collect::<Vec<_>>(), [431]);
    assert!(peer.shut_down, "lingers");
}

#[test]
fn limits_are_enforced_at_the_first_byte_beyond_them() {
    check_at_last_byte(format!("GET /{}", "a".repeat(8 * 1024)).as_bytes(), 414);
    let fields = "A: b\r\n".repeat(100);
    check_at_last_byte(format!("GET / HTTP/1.1\r\n{fields}A").as_bytes(), 431);
}

#[test]
fn rfc9112_2_2_lines_end_with_crlf() {
    check("GET / HTTP/1.1\nHost: h\n\n", 400);
    check("GET / HTTP/1.1\r\nHost: h\n\r\n", 400);
    check("GET / HTTP/1.1\r\nHost: h\r\n\n", 400);
    check("GET / HTTP/1.1\rHost: h\r\n\r\n", 400);
    check(with("A: b\rc\r\n"), 400);
    check("\r\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
}

#[test]
fn rfc9112_3_a_request_line_is_three_words() {
    check("GET\r\n\r\n", 400);
    check("GET /\r\n\r\n", 400);
    check(" / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check(" GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check("GET /  HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check("GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400);
    check("GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check("G(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check("G\u{e9}T / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    check("\u{16}\u{3}\u{1}\r\n\r\n", 400);
}

#[test]
fn rfc9112_3_2_targets() {
    for target in
        ["a", "?a", "*", "/a#b", "/\u{e9}", "/a\u{7f}", "/\0", "ftp://a/", "http://", "http://u@a/", "a:80"]
    {
        check(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    }
    check("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 501);
}

#[test]
fn rfc9112_3_2_exactly_one_valid_host() {
    check("GET / HTTP/1.1\r\n\r\n", 400);
    check("GET http://a/ HTTP/1.1\r\n\r\n", 400);
    check("GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400);
    check("GET / HTTP/1.0\r\nHost: h\r\nhost: h\r\n\r\n", 400);
    for host in ["a b", "a/b", "u@a", "a:b", "a:99999", "[::1", "a\\b", "a\u{e9}", "a, b"] {
        check(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400);
    }
}

#[test]
fn rfc9112_2_3_versions() {
    check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
    check("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505);
    check("GET / HTTP/0.9\r\nHost: h\r\n\r\n", 505);
    check("GET / HTTP/3.1\r\nHost: h\r\n\r\n", 505);
    for version in ["HTTP/1", "HTTP/1.", "HTTP/11.1", "HTTP/1.10", "http/1.1", "HTTP/a.b", "HTTP1.1", "1.1"] {
        check(format!("GET / {version}\r\nHost: h\r\n\r\n"), 400);
    }
}

#[test]
fn rfc9112_5_fields() {
    check(with("A : b\r\n"), 400);
    check(with("A\t: b\r\n"), 400);
    check(with("A: b\r\n c\r\n"), 400);
    check(with("A: b\r\n\tc\r\n"), 400);
    check("GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400);
    check(with("A\r\n"), 400);
    check(with(": b\r\n"), 400);
    check(with("A(: b\r\n"), 400);
    check(with("A: b\0c\r\n"), 400);
    check(with("A: b\u{1}c\r\n"), 400);
    check(with("A: b\u{7f}c\r\n"), 400);
    check(with("A\u{e9}: b\r\n"), 400);
}

#[test]
fn rfc9112_6_2_content_length() {
    for length in ["", "a", "-1", "+1", "1.0", "0x1", "1 1", "1,1", "1, 1", "\u{b2}"] {
        check(with(&format!("Content-Length: {length}\r\n")), 400);
    }
    check(with("Content-Length: 5\r\nContent-Length: 6\r\n"), 400);
    check(with("Content-Length: 5\r\ncontent-length: 5\r\n"), 400);
    check(with("Content-Length: 1048577\r\n"), 413);
    check(with("Content-Length: 99999999999999999999999999\r\n"), 413);
}

#[test]
fn rfc9112_6_1_transfer_encoding() {
    // The content is valid, so that only the head can be at fault.
    let check_head = |fields: &str, status| check(with(fields) + "0\r\n\r\n", status);
    check_head("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400);
    check_head("Content-Length: 5\r\nTransfer-Encoding: gzip\r\n", 400);
    check_head("Transfer-Encoding: chunked, gzip\r\n", 400);
    check_head("Transfer-Encoding: chunked, chunked\r\n", 400);
    check_head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400);
    check_head("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 400);
    check_head("Transfer-Encoding:\r\n", 400);
    check_head("Transfer-Encoding: ,chunked\r\n", 400);
    check_head("Transfer-Encoding: chunked,\r\n", 400);
    check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
    check("POST / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n", 400);
    check_head("Transfer-Encoding: gzip, chunked\r\n", 501);
    check_head("Transfer-Encoding: identity\r\n", 501);
    check_head("Transfer-Encoding: xchunked\r\n", 501);
    check_head("Transfer-Encoding: \"chunked\"\r\n", 501);
    check_head("Transfer-Encoding: chunked;q=1\r\n", 501);
}

#[test]
fn rfc9112_7_1_broken_chunks() {
    let chunked = |body: &str| format!("{}{body}", with("Transfer-Encoding: Chunked\r\n"));
    for body in [
        "\r\n",
        "x\r\n",
        "0x1\r\na\r\n",
        "-1\r\n",
        "+1\r\n",
        " 1\r\n",
        "1 \r\n",
        "1\na\r\n",
        "1\r\nab\r\n",
        "1\r\na\n",
        "11111111111111111\r\n",
        "0\r\nA b\r\n\r\n",
        "0\r\n A: b\r\n\r\n",
        "0\r\nA: b\n\r\n",
    ] {
        check(chunked(body), 400);
    }
    check(chunked(&format!("1;{}\r\n", "a".repeat(5000))), 400);
    check(chunked(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(100))), 400);
    check(chunked("100001\r\n"), 413);
    check(chunked("FFFFFFFFFFFFFFFF\r\n"), 413);
}

#[test]
fn rfc9110_10_1_1_other_expectations() {
    check(with("Expect: 200-ok\r\n"), 417);
    check(with("Expect: 100-continue, b\r\n"), 417);
    check(with("Expect: 100-continue\r\nExpect: 100-continue\r\n"), 400);
    check(with("Expect: 100-continue\r\nContent-Length: 9999999\r\n"), 413);
}

#[test]
fn limits_on_the_head() {
    check(format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(8 * 1024)), 414);
    check("G".repeat(16 * 1024), 414);
    check(format!("GET /{}", "a".repeat(20 * 1024)), 414);
    check(with(&format!("A: {}\r\n", "b".repeat(17 * 1024))), 431);
    check(with(&"A: b\r\n".repeat(100)), 431);
    check(with(&"A: b\r\n".repeat(200)), 431);
    let limits = Limits { fields: 2, ..Limits::default() };
    check_with(&Settings { limits, ..Settings::default() }, with("A: b\r\nC: d\r\n"), 431);
}

#[test]
fn a_refused_head_request_gets_no_content() {
    let mut peer = Peer::new(Settings::default());
    peer.send(b"HEAD / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n");
    peer.drain_output(usize::MAX);
    assert_eq!(
        peer.text(),
        "HTTP/1.1 400 Bad Request\nContent-Type: text/plain; charset=utf-8\nContent-Length: 16\n\
         Connection: close\n\n"
    );
}

#[test]
fn refusals_are_counted_by_reason() {
    let counts = |input: &str| {
        let mut peer = Peer::new(Settings::default());
        peer.send(input.as_bytes());
        peer.counts
    };
    assert_eq!(counts("GET / HTTP/1.1\r\n\r\n").refused_bad_request, 1);
    assert_eq!(counts("GET / HTTP/2.0\r\n\r\n").refused_version, 1);
    assert_eq!(counts("CONNECT a:1 HTTP/1.1\r\n\r\n").refused_not_implemented, 1);
    assert_eq!(counts(&"G".repeat(20_000)).refused_target_too_long, 1);
    assert_eq!(counts(&with(&"A: b\r\n".repeat(200))).refused_head_too_large, 1);
    assert_eq!(counts(&with("Content-Length: 9999999\r\n")).refused_content_too_large, 1);
    assert_eq!(counts(&with("Expect: a\r\n")).refused_expectation, 1);
    assert_eq!(counts("G / HTTP/1.1\n").responses_4xx, 1);
    assert_eq!(counts("G / HTTP/2.0\r\n\r\n").responses_5xx, 1);
}
