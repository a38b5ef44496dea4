//! Received bytes that cannot be used yet: a part of a head, or pipelined requests that wait for earlier
//! responses to be sent.
//!
//! Invariant: an empty inbox holds no memory.

use http_semantics::server::Buffers;

/// A pointer while it is empty: most connections wait without bytes, and each of them has an inbox.
#[derive(Debug, Default)]
pub(super) struct Inbox(Option<Box<Held>>);

/// Bytes of which some are used; never all of them.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    used: usize,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn pending(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |held| &held.bytes[held.used..])
    }

    pub(super) fn push(&mut self, bytes: &[u8], buffers: &mut Buffers) {
        if bytes.is_empty() {
            return;
        }
        let held = self.0.get_or_insert_with(|| Box::new(Held { bytes: buffers.take(), used: 0 }));
        // Bytes move only when more arrive, and then at most one head and one reading. All others were used
        // in place.
        held.bytes.drain(..std::mem::take(&mut held.used));
        held.bytes.extend_from_slice(bytes);
    }

    /// Drops the first `count` pending bytes.
    pub(super) fn consume(&mut self, count: usize, buffers: &mut Buffers) {
        if let Some(held) = &mut self.0 {
            held.used += count;
            if held.used >= held.bytes.len() {
                self.clear(buffers);
            }
        }
    }

    pub(super) fn clear(&mut self, buffers: &mut Buffers) {
        if let Some(held) = self.0.take() {
            buffers.give(held.bytes);
        }
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
        assert!(inbox.0.is_none());
        inbox.push(b"abc", &mut buffers);
        inbox.consume(2, &mut buffers);
        inbox.push(b"de", &mut buffers);
        assert_eq!(inbox.pending(), b"cde");
        inbox.consume(3, &mut buffers);
        assert!(inbox.is_empty());
        assert!(inbox.0.is_none());
    }
}
