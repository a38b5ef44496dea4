//! Output that waits to be sent: rendered bytes first, then at most one body that is sent without a copy.
//!
//! Invariants: the order of sending is `bytes`, `tail`, `parts`. Nothing is added after a tail or parts. A
//! tail is never empty. `bytes` holds no memory when it has nothing to send.

use bytes::{Buf, Bytes};

use super::Buffers;
use crate::encode::Multipart;
use crate::response::{Body, FileRange};

/// Maximum size of content that is copied behind its head, so that both leave in one write. Larger content is
/// sent without a copy.
pub const COPIED_BODY_BYTES: usize = 16 * 1024;

/// The next output to send.
#[derive(Debug)]
pub enum Transmit<'a, F> {
    /// All output has been sent.
    Nothing,
    /// Bytes to send.
    Bytes {
        /// Never empty.
        bytes: &'a [u8],
        /// More output follows at once: set `MSG_MORE`.
        more: bool,
    },
    /// A part of a file to send.
    File {
        /// The rest of the range; never empty.
        range: &'a FileRange<F>,
        /// More output follows at once.
        more: bool,
    },
}

#[derive(Debug)]
enum Tail<F> {
    Empty,
    Bytes(Bytes),
    File(FileRange<F>),
}

#[derive(Debug)]
pub(super) struct Outbox<F> {
    bytes: Vec<u8>,
    sent: usize,
    tail: Tail<F>,
    parts: Option<Box<Multipart<F>>>,
}

impl<F> Outbox<F> {
    pub(super) fn new() -> Outbox<F> {
        Outbox { bytes: Vec::new(), sent: 0, tail: Tail::Empty, parts: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && matches!(self.tail, Tail::Empty) && self.parts.is_none()
    }

    /// True if another response may be queued: always if nothing is pending, never after a tail.
    pub(super) fn has_room(&self, limit: usize) -> bool {
        let only_bytes = matches!(self.tail, Tail::Empty) && self.parts.is_none();
        only_bytes && (self.bytes.is_empty() || self.bytes.len() < limit)
    }

    /// All pending output, in bytes.
    pub(super) fn pending(&self) -> u64 {
        let tail = match &self.tail {
            Tail::Empty => 0,
            Tail::Bytes(bytes) => bytes.len() as u64,
            Tail::File(range) => range.length,
        };
        (self.bytes.len() - self.sent) as u64 + tail + self.parts.as_ref().map_or(0, |parts| parts.pending())
    }

    /// The buffer for a head. Call only while there is room.
    pub(super) fn bytes(&mut self, buffers: &mut Buffers) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = buffers.take();
        }
        &mut self.bytes
    }

    /// Queues the content of the head just rendered.
    pub(super) fn push_body(&mut self, body: Body<F>) {
        match body {
            Body::Absent => {}
            Body::Bytes(content) if content.len() <= COPIED_BODY_BYTES => {
                self.bytes.extend_from_slice(&content)
            }
            Body::Bytes(content) => self.tail = Tail::Bytes(content),
            Body::File(range) if range.length == 0 => {}
            Body::File(range) => self.tail = Tail::File(range),
            Body::Parts(_) => unreachable!("a part of a multipart body is bytes or a file range"),
        }
    }

    /// Queues a multipart body.
    pub(super) fn push_parts(&mut self, parts: Multipart<F>) {
        self.parts = Some(Box::new(parts));
        self.next_part();
    }

    /// Renders delimiters and small parts up to the next part that is sent without a copy.
    fn next_part(&mut self) {
        while let (Some(parts), Tail::Empty) = (self.parts.as_mut(), &self.tail) {
            if self.bytes.len() >= COPIED_BODY_BYTES {
                return;
            }
            match parts.next(&mut self.bytes) {
                Some(body) => self.push_body(body),
                None => self.parts = None,
            }
        }
    }

    pub(super) fn transmit(&self) -> Transmit<'_, F> {
        let more = self.parts.is_some();
        match &self.tail {
            tail if self.sent < self.bytes.len() => Transmit::Bytes {
                bytes: &self.bytes[self.sent..],
                more: more || !matches!(tail, Tail::Empty),
            },
            Tail::Bytes(bytes) => Transmit::Bytes { bytes, more },
            Tail::File(range) => Transmit::File { range, more },
            Tail::Empty => Transmit::Nothing,
        }
    }

    /// Records that `count` bytes of the output of [`Outbox::transmit`] have been sent.
    ///
    /// # Panics
    /// If `count` exceeds the bytes that [`Outbox::transmit`] returned: the driver miscounts.
    pub(super) fn advance(&mut self, count: u64, buffers: &mut Buffers) {
        if self.sent < self.bytes.len() {
            assert!(count <= (self.bytes.len() - self.sent) as u64, "sent more than there was");
            self.sent += count as usize;
            if self.sent < self.bytes.len() {
                return;
            }
            self.sent = 0;
            if self.parts.is_some() {
                self.bytes.clear();
            } else {
                buffers.give(std::mem::take(&mut self.bytes));
            }
        } else {
            self.advance_tail(count);
        }
        if self.parts.is_some() {
            self.next_part();
        }
    }

    fn advance_tail(&mut self, count: u64) {
        let left = match &mut self.tail {
            Tail::Empty => {
                assert!(count == 0, "sent more than there was");
                return;
            }
            Tail::Bytes(bytes) => {
                assert!(count <= bytes.len() as u64, "sent more than there was");
                bytes.advance(count as usize);
                bytes.len() as u64
            }
            Tail::File(range) => {
                assert!(count <= range.length, "sent more than there was");
                range.offset += count;
                range.length -= count;
                range.length
            }
        };
        if left == 0 {
            self.tail = Tail::Empty;
        }
    }

    /// Drops all pending output.
    pub(super) fn clear(&mut self, buffers: &mut Buffers) {
        buffers.give(std::mem::take(&mut self.bytes));
        self.sent = 0;
        self.tail = Tail::Empty;
        self.parts = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::Part;
    use base::Nanos;

    /// Queues `content` after a head of four bytes and sends everything, three bytes at a time.
    fn send(content: Body<()>) -> u64 {
        let mut buffers = Buffers::default();
        let mut outbox = Outbox::new();
        outbox.bytes(&mut buffers).extend_from_slice(b"head");
        match content {
            Body::Parts(parts) => outbox.push_parts(Multipart::new(parts, Nanos::ZERO, 0)),
            content => outbox.push_body(content),
        }
        let mut sent = 0;
        loop {
            let pending = outbox.pending();
            let count = match outbox.transmit() {
                Transmit::Nothing => break,
                Transmit::Bytes { bytes, .. } => bytes.len().min(3) as u64,
                Transmit::File { range, .. } => range.length.min(3),
            };
            outbox.advance(count, &mut buffers);
            assert_eq!(outbox.pending(), pending - count);
            sent += count;
        }
        assert!(outbox.is_empty());
        assert_eq!(outbox.bytes.capacity(), 0, "an empty outbox holds no memory");
        sent - 4
    }

    #[test]
    fn everything_leaves_and_no_memory_stays() {
        let file = |length| Body::File(FileRange { file: (), offset: 0, length });
        let bytes = |length| Body::Bytes(vec![b'x'; length].into());
        assert_eq!(send(Body::Absent), 0);
        assert_eq!(send(bytes(0)), 0);
        assert_eq!(send(bytes(COPIED_BODY_BYTES)), COPIED_BODY_BYTES as u64);
        assert_eq!(send(bytes(COPIED_BODY_BYTES + 1)), COPIED_BODY_BYTES as u64 + 1);
        assert_eq!(send(file(0)), 0);
        assert_eq!(send(file(10)), 10);
        let part = |body| Part { fields: Bytes::from_static(b"A: b\r\n"), body };
        assert_eq!(send(Body::Parts(vec![])), 22);
        assert_eq!(
            send(Body::Parts(vec![part(file(5)), part(bytes(20_000)), part(bytes(7))])),
            22 * 4 + 3 * 8 + 20_012
        );
    }
}
