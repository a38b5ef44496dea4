//! The syntax of a request head, checked byte by byte (RFC 9112, 2.2, 3 and 5).
//!
//! A head that arrives whole goes to [`head::parse`](crate::head::parse) and never comes here. An incomplete
//! head is checked here. A peer that speaks another protocol is thus refused at its first impossible byte and
//! not at the deadline. A head that `parse` refuses is checked here for its status, so that the status does
//! not depend on the pieces in which the head arrived.
//!
//! Invariant: a head that `parse` accepts has no impossible byte.

use http_semantics::server::Limits;
use http_semantics::{Status, is_token_byte};

use crate::field_lines::FieldLines;

/// The place in a head that the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Start,
    /// The place after the CR of an empty line before the request line. Its LF never comes here, because the
    /// line is skipped whole.
    EmptyLine,
    Method,
    Target,
    Version,
    /// The place after the CR of the request line.
    LineEnd,
    Fields(FieldLines),
}

/// The progress of checking a head. Offsets count from the head's first byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadSyntax {
    place: Place,
    fields: u16,
    checked: u32,
    /// Offset of the first byte of the request line's current word.
    word: u32,
}

impl HeadSyntax {
    /// Checks the bytes after those of the last call. `bytes` is the whole head so far.
    ///
    /// # Errors
    /// The status for the first impossible byte: 400; 414 or 431 beyond a limit; 501 for CONNECT; 505 for a
    /// major version other than 1.
    pub(crate) fn check(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Status> {
        while let Some(byte) = bytes.get(self.checked as usize) {
            self.place = self.step(*byte, bytes, limits)?;
            self.checked += 1;
        }
        Ok(())
    }

    /// True if the request line has not ended yet.
    pub(crate) fn in_request_line(&self) -> bool {
        !matches!(self.place, Place::Fields(_))
    }

    fn step(&mut self, byte: u8, bytes: &[u8], limits: &Limits) -> Result<Place, Status> {
        let in_word = (self.checked - self.word) as usize;
        match (self.place, byte) {
            (Place::Start, b'\r') => Ok(Place::EmptyLine),
            (Place::Start | Place::Method, token) if is_token_byte(token) => Ok(Place::Method),
            (Place::Method, b' ') if bytes.starts_with(b"CONNECT ") => Err(Status::NOT_IMPLEMENTED),
            (Place::Method, b' ') => Ok(self.begin_word(Place::Target)),
            (Place::Target, b' ') if in_word > 0 => Ok(self.begin_word(Place::Version)),
            // The first byte of origin form, asterisk form, or a served scheme of absolute form.
            (Place::Target, b'/' | b'*' | b'h' | b'H') if in_word == 0 => Ok(Place::Target),
            (Place::Target, b'!'..=b'~') if in_word > 0 && byte != b'#' => {
                if in_word < limits.target_bytes {
                    Ok(Place::Target)
                } else {
                    Err(Status::URI_TOO_LONG)
                }
            }
            (Place::Version, byte) => version_byte(in_word, byte),
            (Place::LineEnd, b'\n') => Ok(Place::Fields(FieldLines::Start)),
            (Place::Fields(place), byte) => self.field_byte(place, byte, limits),
            _ => Err(Status::BAD_REQUEST),
        }
    }

    fn begin_word(&mut self, place: Place) -> Place {
        self.word = self.checked + 1;
        place
    }

    fn field_byte(&mut self, place: FieldLines, byte: u8, limits: &Limits) -> Result<Place, Status> {
        let next = place.step(byte).map_err(|_| Status::BAD_REQUEST)?;
        if (place, next) == (FieldLines::Start, FieldLines::Name) {
            self.fields += 1;
            if usize::from(self.fields) > limits.fields {
                return Err(Status::HEAD_TOO_LARGE);
            }
        }
        Ok(Place::Fields(next))
    }
}

/// `HTTP/1.x`; another major version has a status of its own (RFC 9110, 15.6.6).
fn version_byte(in_word: usize, byte: u8) -> Result<Place, Status> {
    const NAME: &[u8] = b"HTTP/1.";
    match (NAME.get(in_word), byte) {
        (Some(expected), byte) if *expected == byte => Ok(Place::Version),
        (Some(b'1'), b'0'..=b'9') => Err(Status::VERSION_NOT_SUPPORTED),
        (None, b'0'..=b'9') if in_word == NAME.len() => Ok(Place::Version),
        (None, b'\r') if in_word > NAME.len() => Ok(Place::LineEnd),
        _ => Err(Status::BAD_REQUEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the status of `input` and the number of valid bytes before the impossible one.
    #[track_caller]
    fn check(input: &[u8], expect: Option<(usize, Status)>) {
        let limits = Limits { target_bytes: 20, fields: 2, ..Limits::default() };
        let mut whole = HeadSyntax::default();
        let status = whole.check(input, &limits).err();
        assert_eq!(
            status.map(|status| (whole.checked as usize, status)),
            expect,
            "{:?}",
            input.escape_ascii()
        );
        let mut syntax = HeadSyntax::default();
        let in_pieces = (1..=input.len()).find_map(|length| syntax.check(&input[..length], &limits).err());
        assert_eq!(in_pieces, status, "a byte at a time: {}", input.escape_ascii());
    }

    #[test]
    fn the_first_impossible_byte_decides() {
        let bad = Status::BAD_REQUEST;
        for (input, expect) in [
            (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], Some((0, bad))),
            (b"\x80\x2e\x01\x00\x02", Some((0, bad))),
            (b"SSH-2.0-Go\r\n", Some((10, bad))),
            (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", Some((22, bad))),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some((11, Status::VERSION_NOT_SUPPORTED))),
            (b"GET / HTTP/5.6\r\n\r\n", Some((11, Status::VERSION_NOT_SUPPORTED))),
            (b"GET / HTTP/11.1\r\n", Some((12, bad))),
            (b"GET / HTTP/1.10\r\n", Some((14, bad))),
            (b"GET / HTTP/1.1 \r\n", Some((14, bad))),
            (b"GET / HTTP/1.1\n", Some((14, bad))),
            (b"GET / HTTP/1\r", Some((12, bad))),
            (b"GET / http/1.1", Some((6, bad))),
            (b"GET / /b", Some((6, bad))),
            (b"GET  /", Some((4, bad))),
            (b"GET a", Some((4, bad))),
            (b"GET /\r\n", Some((5, bad))),
            (b"GET /#", Some((5, bad))),
            (b" GET", Some((0, bad))),
            (b"\rGET", Some((1, bad))),
            (b"\nGET", Some((0, bad))),
            (b"G\xc3\xa9T", Some((1, bad))),
            (b"CONNECT ", Some((7, Status::NOT_IMPLEMENTED))),
            (b"GET /23456789012345678901", Some((24, Status::URI_TOO_LONG))),
            (b"GET / HTTP/1.1\r\n A", Some((16, bad))),
            (b"GET / HTTP/1.1\r\nA :", Some((17, bad))),
            (b"GET / HTTP/1.1\r\nA: b\r\n c", Some((22, bad))),
            (b"GET / HTTP/1.1\r\nA: b\0", Some((20, bad))),
            (b"GET / HTTP/1.1\r\nA: b\rc", Some((21, bad))),
            (b"GET / HTTP/1.1\r\n\rA", Some((17, bad))),
            (b"GET / HTTP/1.1\r\nA:\r\nB:\r\nC", Some((24, Status::HEAD_TOO_LARGE))),
        ] {
            check(input, expect);
        }
    }

    #[test]
    fn what_may_still_become_a_head_is_in_order() {
        for input in [
            &b"\r"[..],
            b"CONNECTION",
            b"GET /234567890123456789 HTTP/1.9\r\nA:\tb\xff\r\nB:\r\n\r",
            b"OPTIONS * HTTP/1.1\r\n",
            b"M-SEARCH http://[::1]:80/?a=b HTTP/1.0\r",
        ] {
            check(input, None);
        }
        let mut syntax = HeadSyntax::default();
        assert_eq!(syntax.check(b"GET / HTTP/1.1\r", &Limits::default()), Ok(()));
        assert!(syntax.in_request_line());
        assert_eq!(syntax.check(b"GET / HTTP/1.1\r\n", &Limits::default()), Ok(()));
        assert!(!syntax.in_request_line());
    }
}
