//! The stack apart from its connections: the packets it drops, and its end.

mod support;

use std::net::SocketAddr;

use base::{Nanos, Seed};
use dispatch::Token;
use support::{Wire, net, packet, stack};
use usertcp::frame::{Flags, Options, Segment};
use usertcp::wrapping::Seq;
use usertcp::{Kind, Window};

fn client() -> SocketAddr {
    net().name(5)
}

fn ack() -> Segment {
    Segment { seq: Seq(7), ack: Seq(9), flags: Flags::ACK, ..Segment::default() }
}

/// Lets the stack receive packets; returns its nonzero totals except `sent`, and the number of its answers.
fn receive(packets: Vec<Vec<u8>>) -> (Vec<(&'static str, u64)>, usize) {
    let wire = Wire::default();
    let mut stack = stack(&wire, Seed(1), Nanos::SECOND);
    wire.0.borrow_mut().to_client.extend(packets);
    assert_eq!(stack.next(Nanos::ZERO).unwrap(), None);
    stack.flush(Nanos::ZERO).unwrap();
    let counts = stack.counts().named().filter(|(name, count)| *count > 0 && *name != "sent").collect();
    let answers = wire.0.borrow().to_server.len();
    (counts, answers)
}

/// Changes a byte of an IPv4 packet's header and updates its checksum.
fn changed(mut packet: Vec<u8>, at: usize, to: u8) -> Vec<u8> {
    packet[at] = to;
    packet[10..12].fill(0);
    let sum = !usertcp::frame::checksum::fold(usertcp::frame::checksum::sum(&packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn foreign_packets_are_counted_and_dropped() {
    let good = || packet(client(), &ack(), b"x");
    let mut flipped = good();
    *flipped.last_mut().unwrap() ^= 1;
    for (bytes, name) in [
        (changed(good(), 9, 1), "icmp"),
        (changed(good(), 9, 17), "not_tcp"),
        (changed(good(), 6, 0x20), "fragments"),
        (flipped, "wrong_checksums"),
        (good()[..30].to_vec(), "malformed"),
        (Vec::new(), "malformed"),
        (packet("10.95.0.1:2000".parse().unwrap(), &ack(), b""), "not_ours"),
        (packet("10.94.0.1:80".parse().unwrap(), &ack(), b""), "not_ours"),
    ] {
        assert_eq!(receive(vec![bytes]), (vec![(name, 1)], 0));
    }
    // A port that is not the server's.
    let mut stranger = good();
    stranger[20..22].copy_from_slice(&81_u16.to_be_bytes());
    let sum = u16::from_be_bytes([stranger[36], stranger[37]]) - 1;
    stranger[36..38].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(receive(vec![stranger]), (vec![("strangers", 1)], 0));
}

#[test]
fn a_segment_of_no_connection_is_reset() {
    let (counts, answers) = receive(vec![packet(client(), &ack(), b"")]);
    assert_eq!((counts, answers), (vec![("received", 1), ("unknown", 1), ("resets_sent", 1)], 1));
    let reset = Segment { flags: Flags::RST, ..ack() };
    let (counts, answers) = receive(vec![packet(client(), &reset, b"")]);
    assert_eq!((counts, answers), (vec![("received", 1), ("unknown", 1)], 0));
}

#[test]
fn one_turn_takes_a_bounded_number_of_packets() {
    let most = usertcp::PACKETS_PER_TURN;
    let packets = vec![packet(client(), &ack(), b""); most + 10];
    let (counts, _) = receive(packets);
    assert_eq!(counts[0], ("received", most as u64));
}

#[test]
fn at_the_end_of_a_run_every_connection_is_reset() {
    let wire = Wire::default();
    let mut stack = stack(&wire, Seed(1), Nanos::SECOND);
    let now = Nanos::ZERO;
    let keys: Vec<_> = (0..3).map(|n| stack.connect(Token(n), Window::Open, now).unwrap()).collect();
    stack.flush(now).unwrap();
    // The first connection is established, the second is also closed, and the third waits for its SYN-ACK.
    for _ in 0..2 {
        let (syn, _) = wire.take().unwrap();
        let options = Options { mss: Some(1460), ..Options::default() };
        let flags = Flags::SYN | Flags::ACK;
        let answer = Segment { seq: Seq(1), ack: syn.segment.seq + 1, flags, window: 1000, options };
        wire.inject(syn.flow.remote, &answer, b"");
        assert_eq!(stack.next(now).unwrap().map(|event| event.kind), Some(Kind::Established));
    }
    assert_eq!(stack.next(now).unwrap(), None);
    stack.close(keys[1], now);
    stack.flush(now).unwrap();
    wire.0.borrow_mut().to_server.clear();
    assert_eq!(stack.len(), 3);
    stack.reset_all(now).unwrap();
    let sent: Vec<Flags> = std::iter::from_fn(|| wire.take()).map(|(sent, _)| sent.segment.flags).collect();
    assert_eq!(sent, [Flags::RST | Flags::ACK; 2]);
    assert!(stack.is_empty());
    assert_eq!(stack.send(keys[0], b"x", now), 0, "its key finds nothing any more");
}
