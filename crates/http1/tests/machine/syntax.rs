//! The grammar of a request, byte by byte: each of the 256 bytes in each place, and the forms of each
//! element, by section of RFC 9112. A refused input is refused in any pieces.

use http_semantics::server::{Limits, Settings};

use crate::support::{Peer, exchange, replies};

/// The status of the only answer, and true if the connection ends, for one piece and byte by byte.
#[track_caller]
fn answer(input: &[u8]) -> (u16, bool) {
    let limits = Limits { keep_body: true, ..Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    let whole = exchange([input], usize::MAX, &settings);
    let bytewise = exchange(input.chunks(1), usize::MAX, &settings);
    assert_eq!(bytewise, whole, "a byte at a time: {}", input.escape_ascii());
    let found = replies(&whole.output).expect("the answer is HTTP");
    assert_eq!(found.len(), 1, "{}: {whole:?}", input.escape_ascii());
    (found[0].status, whole.ended)
}

/// Puts each byte between `before` and `after`. A byte that `fits` accepts gets 200, or 501 if the service
/// does not know the method. Every other byte gets 400 and ends the connection.
#[track_caller]
fn check_bytes(before: &str, after: &str, fits: impl Fn(u8) -> bool) {
    for byte in 0..=u8::MAX {
        let input = [before.as_bytes(), &[byte], after.as_bytes()].concat();
        let expect = if fits(byte) { (200, false) } else { (400, true) };
        let (status, ends) = answer(&input);
        let status = if status == 501 { 200 } else { status };
        assert_eq!((status, ends), expect, "{}", input.escape_ascii());
    }
}

/// True if the byte may occur in a token (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const END: &str = " HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn rfc9112_3_1_a_method_is_a_token() {
    check_bytes("G", "T /a HTTP/1.1\r\nHost: h\r\n\r\n", is_token);
    check_bytes("", "ET /a HTTP/1.1\r\nHost: h\r\n\r\n", is_token);
    for (method, status) in [("get", 501), ("QUERY", 501), ("M-SEARCH", 501), ("G'T", 501), ("POST", 200)] {
        assert_eq!(answer(format!("{method} /a{END}").as_bytes()), (status, false), "{method}");
    }
}

#[test]
fn rfc9112_3_2_target_is_visible_ascii_sans_fragment() {
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    check_bytes("GET /a", "b HTTP/1.1\r\nHost: h\r\n\r\n", fits);
    check_bytes("GET /a?b", "c HTTP/1.1\r\nHost: h\r\n\r\n", fits);
    check_bytes("GET ", " HTTP/1.1\r\nHost: h\r\n\r\n", |byte| byte == b'/');
    for target in ["/", "//", "/a//b", "/%", "/%zz", "/a;b=c", "/?", "/?/?", "http://h", "HTTPS://h:443/a?b"]
    {
        assert_eq!(answer(format!("GET {target}{END}").as_bytes()), (200, false), "{target}");
    }
    for target in ["*a", "**", "/a /b", "h", "http", "http:", "http:/", "http:///", "http://h#a", "httpx://h"]
    {
        assert_eq!(answer(format!("GET {target}{END}").as_bytes()), (400, true), "{target}");
    }
}

#[test]
fn rfc9112_2_3_a_version_is_eight_bytes() {
    for place in 0..8 {
        let (before, after) = ("HTTP/1.1".split_at(place).0, "HTTP/1.1".split_at(place + 1).1);
        let (before, after) = (format!("GET /a {before}"), format!("{after}\r\nHost: h\r\n\r\n"));
        for byte in 0..=u8::MAX {
            let input = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            let expect = match (place, byte) {
                (5, b'0' | b'2'..=b'9') => (505, true),
                // A 1.0 client that does not ask for persistence gets the end with its answer.
                (7, b'0') => (200, true),
                (7, b'1'..=b'9') => (200, false),
                (place, byte) if byte == b"HTTP/1.1"[place] => (200, false),
                _ => (400, true),
            };
            assert_eq!(answer(&input), expect, "{}", input.escape_ascii());
        }
    }
}

#[test]
fn rfc9112_2_2_what_separates_lines() {
    let crlf_only = |_| false;
    check_bytes("GET /a HTTP/1.1", "Host: h\r\n\r\n", crlf_only);
    check_bytes("GET /a HTTP/1.1", "\nHost: h\r\n\r\n", |byte| byte == b'\r');
    check_bytes("GET /a HTTP/1.1\r", "Host: h\r\n\r\n", |byte| byte == b'\n');
    check_bytes("GET /a HTTP/1.1\r\nHost: h\r\n\r", "", |byte| byte == b'\n');
    // White space or a control before the first field (RFC 9112, 2.2) or before the request line.
    check_bytes("", "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", is_token);
    check_bytes("GET /a HTTP/1.1\r\n", "Host: h\r\nHost: h\r\n\r\n", is_token);
    for empty_lines in 0..=4 {
        let input = "\r\n".repeat(empty_lines) + "GET /a" + END;
        assert_eq!(answer(input.as_bytes()), (200, false), "{empty_lines} empty lines");
    }
}

#[test]
fn rfc9112_5_1_field_name_is_a_token_before_a_colon() {
    check_bytes("GET /a HTTP/1.1\r\nHost: h\r\nX", "Y: z\r\n\r\n", |byte| is_token(byte) || byte == b':');
    check_bytes("GET /a HTTP/1.1\r\nHost: h\r\n", "X: z\r\n\r\n", is_token);
    check_bytes("GET /a HTTP/1.1\r\nHost: h\r\nX", ": z\r\n\r\n", |byte| is_token(byte) || byte == b':');
}

#[test]
fn rfc9110_5_5_field_value_has_no_control_but_tab() {
    let fits = |byte: u8| b"\t ".contains(&byte) || byte.is_ascii_graphic() || byte >= 0x80;
    for (before, after) in [("X:", ""), ("X: a", "b"), ("X: a", ""), ("X: ", "b"), ("X: \"a", "b\"")] {
        let before = format!("GET /a HTTP/1.1\r\nHost: h\r\n{before}");
        check_bytes(&before, &format!("{after}\r\n\r\n"), fits);
    }
}

#[test]
fn rfc9112_5_2_a_folded_line_is_no_field() {
    for fold in ["\r\n ", "\r\n\t", "\r\n  ", " \r\n ", "\r\n \r\n "] {
        for field in ["X: a", "Host: h", "Content-Length: 5", "Transfer-Encoding: chunked"] {
            let input = format!("GET /a HTTP/1.1\r\nHost: h\r\n{field}{fold}b\r\n\r\n");
            assert_eq!(answer(input.as_bytes()), (400, true), "{}", input.escape_debug());
        }
    }
}

#[test]
fn rfc9112_7_1_what_follows_a_chunk_size() {
    let head = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    check_bytes(&format!("{head}1"), "\na\r\n0\r\n\r\n", |byte| byte == b'\r');
    check_bytes(&format!("{head}1\r"), "a\r\n0\r\n\r\n", |byte| byte == b'\n');
    check_bytes(&format!("{head}1\r\na"), "\n0\r\n\r\n", |byte| byte == b'\r');
    check_bytes(&format!("{head}1\r\na\r"), "0\r\n\r\n", |byte| byte == b'\n');
    check_bytes(&format!("{head}0"), "\n\r\n", |byte| byte == b'\r');
    check_bytes(&format!("{head}0\r\n"), "\n", |byte| byte == b'\r');
    check_bytes(&format!("{head}0\r\n\r"), "", |byte| byte == b'\n');
    // The size itself: a digit, or nothing that a reader could take for one.
    check_bytes(head, "\r\n\r\nxxxxxxxxxxxxxxxxxxxx", |byte| byte == b'0');
    // The name of an extension, and the name of a trailer.
    check_bytes(&format!("{head}0;"), "a\r\n\r\n", |byte| is_token(byte) || b" \t".contains(&byte));
    check_bytes(&format!("{head}0\r\n"), "T: t\r\n\r\n", is_token);
    check_bytes(&format!("{head}0\r\nT"), " t\r\n\r\n", |byte| byte == b':');
}

#[test]
fn rfc9110_8_6_a_content_length_is_digits() {
    for byte in 0..=u8::MAX {
        // White space around the value does not belong to it.
        let is_value = byte.is_ascii_digit() || b" \t".contains(&byte);
        let input = [b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0", &[byte][..], b"\r\n\r\n"].concat();
        if is_value && !(b'1'..=b'9').contains(&byte) {
            assert_eq!(answer(&input), (200, false), "{}", input.escape_ascii());
        } else if !is_value {
            assert_eq!(answer(&input), (400, true), "{}", input.escape_ascii());
        }
    }
}

#[test]
fn rfc9112_3_2_a_host_is_needed_and_needed_once() {
    for (fields, expect) in [
        ("", (400, true)),
        ("Host:\r\n", (200, false)),
        ("host: h\r\n", (200, false)),
        ("HOST:\th:80 \r\n", (200, false)),
        ("Host: h\r\nHost: h\r\n", (400, true)),
        ("Host: h\r\nhOST:\r\n", (400, true)),
        ("Host: h,h\r\n", (200, false)),
        ("Host: h h\r\n", (400, true)),
        ("Host: h/a\r\n", (400, true)),
        ("Host: h@h\r\n", (400, true)),
        ("Host: h:http\r\n", (400, true)),
        ("Host: [::1]\r\n", (200, false)),
        ("Host: [::1\r\n", (400, true)),
        ("Host: ::1\r\n", (400, true)),
        ("Host: [::1]:65536\r\n", (400, true)),
        ("Host: h\\h\r\n", (400, true)),
        ("X-Host: h\r\n", (400, true)),
    ] {
        assert_eq!(answer(format!("GET /a HTTP/1.1\r\n{fields}\r\n").as_bytes()), expect, "{fields}");
    }
}

#[test]
fn a_refused_byte_is_never_served_later() {
    for byte in (0..=u8::MAX).filter(|byte| !is_token(*byte) && *byte != b'\r') {
        let mut peer = Peer::new(Settings::default());
        peer.send(&[byte]);
        peer.send(format!("GET /a{END}").as_bytes());
        peer.drain_output(usize::MAX);
        assert_eq!((peer.service.served, peer.shut_down), (0, true), "{byte}");
    }
}
