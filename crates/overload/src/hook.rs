//! Hooks refuse connections before the server has paid for them.
//!
//! A hook is told what to admit and counts what it refused. It knows nothing of queues and service rates: those are
//! the [law](crate::law)'s. Hooks differ in what they can do with an [`Admission`]:
//!
//! | hook | obeys | server CPU per refused SYN | needs |
//! |---|---|---|---|
//! | [`SinkHook`] | the share | 0.7 to 0.8 us | nothing |
//! | token bucket in tc or XDP | the share, then rate and burst | 0.25 to 0.37 us | a device, CAP_BPF, CAP_NET_ADMIN |
//! | [`NoHook`] | nothing | 0.8 us, when the queue is full | nothing |
//!
//! The share comes first wherever a hook can see SYNs. It selects by the identity of a SYN (see
//! [`program`]), so that a retransmitted SYN meets the same answer as the first one. A rate alone admits
//! retransmissions as readily as new SYNs, and those are a second late already: at twice the capacity, with clients
//! that retransmit once, 61 % of the capacity reached clients in time by a rate alone, and 95 % by both (simulated,
//! decision 0017).

pub mod program;
mod sink;

use std::io;

use base::{Nanos, PerSecond};

pub use sink::{Routing, SinkError, SinkHook, Sinks};

/// What a hook is to let pass to one accept queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// Connections to admit a second; infinite while nothing is refused.
    pub rate: PerSecond,
    /// Connections to admit at once on top of the rate, as the depth of a token bucket.
    pub burst: u32,
    /// The part of all SYNs to admit, from 0 to 1; 1 while nothing is refused.
    pub share: f64,
}

impl Admission {
    /// Refuses nothing.
    pub const ALL: Admission = Admission { rate: PerSecond(f64::INFINITY), burst: 0, share: 1.0 };

    /// Whether nothing is refused.
    pub fn is_all(&self) -> bool {
        self.share >= 1.0 && self.rate.0.is_infinite()
    }

    /// The time from one token of a bucket to the next; 0 while nothing is refused.
    pub fn interval(&self) -> Nanos {
        if self.rate.0.is_finite() { self.rate.interval() } else { Nanos::ZERO }
    }

    /// How far ahead of the rate a bucket lets arrivals be.
    pub fn burst_time(&self) -> Nanos {
        self.interval() * u64::from(self.burst)
    }
}

/// Refuses connections to one accept queue.
pub trait Hook: Send {
    /// The name in messages and metrics.
    fn name(&self) -> &'static str;

    /// Changes what is admitted. Cheap where little has changed.
    ///
    /// # Errors
    /// The kernel takes the change no longer. The hook has then withdrawn, and refuses nothing.
    fn admit(&mut self, admission: &Admission) -> io::Result<()>;

    /// The connections refused since the start.
    ///
    /// # Errors
    /// The hook cannot be read, or does something else than it was told. It has then withdrawn.
    fn refused(&mut self) -> io::Result<u64>;
}

/// The hook of a server that has none: only the backlog bounds the queue.
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
