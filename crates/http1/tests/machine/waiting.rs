//! A connection whose responder has to wait before it can answer.

use base::Nanos;
use http_semantics::server::{Settings, Wants};

use crate::support::{Peer, replies};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// A peer that has sent one request and half of another, and whose first answer is pending.
fn waiting() -> Peer {
    let mut peer = Peer::new(Settings::default());
    peer.service.waits = 2;
    peer.send(REQUEST);
    peer.send(&REQUEST[..10]);
    assert!(peer.connection.is_deferred());
    assert_eq!(peer.connection.wants(), Wants::Resume);
    peer
}

fn resume(peer: &mut Peer) -> usize {
    peer.with(|connection, cx| connection.resume(cx));
    while peer.transmit_once(usize::MAX) {}
    replies(&peer.output).unwrap().len()
}

#[test]
fn no_deadline_passes_while_an_answer_is_waited_for() {
    let mut peer = waiting();
    assert_eq!(peer.connection.deadline(), Nanos::MAX);
    assert_eq!(resume(&mut peer), 1);
    assert_eq!(peer.connection.wants(), Wants::Receive);
    assert!(peer.connection.deadline() < Nanos::MAX, "the second head has begun");
    assert_eq!((peer.counts.requests, peer.service.served), (1, 1));
}

#[test]
fn resuming_what_waits_for_nothing_does_nothing() {
    let mut peer = Peer::new(Settings::default());
    assert_eq!(resume(&mut peer), 0);
    peer.send(REQUEST);
    peer.with(|connection, cx| connection.resume(cx));
    assert_eq!(peer.service.served, 1);
}

#[test]
fn a_peer_that_has_said_all_gets_its_answer() {
    let mut peer = waiting();
    peer.with(|connection, cx| connection.receive_end(cx));
    assert_eq!(peer.connection.wants(), Wants::Resume);
    assert_eq!(resume(&mut peer), 1);
    assert_eq!(peer.connection.wants(), Wants::Close);
}

#[test]
fn going_down_waits_for_the_answer() {
    let mut peer = waiting();
    peer.with(|connection, cx| connection.drain(cx));
    assert_eq!(peer.connection.wants(), Wants::Resume);
    assert_eq!(resume(&mut peer), 1);
    assert!(peer.text().contains("Connection: close\n"));
}

#[test]
fn giving_up_gives_everything_back() {
    let mut peer = waiting();
    peer.with(|connection, cx| connection.abort(cx));
    assert_eq!(peer.connection.wants(), Wants::Close);
    assert!(!peer.connection.is_deferred());
    assert_eq!(resume(&mut peer), 0);
    assert_eq!(peer.counts.incomplete_requests, 1);
}
