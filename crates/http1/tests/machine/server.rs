//! The server's answers: persistence, bodies, pipelines, kinds of content, and the connection's end.

use base::Limit;
use http_semantics::server::{Limits, Settings, Wants};
use http1::server::Transmit;

use crate::support::{self, Lines, Peer, exchange, replies};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: 36\n\n\
                      GET /a Http11 host=h fields=1 body=\n";

fn with_limits(limits: Limits) -> Settings {
    Settings { limits, ..Settings::default() }
}

/// Checks the answer to `input`, in one piece and byte by byte, and the connection's want after it.
#[track_caller]
fn check(input: &str, expect: &str, wants: Wants) {
    let mut peer = Peer::new(with_limits(Limits { keep_body: true, ..Limits::default() }));
    peer.send(input.as_bytes());
    peer.drain_output(usize::MAX);
    assert_eq!(peer.text(), expect, "{input}");
    assert_eq!(peer.connection.wants(), wants, "{input}");
    let bytewise = exchange(input.as_bytes().chunks(1), usize::MAX, &peer.settings);
    assert_eq!(bytewise, peer.outcome(), "bytewise: {input}");
}

/// Checks that the service sees `shown` when a client sends the request with these lines.
#[track_caller]
fn check_shown(request: &str, shown: &str) {
    let mut peer = Peer::new(with_limits(Limits { keep_body: true, ..Limits::default() }));
    peer.send(request.as_bytes());
    peer.drain_output(usize::MAX);
    let text = peer.text();
    assert_eq!(text.split_once("\n\n").expect("there is content").1.trim_end(), shown, "{request}");
}

#[test]
fn a_connection_is_small() {
    let size = size_of::<http1::server::Connection<std::sync::Arc<std::os::fd::OwnedFd>>>();
    assert!(size <= 160, "{size} bytes");
}

#[test]
fn rfc9112_9_3_persistence() {
    check("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", ANSWER, Wants::Receive);
    check(
        "GET /304 HTTP/1.1\r\nHost: h\r\nConnection: a, Close\r\n\r\n",
        "HTTP/1.1 304 Not Modified\nConnection: close\n\n",
        Wants::Close,
    );
    check("GET /304 HTTP/1.0\r\n\r\n", "HTTP/1.1 304 Not Modified\nConnection: close\n\n", Wants::Close);
    check(
        "GET /304 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
        "HTTP/1.1 304 Not Modified\nConnection: keep-alive\n\n",
        Wants::Receive,
    );
    check(
        "GET /304 HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
        "HTTP/1.1 304 Not Modified\nConnection: close\n\n",
        Wants::Close,
    );
    // The service asks for the end. The client may have sent more, so the server lingers.
    check(
        "GET /close HTTP/1.1\r\nHost: h\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: 0\nConnection: close\n\n",
        Wants::Receive,
    );
}

#[test]
fn what_the_service_is_shown() {
    check_shown("GET /a?b HTTP/1.1\r\nHost: h:1\r\n\r\n", "GET /a?b Http11 host=h:1 fields=1 body=");
    check_shown("GET / HTTP/1.9\r\nHost: h\r\n\r\n", "GET / Http11 host=h fields=1 body=");
    check_shown("GET / HTTP/1.0\r\n\r\n", "GET / Http10 host= fields=0 body=");
    check_shown("GET http://a:1/b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /b Http11 host=a:1 fields=1 body=");
    check_shown("GET http://a?b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?b Http11 host=a fields=1 body=");
    check_shown("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / Http11 host=h fields=1 body=");
    let fields = "A: b\r\n".repeat(99);
    check_shown(&format!("GET / HTTP/1.1\r\nHost:h\r\n{fields}\r\n"), "GET / Http11 host=h fields=100 body=");
    check_shown("BREW / HTTP/1.1\r\nHost: h\r\n\r\n", "501 Not Implemented");
}

#[test]
fn rfc9112_6_3_content_is_read_before_the_answer() {
    let post = |rest: &str| format!("POST / HTTP/1.1\r\nHost: h\r\n{rest}");
    check_shown(&post("Content-Length: 5\r\n\r\nhello"), "POST / Http11 host=h fields=2 body=hello");
    check_shown(&post("Content-Length: 0\r\n\r\n"), "POST / Http11 host=h fields=2 body=");
    check_shown(
        &post("Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;a\r\nlo\r\n0\r\nA: b\r\n\r\n"),
        "POST / Http11 host=h fields=2 body=hello",
    );
    check(&post("Content-Length: 5\r\n\r\nhell"), "", Wants::Receive);
    check(&post("Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n0\r\n\r"), "", Wants::Receive);
    let then = post("Content-Length: 5\r\n\r\nhello") + "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    let first = "HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: 41\n\n\
                 POST / Http11 host=h fields=2 body=hello\n";
    check(&then, &format!("{first}{ANSWER}"), Wants::Receive);
}

#[test]
fn content_is_dropped_unless_it_is_asked_for() {
    let mut peer = Peer::new(Settings::default());
    peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    peer.drain_output(usize::MAX);
    assert!(peer.text().ends_with("body=\n"), "{}", peer.text());
}

#[test]
fn rfc9110_10_1_1_continue_is_sent_when_expected() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n";
    let mut peer = Peer::new(Settings::default());
    peer.send(head.as_bytes());
    peer.drain_output(usize::MAX);
    assert_eq!(peer.text(), "HTTP/1.1 100 Continue\n\n");
    assert_eq!(peer.counts.responses_100_continue, 1);
    peer.send(b"hi");
    peer.drain_output(usize::MAX);
    assert_eq!(replies(&peer.output).unwrap().len(), 1);
    // Content that has arrived needs no 100 (Continue), and a 1.0 client does not understand one.
    for input in [format!("{head}h"), head.replace("1.1", "1.0"), head.replace("h: 2", "h: 0")] {
        let mut peer = Peer::new(Settings::default());
        peer.send(input.as_bytes());
        peer.drain_output(usize::MAX);
        assert!(!peer.text().contains("100 Continue"), "{input}");
    }
}

#[test]
fn rfc9110_9_3_2_head_has_fields_of_get_sans_content() {
    for target in ["/a", "/file/1000", "/bytes/40000", "/parts/3", "/304"] {
        let ask = |method: &str| {
            let mut peer = Peer::new(Settings::default());
            peer.send(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
            peer.drain_output(usize::MAX);
            assert_eq!(peer.connection.wants(), Wants::Receive);
            peer.text()
        };
        let (get, head) = (ask("GET"), ask("HEAD"));
        let get_head = &get[..get.find("\n\n").unwrap() + 2];
        assert_eq!(head.replace("37", "36"), get_head, "{target}");
    }
}

#[test]
fn large_content_is_sent_from_where_it_lies() {
    let mut peer = Peer::new(Settings::default());
    peer.send(b"GET /bytes/40000 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(matches!(peer.connection.transmit(), Transmit::Bytes { bytes, more: true } if bytes.len() < 200));
    assert!(peer.transmit_once(usize::MAX));
    assert!(
        matches!(peer.connection.transmit(), Transmit::Bytes { bytes, more: false } if bytes.len() == 40_000)
    );
    peer.drain_output(1000);
    peer.output.clear();
    peer.send(b"GET /file/40000 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(matches!(peer.connection.transmit(), Transmit::Bytes { more: true, .. }));
    assert!(peer.transmit_once(usize::MAX));
    peer.transmit_once(15_000);
    match peer.connection.transmit() {
        Transmit::File { range, length, more: false } => {
            assert_eq!((range.offset, range.length, length), (15_003, 25_000, 25_000));
        }
        other => panic!("{other:?}"),
    }
    peer.drain_output(7);
    assert!(peer.is_idle());
    let content = &peer.output[peer.output.len() - 40_000..];
    assert!(content.iter().enumerate().all(|(at, byte)| *byte == support::file_byte(at as u64 + 3)));
}

#[test]
fn rfc9110_14_6_multipart() {
    let mut peer = Peer::new(Settings::default());
    peer.send(b"GET /parts/2 HTTP/1.1\r\nHost: h\r\n\r\n");
    peer.drain_output(usize::MAX);
    let text = peer.text();
    let boundary = &text[text.find("boundary=").unwrap() + 9..][..16];
    let parts = format!(
        "--{boundary}\nContent-Range: bytes 0-\n\n\n\
         --{boundary}\nContent-Range: bytes 1-\n\n{}\n--{boundary}--\n",
        "p".repeat(9000)
    );
    assert_eq!(
        text,
        format!(
            "HTTP/1.1 206 Partial Content\nContent-Type: multipart/byteranges; boundary={boundary}\n\
             Content-Length: {}\n\n{parts}",
            parts.len() + parts.matches('\n').count()
        )
    );
    // Small parts are rendered a few at a time.
    peer.send(b"GET /parts/15 HTTP/1.1\r\nHost: h\r\n\r\n");
    while peer.connection.wants() == Wants::Transmit {
        assert!(!matches!(peer.connection.transmit(), Transmit::Bytes { bytes, .. } if bytes.len() > 30_000));
        peer.transmit_once(usize::MAX);
    }
    for count in 0..16 {
        let request = format!("GET /parts/{count} HTTP/1.1\r\nHost: h\r\n\r\n");
        let outcome = exchange([request.repeat(2)], 1000, &Settings::default());
        assert_eq!(replies(&outcome.output).unwrap().len(), 2, "the length is what is sent: {count} parts");
    }
}

#[test]
fn pipelined_requests_get_replies_in_order() {
    let limits = Limits { pipelined: Limit::AtMost(3), ..Limits::default() };
    let mut peer = Peer::new(with_limits(limits));
    let input: String = (0..10).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: h\r\n\r\n")).collect();
    peer.send(input.as_bytes());
    assert_eq!((peer.service.served, peer.connection.wants()), (3, Wants::Transmit));
    peer.drain_output(50);
    assert_eq!((peer.service.served, peer.connection.wants()), (10, Wants::Receive));
    assert!(peer.is_idle());
    let order: Vec<_> =
        peer.text().lines().filter(|line| line.starts_with("GET")).map(String::from).collect();
    let expect: Vec<_> = (0..10).map(|n| format!("GET /{n} Http11 host=h fields=1 body=")).collect();
    assert_eq!(order, expect);
    assert_eq!(peer.counts.limit_pipelined, 3);
}

#[test]
fn queued_output_is_bounded_in_bytes() {
    let limits = Limits { outbox_bytes: 10_000, ..Limits::default() };
    let mut peer = Peer::new(with_limits(limits));
    peer.send("GET /bytes/4000 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(8).as_bytes());
    assert_eq!(peer.service.served, 3);
    // Nothing is queued after a file or large content.
    peer.drain_output(usize::MAX);
    peer.send("GET /file/4000 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(8).as_bytes());
    assert_eq!(peer.service.served, 9);
    peer.drain_output(usize::MAX);
    assert_eq!(replies(&peer.output).unwrap().len(), 16);
}

#[test]
fn a_driver_that_receives_early_changes_nothing() {
    let mut peer = Peer::new(Settings::default());
    for _ in 0..100 {
        for byte in GET {
            peer.with(|connection, cx| connection.receive(&[*byte], cx));
        }
    }
    peer.drain_output(usize::MAX);
    assert_eq!(peer.text(), ANSWER.repeat(100));
}

#[test]
fn connection_closes_after_its_most_requests() {
    let limits = Limits { requests_per_connection: Limit::AtMost(2), ..Limits::default() };
    let mut peer = Peer::new(with_limits(limits));
    peer.send(&GET.repeat(3));
    peer.drain_output(usize::MAX);
    let persistent: Vec<_> = replies(&peer.output).unwrap().iter().map(|reply| reply.persistent).collect();
    assert_eq!(persistent, [true, false]);
    assert!(peer.shut_down, "the third request is still to be read away");
    assert_eq!(peer.counts.limit_requests_per_connection, 1);
}

#[test]
fn the_peers_end_lets_queued_answers_out() {
    let mut peer = Peer::new(with_limits(Limits { pipelined: Limit::AtMost(1), ..Limits::default() }));
    peer.with(|connection, cx| {
        connection.receive(&GET.repeat(3), cx);
        connection.receive_end(cx);
    });
    peer.drain_output(10);
    assert_eq!(peer.text(), ANSWER.repeat(3));
    assert_eq!(peer.connection.wants(), Wants::Close);
    assert_eq!(peer.counts.incomplete_requests, 0);

    let mut peer = Peer::new(Settings::default());
    peer.send(b"GET / HT");
    peer.with(|connection, cx| connection.receive_end(cx));
    assert_eq!((peer.connection.wants(), peer.counts.incomplete_requests), (Wants::Close, 1));
}

#[test]
fn client_sending_after_last_request_is_lingered_for() {
    let last = "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let settings = with_limits(Limits { pipelined: Limit::AtMost(1), ..Limits::default() });
    for (before, after) in [("", "GET"), (str::from_utf8(GET).unwrap(), "GET /b HTTP/1.1\r\nHost: h\r\n\r\n")]
    {
        let mut peer = Peer::new(settings.clone());
        peer.send([before, last, after].concat().as_bytes());
        peer.drain_output(usize::MAX);
        assert_eq!((peer.shut_down, peer.connection.wants()), (true, Wants::Receive), "{before}");
        peer.with(|connection, cx| connection.receive_end(cx));
        assert_eq!(peer.counts.incomplete_requests, 0, "what follows the last request is none");
    }
    let mut peer = Peer::new(settings);
    peer.send(last.as_bytes());
    peer.with(|connection, cx| connection.receive(GET, cx));
    peer.drain_output(usize::MAX);
    assert!(peer.shut_down, "a driver that receives early");
}

#[test]
fn a_lingering_connection_ends_with_its_peer() {
    let mut peer = Peer::new(Settings::default());
    peer.send(b"BAD\r\n\r\n");
    peer.drain_output(usize::MAX);
    assert!(peer.shut_down);
    peer.send(GET);
    assert_eq!((peer.connection.wants(), peer.service.served), (Wants::Receive, 0));
    peer.with(|connection, cx| connection.receive_end(cx));
    assert_eq!(peer.connection.wants(), Wants::Close);
}

#[test]
fn draining_closes_idle_and_finishes_busy_connections() {
    let drain = |peer: &mut Peer| peer.with(|connection, cx| connection.drain(cx));
    let mut idle = Peer::new(Settings::default());
    idle.send(GET);
    idle.drain_output(usize::MAX);
    drain(&mut idle);
    assert_eq!(idle.connection.wants(), Wants::Close);

    let mut reading = Peer::new(Settings::default());
    reading.send(&GET[..10]);
    drain(&mut reading);
    assert_eq!(reading.connection.wants(), Wants::Receive);
    reading.send(&GET[10..]);
    reading.drain_output(usize::MAX);
    assert!(!replies(&reading.output).unwrap()[0].persistent);
    assert!(reading.shut_down);

    let mut writing = Peer::new(Settings::default());
    writing.send(GET);
    drain(&mut writing);
    writing.drain_output(5);
    assert_eq!(writing.text(), ANSWER);
    assert!(writing.shut_down);
}

#[test]
fn a_truncated_file_ends_the_connection() {
    let mut peer = Peer::new(Settings::default());
    peer.log = Some(Lines::default());
    peer.send(b"GET /file/40000 HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\n");
    peer.transmit_once(usize::MAX);
    peer.transmit_once(100);
    peer.with(|connection, cx| connection.truncated(cx));
    assert_eq!(peer.connection.wants(), Wants::Close);
    assert!(matches!(peer.connection.transmit(), Transmit::Nothing));
    assert_eq!((peer.counts.truncated, peer.counts.incomplete_responses), (1, 1));
    assert_eq!(peer.log.unwrap().0, ["GET /file/40000 : 200 205 100 cut after 0s"]);
}

#[test]
fn every_response_is_logged_when_it_has_left() {
    let mut peer = Peer::new(Settings::default());
    peer.log = Some(Lines::default());
    peer.send(
        b"GET /a HTTP/1.1\r\nHost: h\r\nUser-Agent: t/1\r\n\r\n\
          HEAD /b HTTP/1.1\r\nHost: h\r\n\r\nGET /\r\n\r\n",
    );
    peer.transmit_once(10);
    assert!(peer.log.as_ref().unwrap().0.is_empty(), "nothing is complete yet");
    peer.clock.advance(base::Nanos::SECOND);
    peer.drain_output(usize::MAX);
    assert_eq!(
        peer.log.unwrap().0,
        [
            "GET /a t/1: 200 138 36 complete after 1s",
            "HEAD /b : 200 102 0 complete after 1s",
            "  : 400 161 16 complete after 1s",
        ]
    );
}

#[test]
fn a_request_is_timed_from_its_own_first_byte() {
    let mut peer = Peer::new(Settings::default());
    peer.log = Some(Lines::default());
    peer.send(&GET[..10]);
    peer.clock.advance(base::Nanos::SECOND);
    peer.send(&[&GET[10..], b"HEAD /b HTTP/1.1\r\nHost: h\r\n\r\n"].concat());
    peer.drain_output(usize::MAX);
    assert_eq!(
        peer.log.unwrap().0,
        ["GET /a : 200 138 36 complete after 1s", "HEAD /b : 200 102 0 complete after 0s"]
    );
}

#[test]
fn counts_say_what_happened() {
    let mut peer = Peer::new(Settings::default());
    peer.send(&GET.repeat(2));
    peer.drain_output(usize::MAX);
    let counts = peer.counts.clone();
    assert_eq!((counts.requests, counts.responses_2xx, counts.body_bytes), (2, 2, 72));
    assert_eq!(counts.received_bytes, 2 * GET.len() as u64);
    assert_eq!(counts.sent_bytes, peer.output.len() as u64);
    let mut sum = counts.clone();
    sum.add(&counts);
    assert!(sum.named().any(|(name, value)| name == "requests" && value == 4));
}
