//! The client's reader: the replies that it finds in a connection's bytes.

use http_semantics::Reply;
use http1::client::{Malformed, Reader};

use crate::support::client_property;

/// Reads `input` and then the connection's end, in one piece and in others. Compares the replies, as
/// `(status, body_bytes, persistent)`, and the final result.
#[track_caller]
fn check(input: &str, expect: &[(u16, u64, bool)], end: Result<(), Malformed>) {
    check_answers(input, false, expect, end);
}

#[track_caller]
fn check_answers(input: &str, to_head: bool, expect: &[(u16, u64, bool)], end: Result<(), Malformed>) {
    let mut found = Vec::new();
    let read = || -> Result<(), Malformed> {
        let mut reader = Reader::new();
        reader.expect_head(to_head);
        let mut rest = input.as_bytes();
        while !rest.is_empty() {
            let (taken, reply) = reader.feed(rest)?;
            rest = &rest[taken..];
            found.extend(reply);
        }
        found.extend(reader.end()?);
        Ok(())
    };
    let ended = { read }();
    let found: Vec<_> = found
        .iter()
        .map(|Reply { status, body_bytes, persistent }| (*status, *body_bytes, *persistent))
        .collect();
    assert_eq!((found.as_slice(), ended), (expect, end), "{input:?}");
    for piece in 1..10 {
        client_property(&[&[piece | u8::from(to_head) << 7], input.as_bytes()].concat());
    }
}

#[test]
fn rfc9112_6_3_replies_are_delimited() {
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", &[(200, 5, true)], Ok(()));
    check("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &[(200, 0, true)], Ok(()));
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n2;a\r\nyo\r\n0\r\nA: b\r\n\r\n",
        &[(200, 7, true)],
        Ok(()),
    );
    check("HTTP/1.1 200 OK\r\n\r\nhello", &[(200, 5, false)], Ok(()));
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", &[(200, 5, false)], Ok(()));
    check("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", &[(304, 0, true)], Ok(()));
    check("HTTP/1.1 204 No Content\r\n\r\n", &[(204, 0, true)], Ok(()));
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    check(both, &[(200, 0, false)], Ok(()));
}

#[test]
fn rfc9112_6_1_chunked_delimits_only_once_and_last() {
    let reply = |codings: &str| format!("HTTP/1.1 200 OK\r\n{codings}\r\n5\r\nhello\r\n0\r\n\r\n");
    check(&reply("Transfer-Encoding: gzip, chunked\r\n"), &[(200, 5, true)], Ok(()));
    check(&reply("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), &[(200, 5, true)], Ok(()));
    check(&reply("Transfer-Encoding: chunked, gzip\r\n"), &[(200, 15, false)], Ok(()));
    for twice in ["chunked, chunked", "chunked, gzip, Chunked", "chunked\r\nTransfer-Encoding: chunked"] {
        check(&reply(&format!("Transfer-Encoding: {twice}\r\n")), &[], Err(Malformed::Length));
    }
}

#[test]
fn content_arrives_whole_in_any_framing_and_split() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nhelloyo",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n2;a\r\nyo\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nhelloyo",
    ] {
        for piece in 1..head.len() {
            let (mut reader, mut content) = (Reader::new(), Vec::new());
            for bytes in head.as_bytes().chunks(piece) {
                reader.feed_content(bytes, |part| content.extend_from_slice(part)).unwrap();
            }
            assert_eq!(content, b"helloyo", "{head:?} in pieces of {piece}");
        }
    }
}

#[test]
fn several_replies_follow_each_other() {
    let one = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    check(&one.repeat(3), &[(200, 5, true); 3], Ok(()));
    let mut reader = Reader::new();
    let (taken, reply) = reader.feed(one.repeat(2).as_bytes()).unwrap();
    assert_eq!((taken, reply.is_some()), (one.len(), true), "one at a time");
    assert!(!reader.is_within_reply());
    reader.feed(b"HTTP").unwrap();
    assert!(reader.is_within_reply());
}

#[test]
fn rfc9110_15_2_interim_replies_are_skipped() {
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
        &[(204, 0, true)],
        Ok(()),
    );
    check("HTTP/1.1 101 Switching Protocols\r\n\r\n", &[(101, 0, true)], Ok(()));
}

#[test]
fn replies_to_head_have_no_content() {
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    check_answers(&reply.repeat(2), true, &[(200, 0, true); 2], Ok(()));
}

#[test]
fn rfc9112_9_3_persistence() {
    let length = "Content-Length: 0\r\n";
    check(&format!("HTTP/1.0 200 OK\r\n{length}\r\n"), &[(200, 0, false)], Ok(()));
    check(&format!("HTTP/1.0 200 OK\r\n{length}Connection: Keep-Alive\r\n\r\n"), &[(200, 0, true)], Ok(()));
    check(&format!("HTTP/1.1 200 OK\r\n{length}Connection: a, close\r\n\r\n"), &[(200, 0, false)], Ok(()));
}

#[test]
fn rfc9112_2_2_a_bare_line_feed_ends_a_line() {
    check("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", &[(200, 5, true)], Ok(()));
}

#[test]
fn what_cannot_be_read_says_why() {
    let ok = "HTTP/1.1 200 OK\r\n";
    check("HTTP/2 200\r\n\r\n", &[], Err(Malformed::Head));
    check("garbage\r\n\r\n", &[], Err(Malformed::Head));
    check("\r\nHTTP/1.1 200 OK\r\n\r\n", &[], Err(Malformed::Head));
    check(&format!("{ok}A : b\r\n\r\n"), &[], Err(Malformed::Head));
    check(&format!("{ok}{}\r\n", "A: b\r\n".repeat(129)), &[], Err(Malformed::HeadTooLarge));
    check(&format!("HTTP/1.1 200 {}", "a".repeat(70_000)), &[], Err(Malformed::HeadTooLarge));
    check(&format!("{ok}Content-Length: 5\r\nContent-Length: 6\r\n\r\n"), &[], Err(Malformed::Length));
    check(&format!("{ok}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), &[(200, 5, true)], Ok(()));
    for length in ["", "+5", "a", "5, 5", "99999999999999999999"] {
        check(&format!("{ok}Content-Length: {length}\r\n\r\n"), &[], Err(Malformed::Length));
    }
    check(&format!("{ok}Transfer-Encoding: chunked\r\n\r\nz\r\n"), &[], Err(Malformed::Chunk));
}

/// A server may wait for the client after each of these bytes: neither an end nor a further byte would come.
#[test]
fn impossible_reply_is_refused_at_its_first_byte() {
    const SETTINGS_FRAME: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64";
    const TLS_ALERT: &[u8] = b"\x15\x03\x03\0\x02\x02\x46";
    for bytes in [SETTINGS_FRAME, TLS_ALERT, b"SSH-2.0-OpenSSH_9.2", b"HTTP/2"] {
        let mut reader = Reader::new();
        let read = bytes.iter().map(|byte| reader.feed(&[*byte]).map(drop)).find(Result::is_err);
        assert_eq!(read, Some(Err(Malformed::Head)), "{bytes:?}");
    }
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
    assert_eq!(Reader::new().feed(&[interim.as_bytes(), &TLS_ALERT[..1]].concat()), Err(Malformed::Head));
    let mut reader = Reader::new();
    assert!(b"HTTP/1.1 2".iter().all(|byte| reader.feed(&[*byte]) == Ok((1, None))));
}

#[test]
fn the_end_within_a_reply_is_an_error() {
    check("", &[], Ok(()));
    check("HTTP/1.1 200 OK\r\nContent-Le", &[], Err(Malformed::Truncated));
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", &[], Err(Malformed::Truncated));
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", &[], Err(Malformed::Truncated));
}
