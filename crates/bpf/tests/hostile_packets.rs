//! The programs on devices meet packets that nobody sends by accident.

mod common;
#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

use std::hash::{BuildHasher, RandomState};

use base::Seed;
use common::packet::{ACK, FIN, PSH, Packet, RST, SYN};
use rand::RngExt;
use support::{HOOKS, check, is_syn_to_us, listeners, loaded, packet_property};

/// The offset of a TCP header's data offset and flags in a frame over IPv4 without options.
const DATA_OFFSET: usize = 14 + 20 + 12;

/// Packets with their names; true for those that an empty bucket must refuse.
fn table() -> Vec<(&'static str, Vec<u8>, bool)> {
    let [v4, v6] = listeners();
    let syn = |to| Packet::new(to, SYN);
    let changed = |packet: Packet, at: usize, to: u8| {
        let mut frame = packet.ethernet();
        frame[at] = to;
        frame
    };
    let with_data = |packet: Packet| [packet.ethernet(), vec![b'x'; 100]].concat();
    vec![
        ("a SYN", syn(v4).ethernet(), true),
        ("a SYN over IPv6", syn(v6).ethernet(), true),
        ("a SYN with data", with_data(syn(v4)), true),
        ("a SYN with data over IPv6", with_data(syn(v6)), true),
        ("a SYN with PSH", Packet::new(v4, SYN | PSH).ethernet(), true),
        ("a SYN without a data offset", changed(syn(v4), DATA_OFFSET, 0), true),
        ("a SYN whose data offset is past its end", changed(syn(v4), DATA_OFFSET, 0xf0), true),
        ("a SYN of another IP version", changed(syn(v4), 14, 0x65), true),
        ("a SYN behind the most options", Packet { ip_options: 40, ..syn(v4) }.ethernet(), true),
        ("SYN and FIN", Packet::new(v4, SYN | FIN).ethernet(), false),
        ("SYN and RST", Packet::new(v4, SYN | RST).ethernet(), false),
        ("all flags", Packet::new(v4, 0xff).ethernet(), false),
        ("no flags", Packet::new(v4, 0).ethernet(), false),
        ("data", with_data(Packet::new(v4, ACK | PSH)), false),
        ("an IP header too short", changed(syn(v4), 14, 0x44), false),
        ("options past its end", changed(syn(v4), 14, 0x4f), false),
        ("UDP", changed(syn(v4), 14 + 9, 17), false),
        ("a first fragment", Packet { fragment: 0x2000, ..syn(v4) }.ethernet(), false),
        ("the last fragment", Packet { fragment: 0x1fff, ..syn(v4) }.ethernet(), false),
        ("hop-by-hop options", Packet { next_header: 0, ..syn(v6) }.ethernet(), false),
        ("a routing header", Packet { next_header: 43, ..syn(v6) }.ethernet(), false),
        ("a fragment header", Packet { next_header: 44, ..syn(v6) }.ethernet(), false),
        ("no next header", Packet { next_header: 59, ..syn(v6) }.ethernet(), false),
        ("a VLAN tag", Packet { tags: 1, ..syn(v4) }.ethernet(), false),
        ("two VLAN tags", Packet { tags: 2, ..syn(v6) }.ethernet(), false),
    ]
}

#[test]
fn every_packet_of_the_table_has_its_verdict() {
    for (hook, pass) in HOOKS {
        let Some(admission) = loaded(hook) else { return };
        for (name, frame, refused) in table() {
            assert_eq!(is_syn_to_us(hook, &frame), refused, "{hook:?}: {name}");
            check(hook, pass, &admission, &frame);
        }
    }
}

#[test]
fn syns_may_end_anywhere() {
    for (hook, pass) in HOOKS {
        let Some(admission) = loaded(hook) else { return };
        for (name, frame, _) in table() {
            if ["a SYN", "a SYN over IPv6", "a SYN behind the most options"].contains(&name) {
                (14..frame.len()).for_each(|length| check(hook, pass, &admission, &frame[..length]));
            }
        }
    }
}

#[test]
fn changed_packets_have_the_verdict_of_their_headers() {
    let seed = Seed(RandomState::new().hash_one(0));
    println!("seed {seed}");
    let mut random = seed.rng();
    let packets = table();
    for _ in 0..300 {
        let mut frame = packets[random.random_range(0..packets.len())].1.clone();
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..frame.len());
            frame[at] = random.random();
        }
        frame.truncate(random.random_range(14..=frame.len()));
        packet_property(&frame);
    }
}

#[test]
fn corpus_of_packets_holds() {
    corpus::replay("guard_packets", packet_property);
}
