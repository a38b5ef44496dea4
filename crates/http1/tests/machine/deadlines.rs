//! Deadlines on a simulated clock: slow senders, clients that never read, idle clients.

use base::{Clock, Limit, Nanos, Seed};
use http_semantics::server::{Settings, Wants};
use rand::RngExt;

use crate::support::{Peer, replies};

const GET: &[u8] = b"GET /bytes/500 HTTP/1.1\r\nHost: h\r\n\r\n";

impl Peer {
    fn wait(&mut self, time: Nanos) {
        self.clock.advance(time);
        self.with(|connection, cx| connection.expire(cx));
    }

    /// Waits until a deadline expires and returns the waiting time.
    fn wait_for_deadline(&mut self) -> Nanos {
        let time = self.connection.deadline() - self.clock.now();
        self.wait(time - Nanos(1));
        let before = self.connection.deadline();
        self.wait(Nanos(1));
        assert_ne!(self.connection.deadline(), before, "a deadline that passed is over");
        time
    }

    fn statuses(&self) -> Vec<u16> {
        replies(&self.output).unwrap().iter().map(|reply| reply.status).collect()
    }
}

fn secs(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

#[test]
fn silent_new_connection_closes_without_reply() {
    let mut peer = Peer::new(Settings::default());
    assert_eq!(peer.wait_for_deadline(), secs(10));
    assert_eq!((peer.connection.wants(), peer.counts.timeouts_header), (Wants::Close, 1));
    assert_eq!(peer.connection.deadline(), Nanos::MAX);
}

#[test]
fn empty_line_in_any_split_is_no_request() {
    for pieces in [&[&b"\r\n"[..]][..], &[b"\r", b"\n"], &[b"\r\n\r", b"\n"]] {
        let mut peer = Peer::new(Settings::default());
        pieces.iter().for_each(|piece| peer.send(piece));
        assert_eq!(peer.wait_for_deadline(), secs(10), "{pieces:?}");
        assert_eq!((peer.connection.wants(), peer.counts.timeouts_header), (Wants::Close, 1));
        assert_eq!(peer.counts.timeouts_idle, 0);
    }
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let mut peer = Peer::new(Settings::default());
    peer.send(GET);
    peer.drain_output(usize::MAX);
    peer.output.clear();
    assert_eq!(peer.wait_for_deadline(), secs(60));
    assert_eq!((peer.connection.wants(), peer.counts.timeouts_idle), (Wants::Close, 1));
    assert_eq!(peer.connection.wants(), Wants::Close);
    assert!(peer.output.is_empty());
}

#[test]
fn awaited_answer_postpones_only_the_idle_timeout() {
    let settings = Settings::default();
    let mut peer = Peer::new(settings.clone());
    peer.connection.answered_elsewhere(secs(30), &settings);
    assert_eq!(peer.connection.deadline(), secs(90), "also before the first request");
    peer.connection.answered_elsewhere(secs(20), &settings);
    assert_eq!(peer.connection.deadline(), secs(90), "never earlier");
    peer.send(&GET[..5]);
    let deadline = peer.connection.deadline();
    peer.connection.answered_elsewhere(secs(80), &settings);
    assert_eq!(peer.connection.deadline(), deadline);
}

#[test]
fn a_head_has_its_time_from_its_first_byte() {
    let mut peer = Peer::new(Settings::default());
    peer.wait(secs(9));
    for byte in GET.iter().take(10) {
        peer.send(&[*byte]);
        peer.wait(secs(1));
    }
    peer.drain_output(usize::MAX);
    assert_eq!((peer.statuses(), peer.counts.timeouts_header), (vec![408], 1));
    assert!(peer.shut_down);
    assert_eq!(peer.wait_for_deadline(), secs(2));
    assert_eq!((peer.connection.wants(), peer.counts.timeouts_linger), (Wants::Close, 1));
}

#[test]
fn content_has_its_time_from_the_end_of_the_head() {
    let mut peer = Peer::new(Settings::default());
    peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n");
    for _ in 0..30 {
        peer.send(b"x");
        peer.wait(secs(1));
    }
    peer.drain_output(usize::MAX);
    assert_eq!((peer.statuses(), peer.counts.timeouts_body), (vec![408], 1));
}

#[test]
fn a_client_that_reads_a_kilobyte_a_timeout_is_kept() {
    let mut peer = Peer::new(Settings::default());
    peer.send(b"GET /bytes/8000 HTTP/1.1\r\nHost: h\r\n\r\n");
    for _ in 0..16 {
        peer.wait(secs(14));
        peer.transmit_once(512);
    }
    assert_eq!((peer.connection.wants(), peer.counts.timeouts_write_stall), (Wants::Receive, 0));
}

#[test]
fn a_client_that_reads_byte_by_byte_is_given_up() {
    let mut peer = Peer::new(Settings::default());
    peer.send(&GET.repeat(3));
    for _ in 0..29 {
        peer.wait(secs(1));
        peer.transmit_once(30);
    }
    assert_eq!(peer.wait_for_deadline(), secs(1));
    assert_eq!((peer.connection.wants(), peer.counts.timeouts_write_stall), (Wants::Close, 1));
    assert_eq!(peer.counts.incomplete_responses, 1);
}

#[test]
fn every_batch_of_pipelined_answers_has_its_own_time() {
    let mut settings = Settings::default();
    settings.limits.pipelined = Limit::AtMost(1);
    for second in [GET, b"no request\r\n\r\n"] {
        let mut peer = Peer::new(settings.clone());
        peer.send(&[GET, second].concat());
        peer.wait(secs(20));
        peer.transmit_once(usize::MAX);
        assert_eq!(peer.connection.wants(), Wants::Transmit);
        assert_eq!(peer.wait_for_deadline(), secs(30));
    }
}

#[test]
fn pipelined_head_deadline_begins_after_earlier_sends() {
    let mut peer = Peer::new(Settings::default());
    peer.send(&[GET, &GET[..5]].concat());
    peer.wait(secs(20));
    peer.drain_output(usize::MAX);
    assert_eq!(peer.wait_for_deadline(), secs(10));
    peer.drain_output(usize::MAX);
    assert_eq!(peer.statuses(), [200, 408]);
}

#[test]
fn expiring_early_does_nothing() {
    let mut peer = Peer::new(Settings::default());
    peer.wait(secs(9));
    assert_eq!(peer.connection.wants(), Wants::Receive);
    assert!(peer.is_idle());
}

/// A thousand peers with random habits. Each is answered or timed out, none lives on without a deadline, and
/// no deadline passes too early or too late.
#[test]
fn slow_peers_are_served_or_timed_out() {
    let seed = Seed(20040628);
    let mut rng = seed.rng();
    for turn in 0..1000 {
        let mut peer = Peer::new(Settings::default());
        let requests = rng.random_range(1..4_usize);
        let input = GET.repeat(requests);
        let (mut sent, mut steps) = (0, 0);
        while peer.connection.wants() != Wants::Close {
            steps += 1;
            assert!(steps < 10_000, "seed {seed}, peer {turn}: does not end");
            let pause = Nanos::from_millis(rng.random_range(0..3000));
            let due = peer.connection.deadline();
            assert!(due > peer.clock.now() && due <= peer.clock.now() + secs(60), "seed {seed}, peer {turn}");
            let before = peer.counts.clone();
            peer.wait(pause);
            assert!(peer.clock.now() >= due || peer.counts == before, "seed {seed}, peer {turn}: too early");
            match peer.connection.wants() {
                Wants::Transmit if rng.random_bool(0.9) => {
                    peer.transmit_once(rng.random_range(1..400));
                }
                Wants::Receive if sent < input.len() => {
                    let piece = rng.random_range(1..20).min(input.len() - sent);
                    peer.with(|connection, cx| connection.receive(&input[sent..sent + piece], cx));
                    sent += piece;
                }
                Wants::ShutdownThenReceive => peer.connection.shut_down(),
                _ => {}
            }
        }
        let counts = &peer.counts;
        let ends = counts.timeouts_header + counts.timeouts_idle + counts.timeouts_write_stall;
        assert_eq!(ends, 1, "seed {seed}, peer {turn}: {counts:?}");
        assert_eq!(counts.sent_bytes, peer.output.len() as u64);
    }
}

#[test]
fn new_connection_gets_a_second_while_draining() {
    let drain = |peer: &mut Peer| peer.with(|connection, cx| connection.drain(cx));
    let new = || Peer::new(Settings::default());
    let mut prompt = new();
    drain(&mut prompt);
    assert_eq!(prompt.connection.wants(), Wants::Receive);
    prompt.send(GET);
    prompt.drain_output(usize::MAX);
    assert!(!replies(&prompt.output).unwrap()[0].persistent);

    let mut silent = new();
    drain(&mut silent);
    assert_eq!(silent.wait_for_deadline(), Nanos::SECOND);
    assert_eq!(silent.connection.wants(), Wants::Close);

    let mut silent_before = new();
    silent_before.wait(Nanos::SECOND);
    drain(&mut silent_before);
    assert_eq!(silent_before.connection.wants(), Wants::Close);
}

#[test]
fn a_retired_connection_stays_for_one_more_request() {
    let mut peer = Peer::new(Settings::default());
    peer.send(GET);
    peer.drain_output(usize::MAX);
    peer.wait(Nanos::SECOND);
    peer.with(|connection, _| connection.retire());
    assert!(peer.is_idle() && peer.connection.wants() == Wants::Receive);
    peer.send(GET);
    peer.drain_output(usize::MAX);
    let persistent: Vec<bool> = replies(&peer.output).unwrap().iter().map(|reply| reply.persistent).collect();
    assert_eq!(persistent, [true, false]);
}

#[test]
fn connection_is_idle_between_requests_or_when_silent() {
    let mut peer = Peer::new(Settings::default());
    assert!(!peer.is_idle());
    peer.wait(Nanos::SECOND);
    assert!(peer.is_idle());
    peer.send(&GET[..5]);
    peer.wait(Nanos::from_secs(5));
    assert!(!peer.is_idle());
    peer.send(&GET[5..]);
    assert!(!peer.is_idle());
    peer.wait(Nanos::SECOND);
    peer.drain_output(usize::MAX);
    assert_eq!(peer.connection.idle_from(), peer.clock.now(), "since the end of the response");
}

#[test]
fn lingering_connection_is_idle_and_outlives_a_drain() {
    let refused = || {
        let mut peer = Peer::new(Settings::default());
        peer.send(b"BAD\r\n\r\n");
        peer.drain_output(usize::MAX);
        assert!(peer.shut_down && !peer.is_idle());
        peer.wait(Nanos::from_millis(100));
        assert!(peer.is_idle());
        peer
    };
    let (mut drained, mut gives_way) = (refused(), refused());
    drained.with(|connection, cx| connection.drain(cx));
    assert_eq!(drained.connection.wants(), Wants::Receive);
    gives_way.with(|connection, cx| connection.give_way(cx));
    assert_eq!(gives_way.connection.wants(), Wants::Close);
}
