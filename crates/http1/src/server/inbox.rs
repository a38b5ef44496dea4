//! Received bytes that cannot be used yet: a part of a head, or pipelined requests that wait for earlier
//! responses to be sent.
//!
//! Invariant: an empty inbox holds no memory.

use super::Buffers;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    used: usize,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    pub(super) fn push(&mut self, bytes: &[u8], buffers: &mut Buffers) {
        if bytes.is_empty() {
            return;
        }
        if self.bytes.capacity() == 0 {
            self.bytes = buffers.take();
        }
        // Bytes move only when more arrive, and then at most one head and one reading. All others were used
        // in place.
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Drops the first `count` pending bytes.
    pub(super) fn consume(&mut self, count: usize, buffers: &mut Buffers) {
        self.used += count;
        if self.used >= self.bytes.len() {
            self.clear(buffers);
        }
    }

    pub(super) fn clear(&mut self, buffers: &mut Buffers) {
        buffers.give(std::mem::take(&mut self.bytes));
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_memory_only_while_it_holds_bytes() {
        let mut buffers = Buffers::default();
        let mut inbox = Inbox::default();
        inbox.push(b"", &mut buffers);
        assert_eq!(inbox.bytes.capacity(), 0);
        inbox.push(b"abc", &mut buffers);
        inbox.consume(2, &mut buffers);
        inbox.push(b"de", &mut buffers);
        assert_eq!(inbox.pending(), b"cde");
        inbox.consume(3, &mut buffers);
        assert!(inbox.is_empty());
        assert_eq!(inbox.bytes.capacity(), 0);
    }
}
