//! What a service answers with.
//!
//! The encoder adds the status line, `Date`, `Connection` where it is needed, and the framing fields
//! (`Content-Length`, the multipart `Content-Type`); everything else comes preformatted from the
//! service, so that a cached file's fields are rendered once.

use bytes::Bytes;

use crate::status::Status;

/// An answer to one request.
#[derive(Clone, Debug)]
pub struct Response<F> {
    /// The status code.
    pub status: Status,
    /// Whole header lines, each ended by CRLF; without `Date`, `Connection`, `Content-Length`,
    /// `Transfer-Encoding`.
    pub fields: Bytes,
    /// The content. It says the length even for HEAD, where the machine leaves it out.
    pub body: Body<F>,
    /// The service wants the connection to end after this response.
    pub close: bool,
}

impl<F> Response<F> {
    /// The short plain page of an error (or of any status): `404 Not Found` and a line end, as
    /// `text/plain`. Allocates nothing. More fields (`Allow`, `Retry-After`) take the place of
    /// [`Response::fields`], which then must name the content type as well.
    pub fn error(status: Status) -> Response<F> {
        Response {
            status,
            fields: Bytes::from_static(b"Content-Type: text/plain; charset=utf-8\r\n"),
            body: Body::Bytes(Bytes::from_static(status.page().as_bytes())),
            close: false,
        }
    }
}

/// A part of a file.
#[derive(Clone, Debug)]
pub struct FileRange<F> {
    /// The open file.
    pub file: F,
    /// First byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// The content of a response.
#[derive(Clone, Debug)]
pub enum Body<F> {
    /// None: 304 and 204 go without `Content-Length`, every other status says `Content-Length: 0`.
    Absent,
    /// From memory: sent in one write with the head where it is small.
    Bytes(Bytes),
    /// From a file, for sendfile.
    File(FileRange<F>),
    /// `multipart/byteranges` (RFC 9110, 14.6). The machine writes the delimiters, and the
    /// `Content-Type: multipart/byteranges; boundary=...` field that goes with them.
    Parts(Vec<Part<F>>),
}

impl<F> Body<F> {
    /// How many bytes of content this is, without a multipart body's delimiters.
    pub fn length(&self) -> u64 {
        match self {
            Body::Absent => 0,
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File(range) => range.length,
            Body::Parts(parts) => parts.iter().map(|part| part.body.length()).sum(),
        }
    }
}

/// One part of a multipart body.
#[derive(Clone, Debug)]
pub struct Part<F> {
    /// `Content-Type` and `Content-Range` lines, each ended by CRLF.
    pub fields: Bytes,
    /// [`Body::Bytes`] or [`Body::File`].
    pub body: Body<F>,
}
