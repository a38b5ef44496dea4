//! The monotonic clock as the kernel counts it: the same number in every process of the machine, and in
//! its traces.
//!
//! For times that processes compare with each other. What only one process looks at takes a
//! [`base::Clock`] instead, which a test can simulate.

use base::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC now. On common machines read without a system call.
pub fn monotonic() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * Nanos::SECOND.0 + now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_run_backwards() {
        let first = monotonic();
        assert!(first > Nanos::ZERO && monotonic() >= first);
    }
}
