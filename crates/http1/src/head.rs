//! One request head, from bytes to a [`Request`] or to the status that refuses it.
//!
//! A head that two recipients could read differently is refused (RFC 9112, 11.2). A request that is served
//! here means the same to every proxy in front of this server. [`head_syntax`](crate::head_syntax), not this
//! module, chooses the status of a syntax error.

use http_semantics::server::Limits;
use http_semantics::{
    Header, Method, Request, Status, Transport, Version, has_token, is_authority, is_token_byte, number,
};

use crate::target;

/// The delimitation of a request's content (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The request has no content.
    Empty,
    /// The content has this number of bytes.
    Sized(u64),
    /// The chunked coding.
    Chunked,
}

/// A valid head.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    /// The request, its body still empty.
    pub(crate) request: Request<'a>,
    /// The delimitation of the content.
    pub(crate) framing: Framing,
    /// The client may send another request on this connection.
    pub(crate) persistent: bool,
    /// The client waits for 100 (Continue) before it sends its content.
    pub(crate) expects_continue: bool,
}

/// Reads a whole head, empty line included. The caller knows that every line ends with CRLF. `slots` bounds
/// the number of fields.
///
/// # Errors
/// [`Status::HEAD_TOO_LARGE`] for too many fields, [`Status::BAD_REQUEST`] for every other syntax error.
/// [`HeadSyntax`](crate::head_syntax::HeadSyntax) then chooses the final status. Other statuses concern the
/// meaning of the head.
pub(crate) fn parse<'a>(
    bytes: &'a [u8],
    slots: &'a mut [Header<'a>],
    spare: &'a mut String,
    limits: &Limits,
) -> Result<Head<'a>, Status> {
    let line_end = memchr::memchr(b'\n', bytes).ok_or(Status::BAD_REQUEST)?;
    let line = request_line(&bytes[..line_end - 1], limits).ok_or(Status::BAD_REQUEST)?;
    let fields = match httparse::parse_headers(&bytes[line_end + 1..], slots) {
        Ok(httparse::Status::Complete((_, fields))) => fields,
        Err(httparse::Error::TooManyHeaders) => return Err(Status::HEAD_TOO_LARGE),
        Ok(httparse::Status::Partial) | Err(_) => return Err(Status::BAD_REQUEST),
    };
    if fields.len() > limits.fields {
        return Err(Status::HEAD_TOO_LARGE);
    }
    let known = Known::read(fields)?;
    let target =
        target::parse(line.target, line.method == Method::Options, spare).ok_or(Status::BAD_REQUEST)?;
    let host = known.host(line.version)?;
    Ok(Head {
        framing: known.framing(line.version)?,
        persistent: match line.version {
            Version::Http11 | Version::Http2 => !known.close,
            Version::Http10 => known.keep_alive && !known.close,
        },
        // A 1.0 client cannot be waiting for an interim response (RFC 9110, 10.1.1).
        expects_continue: line.version == Version::Http11 && known.expects_continue()?,
        request: Request {
            method: line.method,
            target: target.path,
            version: line.version,
            host: target.authority.unwrap_or(host),
            client: None,
            transport: Transport::default(),
            fields,
            body: &[],
        },
    })
}

struct RequestLine<'a> {
    method: Method<'a>,
    target: &'a [u8],
    version: Version,
}

/// `method SP target SP version` (RFC 9112, 3), with exactly one space between two words.
fn request_line<'a>(line: &'a [u8], limits: &Limits) -> Option<RequestLine<'a>> {
    let first = memchr::memchr(b' ', line)?;
    let last = memchr::memrchr(b' ', line).filter(|last| *last > first)?;
    let (method, target) = (&line[..first], &line[first + 1..last]);
    if method.is_empty() || !method.iter().copied().all(is_token_byte) {
        return None;
    }
    let version = version(&line[last + 1..])?;
    let method = Method::from_token(std::str::from_utf8(method).ok()?);
    let is_served = target.len() <= limits.target_bytes && method != Method::Other("CONNECT");
    is_served.then_some(RequestLine { method, target, version })
}

/// `HTTP/1.x`. An unknown minor version counts as the latest known one (RFC 9110, 2.5).
fn version(text: &[u8]) -> Option<Version> {
    match text {
        b"HTTP/1.1" => Some(Version::Http11),
        b"HTTP/1.0" => Some(Version::Http10),
        [name @ .., b'0'..=b'9'] if name == b"HTTP/1." => Some(Version::Http11),
        _ => None,
    }
}

/// The fields that determine framing, routing and persistence.
#[derive(Default)]
struct Known<'a> {
    host: Option<&'a [u8]>,
    content_length: Option<&'a [u8]>,
    coding: Coding,
    expect: Option<&'a [u8]>,
    close: bool,
    keep_alive: bool,
}

#[derive(Default, PartialEq, Eq)]
enum Coding {
    #[default]
    Absent,
    Chunked,
    /// Codings that this server does not know or does not decode.
    Unknown,
    /// `chunked` twice or not last, or an empty list: the content's end is ambiguous.
    Ambiguous,
}

impl<'a> Known<'a> {
    fn read(fields: &[Header<'a>]) -> Result<Known<'a>, Status> {
        let mut known = Known::default();
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            // Most fields are none of these, and one comparison of lengths tells so.
            match field.name.len() {
                4 if is("host") => once(&mut known.host, field.value)?,
                14 if is("content-length") => once(&mut known.content_length, field.value)?,
                17 if is("transfer-encoding") => known.coding.add(field.value),
                6 if is("expect") => once(&mut known.expect, field.value)?,
                10 if is("connection") => {
                    known.close |= has_token(field.value, "close");
                    known.keep_alive |= has_token(field.value, "keep-alive");
                }
                _ => {}
            }
        }
        Ok(known)
    }

    /// The request's host (RFC 9112, 3.2).
    fn host(&self, version: Version) -> Result<&'a str, Status> {
        match (self.host, version) {
            (Some(host), _) if is_authority(host) => {
                std::str::from_utf8(host).map_err(|_| Status::BAD_REQUEST)
            }
            (None, Version::Http10) => Ok(""),
            _ => Err(Status::BAD_REQUEST),
        }
    }

    /// The delimitation of the content (RFC 9112, 6.1 to 6.3).
    fn framing(&self, version: Version) -> Result<Framing, Status> {
        match (&self.coding, self.content_length) {
            (Coding::Absent, None) => Ok(Framing::Empty),
            (Coding::Absent, Some(digits)) => match number(digits).ok_or(Status::BAD_REQUEST)? {
                0 => Ok(Framing::Empty),
                length => Ok(Framing::Sized(length)),
            },
            (Coding::Ambiguous, _) | (_, Some(_)) => Err(Status::BAD_REQUEST),
            _ if version == Version::Http10 => Err(Status::BAD_REQUEST),
            (Coding::Unknown, None) => Err(Status::NOT_IMPLEMENTED),
            (Coding::Chunked, None) => Ok(Framing::Chunked),
        }
    }

    fn expects_continue(&self) -> Result<bool, Status> {
        match self.expect {
            None => Ok(false),
            Some(value) if value.eq_ignore_ascii_case(b"100-continue") => Ok(true),
            Some(_) => Err(Status::EXPECTATION_FAILED),
        }
    }
}

impl Coding {
    fn add(&mut self, value: &[u8]) {
        for coding in value.split(|byte| *byte == b',') {
            let name = coding.split(|byte| *byte == b';').next().unwrap_or(coding).trim_ascii();
            *self = match self {
                // Only the last coding may be chunked. Any coding after it makes the list ambiguous.
                Coding::Chunked | Coding::Ambiguous => Coding::Ambiguous,
                _ if name.is_empty() => Coding::Ambiguous,
                Coding::Absent if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => Coding::Chunked,
                // `gzip, chunked` delimits the content, but this server does not decode gzip.
                Coding::Absent | Coding::Unknown => Coding::Unknown,
            };
        }
    }
}

fn once<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) -> Result<(), Status> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Status::BAD_REQUEST),
    }
}
