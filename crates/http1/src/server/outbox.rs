//! Output that waits to be sent: rendered bytes first, then at most one body that is sent without a copy.
//!
//! Invariants: the order of sending is `bytes`, `tail`, `parts`. Nothing is added after a tail or parts. A
//! tail is never empty. `bytes` holds no memory when it has nothing to send. Nothing is added after a paced response.

use base::Nanos;
use bytes::{Buf, Bytes};
use http_semantics::server::Buffers;
use http_semantics::{Body, Budget, FileRange, Multipart};

/// Maximum size of content that is copied behind its head, so that both leave in one write. Larger content is
/// sent without a copy.
pub const COPIED_BODY_BYTES: usize = 16 * 1024;

/// The next output to send.
#[derive(Debug)]
pub enum Transmit<'a, F> {
    /// All output has been sent, or the pace holds it back.
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
        /// Bytes of it that may leave now; never 0.
        length: u64,
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
    rare: Option<Box<Rare<F>>>,
}

/// The state that few responses have. A box for both keeps every other connection small.
#[derive(Debug)]
struct Rare<F> {
    /// The parts that follow the tail.
    parts: Option<Multipart<F>>,
    /// Bounds the output, whose last response is paced.
    budget: Option<Budget>,
}

impl<F> Default for Rare<F> {
    fn default() -> Rare<F> {
        Rare { parts: None, budget: None }
    }
}

impl<F> Outbox<F> {
    pub(super) fn new() -> Outbox<F> {
        Outbox { bytes: Vec::new(), sent: 0, tail: Tail::Empty, rare: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && matches!(self.tail, Tail::Empty) && self.parts().is_none()
    }

    fn parts(&self) -> Option<&Multipart<F>> {
        self.rare.as_ref().and_then(|rare| rare.parts.as_ref())
    }

    fn budget(&self) -> Option<&Budget> {
        self.rare.as_ref().and_then(|rare| rare.budget.as_ref())
    }

    /// True if another response may be queued: always if nothing is pending, never after a tail or a paced response.
    pub(super) fn has_room(&self, limit: usize) -> bool {
        let only_bytes =
            matches!(self.tail, Tail::Empty) && self.parts().is_none() && self.budget().is_none();
        only_bytes && (self.bytes.is_empty() || self.bytes.len() < limit)
    }

    /// All pending output, in bytes.
    pub(super) fn pending(&self) -> u64 {
        let tail = match &self.tail {
            Tail::Empty => 0,
            Tail::Bytes(bytes) => bytes.len() as u64,
            Tail::File(range) => range.length,
        };
        (self.bytes.len() - self.sent) as u64 + tail + self.parts().map_or(0, Multipart::pending)
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
        self.rare.get_or_insert_default().parts = Some(parts);
        self.next_part();
    }

    /// Paces the response just queued.
    pub(super) fn pace(&mut self, budget: Budget) {
        self.rare.get_or_insert_default().budget = Some(budget);
    }

    /// The time of the next grant, if the pace holds back all output.
    pub(super) fn paused_until(&self) -> Option<Nanos> {
        self.budget().and_then(Budget::paused_until)
    }

    /// Lets further output leave, if the time has come.
    pub(super) fn refill(&mut self, now: Nanos) {
        if let Some(budget) = self.rare.as_mut().and_then(|rare| rare.budget.as_mut()) {
            budget.refill(now);
        }
    }

    /// Renders delimiters and small parts up to the next part that is sent without a copy.
    fn next_part(&mut self) {
        while let (Some(rare), Tail::Empty) = (self.rare.as_mut(), &self.tail) {
            let Some(parts) = rare.parts.as_mut().filter(|_| self.bytes.len() < COPIED_BODY_BYTES) else {
                return;
            };
            match parts.next(&mut self.bytes) {
                Some(body) => self.push_body(body),
                None => rare.parts = None,
            }
        }
    }

    pub(super) fn transmit(&self) -> Transmit<'_, F> {
        let more = self.parts().is_some();
        let most = self.budget().map_or(u64::MAX, Budget::left);
        match &self.tail {
            _ if most == 0 => Transmit::Nothing,
            tail if self.sent < self.bytes.len() => {
                bytes_within(most, &self.bytes[self.sent..], more || !matches!(tail, Tail::Empty))
            }
            Tail::Bytes(bytes) => bytes_within(most, bytes, more),
            Tail::File(range) => {
                Transmit::File { range, length: range.length.min(most), more: more && range.length < most }
            }
            Tail::Empty => Transmit::Nothing,
        }
    }

    /// Records that `count` bytes of the output of [`Outbox::transmit`] have been sent.
    ///
    /// # Panics
    /// If `count` exceeds the bytes that [`Outbox::transmit`] returned: the driver miscounts.
    pub(super) fn advance(&mut self, count: u64, buffers: &mut Buffers) {
        self.spend(count);
        self.advance_output(count, buffers);
        if self.is_empty() {
            self.rare = None;
        }
    }

    fn advance_output(&mut self, count: u64, buffers: &mut Buffers) {
        if self.sent < self.bytes.len() {
            assert!(count <= (self.bytes.len() - self.sent) as u64, "sent more than there was");
            self.sent += count as usize;
            if self.sent < self.bytes.len() {
                return;
            }
            self.sent = 0;
            if self.parts().is_some() {
                self.bytes.clear();
            } else {
                buffers.give(std::mem::take(&mut self.bytes));
            }
        } else {
            self.advance_tail(count);
        }
        self.next_part();
    }

    fn spend(&mut self, count: u64) {
        if let Some(budget) = self.rare.as_mut().and_then(|rare| rare.budget.as_mut()) {
            assert!(count <= budget.left(), "sent more than the pace allows");
            budget.spend(count);
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
        self.rare = None;
    }
}

/// At most `most` bytes. If the pace ends there, nothing follows at once.
fn bytes_within<F>(most: u64, bytes: &[u8], more: bool) -> Transmit<'_, F> {
    let within = &bytes[..most.min(bytes.len() as u64) as usize];
    Transmit::Bytes { bytes: within, more: more && (bytes.len() as u64) < most }
}

#[cfg(test)]
mod tests {
    use http_semantics::Part;

    use super::*;

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
                Transmit::File { length, .. } => length.min(3),
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
