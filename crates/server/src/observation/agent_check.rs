//! HAProxy's agent check: a port that tells a load balancer how much room the server has.
//!
//! ```text
//!   load balancer ── connects ──> answers: one line, then the end of the connection
//!                                   |  ready up 75%     the first 30 s, which ends the drain of a predecessor
//!                                   |  up 75%           afterwards, so that an operator's own drain stands
//!                                   |  drain            from the shutdown's begin on
//!   counters ──> load ──> weight ───┘
//! ```
//!
//! A shutdown says `drain` before the listeners close: [`AgentCheck::drain`] waits until each load balancer that asks
//! regularly has been told.
//!
//! Owns the port and the order of a shutdown. `weight` has the law, `load` its signals, and `answers` the connections.
//! Leaves out health checks, which ask the server itself.

mod answers;
mod load;
mod weight;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{Clock, Nanos, RealClock};
use side_servers::{AdminAddress, AdminListener};
use sys::thread::stop::Stop;

use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::threads::{LoopHandle, start_thread};
use answers::{AnswerLoop, Drain};
pub use load::{Capacity, Meter, Reading};
use weight::Weight;

/// A load balancer that asked within this time is expected to ask again within it. A shutdown waits for that.
const REGULAR: Nanos = Nanos::from_secs(5);

/// The port of the agent check.
pub struct AgentCheck {
    /// Its address.
    pub address: AdminAddress,
    running: LoopHandle,
    drain: Drain,
}

impl AgentCheck {
    /// Answers at `listener` with the weight that follows from the load that `meter` reads. Counts in `evicted` the
    /// connections that it closes to make room.
    ///
    /// # Errors
    /// [`ServeError`]: descriptors, the thread.
    pub fn start(
        listener: AdminListener,
        meter: Meter,
        evicted: Arc<AtomicU64>,
    ) -> Result<AgentCheck, ServeError> {
        let address = listener.address.clone();
        let stop = Stop::new().map_err(system("make an eventfd"))?;
        let now = RealClock::new().now();
        let drain = Drain::default();
        let answers =
            AnswerLoop::new(listener, stop.clone(), drain.clone(), meter, Weight::new(now), evicted, now);
        let body = move || answers.run();
        let running = start_thread("agent".to_owned(), &[], stop, Board::default(), Vec::new(), body)?;
        Ok(AgentCheck { address, running, drain })
    }

    /// Answers `drain` from now on. Blocks until every load balancer that asks regularly has been told, at most for
    /// `patience` or five seconds.
    pub fn drain(&self, patience: Nanos) {
        self.drain.ask();
        self.running.stop.wake();
        self.drain.wait(patience.min(REGULAR));
    }

    /// Closes the port and ends its thread.
    ///
    /// # Errors
    /// As [`LoopHandle::join`].
    pub fn stop(self) -> Result<(), ServeError> {
        self.running.stop.ask();
        self.running.join()
    }
}
