//! A `multipart/byteranges` body (RFC 9110, 14.6; RFC 2046, 5.1): delimiters and parts in turn.

use std::vec::IntoIter;

use base::Nanos;

use super::{Body, Part};

const BOUNDARY_BYTES: usize = 16;

/// A `multipart/byteranges` body while it is sent (RFC 9110, 14.6; RFC 2046, 5.1).
#[derive(Debug)]
pub struct Multipart<F> {
    boundary: [u8; BOUNDARY_BYTES],
    parts: IntoIter<Part<F>>,
    /// The bytes before the next delimiter's dashes; empty for the first delimiter.
    separator: &'static [u8],
    pending: u64,
    closed: bool,
}

impl<F> Multipart<F> {
    /// A body with these parts. The boundary comes from the time and the response's number, so that a run can
    /// be repeated.
    pub fn new(parts: Vec<Part<F>>, now: Nanos, number: u64) -> Multipart<F> {
        // Each delimiter has CRLF, two dashes, the boundary and CRLF. The first has no CRLF before it; the
        // last has two more dashes.
        let delimiters = (parts.len() as u64 + 1) * (2 + 2 + BOUNDARY_BYTES as u64 + 2);
        let inner: u64 = parts.iter().map(|part| part.fields.len() as u64 + 2 + part.body.length()).sum();
        Multipart {
            boundary: boundary(now.0 ^ number.rotate_left(32)),
            pending: delimiters + inner,
            separator: b"",
            parts: parts.into_iter(),
            closed: false,
        }
    }

    /// The delimiter, for the parameter `boundary` of the content type.
    pub fn boundary(&self) -> &[u8] {
        &self.boundary
    }

    /// Bytes of the delimiters and parts that are not taken yet.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Renders the delimiter and the fields of the next part, and returns the part's content, to be sent
    /// next. After the last part it renders the closing delimiter, once, and returns `None`.
    pub fn next(&mut self, into: &mut Vec<u8>) -> Option<Body<F>> {
        if self.closed {
            return None;
        }
        let before = into.len();
        into.extend_from_slice(self.separator);
        into.extend_from_slice(b"--");
        into.extend_from_slice(&self.boundary);
        self.separator = b"\r\n";
        let body = match self.parts.next() {
            Some(part) => {
                into.extend_from_slice(b"\r\n");
                into.extend_from_slice(&part.fields);
                into.extend_from_slice(b"\r\n");
                Some(part.body)
            }
            None => {
                into.extend_from_slice(b"--\r\n");
                self.closed = true;
                None
            }
        };
        self.pending -= (into.len() - before) as u64 + body.as_ref().map_or(0, Body::length);
        body
    }
}

/// Sixteen well-mixed hexadecimal digits (the finaliser of SplitMix64; Steele, Lea and Flood, 2014).
fn boundary(seed: u64) -> [u8; BOUNDARY_BYTES] {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    std::array::from_fn(|place| b"0123456789abcdef"[(mixed >> (4 * place) & 15) as usize])
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::FileRange;
    use super::*;

    /// The whole body, with a file as so many dots, and its boundary.
    fn rendered(parts: Vec<Part<()>>, now: Nanos, number: u64) -> (String, String) {
        let mut multipart = Multipart::new(parts, now, number);
        let boundary = String::from_utf8(multipart.boundary().to_vec()).unwrap();
        let mut text = Vec::new();
        let whole = multipart.pending();
        while let Some(body) = multipart.next(&mut text) {
            match body {
                Body::Bytes(bytes) => text.extend_from_slice(&bytes),
                body => text.resize(text.len() + body.length() as usize, b'.'),
            }
            assert_eq!(text.len() as u64 + multipart.pending(), whole);
        }
        assert!(multipart.next(&mut text).is_none());
        assert_eq!((text.len() as u64, multipart.pending()), (whole, 0));
        (String::from_utf8(text).unwrap(), boundary)
    }

    #[test]
    fn rfc2046_5_1_parts_lie_between_delimiters() {
        let part = |body| Part { fields: Bytes::from_static(b"A: b\r\n"), body };
        let file = Body::File(FileRange { file: (), offset: 7, length: 3 });
        let parts = vec![part(Body::Bytes(Bytes::from_static(b"xy"))), part(file)];
        let (text, boundary) = rendered(parts, Nanos(1), 2);
        assert_eq!(
            text.replace(&boundary, "+"),
            "--+\r\nA: b\r\n\r\nxy\r\n--+\r\nA: b\r\n\r\n...\r\n--+--\r\n"
        );
        assert_eq!(rendered(vec![], Nanos(1), 2).0.replace(&boundary, "+"), "--+--\r\n");
    }

    #[test]
    fn boundary_follows_from_time_and_number() {
        let boundary = |now, number| rendered(vec![], Nanos(now), number).1;
        assert_eq!(boundary(1, 2), boundary(1, 2));
        assert_eq!(boundary(1, 2).len(), BOUNDARY_BYTES);
        assert!(boundary(1, 2).bytes().all(|digit| digit.is_ascii_hexdigit()));
        let others = [boundary(1, 2), boundary(1, 3), boundary(2, 2), boundary(2, 1), boundary(3, 0)];
        for (place, one) in others.iter().enumerate() {
            assert!(others[..place].iter().all(|other| other != one), "{others:?}");
        }
    }
}
