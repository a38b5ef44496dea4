//! The client's side: against our own server, and against servers that break the rules.

use bytes::Bytes;
use http_semantics::Reply;
use http2::client::{Broken, Connection, End, Event, RequestHead, encode_request};
use http2::limits;
use proptest::prelude::*;

use crate::support::{Frame, Peer, block, frame};

const OK: [(&str, &str); 1] = [(":status", "200")];

fn request(method: &str, path: &str) -> Vec<u8> {
    let head = RequestHead { method, scheme: "http", authority: "test", path };
    encode_request(&head, [("Accept", "*/*")].into_iter())
}

/// A client with the ends of its streams and their content.
struct Client {
    connection: Connection<u32>,
    ends: Vec<(u32, End)>,
    content: Vec<u8>,
    heads: Vec<u32>,
}

impl Client {
    /// A client that has been greeted and has sent everything, with this number of open streams.
    fn with_streams(count: u32) -> Client {
        let mut client = Client::new();
        client.receive(&frame(4, 0, 0, &[])).unwrap();
        (0..count).for_each(|tag| client.get(tag, "/"));
        client.sent();
        client
    }

    fn new() -> Client {
        Client { connection: Connection::new(), ends: Vec::new(), content: Vec::new(), heads: Vec::new() }
    }

    fn get(&mut self, tag: u32, path: &str) {
        self.connection.open(tag, &request("GET", path), Bytes::new(), false);
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.connection.receive(bytes, |event| match event {
            Event::Head(tag) => self.heads.push(tag),
            Event::Content(_, bytes) => self.content.extend_from_slice(bytes),
            Event::Ended(tag, end) => self.ends.push((tag, end)),
        })
    }

    /// Takes the output.
    fn sent(&mut self) -> Vec<u8> {
        let bytes = self.connection.output().to_vec();
        self.connection.transmitted(bytes.len());
        bytes
    }

    fn frames_sent(&mut self) -> Vec<Frame> {
        let mut bytes = &self.sent()[..];
        let mut frames = Vec::new();
        while let Some((head, rest)) = bytes.split_at_checked(9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
            frames.push((head[3], head[4], stream, rest[..length].to_vec()));
            bytes = &rest[length..];
        }
        frames
    }
}

/// Carries bytes both ways until both sides are silent.
fn talk(client: &mut Client, server: &mut Peer) {
    loop {
        let (up, down) = (client.sent(), std::mem::take(&mut server.output));
        if up.is_empty() && down.is_empty() {
            return;
        }
        client.receive(&down).unwrap();
        server.receive(&up);
    }
}

fn reply(body_bytes: u64) -> End {
    End::Reply(Reply { status: 200, body_bytes, persistent: true })
}

#[test]
fn our_own_server_answers_every_stream() {
    let (mut client, mut server) = (Client::new(), Peer::silent());
    (0..32).for_each(|tag| client.get(tag, "/bytes/5"));
    assert_eq!(client.connection.streams(), 32);
    talk(&mut client, &mut server);
    client.ends.sort_by_key(|end| end.0);
    assert_eq!(client.ends, (0..32).map(|tag| (tag, reply(5))).collect::<Vec<_>>());
    assert_eq!((client.connection.streams(), server.counts.http2_connection_errors), (0, 0));
    client.connection.open(7, &request("HEAD", "/bytes/5"), Bytes::new(), true);
    client.connection.open(8, &request("GET", "/file/5000000"), Bytes::new(), false);
    client.content.clear();
    talk(&mut client, &mut server);
    assert_eq!(client.ends[32..], [(7, reply(0)), (8, reply(5_000_000))]);
    assert_eq!(client.content.len(), 5_000_000);
}

#[test]
fn request_content_waits_for_the_servers_windows() {
    let (mut client, mut server) = (Client::new(), Peer::silent());
    let content = Bytes::from(vec![b'x'; 300_000]);
    client.connection.open(1, &request("POST", "/"), content, false);
    let before = client.sent();
    assert!(before.len() < 66_000, "a window is 65535 bytes: {}", before.len());
    server.receive(&before);
    talk(&mut client, &mut server);
    assert_eq!(client.ends, [(1, reply("POST / test 0".len() as u64))]);
    assert_eq!(server.counts.http2_connection_errors + server.counts.http2_stream_errors, 0);
}

#[test]
fn a_head_longer_than_a_frame_is_continued() {
    let mut client = Client::with_streams(0);
    let long = "v".repeat(40_000);
    let head = RequestHead { method: "GET", scheme: "http", authority: "a", path: "/" };
    let block = encode_request(&head, [("x-long", &long[..])].into_iter());
    client.connection.open(0, &block, Bytes::new(), false);
    let frames = client.frames_sent();
    assert_eq!(frames.iter().map(|frame| (frame.0, frame.1)).collect::<Vec<_>>(), [(1, 1), (9, 0), (9, 4)]);
    assert!(frames.iter().all(|frame| frame.3.len() <= limits::FRAME_BYTES));
    assert_eq!(frames[0].3[0], 0x20, "the first block gives up the dynamic table");
}

#[test]
fn streams_open_as_far_as_the_server_allows() {
    let mut client = Client::new();
    (0..200).for_each(|tag| client.get(tag, "/"));
    assert_eq!(client.connection.streams(), 100, "before the server's SETTINGS");
    client.receive(&frame(4, 0, 0, &[0, 3, 0, 0, 0, 2])).unwrap();
    assert!(!client.connection.can_open());
    for stream in (1..200).step_by(2) {
        client.receive(&frame(1, 5, stream, &block(&OK))).unwrap();
    }
    client.sent();
    (0..9).for_each(|tag| client.get(tag, "/"));
    assert_eq!((client.connection.streams(), client.ends.len()), (2, 100));
    client.receive(&frame(4, 0, 0, &[0, 3, 0, 0, 0, 0])).unwrap();
    client.receive(&frame(1, 5, 201, &block(&OK))).unwrap();
    assert!(!client.connection.can_open() && !client.connection.is_spent());
}

#[test]
fn goaway_ends_what_the_server_has_not_worked_on() {
    let mut client = Client::with_streams(3);
    client.receive(&frame(7, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0])).unwrap();
    assert_eq!(client.ends, [(2, End::Unprocessed)]);
    assert!(client.connection.is_spent() && client.connection.is_going_away());
    client.receive(&frame(1, 5, 1, &block(&OK))).unwrap();
    assert_eq!(client.ends[1..], [(0, reply(0))]);
    client.receive(&frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 2])).unwrap();
    assert_eq!(client.ends[2..], [(1, End::Unprocessed)]);
    assert_eq!(client.connection.streams(), 0);
}

#[test]
fn a_stream_that_is_reset_ends_and_the_others_go_on() {
    let mut client = Client::with_streams(3);
    client.receive(&frame(3, 0, 1, &[0, 0, 0, 7])).unwrap();
    client.connection.cancel(1);
    assert_eq!(client.frames_sent(), [(3, 0, 3, vec![0, 0, 0, 8])]);
    // Late frames of both streams.
    client.receive(&frame(1, 4, 3, &block(&OK))).unwrap();
    client.receive(&frame(0, 1, 1, b"late")).unwrap();
    client.receive(&frame(8, 0, 3, &[0, 0, 0, 9])).unwrap();
    client.receive(&frame(1, 5, 5, &block(&OK))).unwrap();
    assert_eq!(client.ends, [(0, End::Reset), (2, reply(0))]);
}

#[test]
fn shrunken_window_holds_content_until_paid_off() {
    let mut client = Client::with_streams(0);
    client.connection.open(0, &request("POST", "/"), Bytes::from(vec![0; 100]), false);
    client.connection.open(1, &request("POST", "/"), Bytes::from(vec![0; 70_000]), false);
    client.sent();
    client.receive(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 10])).unwrap();
    client.receive(&frame(8, 0, 0, &100_000_u32.to_be_bytes())).unwrap();
    client.receive(&frame(8, 0, 3, &65_000_u32.to_be_bytes())).unwrap();
    assert!(client.frames_sent().iter().all(|frame| frame.0 != 0), "its window is still negative");
    client.receive(&frame(8, 0, 3, &5_500_u32.to_be_bytes())).unwrap();
    let content: usize =
        client.frames_sent().iter().filter(|frame| frame.0 == 0).map(|frame| frame.3.len()).sum();
    assert_eq!(content, 4_565, "the rest of 70000 bytes after 65435");
}

#[test]
fn an_early_answer_ends_the_upload() {
    let mut client = Client::with_streams(0);
    client.connection.open(0, &request("POST", "/"), Bytes::from(vec![0; 100_000]), false);
    client.sent();
    client.receive(&frame(1, 5, 1, &block(&[(":status", "413")]))).unwrap();
    assert_eq!(client.frames_sent(), [(3, 0, 1, vec![0, 0, 0, 8])]);
    assert!(matches!(client.ends[..], [(0, End::Reply(Reply { status: 413, .. }))]));
}

#[test]
fn interim_heads_and_trailers_are_no_replies() {
    let mut client = Client::with_streams(1);
    client.receive(&frame(1, 4, 1, &block(&[(":status", "103"), ("link", "x")]))).unwrap();
    client.receive(&frame(1, 4, 1, &block(&[(":status", "200"), ("content-length", "3")]))).unwrap();
    client.receive(&frame(0, 8, 1, b"\x02abc\0\0")).unwrap();
    assert!(client.ends.is_empty());
    client.receive(&frame(1, 5, 1, &block(&[("x-checksum", "1")]))).unwrap();
    assert_eq!((client.heads, client.ends, client.content), (vec![0], vec![(0, reply(3))], b"abc".to_vec()));
}

#[test]
fn what_is_not_http2_is_told_from_a_mistake() {
    for bytes in
        [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n", &frame(6, 0, 0, &[0; 8])]
    {
        assert_eq!(Client::new().receive(bytes), Err(Broken::NotHttp2));
    }
    let mut client = Client::new();
    client.receive(b"HTTP/1.").expect("too short to say");
}

/// A reply on stream 1 that ends the stream for a mistake.
#[track_caller]
fn spoils_the_stream(frames: &[Vec<u8>]) {
    let mut client = Client::with_streams(2);
    client.receive(&frames.concat()).unwrap();
    assert_eq!(client.ends, [(0, End::Malformed)]);
    assert_eq!(client.frames_sent().last().map(|frame| (frame.0, frame.2)), Some((3, 1)));
    client.receive(&frame(1, 5, 3, &block(&OK))).unwrap();
    assert_eq!(client.ends[1..], [(1, reply(0))], "the other stream goes on");
}

#[test]
fn mistakes_on_a_stream_end_that_stream() {
    let head = |fields: &[(&str, &str)]| frame(1, 4, 1, &block(fields));
    spoils_the_stream(&[head(&[("status", "200")])]);
    spoils_the_stream(&[head(&[(":status", "2000")])]);
    spoils_the_stream(&[head(&[(":status", "+20")])]);
    spoils_the_stream(&[head(&[(":status", "101")])]);
    spoils_the_stream(&[head(&[(":status", "200"), (":status", "200")])]);
    spoils_the_stream(&[head(&[(":status", "200"), ("Upper", "x")])]);
    spoils_the_stream(&[head(&[(":status", "200"), ("connection", "close")])]);
    spoils_the_stream(&[head(&[(":status", "200"), ("content-length", "1"), ("content-length", "2")])]);
    spoils_the_stream(&[frame(1, 5, 1, &block(&[(":status", "100")]))]);
    spoils_the_stream(&[frame(0, 1, 1, b"content before a head")]);
    spoils_the_stream(&[head(&[(":status", "200"), ("content-length", "2")]), frame(0, 0, 1, b"abc")]);
    spoils_the_stream(&[head(&[(":status", "200"), ("content-length", "4")]), frame(0, 1, 1, b"abc")]);
    spoils_the_stream(&[head(&OK), head(&[("x", "trailers must end the stream")])]);
    spoils_the_stream(&[frame(8, 0, 1, &[0; 4])]);
    spoils_the_stream(&[frame(8, 0, 1, &[0x7f, 255, 255, 255])]);
}

/// Frames after which the connection is of no use; returns the error code of our GOAWAY.
#[track_caller]
fn code_for(frames: &[Vec<u8>]) -> u8 {
    let mut client = Client::with_streams(2);
    assert_eq!(client.receive(&frames.concat()), Err(Broken::Mistake));
    let frames = client.frames_sent();
    let (kind, .., payload) = frames.last().unwrap();
    assert_eq!(*kind, 7);
    payload[7]
}

#[test]
fn mistakes_on_a_connection_end_the_connection() {
    let head = || frame(1, 0, 1, &block(&OK));
    assert_eq!(code_for(&[vec![0, 0x40, 1, 0, 0, 0, 0, 0, 1]]), 6, "a frame of 16385 bytes");
    assert_eq!(code_for(&[frame(1, 5, 5, &block(&OK))]), 1, "HEADERS on a stream that has not begun");
    assert_eq!(code_for(&[frame(1, 5, 2, &block(&OK))]), 1, "HEADERS on a stream of the server's");
    assert_eq!(code_for(&[frame(0, 0, 0, b"x")]), 1, "DATA on the connection");
    assert_eq!(code_for(&[frame(3, 0, 7, &[0; 4])]), 1, "RST_STREAM on a stream that has not begun");
    assert_eq!(code_for(&[frame(3, 0, 1, &[0; 5])]), 6);
    assert_eq!(code_for(&[frame(5, 4, 1, &[0, 0, 0, 2])]), 1, "PUSH_PROMISE");
    assert_eq!(code_for(&[frame(4, 0, 0, &[0; 5])]), 6);
    assert_eq!(code_for(&[frame(4, 1, 0, &[0; 6])]), 6);
    assert_eq!(code_for(&[frame(4, 0, 1, &[])]), 1);
    assert_eq!(code_for(&[frame(4, 0, 0, &[0, 2, 0, 0, 0, 1])]), 1, "ENABLE_PUSH");
    assert_eq!(code_for(&[frame(4, 0, 0, &[0, 4, 128, 0, 0, 0])]), 3, "a window of 2^31");
    assert_eq!(code_for(&[frame(4, 0, 0, &[0, 5, 0, 0, 0, 1])]), 1, "MAX_FRAME_SIZE");
    assert_eq!(code_for(&[frame(6, 0, 0, &[0; 7])]), 6);
    assert_eq!(code_for(&[frame(7, 0, 0, &[0; 7])]), 6);
    assert_eq!(code_for(&[frame(8, 0, 0, &[0; 4])]), 1);
    assert_eq!(code_for(&[frame(8, 0, 0, &[0x7f, 255, 255, 255])]), 3, "the connection's window overflows");
    assert_eq!(code_for(&[frame(8, 0, 9, &[0, 0, 0, 1])]), 1, "a window of a stream that has not begun");
    assert_eq!(code_for(&[frame(9, 4, 1, &[])]), 1, "CONTINUATION of nothing");
    assert_eq!(code_for(&[head(), frame(9, 4, 3, &[])]), 1, "CONTINUATION of another stream");
    assert_eq!(code_for(&[head(), frame(6, 0, 0, &[0; 8])]), 1, "PING within a block");
    assert_eq!(code_for(&[frame(1, 5, 1, &[0xff; 8])]), 9, "an index that does not exist");
}

/// Receives one frame after another until the connection ends for the flood. Returns the number of the last frame.
#[track_caller]
fn frames_of_flood(next: impl Fn(usize) -> Vec<u8>) -> usize {
    /// The last answer, of at most 17 bytes, and GOAWAY.
    const BEYOND_LIMIT: usize = 17 + 17;
    let mut client = Client::with_streams(2);
    for number in 1..100_000 {
        let taken = client.receive(&next(number));
        let waiting = client.connection.output().len();
        assert!(waiting <= limits::CLIENT_OUTPUT_BYTES + BEYOND_LIMIT, "{waiting} bytes at frame {number}");
        if taken.is_err() {
            let frames = client.frames_sent();
            let (kind, .., payload) = frames.last().unwrap();
            assert_eq!((taken, *kind, payload[7]), (Err(Broken::Mistake), 7, 11));
            return number;
        }
    }
    panic!("every frame was taken");
}

#[test]
fn floods_are_cut_off_with_little_memory() {
    let parts_of_block = |payload: &'static [u8]| {
        frames_of_flood(move |number| frame(if number == 1 { 1 } else { 9 }, 0, 1, payload))
    };
    assert_eq!(parts_of_block(&[]), 1 + limits::CONTINUATIONS as usize + 1, "CONTINUATION without end");
    // The client keeps the bytes of an incomplete block.
    let kept = limits::RESPONSE_HEAD_BYTES / limits::FRAME_BYTES;
    assert_eq!(parts_of_block(&[0; limits::FRAME_BYTES]), kept + 1);
    // Answers of 17 and 9 bytes, which the server does not read.
    let answers = |bytes: usize| limits::CLIENT_OUTPUT_BYTES / bytes;
    assert_eq!(frames_of_flood(|_| frame(6, 0, 0, &[0; 8])), answers(17) + 1, "PING without end");
    assert_eq!(frames_of_flood(|_| frame(4, 0, 0, &[])), answers(9) + 1, "SETTINGS without end");
    // A field of 4000 bytes in the table, named 12000 times.
    let mut bomb = [&block(&OK)[..], &[0x40, 1, b'a', 0x7f, 0x81, 0x1e], &[b'x'; 4000]].concat();
    bomb.extend([0xbe; 12_000]);
    spoils_the_stream(&[frame(1, 4, 1, &bomb)]);
}

#[test]
fn unknown_frames_and_settings_have_no_effect() {
    let mut client = Client::with_streams(1);
    client.receive(&frame(99, 255, 77, b"?")).unwrap();
    client.receive(&frame(2, 0, 1, &[0; 5])).unwrap();
    client.receive(&frame(4, 0, 0, &[9, 9, 0, 0, 0, 1])).unwrap();
    client.receive(&frame(6, 1, 0, &[0; 8])).unwrap();
    assert_eq!(client.frames_sent(), [(4, 1, 0, vec![])]);
    client.receive(&frame(1, 5, 1, &block(&OK))).unwrap();
    assert_eq!(client.ends, [(0, reply(0))]);
}

proptest! {
    /// No frames after the greeting end a stream twice or cause a panic.
    #[test]
    fn any_frames_end_a_stream_at_most_once(
        frames in prop::collection::vec(
            (0u8..11, any::<u8>(), 0u32..9, prop::collection::vec(any::<u8>(), 0..20)), 1..60,
        ),
    ) {
        let mut client = Client::with_streams(4);
        for (kind, flags, stream, payload) in frames {
            if client.receive(&frame(kind, flags, stream, &payload)).is_err() {
                break;
            }
        }
        let ended = client.ends.len();
        client.ends.sort_by_key(|end| end.0);
        client.ends.dedup_by_key(|end| end.0);
        prop_assert_eq!(client.ends.len(), ended);
        prop_assert!(ended + client.connection.streams() == 4);
    }

    /// A conversation has the same end whatever the pieces that it comes in.
    #[test]
    fn pieces_do_not_matter(piece in 1usize..40) {
        let mut server = Peer::silent();
        let mut client = Client::new();
        (0..5).for_each(|tag| client.get(tag, "/bytes/100"));
        server.receive(&client.sent());
        for bytes in server.output.chunks(piece) {
            client.receive(bytes).unwrap();
        }
        prop_assert_eq!(client.ends.len(), 5);
        prop_assert!(client.ends.iter().all(|(_, end)| *end == reply(100)));
    }
}
