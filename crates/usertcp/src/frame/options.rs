//! TCP options: written like Linux, in its order; read in any order.

use super::{Unusable, u32_at};
use crate::wrapping::Seq;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The most bytes of options: a header of 60 bytes without the fixed 20.
pub const LENGTH_MAX: usize = 40;

/// The most blocks of a selective acknowledgment: the number that fits beside timestamps (RFC 2018, section
/// 3).
pub const SACK_BLOCKS_MAX: usize = 3;

/// The two values of the timestamps option (RFC 7323, section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock (TSval).
    pub value: u32,
    /// The last value that the sender received from its peer (TSecr).
    pub echo: u32,
}

/// A received range that is not acknowledged yet: its first number, and the first number after it.
pub type SackBlock = (Seq, Seq);

/// The options of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The largest payload that the sender takes, in bytes (RFC 9293, section 3.7.1).
    pub mss: Option<u16>,
    /// The shift of the sender's windows in bits, at most 14 (RFC 7323, section 2.3).
    pub window_scale: Option<u8>,
    /// The sender understands selective acknowledgments.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgments; further blocks are dropped.
    pub sack: [Option<SackBlock>; SACK_BLOCKS_MAX],
}

impl Options {
    /// The length of these options when written, a multiple of 4.
    pub fn length(&self) -> usize {
        let blocks = self.sack.iter().flatten().count();
        let before_timestamps = if self.timestamps.is_none() && self.sack_permitted { 4 } else { 0 };
        usize::from(self.mss.is_some()) * 4
            + usize::from(self.timestamps.is_some()) * 12
            + before_timestamps
            + usize::from(self.window_scale.is_some()) * 4
            + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }

    /// Writes the options into `buffer`, which has exactly [`length`](Self::length) bytes.
    pub fn write(&self, buffer: &mut [u8]) {
        let mut writer = Writer { buffer, at: 0 };
        if let Some(mss) = self.mss {
            writer.put(&[MSS, 4]);
            writer.put(&mss.to_be_bytes());
        }
        if self.sack_permitted {
            // In Linux it replaces the padding before the timestamps.
            if self.timestamps.is_none() {
                writer.put(&[NO_OPERATION, NO_OPERATION]);
            }
            writer.put(&[SACK_PERMITTED, 2]);
        } else if self.timestamps.is_some() {
            writer.put(&[NO_OPERATION, NO_OPERATION]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            writer.put(&[TIMESTAMPS, 10]);
            writer.put(&value.to_be_bytes());
            writer.put(&echo.to_be_bytes());
        }
        if let Some(scale) = self.window_scale {
            writer.put(&[NO_OPERATION, WINDOW_SCALE, 3, scale]);
        }
        let blocks = self.sack.iter().flatten().count();
        if blocks > 0 {
            writer.put(&[NO_OPERATION, NO_OPERATION, SACK, (2 + 8 * blocks) as u8]);
            for (first, end) in self.sack.iter().flatten() {
                writer.put(&first.0.to_be_bytes());
                writer.put(&end.0.to_be_bytes());
            }
        }
    }

    /// Reads the options of a received segment. Unknown options are skipped.
    ///
    /// # Errors
    /// [`Unusable::Malformed`] for an option that exceeds the header, or a known option with a wrong length.
    pub fn read(bytes: &[u8]) -> Result<Options, Unusable> {
        // Nearly every segment after the handshake has exactly these options.
        if let [NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10, values @ ..] = bytes
            && values.len() == 8
        {
            return Ok(Options { timestamps: Some(timestamps(values)), ..Options::default() });
        }
        let mut options = Options::default();
        let mut rest = bytes;
        while let Some((&kind, after)) = rest.split_first() {
            match kind {
                END => break,
                NO_OPERATION => rest = after,
                _ => {
                    let length = usize::from(*after.first().ok_or(Unusable::Malformed)?);
                    let option = rest.get(2..length).ok_or(Unusable::Malformed)?;
                    options.take(kind, option)?;
                    rest = &rest[length..];
                }
            }
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, value: &[u8]) -> Result<(), Unusable> {
        match (kind, value) {
            (MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            // A larger shift means 14 (RFC 7323, section 2.3).
            (WINDOW_SCALE, &[scale]) => self.window_scale = Some(scale.min(14)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, values) if values.len() == 8 => self.timestamps = Some(timestamps(values)),
            (SACK, blocks) if blocks.len().is_multiple_of(8) => {
                for (place, block) in self.sack.iter_mut().zip(blocks.chunks_exact(8)) {
                    *place = Some((Seq(u32_at(block, 0)), Seq(u32_at(block, 4))));
                }
            }
            (MSS | WINDOW_SCALE | SACK_PERMITTED | SACK | TIMESTAMPS, _) => return Err(Unusable::Malformed),
            _ => {}
        }
        Ok(())
    }
}

fn timestamps(values: &[u8]) -> Timestamps {
    Timestamps { value: u32_at(values, 0), echo: u32_at(values, 4) }
}

struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}
