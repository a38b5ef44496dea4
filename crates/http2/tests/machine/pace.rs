//! Paced responses: what leaves when, and what their pauses leave alone.

use std::num::NonZeroU64;

use base::Nanos;
use http_semantics::Pace;
use http_semantics::server::Wants;

use crate::support::{Peer, block, fields, frame, get};

/// 10,000 bytes per second after 5,000 bytes.
const PACE: Pace = Pace { bytes_per_s: NonZeroU64::new(10_000).unwrap(), after: 5_000 };
const AT_ONCE: usize = 15_000;
const GRANT: usize = 2_500;

fn paced(pace: Pace) -> Peer {
    let mut peer = Peer::new();
    peer.service.pace = Some(pace);
    peer
}

impl Peer {
    /// The bytes of content that a stream has received since the last call, and whether it has ended.
    fn take(&mut self, stream: u32) -> (usize, bool) {
        let (content, ended) = Peer::content(&self.frames(), stream);
        (content.len(), ended)
    }

    /// The seconds from now to the next deadline.
    fn seconds_left(&self) -> f64 {
        (self.connection.deadline() - self.now).0 as f64 / 1e9
    }
}

#[test]
fn stream_leaves_at_once_and_then_in_grants() {
    for path in ["/bytes/20000", "/file/20000"] {
        let mut peer = paced(PACE);
        peer.receive(&get(1, path));
        assert_eq!((peer.take(1), peer.seconds_left()), ((AT_ONCE, false), 1.0), "{path}");
        peer.receive(&frame(6, 0, 0, b"12345678"));
        assert_eq!(peer.take(1), (0, false), "{path}: another frame brings no grant");
        peer.expire();
        assert_eq!((peer.take(1), peer.seconds_left()), ((GRANT, false), 0.25), "{path}");
        peer.expire();
        assert_eq!(peer.take(1), (GRANT, true), "{path}");
        assert_eq!(peer.connection.deadline(), peer.now + peer.settings.timeouts.idle);
    }
}

#[test]
fn paced_stream_lets_the_others_go_on() {
    let mut peer = paced(PACE);
    peer.receive(&frame(8, 0, 0, &[0, 1, 0, 0]));
    peer.receive(&[get(1, "/file/20000"), get(3, "/file/20000"), get(5, "/bytes/9000")].concat());
    let frames = peer.frames();
    let of = |stream| Peer::content(&frames, stream).0.len();
    assert_eq!((of(1), of(3), of(5)), (AT_ONCE, AT_ONCE, 9000));
    peer.now += Nanos::from_millis(100);
    peer.receive(&get(7, "/file/18000"));
    assert_eq!(peer.take(7), (AT_ONCE, false));
    for (seconds, counts) in [(1.0, [GRANT, GRANT, 0]), (1.1, [0, 0, GRANT]), (1.25, [GRANT, GRANT, 0])] {
        peer.expire();
        assert_eq!(peer.now.0 as f64 / 1e9, seconds);
        let frames = peer.frames();
        assert_eq!([1, 3, 7].map(|stream| Peer::content(&frames, stream).0.len()), counts);
    }
    assert_eq!(peer.http.timeouts_write_stall, 0);
}

#[test]
fn answers_without_long_content_are_not_paced() {
    let mut peer = paced(PACE);
    peer.receive(&get(1, "/bytes/15000"));
    assert_eq!(peer.take(1), (AT_ONCE, true));
    peer.receive(&frame(1, 5, 3, &block(&fields("HEAD", "/file/40000"))));
    assert_eq!(peer.take(3), (0, true));
}

#[test]
fn client_that_takes_all_of_a_low_rate_is_kept() {
    let mut peer = paced(Pace { bytes_per_s: NonZeroU64::new(10).unwrap(), after: 0 });
    peer.receive(&get(1, "/bytes/1000"));
    let mut taken = 0;
    loop {
        let (count, ended) = peer.take(1);
        taken += count;
        assert!(taken as f64 <= 10.0 * (peer.now.0 as f64 / 1e9 + 1.0), "{taken} by {}", peer.now);
        assert!(ended || peer.connection.idle_from() == Nanos::MAX);
        if ended {
            break;
        }
        peer.expire();
    }
    assert_eq!((taken, peer.http.timeouts_write_stall), (1000, 0));
}

#[test]
fn client_whose_window_stops_a_grant_is_given_up() {
    let mut peer = paced(PACE);
    // The window has room for the first bytes and one grant.
    peer.receive(&frame(4, 0, 0, &[0, 4, 0, 0, 0x44, 0x5c]));
    peer.receive(&get(1, "/bytes/40000"));
    assert_eq!(peer.take(1), (AT_ONCE, false));
    peer.expire();
    assert_eq!(peer.take(1), (GRANT, false));
    peer.expire();
    let held = peer.now;
    while peer.connection.wants() != Wants::Close {
        peer.expire();
    }
    assert_eq!(peer.now - held, peer.settings.timeouts.write_stall);
    assert_eq!((peer.take(1).0, peer.http.timeouts_write_stall), (0, 1));
}

#[test]
fn end_that_comes_in_a_pause_follows_the_response() {
    for ends in [true, false] {
        let mut peer = paced(PACE);
        peer.receive(&get(1, "/file/20000"));
        if ends {
            peer.end();
            assert_eq!(peer.connection.wants(), Wants::Pause);
            assert!(!peer.connection.may_receive(&peer.settings));
        } else {
            peer.give_way();
            peer.drain();
            assert_eq!(peer.connection.wants(), Wants::Receive);
        }
        peer.expire();
        peer.expire();
        assert_eq!(peer.take(1), (20_000, true));
        let expected = if ends { Wants::Close } else { Wants::Receive };
        assert_eq!((peer.connection.wants(), peer.http.incomplete_responses), (expected, 0));
        assert!(ends || peer.connection.deadline() <= peer.now + peer.settings.timeouts.linger);
    }
}
