//! The thundering herd (Molloy 2000): when N tasks wait for one connection, how many wake, for how long,
//! and at what cost?
//!
//! Owns the micro experiment of the paper: N waiters ([`Wait`] says how they wait), connections one at a
//! time, and for each the number of wake-ups, the settle time (from just before connect() until
//! the last woken waiter sleeps again), the CPU time, and who got it. The wait queue of the paper's patches
//! is in [`wake`]. Leaves out the macro experiment, which is a matter for a server under load, and all
//! drawing.
//!
//! Deviations: the paper measured each point once; here a point is at least some hundred connections, the
//! points come in random order, and every mean has its interval. Its patches were in the kernel, of
//! 2000; `wake-all` and `wake-one` are the same rules in user space, by futex, and pay for one task more,
//! the acceptor.
//!
//! Method and error: a waiter notes the time before each call that may sleep, in shared memory, one cache
//! line each: some 50 ns a wake-up. Wake-ups are counted from outside; `watch` says how, and how exact the
//! settle time is. The next connection is made only after everybody is known to sleep, the experiment has
//! rested, and it has practised on a listener of its own: looking at all tasks would otherwise slow down
//! what comes next, more the more tasks there are. CPU time is the scheduler's own account of each task,
//! plus that of the call to connect(): on loopback the kernel does the listener's receive work, and walks
//! its wait queue, in that call. Waiters are not pinned.
//!
//! The modules: `population` starts and ends the waiters of a `point`; `waiter` is one of them, and `wait` its way to
//! wait. `sample` is one connection; `board` is the memory in which waiters report; `watch` counts wake-ups;
//! `fairness` says how evenly connections fell; `text` is the table; `error` is what can go wrong.
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
use sys::descriptors;

pub use error::HerdError;
pub use point::{Point, Settle};
pub use population::Tasks;
pub use text::{PAPER, PaperLine, text};
pub use wait::{UnknownWait, Wait};
pub use waiter::{COMMAND, run_in_this_process};
pub use watch::CountedBy;

use point::Measured;
use population::Population;
use sample::Client;
use watch::{Watch, nap, trace::Trace};

/// Connections before those that are measured: caches, and the first wait of each.
const WARM_UP: usize = 5;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Config {
    /// How they wait; a point for each with each number of waiters.
    pub waits: Vec<Wait>,
    /// How many wait, each at least 1.
    pub waiters: Vec<usize>,
    /// What they run in.
    pub tasks: Tasks,
    /// Connections a point, at least 1.
    pub samples: usize,
    /// The order of points, and the bootstrap.
    pub seed: Seed,
    /// What to count by; the best there is, if not said.
    pub count_by: Option<CountedBy>,
    /// This program, which knows [`COMMAND`]; started again for each waiter that is a process.
    pub program: PathBuf,
}

/// A point that is about to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Points done.
    pub done: usize,
    /// Points in all.
    pub of: usize,
    /// How the next one waits.
    pub wait: Wait,
    /// How many wait.
    pub waiters: usize,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Sorted by way to wait and number of waiters; fewer than asked for where it was stopped.
    pub points: Vec<Point>,
    /// Why trace points could not be used, where they could not and nobody said what to count by.
    pub no_trace_points: Option<String>,
}

/// Measures all points, in random order. Blocks; raises this process's soft descriptor limit as far as is
/// needed, and sets the calling thread's timer slack. Ends after the current connection when `stop` says so.
///
/// # Errors
/// [`HerdError::Descriptors`] and [`HerdError::NoTracePoints`] before anything is measured;
/// [`HerdError::System`] where the machine gives no more tasks or memory; [`HerdError::Stuck`] where a
/// herd does not settle.
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

/// One point; none where it was stopped.
fn measure(
    config: &Config,
    wait: Wait,
    waiters: usize,
    counted_by: CountedBy,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Measured>, HerdError> {
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
    Ok(Some(Measured { wait, waiters, samples }))
}

/// Until every task is about to wait for the first time.
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

/// A waiter that has ended is the better explanation.
fn explain(error: HerdError, herd: &mut Population) -> HerdError {
    match herd.failure() {
        Some(failure) => watch::stuck(herd, &failure),
        None => error,
    }
}

/// What to count by, and why not by trace points.
fn choose_count(config: &Config) -> Result<(CountedBy, Option<String>), HerdError> {
    match (config.count_by, Trace::available()) {
        (Some(CountedBy::Switches), _) => Ok((CountedBy::Switches, None)),
        (_, Ok(())) => Ok((CountedBy::TracePoints, None)),
        (Some(CountedBy::TracePoints), Err(why)) => Err(HerdError::NoTracePoints(why)),
        (None, Err(why)) => Ok((CountedBy::Switches, Some(why))),
    }
}

/// For each waiter at most: its listener, its own interest set or the three of a child process, its
/// status; and some for everything else.
fn raise_descriptor_limit(config: &Config) -> Result<(), HerdError> {
    let most = config.waiters.iter().max().copied().unwrap_or(0) as u64;
    let needed = most * 5 + 256;
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
