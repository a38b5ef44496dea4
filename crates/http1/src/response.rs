//! What a service answers with.
//!
//! The encoder adds the status line, `Date`, `Connection` where it is needed, and the framing fields
//! (`Content-Length`, the multipart `Content-Type`); everything else comes preformatted from the
//! service, so that a cached file's fields are rendered once.

use bytes::Bytes;

/// A status code (RFC 9110, 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u16);

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
    /// None, and no `Content-Length` either: 304, 204.
    Absent,
    /// From memory: sent in one write with the head where it is small.
    Bytes(Bytes),
    /// From a file, for sendfile.
    File(FileRange<F>),
    /// `multipart/byteranges` (RFC 9110, 14.6). The machine writes the delimiters, and the
    /// `Content-Type: multipart/byteranges; boundary=...` field that goes with them.
    Parts(Vec<Part<F>>),
}

/// One part of a multipart body.
#[derive(Clone, Debug)]
pub struct Part<F> {
    /// `Content-Type` and `Content-Range` lines, each ended by CRLF.
    pub fields: Bytes,
    /// [`Body::Bytes`] or [`Body::File`].
    pub body: Body<F>,
}
