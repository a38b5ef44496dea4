//! Responses that the client's windows hold back: their time, their end, and the room that they make.

use base::Nanos;
use http_semantics::server::Wants;

use crate::support::{Peer, block, fields, frame, get};

/// Windows of new streams that allow no content.
fn closed_windows() -> Vec<u8> {
    frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])
}

fn grant(stream: u32, bytes: u32) -> Vec<u8> {
    frame(8, 0, stream, &bytes.to_be_bytes())
}

fn head(stream: u32) -> Vec<u8> {
    frame(1, 5, stream, &block(&fields("HEAD", "/")))
}

impl Peer {
    /// Lets time pass in steps of a second, with a word of the client after each, and expires what is due.
    fn pass(&mut self, seconds: u32, mut word: impl FnMut(u32) -> Vec<u8>) {
        for second in 1..=seconds {
            let next = self.now + Nanos::SECOND;
            while self.connection.deadline() <= next {
                self.expire();
            }
            self.now = next;
            if self.connection.wants() != Wants::Close {
                self.receive(&word(second));
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.connection.wants() == Wants::Close
    }
}

#[test]
fn other_requests_give_a_held_response_no_time() {
    let mut peer = Peer::new();
    peer.receive(&closed_windows());
    (0..100).for_each(|index| peer.receive(&get(2 * index + 1, "/bytes/5000")));
    peer.pass(31, |second| head(201 + 2 * second));
    assert_eq!((peer.is_closed(), peer.http.timeouts_write_stall), (true, 1));
    assert_eq!((Peer::goaway(&peer.frames()), peer.http.incomplete_responses), (Some(0), 1));
}

#[test]
fn a_byte_of_window_a_second_is_too_slow() {
    for stream in [0, 1] {
        let mut peer = Peer::new();
        // The connection's window, or the stream's, is used up.
        peer.receive(&get(1, "/bytes/200000"));
        peer.receive(&grant(1 - stream, 1 << 20));
        peer.pass(31, |_| grant(stream, 1));
        assert_eq!((peer.is_closed(), peer.http.timeouts_write_stall), (true, 1), "{stream}");
    }
}

#[test]
fn a_kilobyte_of_window_a_timeout_is_enough() {
    for stream in [0, 1] {
        let mut peer = Peer::new();
        peer.receive(&get(1, "/bytes/200000"));
        peer.receive(&grant(1 - stream, 1 << 20));
        peer.pass(300, |_| grant(stream, 40));
        assert_eq!((peer.is_closed(), peer.http.timeouts_write_stall), (false, 0), "{stream}");
    }
}

#[test]
fn a_held_stream_of_a_busy_connection_is_reset() {
    let mut peer = Peer::new();
    peer.receive(&[closed_windows(), get(1, "/bytes/5000"), get(3, "/bytes/900000")].concat());
    peer.receive(&[grant(0, 1 << 20), grant(3, 5000)].concat());
    peer.pass(40, |_| grant(3, 5000));
    let frames = peer.frames();
    assert_eq!((Peer::reset(&frames, 1), Peer::reset(&frames, 3)), (Some(8), None));
    assert_eq!((peer.is_closed(), peer.http.timeouts_write_stall), (false, 1));
}

#[test]
fn streams_that_wait_for_an_urgent_one_are_kept() {
    let mut peer = Peer::new();
    peer.receive(&frame(4, 0, 0, &[0, 4, 0x40, 0, 0, 0]));
    peer.receive(&[get(1, "/bytes/900000"), get(3, "/bytes/900000")].concat());
    peer.pass(100, |_| grant(0, 5000));
    let frames = peer.frames();
    assert_eq!((Peer::content(&frames, 3).0.len(), Peer::reset(&frames, 3)), (0, None));
    assert_eq!((peer.is_closed(), peer.http.timeouts_write_stall), (false, 0));
}

#[test]
fn a_connection_that_only_holds_gives_way() {
    let mut peer = Peer::new();
    peer.receive(&[closed_windows(), get(1, "/bytes/5000")].concat());
    peer.pass(2, |second| head(1 + 2 * second));
    assert_eq!(peer.connection.idle_from(), Nanos::SECOND);
    peer.give_way();
    assert_eq!((Peer::goaway(&peer.frames()), peer.is_closed()), (Some(0), true));
}

#[test]
fn a_connection_with_other_work_does_not_give_way() {
    let mut peer = Peer::new();
    peer.receive(&[closed_windows(), get(1, "/bytes/5000")].concat());
    peer.receive(&frame(1, 4, 3, &block(&fields("POST", "/"))));
    peer.pass(2, |_| frame(0, 0, 3, b"content"));
    assert_eq!(peer.connection.idle_from(), Nanos::MAX);
    peer.give_way();
    assert_eq!(Peer::goaway(&peer.frames()), Some(0));
    peer.receive(&frame(0, 1, 3, b"end"));
    peer.receive(&[grant(3, 5000), grant(1, 5000)].concat());
    let frames = peer.frames();
    assert!(Peer::content(&frames, 1).1 && Peer::content(&frames, 3).1);
}
