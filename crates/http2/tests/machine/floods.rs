//! Floods named by CVE end the connection with ENHANCE_YOUR_CALM, and are counted.

use std::collections::VecDeque;

use base::Nanos;
use http_semantics::server::Wants;

use crate::support::{self, Peer, block, fields, frame, get};

const ENHANCE_YOUR_CALM: u32 = 11;

/// Sends frames, numbered from 0, to a peer. Asserts that it takes all before the one with the number `last`, which ends
/// the connection.
#[track_caller]
fn flood_peer(peer: &mut Peer, last: u32, mut next: impl FnMut(u32) -> Vec<u8>) {
    for number in 0..=last {
        peer.receive(&next(number));
        let expected = (number == last).then_some(ENHANCE_YOUR_CALM);
        assert_eq!(Peer::goaway(&peer.frames()), expected, "frame {number}");
    }
}

/// Sends frames as [`flood_peer`] does on a new connection, and returns its counters.
#[track_caller]
fn flood(last: u32, next: impl FnMut(u32) -> Vec<u8>) -> http2::Counts {
    let mut peer = Peer::new();
    flood_peer(&mut peer, last, next);
    peer.counts
}

#[test]
fn cve_2023_44487_rapid_reset() {
    let reset = |stream| [get(stream, "/file/100000"), frame(3, 0, stream, &8_u32.to_be_bytes())].concat();
    assert_eq!(flood(256, |number| reset(2 * number + 1)).http2_limit_resets, 1);
}

#[test]
fn cve_2025_8671_provoked_resets_end_the_connection() {
    let mistake = |stream| [get(stream, "/file/100000"), frame(8, 0, stream, &[0; 4])].concat();
    assert_eq!(flood(256, |number| mistake(2 * number + 1)).http2_limit_resets, 1);
}

#[test]
fn cve_2024_27316_continuation() {
    let first = frame(1, 0, 1, &block(&fields("GET", "/")));
    let counts = flood(9, |number| if number == 0 { first.clone() } else { frame(9, 0, 1, b"") });
    assert_eq!(counts.http2_limit_header_block, 1);
    let long = flood(2, |number| frame(if number == 0 { 1 } else { 9 }, 0, 1, &[0; 16_384]));
    assert_eq!(long.http2_limit_header_block, 1);
}

#[test]
fn cve_2019_9512_pings() {
    assert_eq!(flood(100, |_| frame(6, 0, 0, &[0; 8])).http2_limit_pings, 1);
}

#[test]
fn second_after_a_burst_allows_the_rate_once_more() {
    let ping = || frame(6, 0, 0, &[0; 8]);
    let mut peer = Peer::new();
    (0..100).for_each(|_| peer.receive(&ping()));
    peer.now += Nanos::SECOND;
    flood_peer(&mut peer, 10, |_| ping());
    assert_eq!(peer.counts.http2_limit_pings, 1);
}

#[test]
fn cve_2019_9515_settings() {
    // The SETTINGS at the beginning count.
    assert_eq!(flood(31, |_| frame(4, 0, 0, &[])).http2_limit_settings, 1);
}

#[test]
fn cve_2019_9518_empty_frames() {
    let post = frame(1, 4, 1, &block(&fields("POST", "/")));
    let counts = flood(101, |number| if number == 0 { post.clone() } else { frame(0, 0, 1, b"") });
    assert_eq!(counts.http2_limit_empty_frames, 1);
}

#[test]
fn cve_2019_9511_small_windows() {
    let small = [frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]), get(1, "/bytes/100000")].concat();
    let more = frame(8, 0, 1, &1_u32.to_be_bytes());
    let counts = flood(1001, |number| if number == 0 { small.clone() } else { more.clone() });
    assert_eq!(counts.http2_limit_window_updates, 1);
}

/// Two WINDOW_UPDATE frames for each DATA frame, as clients send that grant what they have read.
fn acknowledge(frames: &[support::Frame]) -> Vec<u8> {
    let data = frames.iter().filter(|(kind, ..)| *kind == 0);
    data.flat_map(|(_, _, stream, content)| {
        let more = (content.len() as u32).to_be_bytes();
        [frame(8, 0, 0, &more), frame(8, 0, *stream, &more)].concat()
    })
    .collect()
}

#[test]
fn small_grants_while_reading_are_no_flood() {
    let mut peer = Peer::new();
    let window = [0, 4, 0, 0, 0, 100];
    peer.receive(&[frame(4, 0, 0, &window), get(1, "/bytes/500000")].concat());
    let (mut sent, mut received) = (0, 0);
    while received < 500_000 {
        let frames = peer.frames();
        assert_eq!(Peer::goaway(&frames), None, "after {sent} frames");
        sent += frames.iter().filter(|frame| frame.0 == 0).count();
        received += Peer::content(&frames, 1).0.len();
        peer.receive(&acknowledge(&frames));
    }
    assert_eq!((sent, peer.counts.http2_limit_window_updates), (5000, 0));
}

#[test]
fn grants_for_many_small_responses_are_no_flood() {
    let mut peer = Peer::new();
    for number in 0..1000 {
        peer.receive(&get(2 * number + 1, "/bytes/10"));
    }
    let frames = peer.frames();
    peer.receive(&acknowledge(&frames));
    assert_eq!(Peer::goaway(&peer.frames()), None);
    assert_eq!(peer.counts.http2_limit_window_updates, 0);
}

#[test]
fn single_grants_do_not_split_content_into_frames() {
    let lengths: Vec<usize> =
        (0..100).map(|index| [3_000_000, 20_000][usize::from(index % 20 > 0)]).collect();
    let mut peer = Peer::new();
    for (number, length) in (0..).zip(&lengths) {
        peer.only_receive(&get(2 * number + 1, &format!("/file/{length}")));
    }
    peer.take_output();
    let (mut sent, mut received, mut grants) = (0, 0, VecDeque::new());
    loop {
        let frames = peer.frames();
        assert_eq!(Peer::goaway(&frames), None, "after {sent} frames");
        sent += frames.iter().filter(|frame| frame.0 == 0).count();
        received += frames.iter().filter(|frame| frame.0 == 0).map(|frame| frame.3.len()).sum::<usize>();
        grants.extend(acknowledge(&frames).chunks(13).map(<[u8]>::to_vec));
        let Some(grant) = grants.pop_front() else { break };
        peer.receive(&grant);
    }
    assert_eq!(received, lengths.iter().sum());
    assert!(received / sent >= 4096, "{sent} frames for {received} bytes");
}

#[test]
fn cve_2019_9513_priorities() {
    assert_eq!(flood(500, |_| frame(2, 0, 1, &[0, 0, 0, 3, 0])).http2_limit_priorities, 1);
}

#[test]
fn cve_2019_9517_unread_output_stops_reading() {
    let mut peer = Peer::new();
    let requests: Vec<u8> = (0..100).flat_map(|n| get(2 * n + 1, "/bytes/60000")).collect();
    peer.only_receive(&frame(8, 0, 0, &(1_u32 << 30).to_be_bytes()));
    peer.only_receive(&requests);
    assert_eq!(peer.connection.wants(), Wants::Transmit);
    let http2::Transmit::Bytes(bytes) = peer.connection.transmit() else { panic!("output waits") };
    assert!(bytes.len() < 96 * 1024, "{}", bytes.len());
    assert!(peer.connection.may_receive(&peer.settings));
    peer.settings.limits.outbox_bytes = bytes.len() / 2;
    assert!(!peer.connection.may_receive(&peer.settings));
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut peer = Peer::new();
    peer.service.waits = true;
    peer.receive(&(0..129).flat_map(|number| get(2 * number + 1, "/")).collect::<Vec<u8>>());
    assert_eq!(Peer::reset(&peer.frames(), 257), Some(7));
    assert_eq!(peer.counts.http2_limit_streams, 1);
}

#[test]
fn heads_that_wait_for_content_are_bounded_together() {
    let mut peer = Peer::new();
    // 15 KB of fields for 15 bytes of a block: too little for 431, and kept until the content has come.
    let mut first = block(&fields("POST", "/"));
    first.extend([0x40, 1, b'a', 0x7f, 0xe9, 6]);
    first.extend([b'x'; 1000]);
    let again = [block(&fields("POST", "/")), vec![0xbe; 15]].concat();
    peer.receive(&frame(1, 4, 1, &first));
    peer.receive(&(1..100).flat_map(|number| frame(1, 4, 2 * number + 1, &again)).collect::<Vec<u8>>());
    let frames = peer.frames();
    let refused = (0..100).filter(|number| Peer::reset(&frames, 2 * number + 1) == Some(7)).count();
    assert!((85..95).contains(&refused), "{refused}");
    assert_eq!(peer.counts.http2_limit_streams, refused as u64);
}

#[test]
fn cve_2016_6581_repeated_large_field_is_answered_431() {
    let mut peer = Peer::new();
    let mut bytes = block(&fields("GET", "/"));
    bytes.extend([0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    bytes.extend([b'x'; 4000]);
    bytes.extend([0xbe; 12_000]);
    peer.receive(&frame(1, 5, 1, &bytes));
    assert!(Peer::content(&peer.frames(), 1).1);
    assert_eq!(peer.http.refused_head_too_large, 1);
}
