//! The client's side of one connection: requests go out as streams, and replies come back in pieces.
//!
//! ```text
//!   open() --> stream: head awaited --HEADERS--> content --END_STREAM--> Event::Ended, Reply
//!                |                                  |
//!                +---- RST_STREAM, GOAWAY, mistake -+------------------> Event::Ended, otherwise
//!                +---- cancel() -----------------------> gone, without an event
//! ```
//!
//! The owner names each stream by a tag, hands over received bytes, and sends [`Connection::output`]. Content is counted
//! and passed on, never kept. A load generator makes the same request many times, so a request is encoded once
//! ([`encode_request`]), for every connection.
//!
//! Owns frames, windows and streams. Leaves out time: the owner cancels a late request. Does not accept pushed responses.
//!
//! Invariants:
//!
//! - A stream ends exactly once: by an event, by [`Connection::cancel`], or with the connection.
//! - Whatever a server sends, memory is bounded: by the limits in [`crate::limits`] and by the open streams.

mod frames;
mod reply;

use bytes::{Buf, Bytes};
use http_semantics::Reply;

use crate::block::Block;
use crate::frame::{self, Code, PREFACE, STREAM_LAST, flag, kind, setting};
use crate::hpack::{self, Decoder, Fields, NO_TABLE};
use crate::limits::{
    CLIENT_OUTPUT_BYTES, CLIENT_WINDOW_BYTES, FRAME_BYTES, RESPONSE_HEAD_BYTES, STREAMS_BEFORE_SETTINGS,
    WINDOW_BYTES,
};

/// A request to encode.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method's token.
    pub method: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The authority: `host` or `host:port`.
    pub authority: &'a str,
    /// A path, perhaps a query.
    pub path: &'a str,
}

/// The header block of a request, for [`Connection::open`] of any connection. Names may have capital letters.
///
/// ```
/// use http2::client::{Connection, RequestHead, encode_request};
///
/// let head = RequestHead { method: "GET", scheme: "http", authority: "a:80", path: "/" };
/// let block = encode_request(&head, [("Accept", "*/*")].into_iter());
/// let mut connection = Connection::new();
/// connection.open("the first", &block, Default::default(), false);
/// assert!(connection.output().starts_with(b"PRI * HTTP/2.0\r\n"));
/// ```
pub fn encode_request<'a>(
    head: &RequestHead<'_>,
    fields: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<u8> {
    let mut block = Vec::new();
    hpack::request(head.method, head.scheme, head.authority, head.path, &mut block);
    fields.for_each(|(name, value)| hpack::field(name.as_bytes(), value.as_bytes(), &mut block));
    block
}

/// Returns true for a field that a request must not have (RFC 9113, 8.2.2).
pub fn is_forbidden(name: &str, value: &str) -> bool {
    crate::head::field_name(name.to_ascii_lowercase().as_bytes(), value.as_bytes()).is_err()
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A complete reply.
    Reply(Reply),
    /// The server broke the protocol on this stream, and the stream was reset.
    Malformed,
    /// The server reset the stream.
    Reset,
    /// GOAWAY named an earlier stream as the last one: the server has not worked on this one.
    Unprocessed,
}

/// Something that happened to the stream with this tag.
#[derive(Debug)]
pub enum Event<'a, T> {
    /// The head of the reply, which its content follows.
    Head(T),
    /// A piece of the reply's content.
    Content(T, &'a [u8]),
    /// The stream ended.
    Ended(T, End),
}

/// The reason why a connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The first bytes are no SETTINGS frame.
    #[error("the server does not speak HTTP/2")]
    NotHttp2,
    /// The server made a mistake that ends the connection, or sent too many frames that have to be answered.
    #[error("the server broke the protocol of HTTP/2")]
    Mistake,
}

/// A request that has no whole reply.
#[derive(Debug)]
struct Stream<T> {
    id: u32,
    tag: T,
    answers_head: bool,
    /// The status and the promised length, after the final head.
    head: Option<reply::Head>,
    received: u64,
    /// Bytes that the server may send before it gets more credit.
    credit: u32,
    /// Bytes of content that the server's window still allows.
    window: i64,
    /// The unsent content of the request.
    content: Bytes,
}

/// The client's side of one connection; `T` names a stream to the owner.
#[derive(Debug)]
pub struct Connection<T> {
    /// An incomplete frame.
    inbox: Vec<u8>,
    block: Option<Box<Block>>,
    decoder: Decoder,
    fields: Fields,
    out: Vec<u8>,
    sent: usize,
    /// The open streams, by ascending number.
    streams: Vec<Stream<T>>,
    /// The next stream's number.
    next: u32,
    /// The server's SETTINGS have come.
    greeted: bool,
    most_streams: u32,
    /// Bytes of content that the server's window for the connection still allows, and those of a new stream's window.
    window: i64,
    initial_window: i64,
    /// Bytes that the server may send before it gets more credit.
    credit: u32,
    going_away: bool,
}

impl<T: Copy + PartialEq> Default for Connection<T> {
    fn default() -> Connection<T> {
        Connection::new()
    }
}

impl<T: Copy + PartialEq> Connection<T> {
    /// A connection whose preface and settings wait to be sent.
    pub fn new() -> Connection<T> {
        let mut out = PREFACE.to_vec();
        let settings = [
            (setting::ENABLE_PUSH, 0),
            (setting::INITIAL_WINDOW_SIZE, CLIENT_WINDOW_BYTES),
            (setting::MAX_HEADER_LIST_SIZE, RESPONSE_HEAD_BYTES as u32),
        ];
        frame::write_settings(&mut out, &settings);
        let more = CLIENT_WINDOW_BYTES - WINDOW_BYTES;
        frame::frame(&mut out, kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        Connection {
            inbox: Vec::new(),
            block: None,
            decoder: Decoder::default(),
            fields: Fields::default(),
            out,
            sent: 0,
            streams: Vec::new(),
            next: 1,
            greeted: false,
            most_streams: STREAMS_BEFORE_SETTINGS,
            window: i64::from(WINDOW_BYTES),
            initial_window: i64::from(WINDOW_BYTES),
            credit: CLIENT_WINDOW_BYTES,
            going_away: false,
        }
    }

    /// Returns true if the server allows another stream now, and output does not wait for it.
    pub fn can_open(&self) -> bool {
        !self.is_spent()
            && self.streams.len() < self.most_streams as usize
            && self.output().len() < CLIENT_OUTPUT_BYTES / 2
    }

    /// Returns true if no further stream can ever be opened: the server is going away, or the numbers are used up.
    pub fn is_spent(&self) -> bool {
        self.going_away || self.next > STREAM_LAST
    }

    /// Returns true once the server has sent GOAWAY.
    pub fn is_going_away(&self) -> bool {
        self.going_away
    }

    /// The number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The tags of the open streams, oldest first.
    pub fn tags(&self) -> impl Iterator<Item = T> {
        self.streams.iter().map(|stream| stream.tag)
    }

    /// Sends a request with this header block and content. Does nothing unless [`Connection::can_open`] is true.
    pub fn open(&mut self, tag: T, block: &[u8], content: Bytes, answers_head: bool) {
        if !self.can_open() {
            return;
        }
        let id = self.next;
        self.next += 2;
        self.write_block(id, block, content.is_empty());
        self.streams.push(Stream {
            id,
            tag,
            answers_head,
            head: None,
            received: 0,
            credit: CLIENT_WINDOW_BYTES,
            window: self.initial_window,
            content,
        });
        self.queue_content();
    }

    /// Gives up the stream with this tag.
    pub fn cancel(&mut self, tag: T) {
        if let Some(index) = self.streams.iter().position(|stream| stream.tag == tag) {
            let stream = self.streams.remove(index);
            self.reset(stream.id, Code::Cancel);
        }
    }

    /// Tells the server that the connection ends.
    pub fn say_goodbye(&mut self) {
        self.write_goaway(Code::NoError);
    }

    /// Takes all received bytes, and reports the events of the streams.
    ///
    /// # Errors
    /// [`Broken`]: all streams end, and [`Connection::output`] tells the server why.
    pub fn receive(&mut self, bytes: &[u8], mut tell: impl FnMut(Event<'_, T>)) -> Result<(), Broken> {
        let taken = self.read_frames(bytes, &mut tell);
        self.queue_content();
        taken
    }

    /// The bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Drops `count` bytes of [`Connection::output`], which have been sent.
    pub fn transmitted(&mut self, count: usize) {
        self.sent += count;
        // Moves what waits only now and then, because a move takes time.
        if self.sent == self.out.len() || self.sent >= CLIENT_OUTPUT_BYTES / 2 {
            self.out.drain(..std::mem::take(&mut self.sent));
        }
        self.queue_content();
    }

    fn write_block(&mut self, id: u32, block: &[u8], ends_stream: bool) {
        let first_byte = if id == 1 { &[NO_TABLE][..] } else { &[] };
        let (part, mut rest) = block.split_at(block.len().min(FRAME_BYTES - first_byte.len()));
        let end = |rest: &[u8]| if rest.is_empty() { flag::END_HEADERS } else { 0 };
        let flags = end(rest) | if ends_stream { flag::END_STREAM } else { 0 };
        frame::head(&mut self.out, first_byte.len() + part.len(), kind::HEADERS, flags, id);
        self.out.extend_from_slice(first_byte);
        self.out.extend_from_slice(part);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(FRAME_BYTES));
            frame::frame(&mut self.out, kind::CONTINUATION, end(after), id, part);
            rest = after;
        }
    }

    /// Queues content of requests, the oldest first, as far as the server's windows and our own limit allow.
    fn queue_content(&mut self) {
        for stream in self.streams.iter_mut().filter(|stream| !stream.content.is_empty()) {
            while !stream.content.is_empty() && self.out.len() - self.sent < CLIENT_OUTPUT_BYTES / 2 {
                let room = self.window.min(stream.window).clamp(0, FRAME_BYTES as i64) as usize;
                let part = stream.content.len().min(room);
                if part == 0 {
                    break;
                }
                let is_last = part == stream.content.len();
                let flags = if is_last { flag::END_STREAM } else { 0 };
                frame::frame(&mut self.out, kind::DATA, flags, stream.id, &stream.content[..part]);
                stream.content.advance(part);
                stream.window -= part as i64;
                self.window -= part as i64;
            }
        }
    }

    fn reset(&mut self, id: u32, code: Code) {
        frame::frame(&mut self.out, kind::RST_STREAM, 0, id, &(code as u32).to_be_bytes());
    }

    fn write_goaway(&mut self, code: Code) {
        // The server opens no streams.
        let payload = [[0; 4], (code as u32).to_be_bytes()].concat();
        frame::frame(&mut self.out, kind::GOAWAY, 0, 0, &payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_output_leaves_memory_while_some_waits() {
        let mut greeting = Vec::new();
        frame::write_settings(&mut greeting, &[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]);
        frame::frame(&mut greeting, kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        let mut connection = Connection::new();
        connection.receive(&greeting, |_| {}).unwrap();
        connection.open((), &[], Bytes::from(vec![b'x'; 5_000_000]), false);
        while connection.output().len() > 1 {
            connection.transmitted(connection.output().len() - 1);
            assert!(connection.out.len() < 2 * CLIENT_OUTPUT_BYTES, "{}", connection.out.len());
        }
        assert!(connection.streams[0].content.is_empty());
    }
}
