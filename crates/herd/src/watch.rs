//! Counts wake-ups and finds the moment at which every task sleeps again.
//!
//! Two methods share one contract: exactly one connection comes between [`Watch::begin`] and
//! [`Watch::await_all_asleep`]. Every waiter sleeps when `begin` is called, and when either returns.
//!
//! - **Trace points** ([`trace`]) need root: the kernel records every wake-up and every return to sleep,
//!   exact to a microsecond. Recording costs about 0.3 us per switch, which the settle time includes.
//! - **Context switches** ([`switches`]) need no privilege: a task that sleeps again after a wake-up makes
//!   one voluntary switch, and the kernel counts these for every task. The counts are exact. The settle time
//!   is exact to some microseconds if every wake-up returned to user space. Otherwise it comes from repeated
//!   looks and is too long by at most the time between two looks, which is reported with it.
//!
//! `tracefs` holds the kernel's files for trace points.

pub(crate) mod switches;
pub(crate) mod trace;
mod tracefs;

use std::num::NonZeroU64;

use base::{Clock, Nanos, RealClock};
use rustix::process::Pid;
use rustix::thread::{nanosleep, set_current_timer_slack};
use serde::Serialize;
use sys::readiness::poll::timespec;

use crate::error::{HerdError, system};
use crate::population::Population;
use switches::Switches;
use trace::Trace;

/// The source of wake-up counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CountedBy {
    /// The trace points sched_waking, sched_wakeup and sched_switch.
    #[serde(rename = "sched trace points")]
    TracePoints,
    /// The change of each task's ru_nvcsw.
    #[serde(rename = "voluntary context switches")]
    Switches,
}

impl CountedBy {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            CountedBy::TracePoints => "sched trace points",
            CountedBy::Switches => "voluntary context switches",
        }
    }
}

/// The effect of one connection on the herd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// Wake-ups of waiters.
    pub wakeups: u64,
    /// The time at which the last woken task slept again, by CLOCK_MONOTONIC.
    pub at: Nanos,
    /// The most by which `at` may be too late.
    pub late_by: Nanos,
}

/// One of the two methods.
pub(crate) enum Watch {
    Switches(Switches),
    Trace(Trace),
}

impl Watch {
    /// Begins to watch the tasks of a population, the acceptor last if there is one. Returns when all of them
    /// sleep.
    pub fn start(herd: &Population, tasks: &[Pid], by: CountedBy) -> Result<Watch, HerdError> {
        // Makes naps precise.
        set_current_timer_slack(NonZeroU64::new(1))
            .map_err(|errno| system("set the timer slack")(errno.into()))?;
        let mut switches = Switches::start(herd, tasks)?;
        switches.wait_until_all_sleep(herd)?;
        Ok(match by {
            CountedBy::Switches => Watch::Switches(switches),
            CountedBy::TracePoints => Watch::Trace(Trace::start(herd, tasks)?),
        })
    }

    /// Begins a sample: every task sleeps, and a connection will follow.
    pub fn begin(&mut self, herd: &Population) -> Result<(), HerdError> {
        match self {
            Watch::Switches(switches) => {
                switches.begin(herd);
                Ok(())
            }
            Watch::Trace(trace) => trace.begin(),
        }
    }

    /// Ends a sample whose connection began at `start` and has been accepted and closed; waits until every
    /// task sleeps.
    pub fn await_all_asleep(&mut self, herd: &Population, start: Nanos) -> Result<Settled, HerdError> {
        match self {
            Watch::Switches(switches) => switches.await_all_asleep(herd, start),
            Watch::Trace(trace) => trace.await_all_asleep(herd, start),
        }
    }
}

/// The timeout of a herd that does not settle: far more than a busy machine takes.
pub(crate) const PATIENCE: Nanos = Nanos::from_secs(30);

/// Sleeps for `time`. No event reports that another task has gone to sleep, so the watcher has to look
/// repeatedly.
pub(crate) fn nap(time: Nanos) {
    // An interrupted nap only makes the next look earlier.
    let _ = nanosleep(&timespec(time));
}

/// The error of a herd that has not settled.
pub(crate) fn stuck(herd: &Population, what: &str) -> HerdError {
    HerdError::Stuck { wait: herd.wait, waiters: herd.waiters, what: what.to_owned() }
}

/// The end of the timeout that begins now.
pub(crate) fn deadline() -> Nanos {
    RealClock.now() + PATIENCE
}
