//! A header block that comes in several frames (RFC 9113, section 4.3).
//!
//! Owns the bytes until the last frame, and their bounds. The two connections decode them.

use crate::frame::{Code, Fault, Head, flag};

/// A header block that is not complete.
#[derive(Debug)]
pub(crate) struct Block {
    pub stream: u32,
    pub ends_stream: bool,
    pub bytes: Vec<u8>,
    /// The CONTINUATION frames so far.
    frames: u32,
}

impl Block {
    /// The block that begins with `bytes`, in a frame with this head.
    pub fn begin(head: &Head, bytes: &[u8]) -> Box<Block> {
        let ends_stream = head.has(flag::END_STREAM);
        Box::new(Block { stream: head.stream, ends_stream, bytes: bytes.to_vec(), frames: 0 })
    }

    /// Appends the payload of a CONTINUATION frame.
    ///
    /// # Errors
    /// The block would have more bytes or frames than these.
    pub fn append(&mut self, payload: &[u8], most_bytes: usize, most_frames: u32) -> Result<(), Fault> {
        self.frames += 1;
        if self.frames > most_frames || self.bytes.len() + payload.len() > most_bytes {
            return Err(Fault::Connection(Code::EnhanceYourCalm));
        }
        self.bytes.extend_from_slice(payload);
        Ok(())
    }
}
