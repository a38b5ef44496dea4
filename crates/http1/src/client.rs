//! The client's side: requests to write, and a reader of responses.
//!
//! A load generator reads hundreds of thousands of replies per second on thousands of connections. The
//! [`Reader`] therefore counts content instead of keeping it, and copies only incomplete heads. It accepts
//! what RFC 9112 lets a recipient accept (a bare LF ends a line), and refuses a reply whose end is in doubt.
//!
//! Owns framing of replies. Does not know redirects, cookies, content codings or time.

use std::mem::MaybeUninit;

use http_semantics::{Reply, has_token};

use crate::chunked::{ChunkError, Chunked};
use crate::scan::{HeadScan, LineEnds};

/// Maximum bytes of a reply's head. A server that sends more is not worth measuring.
const HEAD_BYTES: usize = 64 * 1024;
const FIELDS: usize = 128;

/// The first bytes of every reply (RFC 9112, 4). Frames of HTTP/2 and TLS records have no line end to wait for.
const START: &[u8] = b"HTTP/1.";

/// A request to write.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method's token.
    pub method: &'a str,
    /// Origin form: a path, perhaps a query.
    pub target: &'a str,
    /// The authority: `host` or `host:port`.
    pub host: &'a str,
    /// More header lines, each ended by CRLF.
    pub fields: &'a str,
    /// True if the connection is to persist. Otherwise the request has `Connection: close`.
    pub persistent: bool,
}

/// Appends an HTTP/1.1 request without content.
///
/// ```
/// use http1::client::{RequestHead, encode_request};
///
/// let mut bytes = Vec::new();
/// let (method, target, host) = ("GET", "/", "a:80");
/// let head = RequestHead { method, target, host, fields: "Accept: */*\r\n", persistent: false };
/// encode_request(&mut bytes, &head);
/// assert_eq!(bytes, b"GET / HTTP/1.1\r\nHost: a:80\r\nAccept: */*\r\nConnection: close\r\n\r\n");
/// ```
pub fn encode_request(into: &mut Vec<u8>, head: &RequestHead<'_>) {
    let end = if head.persistent { "\r\n" } else { "Connection: close\r\n\r\n" };
    for text in [head.method, " ", head.target, " HTTP/1.1\r\nHost: ", head.host, "\r\n", head.fields, end] {
        into.extend_from_slice(text.as_bytes());
    }
}

/// A part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A whole head, with the empty line.
    Head(&'a [u8]),
    /// A piece of content, with the transfer coding removed.
    Content(&'a [u8]),
}

/// Hands the name and the value of each field of a head to `sink`; none of a head that is not well formed.
pub fn fields(head: &[u8], mut sink: impl FnMut(&str, &[u8])) {
    let mut slots = [httparse::EMPTY_HEADER; FIELDS];
    let mut response = httparse::Response::new(&mut slots);
    if response.parse(head).is_ok() {
        response.headers.iter().for_each(|field| sink(field.name, field.value));
    }
}

/// The value of the first field of this name in a head; `None` as well for a head that is not well formed.
pub fn field(head: &[u8], wanted: &str) -> Option<Vec<u8>> {
    let mut found = None;
    fields(head, |name, value| {
        if found.is_none() && name.eq_ignore_ascii_case(wanted) {
            found = Some(value.to_vec());
        }
    });
    found
}

/// The reason why a reply cannot be read. Its connection is then of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are no response head.
    #[error("the reply's head is not HTTP/1")]
    Head,
    /// The head exceeds 64 KiB or 128 fields.
    #[error("the reply's head is too large")]
    HeadTooLarge,
    /// The lengths differ or are no numbers, or the chunked coding is applied twice.
    #[error("the reply's length is ambiguous")]
    Length,
    /// The chunked coding is broken.
    #[error("the reply's chunks are broken")]
    Chunk,
    /// The connection ended within a reply.
    #[error("the connection ended within a reply")]
    Truncated,
}

#[derive(Clone, Debug)]
enum State {
    Head,
    Sized { left: u64, reply: Reply },
    Chunked { decoder: Chunked, reply: Reply },
    UntilEnd { reply: Reply },
}

/// Reads replies from any pieces of a connection's bytes, in constant memory.
#[derive(Clone, Debug)]
pub struct Reader {
    state: State,
    scan: HeadScan,
    /// The bytes of an incomplete head.
    partial: Vec<u8>,
    answers_head: bool,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

impl Reader {
    /// A reader at the beginning of a connection. It allocates only for heads that arrive in pieces.
    pub fn new() -> Reader {
        Reader { state: State::Head, scan: HeadScan::default(), partial: Vec::new(), answers_head: false }
    }

    /// Sets whether replies from the next one on answer HEAD requests, and so have no content.
    pub fn expect_head(&mut self, answers_head: bool) {
        self.answers_head = answers_head;
    }

    /// True if a part of a reply has been read.
    pub fn is_within_reply(&self) -> bool {
        !matches!(self.state, State::Head) || !self.partial.is_empty()
    }

    /// Reads to the end of one reply at most. Returns the number of `bytes` taken, and the reply if it is
    /// complete. Only a complete reply leaves bytes untaken. Interim replies are skipped.
    ///
    /// # Errors
    /// [`Malformed`], but not [`Malformed::Truncated`]. After an error the reader must not be fed again.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Reply>), Malformed> {
        self.feed_content(bytes, |_| {})
    }

    /// Reads as [`feed`](Self::feed) does and hands the content to `sink` in pieces, with the transfer coding
    /// removed.
    ///
    /// # Errors
    /// The errors of [`feed`](Self::feed).
    pub fn feed_content(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(&[u8]),
    ) -> Result<(usize, Option<Reply>), Malformed> {
        self.feed_parts(bytes, |part| {
            if let Part::Content(content) = part {
                sink(content);
            }
        })
    }

    /// Reads as [`feed`](Self::feed) does and hands heads and pieces of content to `sink`. Interim replies have heads too.
    ///
    /// # Errors
    /// The errors of [`feed`](Self::feed).
    pub fn feed_parts(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(Part<'_>),
    ) -> Result<(usize, Option<Reply>), Malformed> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match &mut self.state {
                State::Head => match self.feed_head(rest, &mut sink)? {
                    Some((taken, state)) => {
                        at += taken;
                        self.state = state;
                    }
                    None => return Ok((bytes.len(), None)),
                },
                State::Sized { left, reply } => {
                    let take = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    sink(Part::Content(&rest[..take]));
                    *left -= take as u64;
                    reply.body_bytes += take as u64;
                    if *left == 0 {
                        return Ok((at + take, Some(self.finish())));
                    }
                    return Ok((bytes.len(), None));
                }
                State::Chunked { decoder, reply } => {
                    let decoded = decoder.decode(rest, |content| sink(Part::Content(content)));
                    let taken = decoded.map_err(|error| match error {
                        ChunkError::Malformed | ChunkError::TooLarge => Malformed::Chunk,
                    })?;
                    if decoder.is_done() {
                        reply.body_bytes = decoder.total();
                        return Ok((at + taken, Some(self.finish())));
                    }
                    return Ok((bytes.len(), None));
                }
                State::UntilEnd { reply } => {
                    sink(Part::Content(rest));
                    reply.body_bytes += rest.len() as u64;
                    return Ok((bytes.len(), None));
                }
            }
        }
    }

    /// Ends the input because the server closed the connection. Completes a reply that the end delimits.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] within any other reply.
    pub fn end(&mut self) -> Result<Option<Reply>, Malformed> {
        match self.state {
            State::UntilEnd { .. } => Ok(Some(self.finish())),
            State::Head if self.partial.is_empty() => Ok(None),
            _ => Err(Malformed::Truncated),
        }
    }

    fn finish(&mut self) -> Reply {
        match std::mem::replace(&mut self.state, State::Head) {
            State::Sized { reply, .. } | State::Chunked { reply, .. } | State::UntilEnd { reply } => reply,
            State::Head => unreachable!("only a reply that has begun is finished"),
        }
    }

    /// Returns the head's remaining length and the state after the head; `None` if the head is incomplete.
    fn feed_head(
        &mut self,
        bytes: &[u8],
        sink: &mut impl FnMut(Part<'_>),
    ) -> Result<Option<(usize, State)>, Malformed> {
        let mut start = START.iter().skip(self.partial.len()).zip(bytes);
        if !start.all(|(expected, byte)| expected == byte) {
            return Err(Malformed::Head);
        }
        if self.partial.is_empty() {
            let window = &bytes[..bytes.len().min(HEAD_BYTES)];
            return match self.scan.find_end(window, LineEnds::Any) {
                Ok(Some(end)) => {
                    let state = parse(&bytes[..end], self.answers_head)?;
                    sink(Part::Head(&bytes[..end]));
                    Ok(Some((end, state)))
                }
                _ if window.len() == HEAD_BYTES => Err(Malformed::HeadTooLarge),
                _ => {
                    self.partial.extend_from_slice(bytes);
                    Ok(None)
                }
            };
        }
        let before = self.partial.len();
        self.partial.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES - before)]);
        match self.scan.find_end(&self.partial, LineEnds::Any) {
            Ok(Some(end)) => {
                // The buffer is freed, because most connections rarely receive a head in pieces.
                let head = std::mem::take(&mut self.partial);
                let state = parse(&head[..end], self.answers_head)?;
                sink(Part::Head(&head[..end]));
                Ok(Some((end - before, state)))
            }
            _ if self.partial.len() == HEAD_BYTES => Err(Malformed::HeadTooLarge),
            _ => Ok(None),
        }
    }
}

/// Parses a head and returns the state that follows it (RFC 9112, 6.3).
fn parse(head: &[u8], answers_head: bool) -> Result<State, Malformed> {
    let mut slots = [const { MaybeUninit::uninit() }; FIELDS];
    let mut response = httparse::Response::new(&mut []);
    match httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        head,
        &mut slots,
    ) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Malformed::HeadTooLarge),
        Ok(httparse::Status::Partial) | Err(_) => return Err(Malformed::Head),
    }
    let status = response.code.ok_or(Malformed::Head)?;
    let framing = Framing::read(response.headers)?;
    let persists_by_version = response.version == Some(1);
    let mut reply = Reply {
        status,
        body_bytes: 0,
        persistent: !framing.close && (persists_by_version || framing.keep_alive),
    };
    match (framing.coding, framing.length) {
        // 101 is final, because no HTTP follows it. Other 1xx replies announce a final reply.
        _ if (100..=199).contains(&status) && status != 101 => Ok(State::Head),
        _ if answers_head || matches!(status, 101 | 204 | 304) => Ok(State::Sized { left: 0, reply }),
        (Coding::Chunked, length) => {
            reply.persistent &= length.is_none() && persists_by_version;
            Ok(State::Chunked { decoder: Chunked::new(u64::MAX), reply })
        }
        (Coding::Absent, Some(left)) => Ok(State::Sized { left, reply }),
        (Coding::Absent, None) | (Coding::Other, _) => {
            reply.persistent = false;
            Ok(State::UntilEnd { reply })
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Absent,
    Chunked,
    Other,
}

struct Framing {
    length: Option<u64>,
    coding: Coding,
    close: bool,
    keep_alive: bool,
}

impl Framing {
    fn read(fields: &[httparse::Header<'_>]) -> Result<Framing, Malformed> {
        let mut framing = Framing { length: None, coding: Coding::Absent, close: false, keep_alive: false };
        let mut was_chunked = false;
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                14 if is("content-length") => {
                    let length = length(field.value)?;
                    if framing.length.replace(length).is_some_and(|other| other != length) {
                        return Err(Malformed::Length);
                    }
                }
                17 if is("transfer-encoding") => {
                    // Chunked delimits the content only as the last coding. Twice, it is an error (RFC 9112, 6.1).
                    for coding in field.value.split(|byte| *byte == b',') {
                        let chunked = coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
                        if chunked && std::mem::replace(&mut was_chunked, true) {
                            return Err(Malformed::Length);
                        }
                        framing.coding = if chunked { Coding::Chunked } else { Coding::Other };
                    }
                }
                10 if is("connection") => {
                    framing.close |= has_token(field.value, "close");
                    framing.keep_alive |= has_token(field.value, "keep-alive");
                }
                _ => {}
            }
        }
        Ok(framing)
    }
}

fn length(digits: &[u8]) -> Result<u64, Malformed> {
    let text = std::str::from_utf8(digits).map_err(|_| Malformed::Length)?;
    match text.as_bytes() {
        [b'0'..=b'9', ..] => text.parse().map_err(|_| Malformed::Length),
        _ => Err(Malformed::Length),
    }
}
