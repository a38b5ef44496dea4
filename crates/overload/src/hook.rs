//! Hooks refuse connections before the server has paid for them.
//!
//! A hook is told what to admit and counts its refusals. It knows nothing of queues and service rates: those
//! belong to the [law](crate::law). Hooks differ in the parts of an [`Admission`] that they obey:
//!
//! | hook | obeys | server CPU per refused SYN | needs |
//! |---|---|---|---|
//! | [`SinkHook`] | the share | 0.7 to 0.8 us | nothing |
//! | [`BucketHook`] in tc or XDP | rate and burst | 0.25 to 0.37 us | a device, CAP_BPF, CAP_NET_ADMIN |
//! | [`BucketHook`] at a cgroup | rate and burst | 0.85 us | CAP_BPF, CAP_NET_ADMIN |
//! | [`NoHook`] | nothing | 0.8 us, when the queue is full | nothing |
//!
//! A retransmitted SYN is already a second late, so new SYNs come first. A sink cannot remember a SYN: it selects by the
//! identity of a SYN (see [`program`]), so that a retransmitted SYN gets the same answer as the first one. The program on
//! devices remembers the SYNs that it refused, and gives them the tokens that new SYNs leave (decision 0044).
//!
//! `sink` holds the sinks, and [`program`] their selection of SYNs. `bucket` sets the limits of a program on devices or at
//! a cgroup.

mod bucket;
pub mod program;
mod sink;

use std::io;

use base::{Nanos, PerSecond};

pub use bucket::BucketHook;
pub use sink::{Routing, SinkError, SinkHook, Sinks};

/// The SYNs that a hook lets pass to one accept queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// Connections to admit per second; infinite while nothing is refused.
    pub rate: PerSecond,
    /// Connections to admit at once beyond the rate, as the depth of a token bucket.
    pub burst: u32,
    /// True if the rate holds for SYNs that were refused before, and every other SYN is admitted.
    pub new_are_free: bool,
    /// The fraction of all SYNs to admit, from 0 to 1; 1 while every new SYN is admitted.
    pub share: f64,
}

impl Admission {
    /// Admits everything.
    pub const ALL: Admission =
        Admission { rate: PerSecond(f64::INFINITY), burst: 0, new_are_free: true, share: 1.0 };

    /// Returns true for an admission that refuses nothing.
    pub fn is_all(&self) -> bool {
        self.share >= 1.0 && self.rate.0.is_infinite()
    }

    /// The time between two tokens of a bucket; 0 while nothing is refused.
    pub fn interval(&self) -> Nanos {
        if self.rate.0.is_finite() { self.rate.interval() } else { Nanos::ZERO }
    }

    /// The time by which arrivals may run ahead of the rate of a bucket.
    pub fn burst_time(&self) -> Nanos {
        self.interval() * u64::from(self.burst)
    }
}

/// Refuses connections to one accept queue.
pub trait Hook: Send {
    /// The name in messages and metrics.
    fn name(&self) -> &'static str;

    /// Changes the admission. Cheap for a small change.
    ///
    /// # Errors
    /// The kernel rejected the change. The hook has then withdrawn, and refuses nothing.
    fn admit(&mut self, admission: &Admission) -> io::Result<()>;

    /// The connections refused since the start.
    ///
    /// # Errors
    /// The hook cannot be read, or does not obey. It has then withdrawn.
    fn refused(&mut self) -> io::Result<u64>;

    /// The SYNs that it decided on since the start; `None` if it counts only those that it refuses.
    fn seen(&self) -> Option<u64> {
        None
    }
}

/// The hook of a server without one: only the backlog bounds the queue.
#[derive(Debug)]
pub struct NoHook;

impl Hook for NoHook {
    fn name(&self) -> &'static str {
        "backlog"
    }

    fn admit(&mut self, _admission: &Admission) -> io::Result<()> {
        Ok(())
    }

    fn refused(&mut self) -> io::Result<u64> {
        Ok(0)
    }
}
