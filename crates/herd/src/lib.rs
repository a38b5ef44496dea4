//! The thundering herd (Molloy 2000): N tasks wait for one connection. The experiment measures how many of
//! them wake, for how long, and at what cost.
//!
//! Owns the micro experiment of the paper: N waiters that wait in one way ([`Wait`]), and connections one at
//! a time. For each connection it measures the wake-ups, the settle time, the CPU time, and the waiter that
//! got it. The settle time lasts from just before connect() until the last woken waiter sleeps again. The
//! crate [`wake`] has the wait queue of the paper's patches. Leaves out the macro experiment, which needs a
//! server under load, and all drawing.
//!
//! Deviations: the paper measured each point once. Here a point is at least some hundred connections, the
//! points come in random order, and every mean has its interval. The paper patched a kernel of 2000. Here
//! `wake-all` and `wake-one` apply the same rules in user space, by futex, and cost one more task, the
//! acceptor.
//!
//! Method and error: a waiter notes the time before each call that may sleep, in its own cache line of shared
//! memory. That costs about 50 ns per wake-up. `watch` counts wake-ups from outside; its header states the
//! error of the settle time.
//!
//! Before each connection the experiment checks that every task sleeps, then rests, then practises on a
//! listener of its own. Otherwise the look at all tasks would slow the connection down, more so with more
//! tasks.
//!
//! CPU time is the scheduler's account of each task plus the time of the connect() call. On loopback the
//! kernel does the listener's receive work and walks its wait queue in that call. Waiters are not pinned.
//!
//! The modules: `population` starts and ends the waiters of a `point`. `waiter` is one of them, and `wait`
//! its way to wait. `sample` is one connection, `board` the memory in which waiters report, and `watch`
//! counts wake-ups. `fairness` measures how evenly waiters got connections, `text` prints the table, and
//! `error` defines the errors.
#![forbid(unsafe_code)]

mod board;
mod error;
mod fairness;
mod point;
mod population;
mod sample;
mod text;
mod wait;
mod waiter;
mod watch;

use std::path::PathBuf;

use base::{Clock, Nanos, RealClock, Seed};
use rand::seq::SliceRandom;
use rustix::process::Pid;
use sys::process::descriptors;

pub use error::HerdError;
pub use point::{Point, Settle};
pub use population::Tasks;
pub use text::{PAPER, PaperLine, text};
pub use wait::{UnknownWait, Wait};
pub use waiter::{COMMAND, run_in_this_process};
pub use watch::CountedBy;

use point::SampledPoint;
use population::Population;
use sample::Client;
use watch::{Watch, nap, trace::Trace};

/// Connections before the measured ones: they fill caches and include each waiter's first wait.
const WARM_UP: usize = 5;

/// The configuration of an experiment.
#[derive(Clone, Debug)]
pub struct Config {
    /// The ways to wait; each gives a point with each number of waiters.
    pub waits: Vec<Wait>,
    /// The numbers of waiters, each at least 1.
    pub waiters: Vec<usize>,
    /// The kind of task that waiters run in.
    pub tasks: Tasks,
    /// Connections per point, at least 1.
    pub samples: usize,
    /// The seed of the order of points and of the bootstrap.
    pub seed: Seed,
    /// The method that counts wake-ups; `None` selects trace points if this process may use them.
    pub count_by: Option<CountedBy>,
    /// This program, which handles [`COMMAND`]; it is started for each waiter that is a process.
    pub program: PathBuf,
}

/// The progress of an experiment, and the next point.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Finished points.
    pub done: usize,
    /// All points.
    pub of: usize,
    /// The next point's way to wait.
    pub wait: Wait,
    /// The next point's number of waiters.
    pub waiters: usize,
}

/// The result of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Points sorted by way to wait and number of waiters; incomplete after a stop.
    pub points: Vec<Point>,
    /// The reason why trace points cannot be used; `None` if they were used or the configuration chose the
    /// method.
    pub no_trace_points: Option<String>,
}

/// Measures all points in random order. Blocks; raises this process's soft descriptor limit to the number
/// needed, and sets the calling thread's timer slack. Ends after the current connection when `stop` returns
/// true.
///
/// # Errors
/// [`HerdError::Descriptors`] and [`HerdError::NoTracePoints`] before any measurement; [`HerdError::System`]
/// when the kernel refuses tasks or memory; [`HerdError::Stuck`] for a herd that does not settle.
pub fn run(
    config: &Config,
    mut observer: impl FnMut(Progress),
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, HerdError> {
    raise_descriptor_limit(config)?;
    let (counted_by, no_trace_points) = choose_count(config)?;
    let mut order: Vec<(Wait, usize)> =
        config.waits.iter().flat_map(|wait| config.waiters.iter().map(|waiters| (*wait, *waiters))).collect();
    order.sort_unstable();
    order.dedup();
    order.shuffle(&mut config.seed.child("order of points").rng());
    let mut all = Vec::with_capacity(order.len());
    for (done, (wait, waiters)) in order.iter().copied().enumerate() {
        observer(Progress { done, of: order.len(), wait, waiters });
        match measure(config, wait, waiters, counted_by, stop)? {
            Some(measured) => all.push(measured),
            None => break,
        }
    }
    let points = point::points(all, config.tasks, counted_by, config.seed);
    Ok(Outcome { points, no_trace_points })
}

/// Measures one point; `None` after a stop.
fn measure(
    config: &Config,
    wait: Wait,
    waiters: usize,
    counted_by: CountedBy,
    stop: &dyn Fn() -> bool,
) -> Result<Option<SampledPoint>, HerdError> {
    let mut herd = Population::start(wait, waiters, config.tasks, &config.program)?;
    let tasks = wait_for_all(&mut herd)?;
    let mut watch = Watch::start(&herd, &tasks, counted_by)?;
    let client = Client::new()?;
    let mut samples = Vec::with_capacity(config.samples);
    for number in 0..WARM_UP + config.samples {
        if stop() {
            return Ok(None);
        }
        let sample =
            sample::take(&herd, &tasks, &mut watch, &client).map_err(|error| explain(error, &mut herd))?;
        if number >= WARM_UP {
            samples.push(sample);
        }
    }
    Ok(Some(SampledPoint { wait, waiters, samples }))
}

/// Waits until every task is about to sleep for the first time.
fn wait_for_all(herd: &mut Population) -> Result<Vec<Pid>, HerdError> {
    let deadline = watch::deadline();
    loop {
        if let Some(tasks) = herd.threads() {
            return Ok(tasks);
        }
        if let Some(failure) = herd.failure() {
            return Err(watch::stuck(herd, &failure));
        }
        if RealClock.now() > deadline {
            return Err(watch::stuck(herd, "not all of them began to wait"));
        }
        nap(Nanos::MILLISECOND);
    }
}

/// Replaces an error by the failure of a waiter, which explains it better.
fn explain(error: HerdError, herd: &mut Population) -> HerdError {
    match herd.failure() {
        Some(failure) => watch::stuck(herd, &failure),
        None => error,
    }
}

/// The method that counts wake-ups, and the reason why trace points cannot be used.
fn choose_count(config: &Config) -> Result<(CountedBy, Option<String>), HerdError> {
    match (config.count_by, Trace::available()) {
        (Some(CountedBy::Switches), _) => Ok((CountedBy::Switches, None)),
        (_, Ok(())) => Ok((CountedBy::TracePoints, None)),
        (Some(CountedBy::TracePoints), Err(why)) => Err(HerdError::NoTracePoints(why)),
        (None, Err(why)) => Ok((CountedBy::Switches, Some(why))),
    }
}

/// Raises the descriptor limit. A waiter needs at most six: its listener, the three of a child process, and its
/// two files in /proc. A reserve covers the rest.
fn raise_descriptor_limit(config: &Config) -> Result<(), HerdError> {
    let most = config.waiters.iter().max().copied().unwrap_or(0) as u64;
    let needed = most * 6 + 256;
    match descriptors::raise_limit(needed) {
        Some(allowed) if allowed < needed => Err(HerdError::Descriptors { needed, allowed }),
        _ => {
            descriptors::make_room(needed);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
