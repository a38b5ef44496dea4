//! Counting wake-ups, and finding the moment when everybody sleeps again.
//!
//! Two ways, with one contract: between [`Watch::begin`] and [`Watch::settle`] there is one connection;
//! both are called while, and return when, every waiter sleeps.
//!
//! - **Trace points** ([`trace`]), with root: the kernel's own record of every wake-up and of every return
//!   to sleep. Exact to a microsecond. Recording costs each switch some 0.3 us, which the settle time
//!   includes.
//! - **Context switches** ([`switches`]), without: a task that sleeps again after each wake-up switches
//!   voluntarily once for each, and the kernel counts that for every task. Counts are exact; the settle
//!   time is exact to some microseconds where every wake-up returned to user space, and otherwise known from
//!   watching: too long by at most the time between two looks, which is reported with it.

pub(crate) mod switches;
pub(crate) mod trace;
mod tracefs;

use std::num::NonZeroU64;

use base::{Clock, Nanos, RealClock};
use rustix::process::Pid;
use rustix::thread::{Timespec, nanosleep, set_current_timer_slack};
use serde::Serialize;

use crate::error::{HerdError, system};
use crate::population::Population;
use switches::Switches;
use trace::Trace;

/// What wake-ups are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CountedBy {
    /// sched_wakeup and sched_switch.
    #[serde(rename = "sched trace points")]
    TracePoints,
    /// The change of each task's ru_nvcsw.
    #[serde(rename = "voluntary context switches")]
    Switches,
}

impl CountedBy {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            CountedBy::TracePoints => "sched trace points",
            CountedBy::Switches => "voluntary context switches",
        }
    }
}

/// What one connection did to the herd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// How often a waiter woke.
    pub wakeups: u64,
    /// When the last of those that woke slept again, by CLOCK_MONOTONIC.
    pub at: Nanos,
    /// By how much `at` may be too late.
    pub late_by: Nanos,
}

/// One of the two ways.
pub(crate) enum Watch {
    Switches(Switches),
    Trace(Trace),
}

impl Watch {
    /// Begins to watch a population whose tasks are these, the acceptor last where there is one. Returns
    /// when all of them sleep.
    pub fn start(herd: &Population, tasks: &[Pid], by: CountedBy) -> Result<Watch, HerdError> {
        // Naps are as long as they are meant to be.
        set_current_timer_slack(NonZeroU64::new(1))
            .map_err(|errno| system("set the timer slack")(errno.into()))?;
        let mut switches = Switches::start(herd, tasks)?;
        switches.wait_until_all_sleep(herd)?;
        Ok(match by {
            CountedBy::Switches => Watch::Switches(switches),
            CountedBy::TracePoints => Watch::Trace(Trace::start(herd, tasks)?),
        })
    }

    /// Everybody sleeps, and a connection is about to be made.
    pub fn begin(&mut self, herd: &Population) -> Result<(), HerdError> {
        match self {
            Watch::Switches(switches) => {
                switches.begin(herd);
                Ok(())
            }
            Watch::Trace(trace) => trace.begin(),
        }
    }

    /// The connection, begun at `start`, has been accepted and closed: waits until everybody sleeps.
    pub fn settle(&mut self, herd: &Population, start: Nanos) -> Result<Settled, HerdError> {
        match self {
            Watch::Switches(switches) => switches.settle(herd, start),
            Watch::Trace(trace) => trace.settle(herd, start),
        }
    }
}

/// When a herd that does not settle is given up: far beyond what a busy machine takes.
pub(crate) const PATIENCE: Nanos = Nanos::from_secs(30);

/// Sleeps so long. Nothing tells an observer that another task has gone to sleep: it can only look again.
pub(crate) fn nap(time: Nanos) {
    let time =
        Timespec { tv_sec: (time.0 / Nanos::SECOND.0) as i64, tv_nsec: (time.0 % Nanos::SECOND.0) as i64 };
    // Interrupted is early, and whoever naps looks anyway.
    let _ = nanosleep(&time);
}

/// The error of a herd that has not settled.
pub(crate) fn stuck(herd: &Population, what: &str) -> HerdError {
    HerdError::Stuck { wait: herd.wait, waiters: herd.waiters, what: what.to_owned() }
}

/// When the patience is over, from now.
pub(crate) fn deadline() -> Nanos {
    RealClock.now() + PATIENCE
}
