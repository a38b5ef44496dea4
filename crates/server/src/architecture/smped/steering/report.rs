//! The report of a worker: C_i and T_i.
//!
//! C_i counts the worker's open connections and those in its queue. The worker does not ask for the queue's length
//! each turn, but computes it:
//!
//! ```text
//!   waiting = assigned (counted by the kernel's program at each SYN) - taken from the queue + offset
//! ```
//!
//! The offset corrects for SYNs whose handshake never ends, connections that the kernel's hash placed, and a moved
//! queue. Once a second the worker compares the result with the length of its queue. Missing connections may still be
//! in their handshake; those that are missing at two looks in a row are gone.
//!
//! T_i is smoothed by [`Feedback`], each period by the worker itself.
//!
//! Pure: the caller reads memory and queue.

use base::{Nanos, PerSecond};

use super::super::feedback::Feedback;

/// Time between two looks at the queue's length.
const LOOK_EVERY: Nanos = Nanos::SECOND;
/// A T_i that counts as 0, in replies per second.
const NOTHING: f64 = 1e-3;

/// Counts of the worker, read before it waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Connections that the kernel's program has ever given to the worker's slot.
    pub assigned: u64,
    /// Connections taken from the queue.
    pub taken: u64,
    /// Open connections.
    pub open: u64,
    /// Replies sent.
    pub replies: u64,
}

/// The figures of one report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// C_i.
    pub connections: u64,
    /// T_i.
    pub throughput: PerSecond,
    /// The time of the next report if nothing happens until then.
    pub due: Option<Nanos>,
}

/// The report of one worker.
#[derive(Debug)]
pub struct Report {
    period: Nanos,
    alpha: f64,
    feedback: Feedback,
    period_from: Nanos,
    replies: u64,
    offset: i64,
    /// Connections that were missing at the last look.
    missing: i64,
    /// The time of the next look at the queue; `None` makes the next report look.
    look_at: Option<Nanos>,
}

impl Report {
    /// A report of a worker that has just begun.
    pub fn new(period: Nanos, alpha: f64) -> Report {
        Report {
            period,
            alpha,
            feedback: Feedback::default(),
            period_from: Nanos::ZERO,
            replies: 0,
            offset: 0,
            missing: 0,
            look_at: None,
        }
    }

    /// Makes the next report take the queue's length as it is, because the parent has moved the queue.
    pub fn recount(&mut self) {
        self.look_at = None;
    }

    /// Returns the report for `now`. Calls `depth` for the length of the queue at most once a second, or after
    /// [`Report::recount`].
    pub fn report_at(&mut self, known: Known, depth: impl FnOnce() -> u64, now: Nanos) -> Told {
        let counted = known.assigned as i64 - known.taken as i64;
        let busy = known.open > 0 || counted + self.offset > 0;
        match self.look_at {
            None => {
                self.offset = depth() as i64 - counted;
                self.missing = 0;
                self.look_at = Some(now + LOOK_EVERY);
            }
            Some(at) if at <= now && busy => {
                self.compare(counted, depth() as i64);
                self.look_at = Some(now + LOOK_EVERY);
            }
            Some(_) => {}
        }
        let waiting = (counted + self.offset).max(0) as u64;
        let connections = known.open + waiting;
        self.smooth(known.replies, connections, now);
        let throughput = self.feedback.throughput();
        let decays = connections > 0 && (throughput > NOTHING || known.replies != self.replies);
        let period_ends = decays.then(|| self.period_from + self.period);
        let look = self.look_at.filter(|_| waiting > 0);
        Told {
            connections,
            throughput: PerSecond(throughput),
            due: period_ends.into_iter().chain(look).min(),
        }
    }

    fn compare(&mut self, counted: i64, depth: i64) {
        let missing = counted + self.offset - depth;
        let gone = if missing > 0 { missing.min(self.missing).max(0) } else { missing };
        self.offset -= gone;
        self.missing = missing - gone;
    }

    /// Ends a period that is over. Without a connection T_i is 0, and a period begins with the next one.
    fn smooth(&mut self, replies: u64, connections: u64, now: Nanos) {
        if connections == 0 {
            self.feedback = Feedback::default();
            (self.replies, self.period_from) = (replies, now);
        } else if now >= self.period_from + self.period {
            self.feedback.replied(replies - self.replies);
            self.feedback.period(now - self.period_from, self.alpha);
            (self.replies, self.period_from) = (replies, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Nanos = Nanos::from_millis(100);

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(1000 + millis)
    }

    fn known(assigned: u64, taken: u64, open: u64) -> Known {
        Known { assigned, taken, open, replies: 0 }
    }

    fn unasked() -> u64 {
        panic!("the queue is not asked here")
    }

    #[test]
    fn what_waits_follows_from_what_was_given_and_taken() {
        let mut report = Report::new(PERIOD, 0.2);
        // Its predecessor was given 70, of which 3 wait.
        assert_eq!(report.report_at(known(70, 0, 0), || 3, at(0)).connections, 3);
        assert_eq!(report.report_at(known(75, 4, 4), unasked, at(1)).connections, 8);
        assert_eq!(report.report_at(known(75, 8, 6), unasked, at(2)).connections, 6);
    }

    #[test]
    fn abandoned_syns_are_dropped_and_handshakes_kept() {
        let mut report = Report::new(PERIOD, 0.2);
        report.report_at(known(0, 0, 0), || 0, at(0));
        let told = report.report_at(known(10, 0, 0), || 2, at(1000));
        assert_eq!((told.connections, told.due), (10, Some(at(2000))), "8 may be in their handshake");
        // 5 of them have come and were taken, with the 2.
        assert_eq!(report.report_at(known(10, 7, 7), || 0, at(2000)).connections, 7);
        assert_eq!(report.report_at(known(11, 7, 7), unasked, at(2001)).connections, 8);
    }

    #[test]
    fn unannounced_connections_and_moved_queue_are_seen() {
        let mut report = Report::new(PERIOD, 0.2);
        report.report_at(known(5, 0, 0), || 0, at(0));
        // Two came by the kernel's hash and are open, a third waits.
        assert_eq!(report.report_at(known(5, 2, 2), || 1, at(1000)).connections, 3);
        assert_eq!(report.report_at(known(55, 2, 2), unasked, at(1001)).connections, 53);
        report.recount();
        assert_eq!(report.report_at(known(55, 2, 2), || 0, at(1002)).connections, 2);
    }

    #[test]
    fn throughput_is_smoothed_and_0_without_connections() {
        let mut report = Report::new(PERIOD, 0.2);
        let mut tell = |open, replies, millis| {
            let told = report.report_at(Known { replies, ..known(open, open, open) }, || 0, at(millis));
            (told.throughput.0, told.due)
        };
        assert_eq!(tell(0, 0, 0), (0.0, None));
        assert_eq!(tell(1, 0, 10), (0.0, None));
        assert_eq!(tell(1, 4, 50), (0.0, Some(at(100))));
        assert_eq!(tell(1, 10, 100), (80.0, Some(at(200))));
        assert_eq!(tell(1, 10, 150), (80.0, Some(at(200))));
        assert_eq!(tell(1, 10, 200), (16.0, Some(at(300))));
        assert_eq!(tell(0, 10, 210), (0.0, None));
    }

    #[test]
    fn worker_of_silent_clients_sleeps() {
        let mut report = Report::new(PERIOD, 0.2);
        let known = Known { replies: 1000, ..known(1, 1, 1) };
        report.report_at(Known::default(), || 0, at(0));
        let mut periods = 0;
        let mut due = Some(at(100));
        while let Some(now) = due {
            periods += 1;
            assert!(periods < 20, "it never sleeps");
            due = report.report_at(known, || 0, now).due;
        }
    }
}
