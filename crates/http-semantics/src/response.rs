//! The answer of a service.
//!
//! The encoder of each version adds the status, `Date`, and the fields of its framing (`Content-Length`, the multipart
//! `Content-Type`, `Connection`). All other fields come preformatted from the service, so that a cached file's fields are
//! rendered once.

mod multipart;
mod pace;

use bytes::Bytes;

use crate::status::Status;

pub use multipart::Multipart;
pub use pace::{Budget, Pace};

/// An answer to one request.
#[derive(Clone, Debug)]
pub struct Response<F> {
    /// The status code.
    pub status: Status,
    /// Whole header lines, each ended by CRLF, without `Date`, `Connection`, `Content-Length` and
    /// `Transfer-Encoding`.
    pub fields: Bytes,
    /// The content. Its length counts for HEAD too; the machine then omits the content itself.
    pub body: Body<F>,
    /// True if the connection must end after this response.
    pub close: bool,
    /// Bounds the rate at which the content leaves. `None` lets it leave as fast as the peer takes it.
    pub pace: Option<Pace>,
}

impl<F> Response<F> {
    /// A short plain page for an error or any other status: `404 Not Found` and a line end, as `text/plain`.
    /// Allocates nothing. To send more fields (`Allow`, `Retry-After`), replace [`Response::fields`] and
    /// include the content type.
    pub fn error(status: Status) -> Response<F> {
        Response {
            status,
            fields: Bytes::from_static(b"Content-Type: text/plain; charset=utf-8\r\n"),
            body: Body::Bytes(Bytes::from_static(status.page().as_bytes())),
            close: false,
            pace: None,
        }
    }
}

/// A part of a file.
#[derive(Clone, Debug)]
pub struct FileRange<F> {
    /// The open file.
    pub file: F,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// The content of a response.
#[derive(Clone, Debug)]
pub enum Body<F> {
    /// No content. 304 and 204 omit `Content-Length`; every other status has `Content-Length: 0`.
    Absent,
    /// Content in memory. A small one is sent in one write with the head.
    Bytes(Bytes),
    /// Content of a file, sent with sendfile.
    File(FileRange<F>),
    /// `multipart/byteranges` (RFC 9110, 14.6). The machine writes the delimiters and the field
    /// `Content-Type: multipart/byteranges; boundary=...`.
    Parts(Vec<Part<F>>),
}

impl<F> Body<F> {
    /// Bytes of content, without a multipart body's delimiters.
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
    /// The content: [`Body::Bytes`] or [`Body::File`].
    pub body: Body<F>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_that_of_the_content_alone() {
        let bytes = |length| Body::Bytes(vec![b'x'; length].into());
        let file = |length| Body::File(FileRange { file: (), offset: 7, length });
        let part = |body| Part { fields: Bytes::from_static(b"A: b\r\n"), body };
        assert_eq!(Body::<()>::Absent.length(), 0);
        assert_eq!(bytes(3).length(), 3);
        assert_eq!(file(4).length(), 4);
        assert_eq!(Body::Parts(vec![part(bytes(3)), part(file(4))]).length(), 7);
    }

    #[test]
    fn error_is_a_page_of_text() {
        let response = Response::<()>::error(Status::NOT_FOUND);
        assert_eq!(response.status, Status::NOT_FOUND);
        assert_eq!(response.fields, "Content-Type: text/plain; charset=utf-8\r\n");
        assert!(matches!(response.body, Body::Bytes(page) if page == "404 Not Found\n"));
        assert!(!response.close);
        assert_eq!(response.pace, None);
    }
}
