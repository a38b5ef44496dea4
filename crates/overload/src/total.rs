//! Totals of counters that the kernel keeps in 32 bits.

/// The growth of a counter that wraps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    last: Option<u32>,
    total: u64,
}

impl Total {
    /// Adds the counter's growth since the last reading. The first reading only sets the start.
    pub fn read(&mut self, counter: u32) {
        let last = self.last.replace(counter).unwrap_or(counter);
        self.total += u64::from(counter.wrapping_sub(last));
    }

    /// The growth so far.
    pub fn get(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_may_start_anywhere_and_wrap() {
        let mut total = Total::default();
        for reading in [u32::MAX - 1, u32::MAX, 4, 4] {
            total.read(reading);
        }
        assert_eq!(total.get(), 6);
    }
}
