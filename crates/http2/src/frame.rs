//! Frames (RFC 9113, sections 4 and 6): their heads, their writing, and the error codes.

/// The first bytes of every client (RFC 9113, 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame's head.
pub(crate) const HEAD_BYTES: usize = 9;

/// The greatest window (RFC 9113, 6.9.1).
pub(crate) const MOST_WINDOW: i64 = (1 << 31) - 1;

/// The greatest number of a client's stream.
pub(crate) const STREAM_LAST: u32 = u32::MAX >> 1;

/// Types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    /// RFC 9218, 7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames.
pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// Identifiers of settings (RFC 9113, 6.5.2).
pub(crate) mod setting {
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// RFC 9218, 2.1.
    pub(crate) const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// An error code (RFC 9113, 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Code {
    NoError = 0,
    Protocol = 1,
    Internal = 2,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    RefusedStream = 7,
    Cancel = 8,
    Compression = 9,
    EnhanceYourCalm = 11,
}

/// A peer's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It ends the connection.
    Connection(Code),
    /// It ends this stream.
    Stream(u32, Code),
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// 0 for the connection.
    pub(crate) stream: u32,
}

impl Head {
    /// Reads the head at the beginning of `bytes`; `None` if it is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Head> {
        let [a, b, c, kind, flags, stream @ ..] = *bytes.first_chunk::<HEAD_BYTES>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        Some(Head { length, kind, flags, stream: u32::from_be_bytes(stream) & (u32::MAX >> 1) })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame's head. A payload of `length` bytes, less than 2^24, follows.
pub(crate) fn head(into: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    into.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    into.extend_from_slice(&[kind, flags]);
    into.extend_from_slice(&stream.to_be_bytes());
}

/// Appends a frame.
pub(crate) fn frame(into: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    head(into, payload.len(), kind, flags, stream);
    into.extend_from_slice(payload);
}

/// The payload without padding. Fails if the padding, or the field with its length, is longer than the payload.
pub(crate) fn unpadded<'a>(head: &Head, payload: &'a [u8]) -> Result<&'a [u8], Code> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(Code::FrameSize)?;
    let length = rest.len().checked_sub(usize::from(padding)).ok_or(Code::Protocol)?;
    Ok(&rest[..length])
}

/// The part of a header block in the payload of HEADERS, and true if the stream depends on itself.
pub(crate) fn block_part<'a>(head: &Head, payload: &'a [u8]) -> Result<(&'a [u8], bool), Code> {
    let bytes = unpadded(head, payload)?;
    if !head.has(flag::PRIORITY) {
        return Ok((bytes, false));
    }
    let dependency = number(bytes).ok_or(Code::FrameSize)?;
    let bytes = bytes.get(5..).ok_or(Code::FrameSize)?;
    Ok((bytes, dependency & (u32::MAX >> 1) == head.stream))
}

/// The settings in a payload whose length is a multiple of 6, with their identifiers.
pub(crate) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.chunks_exact(6).map(|setting| {
        (u16::from_be_bytes([setting[0], setting[1]]), number(&setting[2..]).unwrap_or_default())
    })
}

/// Appends the bytes that an incomplete frame lacks, or those that its head lacks if that is incomplete.
pub(crate) fn top_up(incomplete: &mut Vec<u8>, bytes: &mut &[u8]) {
    let length = Head::parse(incomplete).map_or(0, |head| head.length);
    let missing = (HEAD_BYTES + length - incomplete.len()).min(bytes.len());
    let (next, rest) = bytes.split_at(missing);
    incomplete.extend_from_slice(next);
    *bytes = rest;
}

/// Appends a SETTINGS frame.
pub(crate) fn write_settings(into: &mut Vec<u8>, settings: &[(u16, u32)]) {
    head(into, settings.len() * 6, kind::SETTINGS, 0, 0);
    for (id, value) in settings {
        into.extend_from_slice(&id.to_be_bytes());
        into.extend_from_slice(&value.to_be_bytes());
    }
}

/// Reads the increment of a WINDOW_UPDATE frame (RFC 9113, 6.9).
pub(crate) fn increment(payload: &[u8]) -> Result<i64, Code> {
    let more = number(payload).filter(|_| payload.len() == 4).ok_or(Code::FrameSize)?;
    Ok(i64::from(more & (u32::MAX >> 1)))
}

/// Widens a window by an increment (RFC 9113, 6.9.1).
pub(crate) fn widen(window: &mut i64, more: i64) -> Result<(), Code> {
    *window += more;
    match more {
        0 => Err(Code::Protocol),
        _ if *window > MOST_WINDOW => Err(Code::FlowControl),
        _ => Ok(()),
    }
}

/// The 32-bit number at the beginning of a payload.
pub(crate) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
