//! A connection with its environment, driven without sockets or a real clock, and frames as a client writes and reads them.
//! The tests share it, and so do the fuzz targets, by path.
#![allow(dead_code, reason = "each test binary and fuzz target uses its part")]

use std::collections::BTreeSet;

use base::{Nanos, WallTime};
use bytes::Bytes;
use http_semantics::server::{Buffers, Settings, Wants};
use http_semantics::{Body, FileRange, HttpDate, Method, Pace, Request, Responder, Response, Status};
use http2::client::{self, End, Event, RequestHead, encode_request};
use http2::{Connection, Context, Counts, PREFACE, Transmit};

/// The longest answer.
const ANSWER_MOST: u64 = 5_000_000;
/// More deadlines than a connection with all its streams has.
const DEADLINES: usize = 1000;

/// `/bytes/N` and `/file/N` have N bytes; `/close` ends the connection; every other path echoes the request.
#[derive(Default)]
pub struct Echo {
    /// Answers have to be waited for.
    pub waits: bool,
    /// The pace of every answer.
    pub pace: Option<Pace>,
}

impl Responder for Echo {
    type File = ();

    fn respond_or_wait(&mut self, request: &Request<'_>, _: Nanos) -> Option<Response<()>> {
        if self.waits {
            return None;
        }
        let number =
            |prefix| request.path().strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
        let number = |prefix| number(prefix).map(|number| number.min(ANSWER_MOST));
        let body = match (number("/bytes/"), number("/file/")) {
            (Some(count), _) => Body::Bytes(vec![b'b'; count as usize].into()),
            (_, Some(length)) => Body::File(FileRange { file: (), offset: 0, length }),
            _ => {
                let Request { method, target, host, body, .. } = request;
                Body::Bytes(format!("{} {target} {host} {}", method.as_str(), body.len()).into())
            }
        };
        let fields = Bytes::from_static(b"Content-Type: text/plain\r\n");
        Some(Response {
            status: Status::OK,
            fields,
            body,
            close: request.path() == "/close",
            pace: self.pace,
        })
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<()>> {
        (request.method == Method::Put).then(|| Response::error(Status::METHOD_NOT_ALLOWED))
    }
}

/// A frame: type, flags, stream, payload.
pub type Frame = (u8, u8, u32, Vec<u8>);

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block without compression.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.extend_from_slice(&[0, name.len() as u8]);
        block.extend_from_slice(name.as_bytes());
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    }
    block
}

pub fn fields<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test")]
}

/// HEADERS of a whole request.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(1, 5, stream, &block(&fields("GET", path)))
}

/// A server's connection, and what its client has received.
pub struct Peer {
    pub connection: Connection<()>,
    pub service: Echo,
    pub settings: Settings,
    pub http: http_semantics::server::Counts,
    pub counts: Counts,
    pub now: Nanos,
    pub output: Vec<u8>,
    /// The greatest amount of output that waited.
    pub most_pending: usize,
    buffers: Buffers,
}

/// Calls with a context made of the peer's fields.
macro_rules! with_context {
    ($peer:ident, $context:ident => $call:expr) => {{
        let date = HttpDate::new(WallTime { seconds: 784_111_777 });
        let mut http = http_semantics::server::Context {
            service: &mut $peer.service,
            settings: &$peer.settings,
            buffers: &mut $peer.buffers,
            date: &date,
            counts: &mut $peer.http,
            log: None,
            client: None,
            now: $peer.now,
        };
        let mut lent = Context { http: &mut http, counts: &mut $peer.counts };
        let $context = &mut lent;
        $call
    }};
}

impl Peer {
    /// A connection whose preface and empty SETTINGS have come, without output.
    pub fn new() -> Peer {
        let mut peer = Peer::silent();
        peer.receive(PREFACE);
        peer.receive(&frame(4, 0, 0, &[]));
        peer.output.clear();
        peer
    }

    /// A connection of a client that has not said anything.
    pub fn silent() -> Peer {
        let (mut service, settings) = (Echo::default(), Settings::default());
        let mut buffers = Buffers::new(64, usize::MAX);
        let (mut http, mut counts) = Default::default();
        let date = HttpDate::new(WallTime { seconds: 784_111_777 });
        let mut context = http_semantics::server::Context {
            service: &mut service,
            settings: &settings,
            buffers: &mut buffers,
            date: &date,
            counts: &mut http,
            log: None,
            client: None,
            now: Nanos::ZERO,
        };
        let connection = Connection::new(
            http_semantics::Transport::default(),
            &mut Context { http: &mut context, counts: &mut counts },
        );
        let (now, output) = (Nanos::ZERO, Vec::new());
        Peer { connection, service, settings, http, counts, now, output, most_pending: 0, buffers }
    }

    /// Hands bytes over, and takes all output.
    pub fn receive(&mut self, bytes: &[u8]) {
        with_context!(self, cx => self.connection.receive(bytes, cx));
        self.take_output();
    }

    /// Hands bytes over, and takes no output.
    pub fn only_receive(&mut self, bytes: &[u8]) {
        with_context!(self, cx => self.connection.receive(bytes, cx));
    }

    pub fn take_output(&mut self) {
        loop {
            while let Some(part) = self.connection.file_part() {
                let bytes = vec![b'f'; part.length as usize];
                with_context!(self, cx => self.connection.supply(&bytes, cx));
            }
            let Transmit::Bytes(bytes) = self.connection.transmit() else { break };
            self.most_pending = self.most_pending.max(bytes.len());
            let count = bytes.len();
            self.output.extend_from_slice(bytes);
            with_context!(self, cx => self.connection.transmitted(count as u64, cx));
        }
        if self.connection.wants() == Wants::ShutdownThenReceive {
            self.connection.shut_down();
        }
    }

    /// Takes the output that waits but for its last byte.
    pub fn take_all_but_a_byte(&mut self) {
        let Transmit::Bytes(bytes) = self.connection.transmit() else { return };
        let count = bytes.len() - 1;
        self.output.extend_from_slice(&bytes[..count]);
        with_context!(self, cx => self.connection.transmitted(count as u64, cx));
    }

    /// The capacity of the buffer that the connection gave back last.
    pub fn last_buffer_bytes(&mut self) -> usize {
        self.buffers.take().capacity()
    }

    pub fn drain(&mut self) {
        with_context!(self, cx => self.connection.drain(cx));
        self.take_output();
    }

    pub fn retire(&mut self) {
        with_context!(self, cx => self.connection.retire(cx));
        self.take_output();
    }

    pub fn give_way(&mut self) {
        with_context!(self, cx => self.connection.give_way(cx));
        self.take_output();
    }

    pub fn resume(&mut self) {
        with_context!(self, cx => self.connection.resume(cx));
        self.take_output();
    }

    /// The client shuts down its sending side.
    pub fn end(&mut self) {
        with_context!(self, cx => self.connection.receive_end(cx));
        self.take_output();
    }

    /// Lets the deadline pass.
    pub fn expire(&mut self) {
        self.now = self.connection.deadline();
        with_context!(self, cx => self.connection.expire(cx));
        self.take_output();
    }

    /// Takes the frames that the client has received.
    pub fn frames(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut rest = std::mem::take(&mut self.output);
        while !rest.is_empty() {
            let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            let stream = u32::from_be_bytes(rest[5..9].try_into().unwrap());
            frames.push((rest[3], rest[4], stream, rest[9..9 + length].to_vec()));
            rest.drain(..9 + length);
        }
        frames
    }

    /// The content that a stream received, and whether the stream ended.
    pub fn content(frames: &[Frame], stream: u32) -> (Vec<u8>, bool) {
        let of_stream = frames.iter().filter(|frame| frame.2 == stream && frame.0 <= 1);
        let ended = of_stream.clone().any(|frame| frame.1 & 1 != 0);
        (of_stream.filter(|frame| frame.0 == 0).flat_map(|frame| frame.3.clone()).collect(), ended)
    }

    /// The error code of a GOAWAY frame among these.
    pub fn goaway(frames: &[Frame]) -> Option<u32> {
        let frame = frames.iter().rfind(|frame| frame.0 == 7)?;
        Some(u32::from_be_bytes(frame.3[4..8].try_into().unwrap()))
    }

    /// The stream that the last GOAWAY names.
    pub fn last_served(frames: &[Frame]) -> Option<u32> {
        let frame = frames.iter().rfind(|frame| frame.0 == 7)?;
        Some(u32::from_be_bytes(frame.3[..4].try_into().unwrap()))
    }

    /// The error code with which a stream was reset.
    pub fn reset(frames: &[Frame], stream: u32) -> Option<u32> {
        let frame = frames.iter().find(|frame| frame.0 == 3 && frame.2 == stream)?;
        Some(u32::from_be_bytes(frame.3[..4].try_into().unwrap()))
    }
}

/// Any bytes to a server's connection, in any pieces: what it sends are whole frames, no stream is answered after its end,
/// and the connection comes to an end. The first byte of the input chooses the pieces.
pub fn server_property(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let mut peer = Peer::silent();
    // Few random inputs would find the preface and begin with SETTINGS.
    if first % 2 == 0 {
        peer.receive(PREFACE);
        peer.receive(&frame(4, 0, 0, &[]));
    }
    for piece in rest.chunks(usize::from(first / 2) + 1) {
        peer.receive(piece);
    }
    peer.end();
    for _ in 0..DEADLINES {
        if peer.connection.wants() == Wants::Close {
            break;
        }
        peer.expire();
    }
    assert_eq!(peer.connection.wants(), Wants::Close);
    let mut ended = BTreeSet::new();
    for (kind, flags, stream, _) in peer.frames() {
        if kind <= 1 {
            assert!(stream % 2 == 1 && !ended.contains(&stream), "stream {stream} is answered after its end");
            if flags & 1 != 0 {
                ended.insert(stream);
            }
        }
    }
}

/// Any bytes to a client with three requests under way, in any pieces: no stream ends twice, and a broken connection has no
/// streams. The first byte of the input chooses the pieces.
pub fn client_property(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let mut connection = client::Connection::new();
    let head = RequestHead { method: "GET", scheme: "http", authority: "test", path: "/" };
    let block = encode_request(&head, std::iter::empty());
    (0..3_u32).for_each(|tag| connection.open(tag, &block, Bytes::new(), tag == 2));
    let mut ended = BTreeSet::new();
    // Few random inputs would begin with SETTINGS.
    let greeting = frame(4, 0, 0, &[]);
    let greeting = if first % 2 == 0 { &greeting[..] } else { &[] };
    for piece in [greeting].into_iter().chain(rest.chunks(usize::from(first / 2) + 1)) {
        let taken = connection.receive(piece, |event| match event {
            Event::Head(tag) => assert!(!ended.contains(&tag), "{tag} has a head after its end"),
            Event::Content(tag, _) => assert!(!ended.contains(&tag), "{tag} has content after its end"),
            Event::Ended(tag, end) => {
                assert!(ended.insert(tag), "{tag} ended twice");
                if let End::Reply(reply) = end {
                    assert!((100..1000).contains(&reply.status), "{reply:?}");
                }
            }
        });
        let waiting = connection.output().len();
        connection.transmitted(waiting);
        if taken.is_err() {
            break;
        }
    }
    assert_eq!(connection.streams() + ended.len(), 3);
}
