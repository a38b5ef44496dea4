//! A server connection with its environment, driven without sockets or a real clock. The tests share it, and
//! so do the fuzz targets, by path.
#![allow(dead_code, reason = "each test binary and fuzz target uses its part")]

use base::{Clock, Nanos, SimulatedClock, WallTime};
use bytes::Bytes;
use http_semantics::server::{Buffers, Context, Counts, Entry, Limits, Log, Settings, Wants};
use http_semantics::{
    Body, FileRange, HttpDate, Method, Pace, Part, Reply, Request, Responder, Response, Status,
};
use http1::client::{Malformed, Reader};
use http1::server::{Connection, Transmit};

/// A file of any length, whose byte `n` is `file_byte(n)`.
#[derive(Clone, Copy, Debug)]
pub struct File;

pub fn file_byte(offset: u64) -> u8 {
    b'a' + (offset % 23) as u8
}

/// Echoes the request, and offers one path for each kind of body.
#[derive(Default)]
pub struct Echo {
    pub served: u64,
    /// The pace of every answer.
    pub pace: Option<Pace>,
    /// Number of times that it refuses to answer before it does.
    pub waits: u32,
    waited: u32,
}

impl Responder for Echo {
    type File = File;

    fn respond_or_wait(&mut self, request: &Request<'_>, _: Nanos) -> Option<Response<File>> {
        if self.waited < self.waits {
            self.waited += 1;
            return None;
        }
        self.waited = 0;
        self.served += 1;
        Some(Response { pace: self.pace, ..self.answer(request) })
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<File>> {
        (request.method == Method::Put).then(|| Response::error(Status::METHOD_NOT_ALLOWED))
    }
}

impl Echo {
    fn answer(&self, request: &Request<'_>) -> Response<File> {
        let plain = Bytes::from_static(b"Content-Type: text/plain\r\n");
        let range = |offset, length| Body::File(FileRange { file: File, offset, length });
        let number = |prefix: &str| request.path().strip_prefix(prefix).and_then(|n| n.parse::<u64>().ok());
        let ok =
            |body| Response { status: Status::OK, fields: plain.clone(), body, close: false, pace: None };
        if let Some(refusal) = self.refuse_early(request) {
            return refusal;
        }
        if !matches!(request.method, Method::Get | Method::Head | Method::Post) {
            return Response::error(Status::NOT_IMPLEMENTED);
        }
        if let Some(length) = number("/file/") {
            return ok(range(3, length % 70_000));
        }
        if let Some(length) = number("/bytes/") {
            return ok(Body::Bytes(vec![b'x'; (length % 70_000) as usize].into()));
        }
        if let Some(count) = number("/parts/") {
            let part = |n: u64| {
                let body =
                    if n.is_multiple_of(2) { range(n, 10 * n) } else { Body::Bytes(vec![b'p'; 9000].into()) };
                Part { fields: Bytes::from(format!("Content-Range: bytes {n}-\r\n")), body }
            };
            let parts = (0..count % 16).map(part).collect();
            let fields = Bytes::new();
            return Response {
                status: Status::PARTIAL_CONTENT,
                fields,
                body: Body::Parts(parts),
                close: false,
                pace: None,
            };
        }
        match request.path() {
            "/304" => Response {
                status: Status::NOT_MODIFIED,
                fields: Bytes::new(),
                body: Body::Absent,
                close: false,
                pace: None,
            },
            "/close" => Response { close: true, ..ok(Body::Absent) },
            _ => ok(Body::Bytes(describe(request).into())),
        }
    }
}

fn describe(request: &Request<'_>) -> String {
    let Request { method, target, version, host, fields, body, .. } = request;
    let body = String::from_utf8_lossy(body);
    format!("{} {target} {version:?} host={host} fields={} body={body}\n", method.as_str(), fields.len())
}

/// One line for each entry.
#[derive(Default)]
pub struct Lines(pub Vec<String>);

impl Log for Lines {
    fn entry(&mut self, entry: &Entry<'_>) {
        let Entry { method, target, status, sent_bytes, body_bytes, complete, .. } = entry;
        let end = if *complete { "complete" } else { "cut" };
        let took = entry.finished - entry.started;
        let agent = String::from_utf8_lossy(entry.user_agent);
        self.0.push(format!(
            "{method} {target} {agent}: {} {sent_bytes} {body_bytes} {end} after {took}",
            status.0
        ));
    }
}

/// A connection with the state that its driver would own.
pub struct Peer {
    pub connection: Connection<File>,
    pub service: Echo,
    pub settings: Settings,
    pub buffers: Buffers,
    pub date: HttpDate,
    pub counts: Counts,
    pub log: Option<Lines>,
    pub clock: SimulatedClock,
    /// The bytes that the peer has received.
    pub output: Vec<u8>,
    pub shut_down: bool,
}

impl Peer {
    pub fn new(settings: Settings) -> Peer {
        let clock = SimulatedClock::new(WallTime { seconds: 784_111_777 });
        Peer {
            connection: Connection::new(clock.now(), &settings),
            service: Echo::default(),
            settings,
            buffers: Buffers::default(),
            date: HttpDate::new(clock.wall()),
            counts: Counts::default(),
            log: None,
            clock,
            output: Vec::new(),
            shut_down: false,
        }
    }

    /// Calls the connection with a context of this peer's.
    pub fn with<T>(&mut self, act: impl FnOnce(&mut Connection<File>, &mut Context<'_, Echo>) -> T) -> T {
        let mut cx = Context {
            service: &mut self.service,
            settings: &self.settings,
            buffers: &mut self.buffers,
            date: &self.date,
            counts: &mut self.counts,
            log: self.log.as_mut().map(|log| log as &mut dyn Log),
            client: None,
            now: self.clock.now(),
        };
        act(&mut self.connection, &mut cx)
    }

    /// True if the connection counts as idle now.
    pub fn is_idle(&self) -> bool {
        self.connection.idle_from() <= self.clock.now()
    }

    /// Hands over bytes as a well-behaved driver does: not while output is pending.
    pub fn send(&mut self, bytes: &[u8]) {
        self.drain_output(usize::MAX);
        if matches!(self.connection.wants(), Wants::Receive | Wants::Resume) {
            self.with(|connection, cx| connection.receive(bytes, cx));
        }
    }

    /// Takes the output in pieces of at most `piece` bytes, until nothing is left. Asks once for a pending
    /// answer, and shuts down if the connection wants it.
    pub fn drain_output(&mut self, piece: usize) {
        while self.transmit_once(piece) {}
        self.with(|connection, cx| connection.resume(cx));
        while self.transmit_once(piece) {}
        if self.connection.wants() == Wants::ShutdownThenReceive {
            assert!(!self.shut_down, "shuts down once");
            self.shut_down = true;
            self.connection.shut_down();
        }
    }

    /// Takes one piece of output, if there is any.
    pub fn transmit_once(&mut self, piece: usize) -> bool {
        if self.connection.wants() != Wants::Transmit {
            return false;
        }
        let taken = match self.connection.transmit() {
            Transmit::Nothing => panic!("wants to transmit nothing"),
            Transmit::Bytes { bytes, .. } => {
                let taken = bytes.len().min(piece);
                assert!(taken > 0);
                self.output.extend_from_slice(&bytes[..taken]);
                taken as u64
            }
            Transmit::File { range, length, .. } => {
                let taken = length.min(piece as u64);
                assert!(taken > 0);
                self.output.extend((range.offset..range.offset + taken).map(file_byte));
                taken
            }
        };
        self.with(|connection, cx| connection.transmitted(taken, cx));
        true
    }

    /// The output as text, without dates.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.output);
        text.replace("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "").replace("\r\n", "\n")
    }
}

/// The result of a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The server's output without interim responses, because timing decides if one is sent.
    pub output: Vec<u8>,
    pub ended: bool,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ended={}", String::from_utf8_lossy(&self.output), self.ended)
    }
}

impl Peer {
    pub fn outcome(&self) -> Outcome {
        const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut output = self.output.clone();
        while let Some(at) = output.windows(INTERIM.len()).position(|window| window == INTERIM) {
            output.drain(at..at + INTERIM.len());
        }
        Outcome { output, ended: self.connection.wants() == Wants::Close || self.shut_down }
    }
}

/// The result of a connection whose peer sends `pieces` and reads `reads` bytes at a time.
pub fn exchange<P: AsRef<[u8]>>(
    pieces: impl IntoIterator<Item = P>,
    reads: usize,
    settings: &Settings,
) -> Outcome {
    exchange_waiting(pieces, reads, 0, settings)
}

/// The result of a connection whose responder answers each request only after `waits` refusals to answer.
pub fn exchange_waiting<P: AsRef<[u8]>>(
    pieces: impl IntoIterator<Item = P>,
    reads: usize,
    waits: u32,
    settings: &Settings,
) -> Outcome {
    let mut peer = Peer::new(settings.clone());
    peer.service.waits = waits;
    for piece in pieces {
        peer.drain_output(reads);
        peer.send(piece.as_ref());
    }
    peer.drain_output(reads);
    while peer.connection.is_deferred() {
        peer.drain_output(reads);
    }
    peer.outcome()
}

/// The replies in a server's output, none of which may answer HEAD.
pub fn replies(output: &[u8]) -> Result<Vec<Reply>, Malformed> {
    let mut reader = Reader::new();
    let mut replies = Vec::new();
    let mut at = 0;
    while at < output.len() {
        let (taken, reply) = reader.feed(&output[at..])?;
        at += taken;
        replies.extend(reply);
    }
    assert!(!reader.is_within_reply(), "the last reply is incomplete");
    Ok(replies)
}

/// The property of the fuzz target `http1_server`: no input causes a panic, and the answers are the same in
/// one piece, in pieces, and read slowly. The first two bytes choose the pieces.
pub fn server_property(data: &[u8]) {
    let [piece, reads, input @ ..] = data else { return };
    let settings = Settings {
        limits: Limits { body_bytes: 1000, head_bytes: 2000, target_bytes: 500, ..Limits::default() },
        ..Settings::default()
    };
    let whole = exchange([input], usize::MAX, &settings);
    let pieces = input.chunks(usize::from(*piece).max(1));
    assert_eq!(exchange(pieces.clone(), usize::MAX, &settings), whole, "in pieces of {piece}");
    assert_eq!(exchange(pieces, 200 + usize::from(*reads), &settings), whole, "read slowly");
    if !input.windows(4).any(|window| window == b"HEAD") {
        let replies = replies(&whole.output).expect("the answers are HTTP");
        let persistent = replies.iter().take_while(|reply| reply.persistent).count();
        // If content breaks off after an early refusal, the connection ends without another response.
        assert!(replies.len() - persistent <= usize::from(whole.ended), "only the last may close");
    }
}

/// The property of the fuzz target `http1_client`: no input causes a panic, and the replies are the same in
/// one piece and in pieces. The first byte chooses the pieces and whether HEAD is answered.
pub fn client_property(data: &[u8]) {
    let [choice, input @ ..] = data else { return };
    let read = |piece: usize| {
        let mut reader = Reader::new();
        reader.expect_head(choice & 0x80 != 0);
        let mut found = Vec::new();
        for bytes in input.chunks(piece) {
            let mut at = 0;
            while at < bytes.len() {
                match reader.feed(&bytes[at..]) {
                    Ok((taken, reply)) => {
                        assert!(taken > 0 && (reply.is_some() || at + taken == bytes.len()));
                        at += taken;
                        found.extend(reply.map(Ok));
                    }
                    Err(malformed) => {
                        found.push(Err(malformed));
                        return found;
                    }
                }
            }
        }
        found.extend(reader.end().transpose());
        found
    };
    let piece = usize::from(choice & 0x7f).max(1);
    assert_eq!(read(piece), read(input.len().max(1)), "in pieces of {piece}");
}
