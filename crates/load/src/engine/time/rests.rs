//! The rests of a real-time thread that has too much to do to sleep.
//!
//! The kernel leaves other threads a twentieth of each CPU: it stops a real-time thread that never sleeps for 50 ms
//! each second. Every session that is due then is late. A thread that sleeps for the same share of the time by itself,
//! in short pieces, is never stopped.

use base::Nanos;

/// The longest work without a rest.
const WORK: Nanos = Nanos::from_millis(1);

/// The length of a rest: a little more than a twentieth of the work.
const REST: Nanos = Nanos::from_micros(60);

/// The rests of one thread.
pub(in crate::engine) struct Rests {
    is_real_time: bool,
    /// The end of the last rest.
    rested: Nanos,
}

impl Rests {
    /// The rests of the calling thread.
    pub fn of_this_thread() -> Rests {
        Rests { is_real_time: sys::thread::is_real_time(), rested: Nanos::ZERO }
    }

    /// Notes a wait from `before` to `after`, and rests if the thread has worked for too long. Blocks for a rest.
    pub fn waited(&mut self, before: Nanos, after: Nanos) {
        if after.saturating_sub(before) >= REST {
            self.rested = after;
        } else if self.is_real_time && after.saturating_sub(self.rested) >= WORK {
            // A rest that a signal has ended is a short one.
            let _ = sys::readiness::poll::wait(&mut [], Some(REST));
            self.rested = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_due_after_a_millisecond_of_work() {
        let at = Nanos::from_micros;
        let rested_after = |is_real_time, (before, after)| {
            let mut rests = Rests { is_real_time, rested: at(100) };
            rests.waited(at(before), at(after));
            rests.rested
        };
        assert_eq!(rested_after(true, (1_090, 1_099)), at(100), "not yet");
        assert_eq!(rested_after(true, (1_095, 1_100)), at(1_100));
        assert_eq!(rested_after(true, (500, 560)), at(560), "a wait is a rest");
        assert_eq!(rested_after(false, (9_000, 9_001)), at(100), "others are never stopped");
    }
}
