//! The chunked transfer coding, decoded byte by byte (RFC 9112, 7.1).
//!
//! Strict: a size is one to sixteen hexadecimal digits and nothing else, and every line and every chunk ends
//! with CRLF. Extensions and trailers are checked, bounded and dropped.
//!
//! Invariant: the outcome depends on the bytes alone, not on the pieces they come in.

use crate::chunk_extensions::Extensions;
use crate::field_lines::{FieldLines, Impossible};

/// Maximum bytes of all extensions of a message. Some senders attach a signature to every chunk.
const EXTENSION_BYTES: u32 = 4096;
/// Maximum bytes of all trailers of a message, line ends included.
const TRAILER_BYTES: u32 = 4096;
const TRAILERS: u32 = 32;

/// The reason why a chunked body cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkError {
    /// The bytes are not the chunked coding.
    Malformed,
    /// The content would exceed its limit.
    TooLarge,
}

impl From<Impossible> for ChunkError {
    fn from(_: Impossible) -> ChunkError {
        ChunkError::Malformed
    }
}

/// ```text
///        digits         ";"
/// Size ---------> Size -----> Extensions         data bytes
///   ^               |CR          |CR     +-------- Data -------+
///   |               +--> SizeFeed <------+  LF     ^           | all
///   |                        |  size > 0 ----------+           v
///   +--------- DataFeed <----|------------------------- DataReturn
///                            |  size = 0
///                            v
///                         Trailers, to their end
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extensions(Extensions),
    SizeFeed,
    Data,
    DataReturn,
    DataFeed,
    Trailers(FieldLines),
}

/// A decoder of one chunked body.
#[derive(Clone, Debug)]
pub(crate) struct Chunked {
    state: State,
    digits: u8,
    /// The rest of the current chunk in bytes, or its size while that is being read.
    left: u64,
    total: u64,
    limit: u64,
    extension_bytes: u32,
    trailer_bytes: u32,
    trailers: u32,
}

impl Chunked {
    /// A decoder that takes up to `limit` bytes of content.
    pub(crate) fn new(limit: u64) -> Chunked {
        Chunked {
            state: State::Size,
            digits: 0,
            left: 0,
            total: 0,
            limit,
            extension_bytes: 0,
            trailer_bytes: 0,
            trailers: 0,
        }
    }

    /// True if the body has been read to its end.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Trailers(FieldLines::Done)
    }

    /// Bytes of content in the chunks begun so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Reads at most to the body's end and hands the content to `sink`. Returns the number of bytes taken:
    /// all of them, unless the body has ended.
    pub(crate) fn decode(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> Result<usize, ChunkError> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if self.state == State::Data {
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - at);
                sink(&bytes[at..at + take]);
                at += take;
                self.left -= take as u64;
                if self.left == 0 {
                    self.state = State::DataReturn;
                }
            } else {
                self.state = self.step(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<State, ChunkError> {
        match (self.state, byte) {
            (State::Size, b'\r') if self.digits > 0 => Ok(State::SizeFeed),
            (State::Size, b';') if self.digits > 0 => Ok(State::Extensions(Extensions::Start)),
            (State::Size, digit) => self.size_digit(digit),
            (State::Extensions(place), b'\r') if place.may_end() => Ok(State::SizeFeed),
            (State::Extensions(place), byte) => {
                count(&mut self.extension_bytes, EXTENSION_BYTES)?;
                Ok(State::Extensions(place.step(byte)?))
            }
            (State::SizeFeed, b'\n') => self.begin_chunk(),
            (State::DataReturn, b'\r') => Ok(State::DataFeed),
            (State::DataFeed, b'\n') => Ok(State::Size),
            (State::Trailers(place), byte) => self.trailer_byte(place, byte),
            _ => Err(ChunkError::Malformed),
        }
    }

    fn trailer_byte(&mut self, place: FieldLines, byte: u8) -> Result<State, ChunkError> {
        let next = place.step(byte)?;
        match (place, next) {
            (FieldLines::Start, FieldLines::Name) => count(&mut self.trailers, TRAILERS)?,
            (_, FieldLines::LastEnd | FieldLines::Done) => {}
            _ => count(&mut self.trailer_bytes, TRAILER_BYTES)?,
        }
        Ok(State::Trailers(next))
    }

    fn size_digit(&mut self, byte: u8) -> Result<State, ChunkError> {
        let digit = char::from(byte).to_digit(16).ok_or(ChunkError::Malformed)?;
        // Sixteen digits fill 64 bits. A longer size overflows or hides behind zeros.
        if self.digits == 16 {
            return Err(ChunkError::Malformed);
        }
        self.digits += 1;
        self.left = self.left << 4 | u64::from(digit);
        Ok(State::Size)
    }

    fn begin_chunk(&mut self) -> Result<State, ChunkError> {
        self.digits = 0;
        self.total = self.total.checked_add(self.left).ok_or(ChunkError::TooLarge)?;
        match self.left {
            _ if self.total > self.limit => Err(ChunkError::TooLarge),
            0 => Ok(State::Trailers(FieldLines::Start)),
            _ => Ok(State::Data),
        }
    }
}

fn count(counter: &mut u32, limit: u32) -> Result<(), ChunkError> {
    *counter += 1;
    if *counter > limit { Err(ChunkError::Malformed) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8], piece: usize, limit: u64) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let mut decoder = Chunked::new(limit);
        let (mut content, mut consumed) = (Vec::new(), 0);
        for bytes in input.chunks(piece) {
            consumed += decoder.decode(bytes, |data| content.extend_from_slice(data))?;
        }
        Ok((content, consumed, decoder.is_done()))
    }

    #[track_caller]
    fn check(input: &str, expect: Result<(&str, usize, bool), ChunkError>) {
        let expect = expect.map(|(content, consumed, done)| (content.as_bytes().to_vec(), consumed, done));
        for piece in [1, 2, 3, 7, usize::MAX] {
            let found = decode(input.as_bytes(), piece.min(input.len().max(1)), 1000);
            assert_eq!(found, expect, "{input:?} in pieces of {piece}");
        }
    }

    #[test]
    fn rfc9112_7_1_chunks_are_joined() {
        check("5\r\nhello\r\n0\r\n\r\nrest", Ok(("hello", 15, true)));
        check("a\r\n0123456789\r\n00001\r\nx\r\n000\r\n\r\n", Ok(("0123456789x", 32, true)));
        check("5\r\nhel", Ok(("hel", 6, false)));
        check("0\r\n\r", Ok(("", 4, false)));
    }

    #[test]
    fn rfc9112_7_1_sizes_are_digits_only() {
        for size in ["", "g", "0x5", "+5", "-5", " 5", "5 ", "5 ;a", "\t5", "5\n", "00000000000000005", ";a"]
        {
            check(&format!("{size}\r\nhello\r\n0\r\n\r\n"), Err(ChunkError::Malformed));
        }
        check("FFFFFFFFFFFFFFFF\r\n", Err(ChunkError::TooLarge));
        check("3e8\r\n", Ok(("", 5, false)));
        check("3e9\r\n", Err(ChunkError::TooLarge));
        check("1\r\na\r\n3e8\r\n", Err(ChunkError::TooLarge));
    }

    #[test]
    fn rfc9112_7_1_lines_and_chunks_end_with_crlf() {
        check("5\nhello\r\n0\r\n\r\n", Err(ChunkError::Malformed));
        check("5\r\nhello0\r\n\r\n", Err(ChunkError::Malformed));
        check("5\r\nhello\n0\r\n\r\n", Err(ChunkError::Malformed));
        check("5\r\nhello!\r\n0\r\n\r\n", Err(ChunkError::Malformed));
        check("5\rhello", Err(ChunkError::Malformed));
        check("0\r\n\n", Err(ChunkError::Malformed));
    }

    #[test]
    fn rfc9112_7_1_1_chunk_extensions_are_bounded() {
        check("1;a=b;c=\"d e\"\r\nx\r\n0;z\r\n\r\n", Ok(("x", 25, true)));
        let valid = "a/a=b/a;b/a;b=c;d/ a/a = b/a ;b/a=b ; c/a=\"\"/a=\"b;c\"/a=\"\\\"\"/a=\"\u{e9}\t\"/!#$%&'*+-.^_`|~09azAZ=1";
        for extensions in valid.split('/') {
            let consumed = extensions.len() + 12;
            check(&format!("1;{extensions}\r\nx\r\n0\r\n\r\n")[..], Ok(("x", consumed, true)));
        }
        let invalid = "/ /;/;a/a;/a;;b/a;\t/a /a=/a= /a=b /=/=b/a==b/a b/a=b c/a=\"/a=\"b/a=\"b\"c/a=b\"c\"/a=\"\\/a,b\
                       /a\u{1}/a=\u{e9}/a=\"\u{1}\"/a=\"\u{7f}\"/a\n/a\rb";
        for extensions in invalid.split('/') {
            check(&format!("1;{extensions}\r\nx\r\n"), Err(ChunkError::Malformed));
        }
        check(&format!("1;{}\r\nx", "e".repeat(5000)), Err(ChunkError::Malformed));
        let one = format!("1;{}\r\nx\r\n", "e".repeat(100));
        check(&one.repeat(50), Err(ChunkError::Malformed));
    }

    #[test]
    fn rfc9112_7_1_2_trailers_are_dropped_and_bounded() {
        check("0\r\nA: b\r\nC:\r\n\r\n", Ok(("", 15, true)));
        for trailer in ["A b", " A: b", "A : b", ": b", "A: b\u{0}", "A: b\rc", "A\r\n"] {
            check(&format!("0\r\n{trailer}\r\n\r\n"), Err(ChunkError::Malformed));
        }
        check(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(33)), Err(ChunkError::Malformed));
        check(&format!("0\r\nA: {}\r\n\r\n", "b".repeat(5000)), Err(ChunkError::Malformed));
    }

    /// The outcome of a text without a colon or a semicolon, read from left to right by the grammar of RFC 9112, 7.1.
    fn outcome_of(text: &[u8], limit: u64) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let (mut at, mut content) = (0, Vec::new());
        let line_end = |at: usize| match &text[at..] {
            [] | [b'\r'] => Ok(None),
            [b'\r', b'\n', ..] => Ok(Some(at + 2)),
            _ => Err(ChunkError::Malformed),
        };
        let incomplete = |content: Vec<u8>| Ok((content, text.len(), false));
        loop {
            let digits = text[at..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            if digits == 0 && at < text.len() {
                return Err(ChunkError::Malformed);
            }
            let size = text[at..at + digits]
                .iter()
                .fold(0, |size, digit| size * 16 + u64::from(char::from(*digit).to_digit(16).unwrap()));
            let Some(data) = line_end(at + digits)? else { return incomplete(content) };
            if content.len() as u64 + size > limit {
                return Err(ChunkError::TooLarge);
            }
            if size == 0 {
                // The name of a trailer needs a colon.
                let name = text[data..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
                return match &text[data + name..] {
                    [] => incomplete(content),
                    _ if name > 0 => Err(ChunkError::Malformed),
                    _ => Ok(line_end(data)?
                        .map_or((content.clone(), text.len(), false), |end| (content, end, true))),
                };
            }
            let end = data + size as usize;
            content.extend_from_slice(&text[data..end.min(text.len())]);
            if end > text.len() {
                return incomplete(content);
            }
            let Some(next) = line_end(end)? else { return incomplete(content) };
            at = next;
        }
    }

    #[test]
    fn every_short_text_is_read_by_the_grammar() {
        for text in base::every_text(b"013x\r\n", 7) {
            let expect = outcome_of(&text, 40);
            for piece in [1, 2, 3, text.len().max(1)] {
                let found = decode(&text, piece, 40);
                assert_eq!(found, expect, "{} in pieces of {piece}", text.escape_ascii());
            }
        }
    }
}
