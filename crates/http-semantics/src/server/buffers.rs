//! A pool of buffers: only connections with pending bytes hold memory.

/// Capacity of a new buffer: a head and a small body.
const FRESH_BYTES: usize = 4096;

/// Empty buffers for the next connections. The buffer used last comes first, because it is still in the
/// processor's cache.
///
/// The number of buffers and their sizes are bounded; other buffers go back to the allocator.
#[derive(Debug)]
pub struct Buffers {
    free: Vec<Vec<u8>>,
    most: usize,
    most_bytes: usize,
}

impl Buffers {
    /// A pool that keeps at most `most` buffers of at most `most_bytes` capacity. Allocates nothing before it
    /// receives a buffer.
    pub fn new(most: usize, most_bytes: usize) -> Buffers {
        Buffers { free: Vec::new(), most, most_bytes }
    }

    /// An empty buffer.
    #[inline]
    pub fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_else(|| Vec::with_capacity(FRESH_BYTES))
    }

    /// Takes a buffer back and drops its content.
    #[inline]
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        let worth_keeping = (1..=self.most_bytes).contains(&buffer.capacity());
        if worth_keeping && self.free.len() < self.most {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}

impl Default for Buffers {
    /// 64 buffers of up to 128 KiB: a loop rarely has more busy connections between two events, and a full
    /// outbox fits.
    fn default() -> Buffers {
        Buffers::new(64, 128 * 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_so_many_of_such_a_size() {
        let mut buffers = Buffers::new(2, 100);
        for capacity in [0, 50, 200, 60, 70] {
            buffers.give(Vec::with_capacity(capacity));
        }
        let mut capacities: Vec<usize> = (0..3).map(|_| buffers.take().capacity()).collect();
        capacities.sort_unstable();
        assert_eq!(capacities, [50, 60, FRESH_BYTES]);
    }
}
