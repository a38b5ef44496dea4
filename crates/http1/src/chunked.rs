//! The chunked transfer coding, undone byte by byte (RFC 9112, 7.1).
//!
//! Strict: a size is one to sixteen hexadecimal digits and nothing else, every line ends with CRLF,
//! every chunk is followed by CRLF. Extensions and trailers are checked, bounded and dropped.
//!
//! Invariant: the outcome depends on the bytes alone, not on the pieces they come in.

use crate::head::is_token_byte;

/// All extensions of one message together: some senders attach a signature to every chunk, nobody
/// needs more.
const EXTENSION_BYTES: u32 = 4096;
/// All trailers of one message together.
const TRAILER_BYTES: u32 = 4096;
const TRAILERS: u32 = 32;

/// Why a chunked body cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkError {
    /// Not the chunked coding.
    Malformed,
    /// The content would pass the limit.
    TooLarge,
}

/// ```text
///        digits         ";"
/// Size ---------> Size -----> Extension          data bytes
///   ^               |CR          |CR     +-------- Data -------+
///   |               +--> SizeFeed <------+  LF     ^           | all
///   |                        |  size > 0 ----------+           v
///   +--------- DataFeed <----|------------------------- DataReturn
///                            |  size = 0
///                            v
///                       TrailerStart --> TrailerName --> TrailerValue --> TrailerFeed --> TrailerStart
///                            | CR
///                            v
///                         LastFeed --> Done
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeFeed,
    Data,
    DataReturn,
    DataFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerFeed,
    LastFeed,
    Done,
}

/// A decoder of one chunked body.
#[derive(Clone, Debug)]
pub(crate) struct Chunked {
    state: State,
    digits: u8,
    /// What is left of the current chunk, or its size while that is being read.
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

    /// Whether the body has been read to its end.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Bytes of content in the chunks begun so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Reads on, up to the body's end at most, handing the content to `sink`. Says how many bytes
    /// it took: all of them unless the body has ended.
    pub(crate) fn decode(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) -> Result<usize, ChunkError> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
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
            (State::Size, b';') if self.digits > 0 => Ok(State::Extension),
            (State::Size, digit) => self.size_digit(digit),
            (State::Extension, b'\r') => Ok(State::SizeFeed),
            (State::Extension, text) if is_text(text) => {
                count(&mut self.extension_bytes, EXTENSION_BYTES).map(|()| State::Extension)
            }
            (State::SizeFeed, b'\n') => self.begin_chunk(),
            (State::DataReturn, b'\r') => Ok(State::DataFeed),
            (State::DataFeed, b'\n') => Ok(State::Size),
            (State::TrailerStart, b'\r') => Ok(State::LastFeed),
            (State::TrailerStart, name) if is_token_byte(name) => {
                count(&mut self.trailers, TRAILERS).map(|()| State::TrailerName)
            }
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerName, name) if is_token_byte(name) => {
                count(&mut self.trailer_bytes, TRAILER_BYTES).map(|()| State::TrailerName)
            }
            (State::TrailerValue, b'\r') => Ok(State::TrailerFeed),
            (State::TrailerValue, text) if is_text(text) => {
                count(&mut self.trailer_bytes, TRAILER_BYTES).map(|()| State::TrailerValue)
            }
            (State::TrailerFeed, b'\n') => Ok(State::TrailerStart),
            (State::LastFeed, b'\n') => Ok(State::Done),
            _ => Err(ChunkError::Malformed),
        }
    }

    fn size_digit(&mut self, byte: u8) -> Result<State, ChunkError> {
        let digit = char::from(byte).to_digit(16).ok_or(ChunkError::Malformed)?;
        // Sixteen digits fill 64 bits; a longer size overflows or hides behind zeros.
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
            0 => Ok(State::TrailerStart),
            _ => Ok(State::Data),
        }
    }
}

fn count(counter: &mut u32, limit: u32) -> Result<(), ChunkError> {
    *counter += 1;
    if *counter > limit { Err(ChunkError::Malformed) } else { Ok(()) }
}

/// What may stand in a field value or an extension: no controls but the tab.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
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
    fn rfc9112_7_1_1_extensions_are_dropped_and_bounded() {
        check("1;a=b;c=\"d e\"\r\nx\r\n0;z\r\n\r\n", Ok(("x", 25, true)));
        check("1;a\u{1}\r\nx\r\n", Err(ChunkError::Malformed));
        check("1;a\nx", Err(ChunkError::Malformed));
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
}
