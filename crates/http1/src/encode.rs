//! Encodes response heads.

use http_semantics::{HttpDate, Multipart, Response, Status, decimal, for_each_status};

/// The value of a response's `Connection` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// The field is absent: HTTP/1.1 persists by default.
    Implied,
    /// `keep-alive`, for a 1.0 client that asked for it.
    KeepAlive,
    /// `close`
    Close,
}

/// Appends the head of a response: status line, `Date`, the service's fields, framing, empty line.
/// `multipart` is the response's body if it is multipart.
pub(crate) fn head<F>(
    into: &mut Vec<u8>,
    response: &Response<F>,
    multipart: Option<&Multipart<F>>,
    persistence: Persistence,
    date: &HttpDate,
) {
    status_line(into, response.status);
    into.extend_from_slice(date.line());
    into.extend_from_slice(&response.fields);
    if let Some(multipart) = multipart {
        into.extend_from_slice(b"Content-Type: multipart/byteranges; boundary=");
        into.extend_from_slice(multipart.boundary());
        into.extend_from_slice(b"\r\n");
    }
    if !response.status.is_bodiless() {
        into.extend_from_slice(b"Content-Length: ");
        decimal(into, multipart.map_or_else(|| response.body.length(), Multipart::pending));
        into.extend_from_slice(b"\r\n");
    }
    into.extend_from_slice(match persistence {
        Persistence::Implied => b"\r\n".as_slice(),
        Persistence::KeepAlive => b"Connection: keep-alive\r\n\r\n".as_slice(),
        Persistence::Close => b"Connection: close\r\n\r\n".as_slice(),
    });
}

macro_rules! known_lines {
    ($($name:ident $code:literal $reason:literal;)*) => {
        /// The whole status line of a known code, rendered at compile time.
        fn known_line(status: Status) -> Option<&'static str> {
            match status.0 {
                $($code => Some(concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n")),)*
                _ => None,
            }
        }
    };
}

for_each_status!(known_lines);

fn status_line(into: &mut Vec<u8>, status: Status) {
    match known_line(status) {
        Some(line) => into.extend_from_slice(line.as_bytes()),
        None => {
            into.extend_from_slice(b"HTTP/1.1 ");
            // A status line has three digits, whatever code the service returns.
            decimal(into, u64::from(status.0.clamp(100, 999)));
            into.extend_from_slice(b" \r\n");
        }
    }
}
