//! Paced responses on a simulated clock: what leaves when, and what their pauses leave alone.

use std::num::NonZeroU64;

use base::{Clock, Nanos};
use http_semantics::Pace;
use http_semantics::server::{Settings, Wants};
use http1::server::Transmit;

use crate::support::{self, Peer};

/// 10,000 bytes per second after 5,000 bytes.
const PACE: Pace = Pace { bytes_per_s: NonZeroU64::new(10_000).unwrap(), after: 5_000 };
const AT_ONCE: usize = 15_000;
const GRANT: usize = 2_500;

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}

fn paced(pace: Pace) -> Peer {
    let mut peer = Peer::new(Settings::default());
    peer.service.pace = Some(pace);
    peer
}

/// The whole output for these requests without a pace.
fn unpaced(requests: &[u8]) -> Vec<u8> {
    let mut peer = Peer::new(Settings::default());
    peer.send(requests);
    peer.drain_output(usize::MAX);
    peer.output
}

fn head_length(output: &[u8]) -> usize {
    output.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4
}

impl Peer {
    /// Takes output until the pace holds it back or it ends.
    fn take(&mut self) {
        self.drain_output(700);
    }

    /// Waits for the next grant.
    fn wait_for_grant(&mut self) {
        assert_eq!(self.connection.wants(), Wants::Pause);
        assert!(matches!(self.connection.transmit(), Transmit::Nothing));
        assert!(!self.is_idle() && self.connection.idle_from() == Nanos::MAX);
        let wait = self.connection.deadline() - self.clock.now();
        for part in [wait - Nanos(1), Nanos(1)] {
            assert_eq!(self.connection.wants(), Wants::Pause);
            self.clock.advance(part);
            self.with(|connection, cx| connection.expire(cx));
        }
        assert_eq!(self.connection.wants(), Wants::Transmit);
    }
}

#[test]
fn content_leaves_at_once_and_then_in_grants() {
    for path in ["/bytes/15500", "/bytes/40000", "/file/40000", "/parts/7"] {
        let whole = unpaced(&get(path));
        let head = head_length(&whole);
        let mut peer = paced(PACE);
        let start = peer.clock.now();
        peer.send(&get(path));
        let mut grants = 0;
        loop {
            peer.take();
            let sent = peer.output.len() - head;
            assert_eq!(sent, (AT_ONCE + grants * GRANT).min(whole.len() - head), "{path}");
            if peer.connection.wants() != Wants::Pause {
                break;
            }
            peer.wait_for_grant();
            grants += 1;
            let due = Nanos::SECOND + Nanos::from_millis(250) * (grants as u64 - 1);
            assert_eq!(peer.clock.now() - start, due, "{path}");
        }
        assert!(peer.output == whole && grants > 0, "{path}");
        assert_eq!((peer.connection.wants(), peer.counts.timeouts_write_stall), (Wants::Receive, 0));
        assert_eq!(peer.connection.deadline(), peer.clock.now() + peer.settings.timeouts.idle);
    }
}

#[test]
fn pace_ends_where_nothing_follows_at_once() {
    let mut peer = paced(PACE);
    peer.send(&get("/file/40000"));
    assert!(matches!(peer.connection.transmit(), Transmit::Bytes { more: true, .. }));
    peer.transmit_once(usize::MAX);
    match peer.connection.transmit() {
        Transmit::File { range, length, more } => {
            assert_eq!((range.length, length, more), (40_000, AT_ONCE as u64, false));
        }
        other => panic!("{other:?}"),
    }
    let mut peer = paced(PACE);
    peer.send(&get("/bytes/15500"));
    assert!(matches!(peer.connection.transmit(), Transmit::Bytes { more: false, .. }));
}

#[test]
fn answers_without_long_content_are_not_paced() {
    let head = b"HEAD /file/40000 HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
    for request in [head, get("/304"), get("/bytes/15000"), get("/"), b"bad\r\n\r\n".to_vec()] {
        let mut peer = paced(PACE);
        peer.send(&request);
        peer.take();
        assert!(peer.output == unpaced(&request) && peer.connection.wants() == Wants::Receive);
    }
}

#[test]
fn pipelined_responses_have_budgets_of_their_own() {
    let requests = [get("/bytes/4000"), get("/file/20000"), get("/file/20000"), get("/")].concat();
    let whole = unpaced(&requests);
    let first = unpaced(&get("/bytes/4000")).len();
    let head = head_length(&unpaced(&get("/file/20000")));
    let mut peer = paced(PACE);
    peer.send(&requests);
    peer.take();
    assert_eq!(peer.output.len(), first + head + AT_ONCE, "the first response is not in the second's budget");
    assert_eq!(peer.service.served, 2);
    let mut grants = 0;
    while peer.connection.wants() == Wants::Pause {
        peer.wait_for_grant();
        peer.take();
        grants += 1;
    }
    assert_eq!((grants, peer.service.served), (4, 4));
    assert!(peer.output == whole);
}

#[test]
fn client_that_takes_all_of_a_low_rate_is_kept() {
    let mut peer = paced(Pace { bytes_per_s: NonZeroU64::new(10).unwrap(), after: 0 });
    peer.send(&get("/file/1000"));
    peer.take();
    while peer.connection.wants() == Wants::Pause {
        peer.wait_for_grant();
        peer.take();
    }
    assert_eq!((peer.connection.wants(), peer.counts.timeouts_write_stall), (Wants::Receive, 0));
    assert!(peer.output == unpaced(&get("/file/1000")));
}

#[test]
fn client_that_leaves_a_grant_is_given_up() {
    for grants in 0..3 {
        let mut peer = paced(PACE);
        peer.send(&get("/file/40000"));
        for _ in 0..grants {
            peer.take();
            peer.wait_for_grant();
        }
        peer.transmit_once(100);
        let stall = peer.settings.timeouts.write_stall;
        assert_eq!(peer.connection.deadline(), peer.clock.now() + stall, "the pauses do not count");
        peer.clock.advance(stall);
        peer.with(|connection, cx| connection.expire(cx));
        assert_eq!((peer.connection.wants(), peer.counts.timeouts_write_stall), (Wants::Close, 1));
        assert_eq!(peer.counts.incomplete_responses, 1);
    }
}

#[test]
fn end_that_comes_in_a_pause_follows_the_response() {
    type Tell = fn(&mut Peer);
    let tells: [(Tell, Wants); 4] = [
        (|peer| peer.with(|connection, cx| connection.drain(cx)), Wants::Receive),
        (|peer| peer.with(|connection, cx| connection.give_way(cx)), Wants::Receive),
        (|peer| peer.connection.retire(), Wants::Receive),
        (|peer| peer.with(|connection, cx| connection.receive_end(cx)), Wants::Close),
    ];
    for (tell, end) in tells {
        let mut peer = paced(PACE);
        peer.send(&get("/file/20000"));
        peer.take();
        tell(&mut peer);
        while peer.connection.wants() == Wants::Pause {
            peer.wait_for_grant();
            peer.take();
        }
        assert!(peer.output == unpaced(&get("/file/20000")));
        assert_eq!((peer.connection.wants(), peer.counts.incomplete_responses), (end, 0));
    }
}

#[test]
fn abort_in_a_pause_counts_the_response() {
    let mut peer = paced(PACE);
    peer.log = Some(support::Lines::default());
    peer.send(&get("/file/20000"));
    peer.take();
    peer.with(|connection, cx| connection.abort(cx));
    assert_eq!((peer.connection.wants(), peer.counts.incomplete_responses), (Wants::Close, 1));
    let lines = peer.log.unwrap().0;
    assert!(lines[0].contains(" 15000 cut "), "{lines:?}");
}
