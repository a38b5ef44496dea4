use super::*;
use crate::frame::ethernet::{Frame, answer, question};
use proptest::prelude::*;

fn flow(ipv6: bool) -> Flow {
    let (local, remote) =
        if ipv6 { ("[fd94::7]:1024", "[fd91::1]:80") } else { ("10.94.0.1:1024", "10.0.0.1:80") };
    Flow { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
}

fn written(flow: &Flow, segment: &Segment, payload: &[u8], leaving: Leaving) -> Vec<u8> {
    let mut packet = vec![0; length(flow, segment, payload.len())];
    write(&mut packet, flow, segment, payload, leaving);
    packet
}

/// The options of a SYN, as this client sends them.
fn syn() -> Segment {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 0x0102_0304, echo: 0 }),
        ..Options::default()
    };
    Segment { seq: Seq(0xa1a2_a3a4), flags: Flags::SYN, window: 64_240, options, ..Segment::default() }
}

#[test]
fn a_syn_has_the_options_of_linux_in_its_order() {
    let packet = written(&flow(false), &syn(), &[], Leaving::Whole);
    #[rustfmt::skip]
    assert_eq!(packet, [
        0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 6, 0x26, 0x5d, 10, 94, 0, 1, 10, 0, 0, 1,
        0x04, 0x00, 0x00, 0x50, 0xa1, 0xa2, 0xa3, 0xa4, 0, 0, 0, 0, 0xa0, 0x02, 0xfa, 0xf0, 0xeb, 0x12, 0, 0,
        // As tcpdump shows the options of Linux 6.18: mss 1460, sackOK, TS val ecr, nop, wscale.
        2, 4, 0x05, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7,
    ]);
}

#[test]
fn flags_have_their_bits() {
    let all = Flags::FIN | Flags::SYN | Flags::RST | Flags::PSH | Flags::ACK;
    assert_eq!(Flags::from_bits(0xff), all);
    assert!(all.has(Flags::SYN | Flags::ACK) && !Flags::SYN.has(Flags::SYN | Flags::ACK));
}

#[test]
fn flipped_bit_is_noticed_unless_checksum_is_trusted() {
    for ipv6 in [false, true] {
        let packet = written(&flow(ipv6), &syn(), b"payload", Leaving::Whole);
        let tcp = ip_header_length(flow(ipv6).remote);
        for at in tcp..packet.len() {
            let mut broken = packet.clone();
            broken[at] ^= 4;
            let error = read(&broken, Arriving::Whole).unwrap_err();
            // An option may be malformed, which is noticed before the checksum.
            assert!(matches!(error, Unusable::Checksum | Unusable::Malformed), "byte {at}: {error}");
        }
        let mut broken = packet.clone();
        *broken.last_mut().unwrap() ^= 4;
        assert!(read(&broken, Arriving::Verified).is_ok());
    }
    let mut broken = written(&flow(false), &syn(), &[], Leaving::Whole);
    broken[8] -= 1;
    assert_eq!(read(&broken, Arriving::Verified), Err(Unusable::Checksum), "of the IPv4 header");
}

#[test]
fn partial_checksum_is_accepted_from_local_senders() {
    for ipv6 in [false, true] {
        let packet = written(&flow(ipv6), &syn(), b"payload", Leaving::Partial);
        assert!(read(&packet, Arriving::Verified).is_ok() && read(&packet, Arriving::WholeOrPartial).is_ok());
        assert_eq!(read(&packet, Arriving::Whole), Err(Unusable::Checksum));
    }
}

#[test]
fn incomplete_tcp_packet_is_refused_with_its_reason() {
    let packet = written(&flow(false), &syn(), b"payload", Leaving::Whole);
    // Changes a byte of the IPv4 header and its checksum.
    let changed = |at: usize, to: u8| {
        let mut packet = packet.clone();
        packet[at] = to;
        packet[10..12].copy_from_slice(&[0; 2]);
        let sum = !checksum::fold(checksum::sum(&packet[..20]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        read(&packet, Arriving::Verified)
    };
    assert_eq!(changed(6, 0x20), Err(Unusable::Fragment), "more follow");
    assert_eq!(changed(7, 1), Err(Unusable::Fragment), "the last one");
    assert_eq!(changed(9, 1), Err(Unusable::Icmp));
    assert_eq!(changed(9, 17), Err(Unusable::NotTcp));
    assert_eq!(changed(3, 100), Err(Unusable::Malformed), "longer than it is");
    assert_eq!(changed(3, 39), Err(Unusable::Malformed), "no room for a TCP header");
    assert_eq!(changed(0, 0x44), Err(Unusable::Malformed), "a header of 16 bytes");
    assert_eq!(changed(0, 0x55), Err(Unusable::Malformed), "no version of IP");
    for length in 0..40 {
        assert_eq!(read(&packet[..length], Arriving::Verified), Err(Unusable::Malformed));
    }
    let mut packet = written(&flow(true), &syn(), &[], Leaving::Whole);
    for (header, reason) in [(44, Unusable::Fragment), (58, Unusable::Icmp), (0, Unusable::NotTcp)] {
        packet[6] = header;
        assert_eq!(read(&packet, Arriving::Verified), Err(reason));
    }
}

#[test]
fn padding_behind_a_packet_is_ignored() {
    let segment = Segment { flags: Flags::ACK, ..Segment::default() };
    let mut packet = written(&flow(false), &segment, &[], Leaving::Whole);
    packet.extend_from_slice(&[0; 6]);
    let received = read(&packet, Arriving::Whole).unwrap();
    assert_eq!((received.segment, received.payload), (segment, 40..40));
}

#[test]
fn unknown_options_are_skipped_broken_ones_refused() {
    let mss = Options { mss: Some(1460), ..Options::default() };
    for bytes in [
        &[2, 4, 5, 0xb4][..],
        &[1, 1, 2, 4, 5, 0xb4],
        &[2, 4, 5, 0xb4, 0, 9, 9, 9],
        &[254, 2, 2, 4, 5, 0xb4],
        &[254, 6, 1, 2, 3, 4, 2, 4, 5, 0xb4],
    ] {
        assert_eq!(Options::read(bytes), Ok(mss), "{bytes:?}");
    }
    for bytes in [
        &[2][..],
        &[2, 0, 5, 0xb4],
        &[2, 1, 5, 0xb4],
        &[2, 5, 5, 0xb4],
        &[2, 3, 5],
        &[3, 4, 1, 1],
        &[4, 3, 1],
        &[5, 9, 0, 0, 0, 0, 0, 0, 0],
        &[8, 9, 0, 0, 0, 0, 0, 0, 0],
        &[254, 200, 1, 1],
    ] {
        assert_eq!(Options::read(bytes), Err(Unusable::Malformed), "{bytes:?}");
    }
    let scale = Options::read(&[3, 3, 200]).unwrap().window_scale;
    assert_eq!(scale, Some(14), "RFC 7323, section 2.3");
}

#[test]
fn a_neighbour_answers_a_question() {
    let (ours, theirs) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    // The option of a solicitation is not read, because the asker's address is in the Ethernet header, too.
    for (us, them, unread) in [("10.94.0.1", "10.0.0.1", 0), ("fd94::7", "fd91::1", 8)] {
        let (us, them): (IpAddr, IpAddr) = (us.parse().unwrap(), them.parse().unwrap());
        let asked = question((us, ours), them);
        let Frame::Question { target, asker } = ethernet::read(&asked) else { panic!("{asked:?}") };
        assert_eq!((target, asker), (them, (us, ours)));
        let answered = answer(target, theirs, asker);
        assert_eq!(ethernet::read(&answered), Frame::Neighbour(them, theirs));
        assert_eq!(answered[..6], ours);
        for frame in [&asked, &answered] {
            for length in 0..frame.len() - unread {
                let cut = ethernet::read(&frame[..length]);
                assert!(!matches!(cut, Frame::Question { .. } | Frame::Neighbour(..)), "{length}: {cut:?}");
            }
        }
    }
    let group = question(("fd94::7".parse().unwrap(), ours), "fd91::a1:b2c3".parse().unwrap());
    assert_eq!(group[..6], [0x33, 0x33, 0xff, 0xa1, 0xb2, 0xc3], "RFC 2464, section 7");
}

fn any_options() -> impl Strategy<Value = Options> {
    let timestamps = (any::<u32>(), any::<u32>()).prop_map(|(value, echo)| Timestamps { value, echo });
    let block = prop::option::of((any::<u32>(), any::<u32>()).prop_map(|(a, b)| (Seq(a), Seq(b))));
    let any = (
        prop::option::of(any::<u16>()),
        prop::option::of(0..=14_u8),
        any::<bool>(),
        prop::option::of(timestamps),
        [block.clone(), block.clone(), block],
    );
    any.prop_map(|(mss, window_scale, sack_permitted, timestamps, mut sack)| {
        // Blocks are contiguous in the array.
        sack.sort_by_key(Option::is_none);
        Options { mss, window_scale, sack_permitted, timestamps, sack }
    })
    .prop_filter("they fit a header", |options| options.length() <= options::LENGTH_MAX)
}

proptest! {
    #[test]
    fn what_was_written_is_read_again(
        ipv6 in any::<bool>(),
        (seq, ack, flags, window) in any::<(u32, u32, u8, u16)>(),
        options in any_options(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let segment = Segment { seq: Seq(seq), ack: Seq(ack), flags: Flags::from_bits(flags), window, options };
        let packet = written(&flow(ipv6), &segment, &payload, Leaving::Whole);
        let received = read(&packet, Arriving::Whole).unwrap();
        let Flow { local, remote } = flow(ipv6);
        prop_assert_eq!(received.flow, Flow { local: remote, remote: local });
        prop_assert_eq!(received.segment, segment);
        prop_assert_eq!(&packet[received.payload], &payload[..]);
    }
}
