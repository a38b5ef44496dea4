//! Properties: the pieces in which bytes arrive and leave do not change the answers, and each side reads what
//! the other writes.

use http_semantics::server::{Limits, Settings};
use http1::client::{Reader, RequestHead, encode_request};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{client_property, exchange, exchange_waiting, replies, server_property};

/// A valid request of any kind.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let path = prop_oneof![
        Just("/304".to_owned()),
        "/[a-z]{0,30}",
        (0_u32..70_000).prop_map(|length| format!("/file/{length}")),
        (0_u32..40_000).prop_map(|length| format!("/bytes/{length}")),
        (0_u32..16).prop_map(|count| format!("/parts/{count}")),
    ];
    let body = prop_oneof![
        3 => Just(Body::None),
        1 => vec(any::<u8>(), 0..300).prop_map(Body::Sized),
        1 => vec(vec(any::<u8>(), 1..50), 0..6).prop_map(Body::Chunked),
    ];
    // PUT is refused before its content arrives, and ends the connection if the client expects 100
    // (Continue).
    let kind = prop::sample::select(vec![("POST", false), ("POST", true), ("PUT", false)]);
    (path, body, kind, "[A-Z][a-z]{0,8}: [ -~]{0,40}\r\n", 0_usize..3).prop_map(
        |(path, body, (method, expects), field, empty_lines)| {
            let expect = if expects { "Expect: 100-continue\r\n" } else { "" };
            let head = format!("{method} {path} HTTP/1.1\r\nX-{field}Host: h\r\n{expect}");
            let mut bytes = "\r\n".repeat(empty_lines).into_bytes();
            bytes.extend_from_slice(head.as_bytes());
            body.append(&mut bytes);
            bytes
        },
    )
}

#[derive(Clone, Debug)]
enum Body {
    None,
    Sized(Vec<u8>),
    Chunked(Vec<Vec<u8>>),
}

impl Body {
    fn append(&self, bytes: &mut Vec<u8>) {
        match self {
            Body::None => bytes.extend_from_slice(b"\r\n"),
            Body::Sized(content) => {
                bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", content.len()).as_bytes());
                bytes.extend_from_slice(content);
            }
            Body::Chunked(chunks) => {
                bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in chunks {
                    bytes.extend_from_slice(format!("{:x};e\r\n", chunk.len()).as_bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\nT: t\r\n\r\n");
            }
        }
    }
}

fn keeping_content() -> Settings {
    Settings { limits: Limits { keep_body: true, ..Limits::default() }, ..Settings::default() }
}

/// Cuts `bytes` at the given places.
fn cut(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Vec<u8>> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec()).filter(|piece| !piece.is_empty()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn valid_pipeline_gets_equal_answers_in_any_split(
        requests in vec(request(), 1..6),
        cuts in vec(any::<prop::sample::Index>(), 0..40),
        reads in 500_usize..20_000,
        waits in 1_u32..6,
    ) {
        let settings = keeping_content();
        let bytes = requests.concat();
        let whole = exchange([&bytes], usize::MAX, &settings);
        prop_assert!(!whole.ended, "{whole:?}");
        prop_assert_eq!(replies(&whole.output).unwrap().len(), requests.len());
        prop_assert_eq!(&exchange(cut(&bytes, &cuts), reads, &settings), &whole);
        prop_assert_eq!(&exchange_waiting(cut(&bytes, &cuts), reads, waits, &settings), &whole);
        prop_assert_eq!(&exchange(bytes.chunks(1), usize::MAX, &settings), &whole);
    }

    #[test]
    fn damaged_pipeline_gets_equal_answers_in_any_split(
        requests in vec(request(), 1..4),
        damage in vec((any::<prop::sample::Index>(), damage_byte()), 1..4),
        choice in any::<[u8; 2]>(),
    ) {
        let mut bytes = [&choice[..], &requests.concat()].concat();
        for (place, byte) in damage {
            let at = 2 + place.index(bytes.len() - 2);
            bytes[at] = byte;
        }
        server_property(&bytes);
    }

    #[test]
    fn chunked_content_comes_out_as_it_went_in(
        chunks in vec("[ -~]{1,60}", 0..10),
        piece in 1_usize..40,
    ) {
        let settings = keeping_content();
        let mut bytes = b"POST / HTTP/1.1\r\nHost: h\r\n".to_vec();
        Body::Chunked(chunks.iter().map(|chunk| chunk.clone().into_bytes()).collect()).append(&mut bytes);
        let outcome = exchange(bytes.chunks(piece), usize::MAX, &settings);
        let expect = format!("body={}\n", chunks.concat());
        prop_assert!(outcome.output.ends_with(expect.as_bytes()), "{outcome:?}");
    }

    #[test]
    fn the_client_reads_what_the_server_writes(
        paths in vec(0_u64..70_000, 1..8),
        heads in any::<u8>(),
        piece in 1_usize..5000,
    ) {
        let mut reader = Reader::new();
        for (turn, length) in paths.iter().enumerate() {
            let is_head = heads >> turn & 1 == 1;
            let mut bytes = Vec::new();
            let target = format!("/file/{length}");
            let method = if is_head { "HEAD" } else { "GET" };
            let persistent = turn % 2 == 0;
            let head = RequestHead { method, target: &target, host: "h", fields: "", persistent };
            encode_request(&mut bytes, &head);
            let outcome = exchange([&bytes], usize::MAX, &Settings::default());
            reader.expect_head(is_head);
            let mut found = Vec::new();
            for bytes in outcome.output.chunks(piece) {
                let (taken, reply) = reader.feed(bytes).unwrap();
                prop_assert_eq!(taken, bytes.len());
                found.extend(reply);
            }
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(found[0].status, 200);
            prop_assert_eq!(found[0].body_bytes, if is_head { 0 } else { *length });
            prop_assert_eq!(found[0].persistent, persistent);
            prop_assert_eq!(outcome.ended, !persistent);
        }
    }

    #[test]
    fn replies_are_read_the_same_however_they_are_cut(
        pieces in vec(reply_fragment(), 0..20),
        choice in any::<u8>(),
    ) {
        client_property(&[&[choice], pieces.concat().as_bytes()].concat());
    }
}

/// Any byte, with a preference for those that matter to the syntax.
fn damage_byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), prop::sample::select(b"\r\n :;0aF\t\0,/".to_vec())]
}

fn reply_fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 304 Not Modified\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 204 \r\n\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "\r\n",
        "\n",
        "hello",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "0\r\n",
        "5;ext\r\n",
        "\0",
    ])
}
