//! The memory of a busy connection: bytes that wait for acknowledgment, and bytes received out of order.
//!
//! Invariants: `stored` is ordered by sequence number. Every stored segment begins after the next expected
//! number. The number of its bytes is reserved in [`Shared`].

use crate::counts::Shared;
use crate::frame::{SACK_BLOCKS_MAX, SackBlock};
use crate::wrapping::Seq;

/// The most segments that one connection stores out of order. Linux merges received segments into up to 64
/// KiB (GRO), and so does a TUN device, so a few suffice. A peer that sends single bytes gets no larger
/// buffer.
const STORED_SEGMENTS_MAX: usize = 64;

/// A segment that came before an earlier one.
#[derive(Debug)]
struct Stored {
    seq: Seq,
    bytes: Vec<u8>,
    /// True for a segment with the FIN.
    fin: bool,
}

impl Stored {
    fn end(&self) -> Seq {
        self.seq + self.bytes.len() as u32 + u32::from(self.fin)
    }
}

/// The bytes of a connection in transit.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Bytes from the first unacknowledged one on: sent bytes, then unsent ones.
    pub bytes: Vec<u8>,
    /// Consecutive acknowledgments without progress.
    pub duplicate_acks: u8,
    /// The end of the loss that is being repaired: the value of `next` when the loss was noticed.
    pub recovery_end: Option<Seq>,
    stored: Vec<Stored>,
    /// The first number of the segment stored last.
    latest: Seq,
}

impl Backlog {
    /// Returns true for an empty backlog.
    pub fn is_idle(&self) -> bool {
        self.bytes.is_empty() && self.stored.is_empty()
    }

    /// Returns true if segments before a stored one are missing.
    pub fn has_gap(&self) -> bool {
        !self.stored.is_empty()
    }

    /// Stores a segment from ahead of the sequence; returns false without room.
    pub fn store(&mut self, seq: Seq, bytes: &[u8], fin: bool, shared: &mut Shared) -> bool {
        self.latest = seq;
        let at = self.stored.partition_point(|stored| stored.seq.is_before(seq));
        let end = seq + bytes.len() as u32 + u32::from(fin);
        let is_covered = |stored: &Stored| !seq.is_before(stored.seq) && !end.is_after(stored.end());
        if self.stored[..(at + 1).min(self.stored.len())].iter().any(is_covered) {
            shared.counts.duplicates += 1;
            return true;
        }
        if self.stored.len() >= STORED_SEGMENTS_MAX || !shared.store(bytes.len()) {
            return false;
        }
        shared.counts.out_of_order += 1;
        self.stored.insert(at, Stored { seq, bytes: bytes.to_vec(), fin });
        true
    }

    /// Moves the stored bytes that follow `expected` without a gap to `filled`. Returns the next expected
    /// number, and true if a FIN came before that number.
    pub fn fill(&mut self, mut expected: Seq, filled: &mut Vec<u8>, shared: &mut Shared) -> (Seq, bool) {
        let mut fin = false;
        while let Some(stored) = self.stored.first()
            && !stored.seq.is_after(expected)
        {
            let stored = self.stored.remove(0);
            shared.unstore(stored.bytes.len());
            if stored.end().is_after(expected) && !fin {
                let known = expected.since(stored.seq) as usize;
                filled.extend_from_slice(&stored.bytes[known..]);
                expected = stored.seq + stored.bytes.len() as u32;
                fin = stored.fin;
            }
        }
        (expected, fin)
    }

    /// The blocks of a selective acknowledgment: the one with the latest segment first (RFC 2018, section 4).
    pub fn sack(&self) -> [Option<SackBlock>; SACK_BLOCKS_MAX] {
        let mut blocks = [None; SACK_BLOCKS_MAX];
        let mut others = 1;
        for (first, end) in self.ranges() {
            let is_latest = !self.latest.is_before(first) && self.latest.is_before(end);
            if is_latest {
                blocks[0] = Some((first, end));
            } else if others < SACK_BLOCKS_MAX {
                blocks[others] = Some((first, end));
                others += 1;
            }
        }
        blocks
    }

    /// The stored ranges; adjacent ones are merged.
    fn ranges(&self) -> impl Iterator<Item = SackBlock> {
        let mut rest = self.stored.iter().peekable();
        std::iter::from_fn(move || {
            let first = rest.next()?;
            let mut end = first.end();
            while let Some(next) = rest.next_if(|next| !next.seq.is_after(end)) {
                end = if next.end().is_after(end) { next.end() } else { end };
            }
            Some((first.seq, end))
        })
    }

    /// Releases the room of everything stored.
    pub fn discard(&mut self, shared: &mut Shared) {
        for stored in self.stored.drain(..) {
            shared.unstore(stored.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(first: u32, end: u32) -> Option<SackBlock> {
        Some((Seq(first), Seq(end)))
    }

    #[test]
    fn latest_sack_range_comes_first_touching_ones_merge() {
        let (mut backlog, mut shared) = (Backlog::default(), Shared::default());
        for seq in [10, 30, 20, 50] {
            assert!(backlog.store(Seq(seq), &[0; 10], false, &mut shared));
        }
        assert_eq!(backlog.sack(), [block(50, 60), block(10, 40), None]);
        assert!(backlog.store(Seq(20), &[0; 5], false, &mut shared), "it is there already");
        assert_eq!(backlog.sack(), [block(10, 40), block(50, 60), None]);
        assert_eq!((shared.stored(), shared.counts.out_of_order, shared.counts.duplicates), (40, 4, 1));
    }

    #[test]
    fn a_gap_that_is_filled_releases_what_overlaps_once() {
        let (mut backlog, mut shared) = (Backlog::default(), Shared::default());
        assert!(backlog.store(Seq(12), b"cde", false, &mut shared));
        assert!(backlog.store(Seq(14), b"efg", true, &mut shared));
        let mut filled = Vec::new();
        assert_eq!(backlog.fill(Seq(11), &mut filled, &mut shared), (Seq(11), false));
        assert_eq!(backlog.fill(Seq(13), &mut filled, &mut shared), (Seq(17), true));
        assert_eq!(filled, b"defg");
        assert_eq!(shared.stored(), 0);
        assert!(backlog.is_idle());
    }

    #[test]
    fn a_peer_that_sends_crumbs_is_limited() {
        let (mut backlog, mut shared) = (Backlog::default(), Shared::default());
        let stored = (0..100).filter(|n| backlog.store(Seq(10 + 2 * n), b"x", false, &mut shared)).count();
        assert_eq!(stored, STORED_SEGMENTS_MAX);
        backlog.discard(&mut shared);
        assert_eq!(shared.stored(), 0);
    }
}
