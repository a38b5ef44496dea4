//! A connection over a transport that has to be set up first, as TLS does.

use base::Nanos;
use http_semantics::Transport;
use http_semantics::server::{Settings, Wants};

use crate::support::Peer;

const LAST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const PAGE: &[u8] = b"another protocol\n";

fn transmit(peer: &mut Peer) {
    while peer.transmit_once(usize::MAX) {}
}

#[test]
fn first_byte_deadline_begins_when_transport_is_ready() {
    let mut peer = Peer::new(Settings::default());
    let (settings, began) = (peer.settings.clone(), peer.connection.deadline());
    peer.with(|connection, cx| {
        connection.transport_ready(Transport::default(), cx.now + Nanos::SECOND, &settings)
    });
    assert_eq!(peer.connection.deadline(), began + Nanos::SECOND);
    let mut peer = Peer::new(Settings::default());
    peer.with(|connection, cx| connection.drain(cx));
    let drained = peer.connection.deadline();
    assert!(drained < began);
    peer.with(|connection, cx| {
        connection.transport_ready(Transport::default(), cx.now + Nanos::SECOND, &settings)
    });
    assert_eq!(peer.connection.deadline(), drained + Nanos::SECOND, "its short time while the server drains");
}

#[test]
fn over_such_a_transport_every_end_lingers() {
    for (ready, wants) in [(false, Wants::Close), (true, Wants::ShutdownThenReceive)] {
        let mut peer = Peer::new(Settings::default());
        let settings = peer.settings.clone();
        if ready {
            peer.with(|connection, cx| connection.transport_ready(Transport::default(), cx.now, &settings));
        }
        peer.send(LAST);
        transmit(&mut peer);
        assert_eq!(peer.connection.wants(), wants);
    }
}

#[test]
fn failed_transport_shuts_down_then_receives() {
    let mut peer = Peer::new(Settings::default());
    peer.send(&LAST[..10]);
    peer.with(|connection, cx| connection.transport_refused(cx));
    assert_eq!(peer.connection.wants(), Wants::ShutdownThenReceive);
    assert_eq!(peer.counts.incomplete_requests, 1);
    peer.connection.shut_down();
    assert_eq!(peer.connection.wants(), Wants::Receive);
    peer.with(|connection, cx| connection.receive_end(cx));
    assert_eq!(peer.connection.wants(), Wants::Close);
    assert!(peer.output.is_empty());
}

#[test]
fn who_speaks_another_transport_is_told_at_once() {
    let mut peer = Peer::new(Settings::default());
    peer.with(|connection, cx| connection.refuse_transport(b"G", PAGE, cx));
    transmit(&mut peer);
    let text = peer.text();
    assert!(
        text.starts_with("HTTP/1.1 400 Bad Request\n") && text.ends_with("\nanother protocol\n"),
        "{text}"
    );
    assert!(text.contains("Content-Type: text/plain"));
    assert_eq!(peer.connection.wants(), Wants::ShutdownThenReceive);
    assert_eq!((peer.counts.refused_bad_request, peer.counts.requests), (1, 0));
}
