//! Finds the end of a head and reads no byte twice.
//!
//! A head arrives in any number of pieces. The scan remembers its position and the start of the current line,
//! so a head sent byte by byte costs as much as one sent whole.

/// The line ends that a reader accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnds {
    /// CRLF only. A server whose line ends differ from a proxy's lets requests be smuggled.
    Crlf,
    /// CRLF or LF, which a recipient may accept (RFC 9112, 2.2).
    Any,
}

/// Error: an LF without its CR where only CRLF is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BareLf;

/// The progress of scanning a head. Offsets count from the head's first byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadScan {
    looked_at: u32,
    line: u32,
}

impl HeadScan {
    /// Returns the length of the head, empty line included, once it is complete, and starts afresh. `bytes`
    /// is the whole head so far. It is shorter than in the last call only after a change of its limit, and then it
    /// has no end.
    pub(crate) fn find_end(&mut self, bytes: &[u8], ends: LineEnds) -> Result<Option<usize>, BareLf> {
        let find_feed = |rest| memchr::memchr(b'\n', rest);
        while let Some(distance) = bytes.get(self.looked_at as usize..).and_then(find_feed) {
            let feed = self.looked_at as usize + distance;
            let line = &bytes[self.line as usize..feed];
            let text = match (line.last(), ends) {
                (Some(b'\r'), _) => line.len() - 1,
                (_, LineEnds::Any) => line.len(),
                (_, LineEnds::Crlf) => return Err(BareLf),
            };
            if text == 0 {
                *self = HeadScan::default();
                return Ok(Some(feed + 1));
            }
            self.looked_at = feed as u32 + 1;
            self.line = self.looked_at;
        }
        self.looked_at = bytes.len() as u32;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], ends: LineEnds, expect: Result<Option<usize>, BareLf>) {
        assert_eq!(HeadScan::default().find_end(input, ends), expect, "in one piece");
        let mut scan = HeadScan::default();
        let bytewise = (1..=input.len())
            .map(|length| scan.find_end(&input[..length], ends))
            .find(|found| *found != Ok(None))
            .unwrap_or(Ok(None));
        assert_eq!(bytewise, expect, "a byte at a time");
    }

    #[test]
    fn the_empty_line_ends_a_head() {
        check(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", LineEnds::Crlf, Ok(Some(27)));
        check(b"GET / HTTP/1.1\r\n\r\n", LineEnds::Crlf, Ok(Some(18)));
        check(b"GET / HTTP/1.1\r\nHost: a\r\n\r", LineEnds::Crlf, Ok(None));
        check(b"", LineEnds::Crlf, Ok(None));
    }

    #[test]
    fn a_bare_line_feed_is_refused_or_taken() {
        check(b"GET / HTTP/1.1\nHost: a\n\n", LineEnds::Crlf, Err(BareLf));
        check(b"GET / HTTP/1.1\r\nHost: a\r\n\n", LineEnds::Crlf, Err(BareLf));
        check(b"HTTP/1.1 200 OK\nA: b\n\nrest", LineEnds::Any, Ok(Some(22)));
        check(b"HTTP/1.1 200 OK\r\nA: b\r\n\nrest", LineEnds::Any, Ok(Some(24)));
    }
}
