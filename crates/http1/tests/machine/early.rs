//! Requests that are refused before their content: answered at the end of the head, with their content dropped.

use base::Nanos;
use http_semantics::server::{Limits, Settings, Wants};

use crate::support::{Peer, exchange, replies};

const PUT: &str = "PUT /a HTTP/1.1\r\nHost: h\r\n";
const GET: &str = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

fn refused(fields: &str) -> Peer {
    let mut peer = Peer::new(Settings::default());
    peer.send(format!("{PUT}{fields}\r\n").as_bytes());
    peer.drain_output(usize::MAX);
    peer
}

fn statuses(peer: &Peer) -> Vec<u16> {
    replies(&peer.output).unwrap().iter().map(|reply| reply.status).collect()
}

/// Sends `rest` after the head, in any pieces. Checks the statuses and whether the connection ends.
#[track_caller]
fn check(fields: &str, rest: &str, expect: &[u16], ends: bool) {
    let mut peer = refused(fields);
    assert_eq!(statuses(&peer), [405], "before any content");
    peer.send(rest.as_bytes());
    peer.drain_output(usize::MAX);
    assert_eq!((statuses(&peer), peer.shut_down), (expect.to_vec(), ends), "{fields}{rest}");
    let whole = format!("{PUT}{fields}\r\n{rest}");
    assert_eq!(exchange([&whole], usize::MAX, &peer.settings), peer.outcome(), "in one piece");
    assert_eq!(exchange(whole.as_bytes().chunks(1), usize::MAX, &peer.settings), peer.outcome(), "bytewise");
}

#[test]
fn the_next_request_is_behind_the_content() {
    check("Content-Length: 5\r\n", &format!("hello{GET}"), &[405, 200], false);
    check("Transfer-Encoding: chunked\r\n", &format!("5\r\nhello\r\n0\r\n\r\n{GET}"), &[405, 200], false);
    let second = format!("{PUT}Content-Length: 2\r\n\r\nhi");
    check("Content-Length: 5\r\n", &format!("hello{second}{GET}"), &[405, 405, 200], false);
}

#[test]
fn a_request_within_the_content_is_content() {
    check(&format!("Content-Length: {}\r\n", GET.len()), GET, &[405], false);
}

#[test]
fn undelimited_content_closes_without_another_answer() {
    check("Transfer-Encoding: chunked\r\n", &format!("x\r\n{GET}"), &[405], true);
    check("Transfer-Encoding: chunked\r\n", &format!("200000\r\n{GET}"), &[405], true);
}

#[test]
fn client_awaiting_continue_gets_refusal_and_close() {
    // The server cannot know if the client still sends its content, nor where a next request begins.
    check("Content-Length: 5\r\nExpect: 100-continue\r\n", GET, &[405], true);
    let peer = refused("Content-Length: 5\r\nExpect: 100-continue\r\n");
    assert_eq!(peer.counts.responses_100_continue, 0);
    assert!(!replies(&peer.output).unwrap()[0].persistent);
}

#[test]
fn content_above_its_limit_is_refused_as_that() {
    let mut peer = Peer::new(Settings::default());
    peer.send(format!("{PUT}Content-Length: 2000000\r\n\r\n").as_bytes());
    peer.drain_output(usize::MAX);
    assert_eq!((statuses(&peer), peer.shut_down), (vec![413], true));
}

#[test]
fn dropped_content_is_not_kept() {
    let limits = Limits { keep_body: true, ..Limits::default() };
    let mut peer = Peer::new(Settings { limits, ..Settings::default() });
    peer.send(format!("{PUT}Content-Length: 5\r\n\r\nhello{GET}").as_bytes());
    peer.drain_output(usize::MAX);
    assert!(peer.text().ends_with("GET /a Http11 host=h fields=1 body=\n"), "{}", peer.text());
}

#[test]
fn missing_content_closes_connection_at_deadline() {
    let mut peer = refused("Content-Length: 5\r\n");
    peer.send(b"hel");
    peer.clock.advance(Nanos::from_secs(30));
    peer.with(|connection, cx| connection.expire(cx));
    peer.drain_output(usize::MAX);
    assert_eq!((statuses(&peer), peer.shut_down), (vec![405], true));
    assert_eq!((peer.counts.timeouts_body, peer.counts.requests), (1, 1));
    peer.with(|connection, cx| connection.receive_end(cx));
    assert_eq!((peer.connection.wants(), peer.counts.incomplete_requests), (Wants::Close, 0));
}

#[test]
fn shutdown_does_not_wait_for_dropped_content() {
    let mut peer = refused("Content-Length: 5\r\n");
    peer.send(b"hel");
    peer.with(|connection, cx| connection.drain(cx));
    assert_eq!(peer.connection.wants(), Wants::ShutdownThenReceive);
}
