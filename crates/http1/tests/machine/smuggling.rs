//! Request smuggling: messages that two readers could delimit differently. Each message carries a request
//! that only the wrong reading shows. The server must never serve it; if readings differ, the server refuses
//! the message and ends the connection.
//!
//! The classes are those of the literature since Linhart, Klein, Heled and Orrin 2005 ("HTTP Request
//! Smuggling"). A length contradicts a coding or another length, a coding is hidden, a line ends where others
//! do not, or a chunk is not where it seems. The cases follow RFC 9112, 2.2, 5 to 7 and 11.2.

use http_semantics::server::{Limits, Settings};
use proptest::prelude::*;

use crate::support::{exchange, replies};

/// The request that must not be served.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
/// The service's answer to the smuggled request.
const SERVED: &str = "GET /smuggled Http11";

/// The statuses of the answers, and true if the connection ended, for any pieces. Asserts that nothing
/// smuggled is served.
#[track_caller]
fn statuses(input: &[u8]) -> (Vec<u16>, bool) {
    let limits = Limits { keep_body: true, ..Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    let whole = exchange([input], usize::MAX, &settings);
    for piece in [1, 7] {
        let found = exchange(input.chunks(piece), usize::MAX, &settings);
        assert_eq!(found, whole, "in pieces of {piece}: {}", input.escape_ascii());
    }
    let text = String::from_utf8_lossy(&whole.output);
    assert!(!text.contains(SERVED), "smuggled: {}\n{text}", input.escape_ascii());
    let found = replies(&whole.output).expect("answers are HTTP");
    (found.iter().map(|reply| reply.status).collect(), whole.ended)
}

/// Checks that the message is refused with 400 or 501, and that no byte after it is read.
#[track_caller]
fn check_refused(input: impl AsRef<[u8]>) {
    let input = input.as_ref();
    let (statuses, ended) = statuses(input);
    assert!(matches!(statuses[..], [400 | 501]) && ended, "{statuses:?}: {}", input.escape_ascii());
}

/// A POST with these field lines, followed by `rest`.
fn post(fields: &str, rest: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{rest}")
}

/// Content that is a whole body to a reader of chunks and hides a request from a reader of the length; and
/// the reverse.
fn both_ways() -> [(usize, String); 2] {
    let behind_chunks = format!("0\r\n\r\n{SMUGGLED}");
    let within_a_chunk = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    [(behind_chunks.len(), behind_chunks), (4, within_a_chunk)]
}

#[test]
fn length_and_coding_do_not_go_together() {
    for (length, rest) in both_ways() {
        for coding in ["chunked", "Chunked", "gzip, chunked", "identity", "x", "chunked, identity", "", ","] {
            check_refused(post(&format!("Content-Length: {length}\r\nTransfer-Encoding: {coding}"), &rest));
            check_refused(post(&format!("Transfer-Encoding: {coding}\r\nContent-Length: {length}"), &rest));
        }
    }
}

#[test]
fn a_hidden_coding_is_refused_or_another_field() {
    const NAME: &str = "Transfer-Encoding";
    let line = format!("{NAME}: chunked");
    for (length, rest) in both_ways() {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n");
        for (place, byte) in (0..=line.len()).flat_map(|place| (0..=u8::MAX).map(move |byte| (place, byte))) {
            // A name with one more letter, or cut by a colon, is another name to every reader: the length
            // counts.
            let is_token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let is_another_name =
                is_token && place <= NAME.len() || byte == b':' && (1..NAME.len()).contains(&place);
            if !is_another_name {
                let (before, after) = line.split_at(place);
                let hidden = [before.as_bytes(), &[byte], after.as_bytes()].concat();
                check_refused([head.as_bytes(), &hidden, b"\r\n\r\n", rest.as_bytes()].concat());
            }
        }
    }
}

#[test]
fn two_lengths_or_two_codings_are_refused() {
    let lengths = ["0", "5", "05", "6"].map(|length| format!("Content-Length: {length}"));
    let codings =
        ["chunked", "identity", "gzip", "chunked "].map(|coding| format!("Transfer-Encoding: {coding}"));
    let lines = || lengths.iter().chain(&codings);
    for first in lines() {
        for second in lines() {
            for between in ["", "X: y\r\n"] {
                let fields = format!("{first}\r\n{between}{second}");
                check_refused(post(&fields, &format!("0\r\n\r\n{SMUGGLED}")));
            }
        }
    }
    for list in ["5, 5", "5,5", "5, 6", "5;", "5 5", "5\t5", ",5", "5,"] {
        check_refused(post(&format!("Content-Length: {list}"), SMUGGLED));
    }
}

#[test]
fn a_length_is_written_in_one_way() {
    for length in
        ["+5", "-5", "0x5", "5.0", "5e0", "\u{ff15}", "5_0", "'5'", "\"5\"", "5L", "0b1", "5%35", "", "NaN"]
    {
        check_refused(post(&format!("Content-Length: {length}"), SMUGGLED));
    }
    // 2^64 is too large; its lower 64 bits do not count.
    let (found, ended) = statuses(post("Content-Length: 18446744073709551616", SMUGGLED).as_bytes());
    assert_eq!((found, ended), (vec![413], true));
}

#[test]
fn a_field_ends_with_its_line_and_only_there() {
    // Some readers take these bytes for a line end; none of them begins a field here.
    for separator in [&b"\n"[..], b"\r", b"\n\r", b"\r\r\n", b"\0", b"\x0b", b"\x0c", b"\x1c", b"\x7f"] {
        for hidden in ["Transfer-Encoding: chunked", "Content-Length: 5", "Host: other"] {
            let head = b"POST / HTTP/1.1\r\nHost: h\r\nX: y";
            let rest = format!("\r\n\r\n0\r\n\r\n{SMUGGLED}");
            check_refused([&head[..], separator, hidden.as_bytes(), rest.as_bytes()].concat());
        }
    }
    // These characters are data in a value, though Unicode calls them line ends.
    for data in ["\u{85}", "\u{2028}", "\u{560a}\u{560d}"] {
        let input = format!("GET /a HTTP/1.1\r\nHost: h\r\nX: y{data}Content-Length: 99\r\n\r\n");
        assert_eq!(statuses(input.as_bytes()), (vec![200], false), "{data:?}");
    }
}

#[test]
fn a_field_name_is_exact() {
    for name in [
        "Content-Length ",
        "Content-Length\t",
        " Content-Length",
        "Content Length",
        "Content-Length\u{b}",
        "\u{0}Content-Length",
    ] {
        check_refused(post(&format!("{name}: {}", SMUGGLED.len()), SMUGGLED));
    }
    // These are other names, though some gateways treat them alike: their values do not delimit the content.
    for name in ["Content_Length", "Content-Length-", "Content--Length", "X-Content-Length", "Content.Length"]
    {
        let input = post(&format!("{name}: 5"), "GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(statuses(input.as_bytes()), (vec![200, 200], false), "{name}");
    }
}

#[test]
fn chunks_are_where_they_seem() {
    let chunked = |body: &str| post("Transfer-Encoding: chunked", body);
    let size = SMUGGLED.len();
    for body in [
        // The size line: its number, its end, its extension.
        format!("{size:x}\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("{size:x}\r{SMUGGLED}\r\n0\r\n\r\n"),
        format!("{size:x};\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("{size:x};a\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("{size:x};\"\r\n{SMUGGLED}\"\r\n0\r\n\r\n"),
        format!("{size:x} \r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!(" {size:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("0x{size:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("+{size:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("-0\r\n\r\n{SMUGGLED}"),
        format!("{size:x},0\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("0_{size:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("{size:017x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("1{:016x}\r\n\r\n{SMUGGLED}", 0),
        format!("\r\n0\r\n\r\n{SMUGGLED}"),
        // The data: its end, and nothing but data before it.
        format!("2\r\nab{SMUGGLED}"),
        format!("2\r\nab\n0\r\n\r\n{SMUGGLED}"),
        format!("2\r\nab\r0\r\n\r\n{SMUGGLED}"),
        format!("2\r\nabX\r\n0\r\n\r\n{SMUGGLED}"),
        format!("1\r\nab\r\n0\r\n\r\n{SMUGGLED}"),
        // The last chunk and the bytes after it.
        format!("0\n\r\n{SMUGGLED}"),
        format!("0\r\n\n{SMUGGLED}"),
        format!("0\r\r\n\r\n{SMUGGLED}"),
        format!("0\r\nGET /a HTTP/1.1\r\n{SMUGGLED}"),
        format!("0\r\n X: y\r\n\r\n{SMUGGLED}"),
        format!("0\r\nX : y\r\n\r\n{SMUGGLED}"),
        format!("0\r\nX: y\n\r\n{SMUGGLED}"),
        format!("0\r\nX: y\r\n z\r\n\r\n{SMUGGLED}"),
    ] {
        check_refused(chunked(&body));
    }
}

#[test]
fn trailers_do_not_delimit_anything() {
    for trailer in ["Content-Length: 99", "Transfer-Encoding: chunked", "Host: other", "Connection: close"] {
        let body = format!("0\r\n{trailer}\r\n\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        let input = post("Transfer-Encoding: chunked", &body);
        assert_eq!(statuses(input.as_bytes()), (vec![200, 200], false), "{trailer}");
    }
}

#[test]
fn content_is_content_whatever_the_method() {
    for method in ["GET", "OPTIONS", "DELETE", "POST", "PUT", "TRACE", "X"] {
        let head = format!("{method} /304 HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", SMUGGLED.len());
        assert_eq!(statuses(format!("{head}{SMUGGLED}").as_bytes()).0.len(), 1, "{method}");
    }
}

#[test]
fn a_message_of_http_1_0_has_no_chunks() {
    for connection in ["", "Connection: keep-alive\r\n"] {
        for (_, rest) in both_ways() {
            let head = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n";
            check_refused(format!("{head}{connection}\r\n{rest}"));
        }
    }
}

#[test]
fn a_request_line_is_one_request() {
    for input in [
        format!("GET /a HTTP/1.1 {SMUGGLED}"),
        format!("GET /a HTTP/1.1\r{SMUGGLED}"),
        format!("GET /a\r\n{SMUGGLED}"),
        format!("GET {SMUGGLED}"),
        format!("GET /a HTTP/1.1\0\r\n{SMUGGLED}"),
        format!("\0{SMUGGLED}"),
        format!("GET /a HTTP/1.1\r\nHost: h\r\n\r{SMUGGLED}"),
        format!("GET http://h/a@{SMUGGLED}"),
    ] {
        check_refused(input);
    }
}

/// A line about the content, in many spellings.
fn framing_line() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "Content-Length",
        "content-length",
        "Content-Length ",
        "Content_Length",
        "Transfer-Encoding",
        "transfer-encoding",
        "Transfer-Encoding ",
        "Transfer_Encoding",
        "Transfer-Encoding\t",
        "Expect",
        "X",
    ]);
    let value = prop::sample::select(vec![
        "0",
        "4",
        "5",
        "44",
        "005",
        "5, 5",
        "+5",
        "0x5",
        "",
        "chunked",
        "Chunked",
        "chunked, chunked",
        "identity",
        "gzip, chunked",
        "chunked;a",
        "\"chunked\"",
        "xchunked",
        "100-continue",
        "chunked\u{b}",
        "\u{a0}chunked",
    ]);
    let end = prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\n", "\r", "\r\n ", "\0\r\n"]);
    (name, value, end).prop_map(|(name, value, end)| format!("{name}: {value}{end}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Any combination of framing lines is read strictly or refused.
    #[test]
    fn any_framing_is_read_strictly_or_refused(
        lines in prop::collection::vec(framing_line(), 1..4),
        method in prop::sample::select(vec!["GET", "POST", "PUT"]),
        way in 0..2_usize,
    ) {
        let rest = &both_ways()[way].1;
        let head = format!("{method} / HTTP/1.1\r\nHost: h\r\n{}\r\n", lines.concat());
        let input = format!("{head}{rest}");
        let limits = Limits { keep_body: true, ..Limits::default() };
        let settings = Settings { limits, ..Settings::default() };
        let whole = exchange([&input], usize::MAX, &settings);
        prop_assert_eq!(&exchange(input.as_bytes().chunks(1), usize::MAX, &settings), &whole);
        let served = String::from_utf8_lossy(&whole.output).contains(SERVED);
        prop_assert!(!served || strict_readings_end_before_the_request(&lines, rest), "{whole:?}");
    }
}

/// True if these lines, each read strictly by RFC 9112, make the last bytes of `rest` a request of their own.
fn strict_readings_end_before_the_request(lines: &[String], rest: &str) -> bool {
    let mut length = None;
    let mut chunked = false;
    for line in lines {
        let Some(line) = line.strip_suffix("\r\n") else { return false };
        let Some((name, value)) = line.split_once(": ") else { return false };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => match value.parse::<usize>() {
                Ok(number) if length.is_none() && !value.starts_with('+') => length = Some(number),
                _ => return false,
            },
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") && !chunked => chunked = true,
            "transfer-encoding" => return false,
            _ => {}
        }
    }
    let end = match (length, chunked) {
        (Some(_), true) => return false,
        (Some(length), false) => length,
        (None, true) if rest.starts_with("0\r\n\r\n") => 5,
        (None, true) => rest.len(),
        (None, false) => 0,
    };
    rest[end.min(rest.len())..].starts_with(SMUGGLED)
}
