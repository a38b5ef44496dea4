//! Requests, windows, priorities and ends, by section of RFC 9113.

use base::{Limit, Nanos};
use http_semantics::server::Wants;
use http2::PREFACE;
use proptest::prelude::*;

use crate::support::{Peer, block, fields, frame, get};

#[test]
fn a_request_is_answered() {
    let mut peer = Peer::new();
    peer.receive(&get(1, "/a?b"));
    let frames = peer.frames();
    assert_eq!(frames[0].0, 1);
    assert_eq!(Peer::content(&frames, 1), (b"GET /a?b test 0".to_vec(), true));
    assert_eq!((peer.http.requests, peer.http.responses_2xx), (1, 1));
    assert_eq!(peer.connection.wants(), Wants::Receive);
}

#[test]
fn head_has_no_content() {
    let mut peer = Peer::new();
    peer.receive(&frame(1, 5, 1, &block(&fields("HEAD", "/file/100000"))));
    assert_eq!(Peer::content(&peer.frames(), 1), (Vec::new(), true));
}

#[test]
fn rfc9110_9_3_2_a_refusal_of_head_has_no_content() {
    let mut peer = Peer::new();
    peer.settings.limits.target_bytes = 9;
    peer.receive(&frame(1, 5, 1, &block(&fields("HEAD", "/long/path"))));
    let long = [&fields("HEAD", "/")[..], &[("content-length", "99999999")]].concat();
    peer.receive(&frame(1, 4, 3, &block(&long)));
    peer.receive(&frame(1, 4, 5, &block(&fields("HEAD", "/"))));
    peer.expire();
    let frames = peer.frames();
    for stream in [1, 3, 5] {
        assert_eq!(Peer::content(&frames, stream), (Vec::new(), true), "{stream}");
    }
    assert_eq!(peer.http.refused_target_too_long + peer.http.refused_content_too_large, 2);
    assert_eq!(peer.http.timeouts_body, 1);
}

#[test]
fn rfc9113_3_4_first_client_frame_is_settings() {
    for first in [get(1, "/"), frame(6, 0, 0, &[0; 8]), frame(4, 1, 0, &[]), frame(99, 0, 0, &[])] {
        let mut peer = Peer::silent();
        peer.receive(&[PREFACE, &first[..]].concat());
        assert_eq!(Peer::goaway(&peer.frames()), Some(1), "{first:?}");
        assert_eq!((peer.http.requests, peer.counts.http2_connection_errors), (0, 1));
    }
}

#[test]
fn rfc9113_5_2_content_stays_within_the_windows() {
    let mut peer = Peer::new();
    peer.receive(&get(1, "/file/100000"));
    let (content, ended) = Peer::content(&peer.frames(), 1);
    assert_eq!((content.len(), ended), (65_535, false));
    peer.receive(&frame(8, 0, 0, &50_000_u32.to_be_bytes()));
    assert!(peer.frames().is_empty(), "the stream's window is closed");
    peer.receive(&frame(8, 0, 1, &50_000_u32.to_be_bytes()));
    let (content, ended) = Peer::content(&peer.frames(), 1);
    assert_eq!((content.len(), ended), (100_000 - 65_535, true));
}

#[test]
fn rfc813_small_window_rest_waits_a_bounded_time() {
    let windows = |bytes: u32| [frame(8, 0, 0, &bytes.to_be_bytes()), frame(8, 0, 1, &bytes.to_be_bytes())];
    let mut peer = Peer::new();
    peer.receive(&get(1, "/file/100000"));
    assert_eq!(Peer::content(&peer.frames(), 1).0.len(), 65_535);
    peer.receive(&windows(1000).concat());
    assert!(peer.frames().is_empty(), "1000 bytes wait");
    let begin = peer.now;
    peer.expire();
    assert_eq!(Peer::content(&peer.frames(), 1).0.len(), 1000);
    assert_eq!(peer.now, begin.saturating_add(Nanos::from_millis(100)));
    // The next small rest waits for the same time, and joins later window updates.
    peer.receive(&windows(1000).concat());
    peer.receive(&windows(3096).concat());
    assert_eq!(peer.frames().iter().map(|frame| frame.3.len()).collect::<Vec<_>>(), [4096]);
    // A client that has ended grants nothing more.
    peer.receive(&windows(10).concat());
    peer.end();
    assert_eq!(Peer::content(&peer.frames(), 1).0.len(), 10);
    assert_eq!(peer.connection.wants(), Wants::Close);
}

#[test]
fn rfc813_end_of_content_does_not_wait() {
    let mut peer = Peer::new();
    peer.receive(&get(1, "/file/65635"));
    assert_eq!(Peer::content(&peer.frames(), 1).0.len(), 65_535);
    peer.receive(&[frame(8, 0, 0, &100_u32.to_be_bytes()), frame(8, 0, 1, &100_u32.to_be_bytes())].concat());
    let (content, ended) = Peer::content(&peer.frames(), 1);
    assert_eq!((content.len(), ended), (100, true));
    let mut peer = Peer::new();
    peer.receive(&[frame(4, 0, 0, &[0, 4, 0, 0, 0, 1]), get(1, "/file/2")].concat());
    let (content, ended) = Peer::content(&peer.frames(), 1);
    assert_eq!((content.len(), ended), (1, false));
}

#[test]
fn output_in_memory_is_bounded() {
    let mut peer = Peer::new();
    let most = (1_u32 << 31) - 1 - 65_535;
    peer.receive(&frame(8, 0, 0, &most.to_be_bytes()));
    peer.receive(&frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    peer.receive(&[get(1, "/file/1000000"), get(3, "/bytes/1000000")].concat());
    let frames = peer.frames();
    assert_eq!(Peer::content(&frames, 1).0.len(), 1_000_000);
    assert_eq!(Peer::content(&frames, 3).0.len(), 1_000_000);
    assert!(peer.most_pending < 96 * 1024, "{}", peer.most_pending);
}

#[test]
fn sent_output_leaves_memory_while_some_waits() {
    let mut peer = Peer::new();
    peer.receive(&frame(4, 0, 0, &[0, 4, 0x40, 0, 0, 0]));
    peer.receive(&frame(8, 0, 0, &(1_u32 << 30).to_be_bytes()));
    peer.only_receive(&get(1, "/bytes/5000000"));
    for _ in 0..70 {
        peer.take_all_but_a_byte();
        peer.only_receive(&frame(8, 0, 1, &1_u32.to_be_bytes()));
    }
    assert!(peer.output.len() > 4_000_000, "{}", peer.output.len());
    peer.take_output();
    let (content, ended) = Peer::content(&peer.frames(), 1);
    assert_eq!((content.len(), ended), (5_000_000, true));
    let bytes = peer.last_buffer_bytes();
    assert!(bytes <= 128 * 1024, "{bytes} bytes");
}

#[test]
fn rfc9218_7_early_update_replaces_the_priority_field() {
    let mut peer = Peer::new();
    let update = frame(16, 0, 0, &[&3_u32.to_be_bytes()[..], b"u=1"].concat());
    let late = [&fields("GET", "/bytes/9")[..], &[("priority", "u=5")]].concat();
    peer.receive(&[update, get(1, "/bytes/9"), frame(1, 5, 3, &block(&late))].concat());
    let data: Vec<u32> = peer.frames().iter().filter(|frame| frame.0 == 0).map(|frame| frame.2).collect();
    assert_eq!(data, [3, 1]);
}

#[test]
fn rfc9218_2_1_first_settings_ask_for_priorities() {
    let mut peer = Peer::silent();
    peer.take_output();
    let (kind, flags, stream, payload) = peer.frames().remove(0);
    assert_eq!((kind, flags, stream), (4, 0, 0));
    assert!(payload.chunks(6).any(|setting| setting == [0, 9, 0, 0, 0, 1]), "{payload:?}");
}

#[test]
fn rfc9218_2_1_the_setting_is_0_or_1() {
    for (value, goaway) in [(0, None), (1, None), (2, Some(1))] {
        let mut peer = Peer::new();
        peer.receive(&frame(4, 0, 0, &[0, 9, 0, 0, 0, value]));
        assert_eq!(Peer::goaway(&peer.frames()), goaway);
    }
}

#[test]
fn rfc9113_6_3_bad_priority_resets_only_open_streams() {
    for (payload, code) in [(&[0, 0, 0, 1, 0][..], 1), (&[0, 0, 0, 3], 6)] {
        let mut peer = Peer::new();
        peer.receive(&frame(2, 0, 1, payload));
        let frames = peer.frames();
        assert_eq!((Peer::reset(&frames, 1), Peer::goaway(&frames)), (None, Some(code)));
        assert_eq!(frames[0].3[..4], [0; 4], "no stream has begun");
        let mut peer = Peer::new();
        peer.service.waits = true;
        peer.receive(&[get(1, "/"), frame(2, 0, 1, payload)].concat());
        let frames = peer.frames();
        assert_eq!((Peer::reset(&frames, 1), Peer::goaway(&frames)), (Some(code), None));
    }
}

#[test]
fn rfc9218_10_urgent_first_incremental_share() {
    let mut peer = Peer::new();
    let request = |stream, priority| {
        let fields = [&fields("GET", "/bytes/40000")[..], &[("priority", priority)]].concat();
        frame(1, 5, stream, &block(&fields))
    };
    let update = frame(16, 0, 0, &[&7_u32.to_be_bytes()[..], b"u=1"].concat());
    let requests =
        [request(1, "u=5, i"), request(3, "u=5, i"), request(5, "u=0"), get(7, "/bytes/9"), update];
    peer.receive(&requests.concat());
    peer.receive(&frame(8, 0, 0, &100_000_u32.to_be_bytes()));
    let data: Vec<u32> = peer.frames().iter().filter(|frame| frame.0 == 0).map(|frame| frame.2).collect();
    assert_eq!(data[..4], [5, 5, 5, 7]);
    assert_eq!(data[4..8], [1, 3, 1, 3]);
}

#[test]
fn rfc9113_8_1_content_is_read_and_refused() {
    let mut peer = Peer::new();
    let post = |stream, length| {
        let fields = [&fields("POST", "/")[..], &[("content-length", length)]].concat();
        frame(1, 4, stream, &block(&fields))
    };
    peer.receive(&[post(1, "3"), frame(0, 1, 1, b"abc")].concat());
    assert!(Peer::content(&peer.frames(), 1).1);
    peer.receive(&[post(3, "3"), frame(0, 1, 3, b"ab")].concat());
    assert_eq!(Peer::reset(&peer.frames(), 3), Some(1));
    peer.receive(&post(5, "99999999"));
    let frames = peer.frames();
    assert!(Peer::content(&frames, 5).1);
    assert_eq!(Peer::reset(&frames, 5), Some(0));
    assert_eq!(peer.http.refused_content_too_large, 1);
    // The client has not heard of it.
    peer.receive(&frame(0, 0, 5, b"late"));
    assert!(peer.frames().is_empty());
}

#[test]
fn rfc9113_6_1_long_padding_and_no_length_differ() {
    for (payload, code) in [(&[2, 0][..], 1), (&[], 6)] {
        let mut peer = Peer::new();
        let post = frame(1, 4, 1, &block(&fields("POST", "/")));
        peer.receive(&[post, frame(0, 8, 1, payload)].concat());
        assert_eq!(Peer::goaway(&peer.frames()), Some(code));
    }
}

#[test]
fn large_head_gets_431_and_connection_stays() {
    let mut peer = Peer::new();
    let value = "x".repeat(120);
    let long: Vec<_> = (0..110).map(|_| ("a", value.as_str())).collect();
    let bytes = block(&[&fields("GET", "/")[..], &long].concat());
    peer.receive(&frame(1, 5, 1, &bytes[..bytes.len().min(16_384)]));
    assert!(Peer::content(&peer.frames(), 1).1);
    assert_eq!(peer.http.refused_head_too_large, 1);
    peer.receive(&get(3, "/"));
    assert!(Peer::content(&peer.frames(), 3).1);
}

#[test]
fn a_large_limit_of_heads_allows_as_many_frames() {
    let mut peer = Peer::new();
    peer.settings.limits.head_bytes = 256 * 1024;
    let mut bytes = block(&fields("GET", "/"));
    // A value of 200 000 bytes.
    bytes.extend([0, 1, b'a', 0x7f, 0xc1, 0x99, 0x0c]);
    bytes.resize(bytes.len() + 200_000, b'x');
    let last = bytes.len().div_ceil(16_384) - 1;
    for (place, chunk) in bytes.chunks(16_384).enumerate() {
        let (kind, ends_stream) = if place == 0 { (1, 1) } else { (9, 0) };
        let ends_head = if place == last { 4 } else { 0 };
        peer.receive(&frame(kind, ends_stream | ends_head, 1, chunk));
    }
    assert_eq!(Peer::content(&peer.frames(), 1), (b"GET / test 0".to_vec(), true));
}

#[test]
fn waiting_request_above_a_lowered_limit_is_refused() {
    let mut peer = Peer::new();
    peer.service.waits = true;
    peer.receive(&get(1, "/long/path"));
    peer.settings.limits.target_bytes = 9;
    peer.resume();
    assert!(Peer::content(&peer.frames(), 1).1);
    assert_eq!((peer.connection.is_deferred(), peer.http.refused_target_too_long), (false, 1));
}

#[test]
fn rfc9113_8_1_1_malformed_request_resets_its_stream() {
    let plain = fields("GET", "/");
    let bad: [&[(&str, &str)]; 11] = [
        &[("Name", "capital")],
        &[("connection", "close")],
        &[("te", "gzip")],
        &[("a", " blank")],
        &[("a", "line\nend")],
        &[("a", "control\u{1}")],
        &[("a", "delete\u{7f}")],
        &[(":path", "/twice")],
        &[(":unknown", "x")],
        &[("host", "other")],
        &[("content-length", "1")],
    ];
    for extra in bad {
        let mut peer = Peer::new();
        peer.receive(&frame(1, 5, 1, &block(&[&plain[..], extra].concat())));
        assert_eq!(Peer::reset(&peer.frames(), 1), Some(1), "{extra:?}");
        assert_eq!(peer.counts.http2_stream_errors, 1);
        peer.receive(&get(3, "/"));
        assert!(Peer::content(&peer.frames(), 3).1);
    }
}

#[test]
fn drain_ends_idle_and_waits_for_busy_connection() {
    let mut peer = Peer::new();
    peer.drain();
    assert_eq!(Peer::goaway(&peer.frames()), Some(0));
    assert_eq!(peer.connection.wants(), Wants::Receive, "it lingers");
    peer.expire();
    assert_eq!(peer.connection.wants(), Wants::Close);

    let mut peer = Peer::new();
    peer.service.waits = true;
    peer.receive(&get(1, "/"));
    assert!(peer.connection.is_deferred());
    peer.drain();
    assert_eq!(Peer::goaway(&peer.frames()), Some(0));
    peer.receive(&get(3, "/too-late"));
    peer.service.waits = false;
    peer.resume();
    let frames = peer.frames();
    assert!(Peer::content(&frames, 1).1);
    assert!(!Peer::content(&frames, 3).1, "the client repeats it elsewhere");
}

#[test]
fn rfc9113_6_8_what_crosses_a_farewell_is_served() {
    for is_new in [true, false] {
        let mut peer = Peer::new();
        if !is_new {
            peer.receive(&get(1, "/"));
        }
        peer.frames();
        peer.retire();
        if is_new {
            assert_eq!(Peer::goaway(&peer.frames()), None, "the first request may come");
            peer.receive(&get(1, "/"));
            peer.expire();
        }
        let frames = peer.frames();
        assert_eq!((Peer::goaway(&frames), Peer::last_served(&frames)), (Some(0), Some(u32::MAX >> 1)));
        peer.retire();
        assert_eq!(Peer::goaway(&peer.frames()), None, "once");
        peer.receive(&get(3, "/crossed"));
        assert!(Peer::content(&peer.frames(), 3).1);
        peer.expire();
        let frames = peer.frames();
        assert_eq!((Peer::goaway(&frames), Peer::last_served(&frames)), (Some(0), Some(3)));
        peer.receive(&get(5, "/too-late"));
        assert!(!Peer::content(&peer.frames(), 5).1, "the client repeats it elsewhere");
    }
}

#[test]
fn rfc9113_6_8_last_stream_of_a_goaway_never_grows() {
    for ends in [Peer::drain, |peer: &mut Peer| peer.receive(&frame(0, 0, 0, b"of no stream"))] {
        let mut peer = Peer::new();
        peer.retire();
        ends(&mut peer);
        assert_eq!(Peer::last_served(&peer.frames()), Some(0));
        while peer.connection.wants() != Wants::Close {
            peer.expire();
            assert_eq!(Peer::last_served(&peer.frames()), None, "it says no more");
        }
    }
}

#[test]
fn end_before_an_answer_waits_for_the_answer() {
    let mut peer = Peer::new();
    peer.service.waits = true;
    peer.receive(&get(1, "/"));
    assert_eq!(peer.connection.wants(), Wants::Receive, "other requests may come");
    peer.end();
    assert_eq!(peer.connection.wants(), Wants::Resume);
    assert!(!peer.connection.may_receive(&peer.settings));
    peer.service.waits = false;
    peer.resume();
    assert!(Peer::content(&peer.frames(), 1).1);
    assert_eq!(peer.connection.wants(), Wants::Close);
}

#[test]
fn rfc9113_6_8_frames_that_cross_goaway_are_ignored() {
    let mut peer = Peer::new();
    peer.service.waits = true;
    peer.receive(&get(1, "/"));
    peer.drain();
    peer.output.clear();
    let depends_on_itself = [&5_u32.to_be_bytes()[..], &[0], &block(&fields("POST", "/"))].concat();
    peer.receive(&frame(1, 4, 3, &block(&fields("POST", "/late"))));
    peer.receive(&frame(0, 0, 3, &[b'x'; 16_000]));
    peer.receive(&frame(8, 0, 3, &1_u32.to_be_bytes()));
    peer.receive(&frame(0, 0, 3, &[b'x'; 16_000]));
    peer.receive(&frame(0, 0, 3, &[b'x'; 16_000]));
    peer.receive(&frame(3, 0, 3, &8_u32.to_be_bytes()));
    let more = 48_000_u32.to_be_bytes().to_vec();
    assert_eq!(peer.frames(), [(8, 0, 0, more)], "content counts towards the connection's window");
    peer.receive(&frame(1, 0x24, 5, &depends_on_itself));
    assert_eq!(Peer::reset(&peer.frames(), 5), Some(1));
    peer.receive(&frame(8, 0, 7, &1_u32.to_be_bytes()));
    let frames = peer.frames();
    assert_eq!(Peer::goaway(&frames), Some(1), "stream 7 has not begun");
    let last = frames.iter().find(|frame| frame.0 == 7).map(|frame| frame.3[..4].to_vec());
    assert_eq!(last, Some(1_u32.to_be_bytes().to_vec()), "no GOAWAY names a later stream than the first");
}

#[test]
fn spent_connection_is_counted_once() {
    let mut peer = Peer::new();
    peer.settings.limits.requests_per_connection = Limit::AtMost(2);
    peer.service.waits = true;
    peer.receive(&[get(1, "/"), get(3, "/"), get(5, "/"), get(7, "/")].concat());
    peer.service.waits = false;
    peer.resume();
    let frames = peer.frames();
    assert_eq!(Peer::goaway(&frames), Some(0));
    assert_eq!((peer.http.responses_2xx, peer.http.limit_requests_per_connection), (4, 1));
}

#[test]
fn an_idle_connection_gives_way_and_expires() {
    let mut peer = Peer::new();
    peer.receive(&get(1, "/"));
    peer.give_way();
    assert_eq!(peer.connection.wants(), Wants::Close);

    let mut peer = Peer::new();
    peer.receive(&get(1, "/"));
    peer.output.clear();
    peer.expire();
    assert_eq!(Peer::goaway(&peer.frames()), Some(0));
    assert_eq!((peer.connection.wants(), peer.http.timeouts_idle), (Wants::Close, 1));
}

#[test]
fn a_response_that_closes_sends_goaway() {
    let mut peer = Peer::new();
    peer.receive(&get(1, "/close"));
    let frames = peer.frames();
    assert!(Peer::content(&frames, 1).1);
    assert_eq!(Peer::goaway(&frames), Some(0));
}

#[test]
fn late_content_is_answered_408() {
    let mut peer = Peer::new();
    peer.receive(&frame(1, 4, 1, &block(&fields("POST", "/"))));
    peer.expire();
    let frames = peer.frames();
    assert!(Peer::content(&frames, 1).1);
    assert_eq!((Peer::reset(&frames, 1), peer.http.timeouts_body), (Some(0), 1));
}

#[test]
fn another_stream_gives_late_content_no_more_time() {
    let mut peer = Peer::new();
    peer.receive(&[frame(1, 4, 1, &block(&fields("POST", "/"))), get(3, "/file/100000")].concat());
    peer.now = Nanos::from_secs(20);
    peer.receive(
        &[frame(8, 0, 0, &9000_u32.to_be_bytes()), frame(8, 0, 3, &5000_u32.to_be_bytes())].concat(),
    );
    peer.output.clear();
    peer.expire();
    assert_eq!((peer.now, peer.http.timeouts_body), (Nanos::from_secs(30), 1));
    assert!(Peer::content(&peer.frames(), 1).1);
    assert_eq!(peer.connection.wants(), Wants::Receive, "the other stream goes on");
    assert_eq!(peer.connection.deadline(), Nanos::from_secs(50), "its content moved at 20 s");
}

proptest! {
    #[test]
    fn any_split_of_the_input_gives_the_same_streams(cuts in prop::collection::vec(1..200_usize, 0..40)) {
        let post = frame(1, 4, 5, &block(&fields("POST", "/post")));
        let input = [
            PREFACE.to_vec(), frame(4, 0, 0, &[]), get(1, "/file/30000"), get(3, "/bytes/500"), post,
            frame(0, 0, 5, b"abc"), frame(6, 0, 0, b"pingping"), frame(0, 1, 5, b"def"), frame(99, 0, 9, &[0; 4]),
        ].concat();
        let run = |cuts: &[usize]| {
            let mut peer = Peer::silent();
            let mut rest = &input[..];
            for cut in cuts {
                let (first, last) = rest.split_at((*cut).min(rest.len()));
                peer.receive(first);
                rest = last;
            }
            peer.receive(rest);
            let frames = peer.frames();
            let streams = [1, 3, 5].map(|stream| Peer::content(&frames, stream));
            let ended = streams.each_ref().map(|(content, ended)| (content.len(), *ended));
            (ended, Peer::goaway(&frames), peer.counts, peer.http)
        };
        prop_assert_eq!(run(&cuts), run(&[]));
    }

    #[test]
    fn no_input_makes_it_panic(input in prop::collection::vec(any::<u8>(), 0..400), kinds in prop::collection::vec((0..17_u8, any::<u8>(), 0..8_u32), 0..12)) {
        let mut peer = Peer::new();
        for (place, (kind, flags, stream)) in kinds.into_iter().enumerate() {
            let start = (place * 31).min(input.len());
            let end = (start + place * 3).min(input.len());
            peer.receive(&frame(kind, flags, stream, &input[start..end]));
        }
        peer.receive(&input);
    }
}
