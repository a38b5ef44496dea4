//! The server's side: what it answers to what.

mod support;

use http1::server::{Settings, Wants};
use support::Peer;

#[test]
fn a_keep_alive_request_is_answered_and_the_connection_waits_for_more() {
    let mut peer = Peer::new(Settings::default());
    for _ in 0..2 {
        peer.output.clear();
        peer.send(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        peer.drain_output(usize::MAX);
        assert_eq!(
            peer.text(),
            "HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: 36\n\n\
             GET /a Http11 host=h fields=1 body=\n"
        );
        assert_eq!(peer.connection.wants(), Wants::Receive);
        assert!(peer.connection.is_idle());
    }
}

#[test]
fn a_connection_is_small() {
    let size = size_of::<http1::server::Connection<std::sync::Arc<std::os::fd::OwnedFd>>>();
    assert!(size <= 256, "{size} bytes");
}
