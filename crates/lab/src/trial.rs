//! One run of load against one server, observed from both sides.
//!
//! Owns running `inrush load`, its exit codes, and the observation of both sides while it runs. The kernel's counters
//! are read when the warm-up ends and when the measured time does. In between, the accept queue is sampled every 10
//! ms. Chooses no rates.
//!
//! The status page is read before and after the whole run, so that its differences cover the warm-up too. Reading it
//! in between would be one more request to an overloaded server.

use std::io;

use base::{Clock, Nanos};
use experiment::{Outage, Stack};
use record::{LoadResult, QueueDepth};
use serde_json::Value;
use sys::process::Output;

use stage::kernel::{Elapsed, Observer, QueueSamples, Reading};
use stage::server_under_test::{RunningServer, StartError};
use stage::topology::Topology;

/// The time between two samples of the accept queue. Even a short run has some dozens, for less than a thousandth of
/// the client's CPU.
const TICK: Nanos = Nanos::from_millis(10);

/// The most engine threads of the generator: more would only wait on a server that has one CPU.
const THREADS_MAX: usize = 4;

/// Counters of an inrush status page from the server's start, besides those under `counters`.
const COUNTERS: [&str; 4] = ["accepts", "accept_phases", "requests", "bytes"];

/// Exit codes of `inrush load` with a result on its standard output.
const EXIT_WITH_RESULT: [i32; 5] = [0, 1, 3, 4, 5];

/// The lengths of the two parts of a run of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTime {
    /// Load that is offered but not measured, while queues fill and caches warm.
    pub warmup: Nanos,
    /// Measured.
    pub measured: Nanos,
}

impl RunTime {
    /// Both parts.
    pub fn total(self) -> Nanos {
        self.warmup + self.measured
    }
}

/// A run of `inrush load`.
pub struct LoadRun {
    /// The command line, without the flags that give connections their place.
    pub arguments: Vec<String>,
    /// The client's TCP.
    pub stack: Stack,
    /// The lengths that the command line has.
    pub time: RunTime,
    /// A server that is gone for a while.
    pub outage: Option<Outage>,
}

/// A reason for which a run of load has no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It could not be started or waited for.
    #[error("cannot run the load generator: {0}")]
    Io(#[from] io::Error),
    /// A server could not be started again.
    #[error("the killed server: {0}")]
    Revive(#[from] StartError),
    /// The server kept its accept-limit.
    #[error("the server does not take its live accept-limit: {0}")]
    AcceptLimit(io::Error),
    /// It failed.
    #[error("the load generator failed, {status}: {stderr}")]
    Failed {
        /// Its exit code or signal.
        status: std::process::ExitStatus,
        /// The last line it wrote.
        stderr: String,
    },
    /// Its output is not a result.
    #[error("the load generator's result cannot be read: {0}")]
    Shape(#[from] serde_json::Error),
    /// Its ledger does not add up.
    #[error(transparent)]
    Unbalanced(#[from] record::load::Unbalanced),
    /// The user interrupted the run.
    #[error("interrupted")]
    Interrupted,
}

/// The observations of one run, before they are a record.
#[derive(Debug)]
pub struct Seen {
    /// The client's result.
    pub load: LoadResult,
    /// Counters over the measured time.
    pub elapsed: Elapsed,
    /// The accept queue over the measured time.
    pub queue: Option<QueueDepth>,
    /// The server's status page, counters as differences over the run.
    pub status: Option<Value>,
    /// The time between the two looks at the status page, in seconds: the start of the generator, its warm-up, the
    /// measured time, and the wait for the last replies.
    pub status_over_s: f64,
}

/// The equipment of a run besides the server, which is made once and used for all runs.
pub struct Conductor<'a> {
    /// The places of server and client.
    pub topology: &'a Topology,
    /// Looks at the server's side.
    pub observer: &'a mut Observer,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Tells whether to stop; asked several times per second.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl Conductor<'_> {
    /// Runs `inrush load` and watches. Blocks.
    ///
    /// # Errors
    /// [`LoadError`]. A generator that could not offer the load is not an error: the result says so.
    pub fn offer(&mut self, server: &mut RunningServer, run: LoadRun) -> Result<Seen, LoadError> {
        let (status_from, status_before) = (self.clock.now(), server.status(self.topology));
        let most = if run.stack == Stack::AfXdp { 1 } else { THREADS_MAX };
        let threads = self.topology.client.cpus.len().min(most);
        let program = self
            .topology
            .generator(sys::process::this_program()?, run.stack)
            .arguments(run.arguments)
            .arguments(self.topology.place_of_connections(run.stack))
            .arguments(["--threads".to_owned(), threads.to_string()]);
        let child = program.start()?;
        let mut watch = Watch {
            started: self.clock.now(),
            time: run.time,
            from: None,
            to: None,
            queue: QueueSamples::default(),
            outage: run.outage,
        };
        let mut failure = None;
        let output = child.output(TICK, || {
            if failure.is_none() {
                failure = watch.tick(self, server).err();
            }
            failure.is_none() && !(self.interrupted)()
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        if (self.interrupted)() {
            return Err(LoadError::Interrupted);
        }
        let load = parse(&output)?;
        let now = self.observer.read(self.clock)?;
        // A generator that ended early leaves the time until now.
        let from = watch.from.unwrap_or_else(|| now.clone());
        let mut elapsed = watch.to.unwrap_or(now).since(&from);
        if self.topology.stack(run.stack) == Stack::User {
            // Its SYNs come by a TUN device of its own, where nobody counts them.
            elapsed.drops.syns_arrived = None;
        }
        let status_over_s = (self.clock.now() - status_from).as_secs_f64();
        let status = difference(status_before, server.status(self.topology));
        Ok(Seen { load, elapsed, queue: watch.queue.summary(), status, status_over_s })
    }

    /// Waits until the server has accepted and finished the connections of an earlier run, for `at_most`. TIME-WAIT
    /// needs no waiting: the ports of several addresses outlast an experiment.
    ///
    /// # Errors
    /// The errors of looking at the server's side.
    pub fn await_quiet(&mut self, server: &mut RunningServer, at_most: Nanos) -> io::Result<()> {
        let deadline = self.clock.now() + at_most;
        loop {
            let queued = self.observer.accept_queue(server.address.port())?.depth;
            // Listeners, idle admin connections and the like are a handful.
            if (queued == 0 && self.observer.sockets_in_use()? <= 16) || self.clock.now() >= deadline {
                return Ok(());
            }
            server.linger(TICK)?;
        }
    }
}

/// The notes of a run: the counters at both ends of the measured time, and the accept queue in between.
struct Watch {
    started: Nanos,
    time: RunTime,
    from: Option<Reading>,
    to: Option<Reading>,
    queue: QueueSamples,
    /// The outage that lies ahead, with its beginning at the end of time once that has passed.
    outage: Option<Outage>,
}

impl Watch {
    /// Observes the server's side, and does what is due.
    fn tick(&mut self, conductor: &mut Conductor<'_>, server: &mut RunningServer) -> Result<(), LoadError> {
        let passed = conductor.clock.now() - self.started;
        self.read_counters(passed, conductor.observer, conductor.clock, server.address.port())?;
        if passed >= self.time.warmup / 2 {
            server.change_accept_limit(conductor.topology).map_err(LoadError::AcceptLimit)?;
        }
        self.disturb(passed, server, conductor.topology)
    }

    fn read_counters(
        &mut self,
        passed: Nanos,
        observer: &mut Observer,
        clock: &dyn Clock,
        port: u16,
    ) -> io::Result<()> {
        if self.from.is_none() && passed >= self.time.warmup {
            self.from = Some(observer.read(clock)?);
        }
        if self.to.is_none() && passed >= self.time.total() {
            self.to = Some(observer.read(clock)?);
        }
        if self.from.is_some() && self.to.is_none() {
            self.queue.add(observer.accept_queue(port)?);
        }
        Ok(())
    }

    /// Kills the server of the outage, and starts it again, each at its time.
    fn disturb(
        &mut self,
        passed: Nanos,
        server: &mut RunningServer,
        topology: &Topology,
    ) -> Result<(), LoadError> {
        let Some(outage) = &mut self.outage else { return Ok(()) };
        let Some(measured) = passed.0.checked_sub(self.time.warmup.0).map(Nanos) else { return Ok(()) };
        let behind = &mut server.behind[outage.of - 1];
        if measured >= outage.from {
            behind.kill()?;
            outage.from = Nanos::MAX;
        }
        if measured >= outage.to {
            behind.revive(topology)?;
            self.outage = None;
        }
        Ok(())
    }
}

/// The result on the generator's standard output, checked.
fn parse(output: &Output) -> Result<LoadResult, LoadError> {
    let status = output.exit.status;
    if !status.code().is_some_and(|code| EXIT_WITH_RESULT.contains(&code)) || output.stdout.is_empty() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stderr = stderr.lines().last().unwrap_or("it said nothing").to_owned();
        return Err(LoadError::Failed { status, stderr });
    }
    let load: LoadResult = serde_json::from_slice(&output.stdout)?;
    load.balance()?;
    Ok(load)
}

/// Subtracts the earlier status page from the later one, because counters count from the server's start. Leaves out
/// the figures of single loops. `None` if either page is missing.
fn difference(before: Option<Value>, after: Option<Value>) -> Option<Value> {
    let (before, mut after) = (before?, after?);
    let page = after.as_object_mut()?;
    page.remove("loops");
    for name in COUNTERS {
        if let Some(value) = page.get_mut(name) {
            subtract(value, before.get(name));
        }
    }
    if let Some(named) = page.get_mut("counters").and_then(Value::as_object_mut) {
        for (name, value) in named {
            subtract(value, before.get("counters").and_then(|counters| counters.get(name)));
        }
    }
    let counted = |name: &str| page.get(name).and_then(Value::as_f64);
    if let (Some(accepts), Some(phases)) = (counted("accepts"), counted("accept_phases")) {
        page.insert("mean_accepted_per_phase".to_owned(), (accepts / phases.max(1.0)).into());
    }
    Some(after)
}

fn subtract(later: &mut Value, earlier: Option<&Value>) {
    if let (Some(count), Some(earlier)) = (later.as_u64(), earlier.and_then(Value::as_u64)) {
        *later = count.saturating_sub(earlier).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn counters_become_differences_gauges_stay() {
        let page = |accepts, phases, timeouts| {
            json!({
                "accepts": accepts, "accept_phases": phases, "mean_accepted_per_phase": 9.0,
                "connections": accepts, "counters": { "timeouts": timeouts }, "loops": [{ "accepts": 7 }],
            })
        };
        let expected = json!({
            "accepts": 15, "accept_phases": 5, "mean_accepted_per_phase": 3.0,
            "connections": 25, "counters": { "timeouts": 2 },
        });
        assert_eq!(difference(Some(page(10, 5, 1)), Some(page(25, 10, 3))), Some(expected));
        assert_eq!(difference(None, Some(page(1, 1, 1))), None);
        let other = json!({ "version": "2" });
        assert_eq!(difference(Some(other.clone()), Some(other.clone())), Some(other));
    }

    fn output(code: i32, stdout: &str, stderr: &str) -> Output {
        let exit = sys::process::Exit {
            status: std::process::ExitStatus::from_raw(code << 8),
            cpu_time: Nanos::ZERO,
        };
        Output { stdout: stdout.into(), stderr: stderr.into(), exit }
    }

    #[test]
    fn a_failed_generator_is_quoted() {
        let error = parse(&output(2, "", "usage\nunknown flag --x\n")).unwrap_err().to_string();
        assert_eq!(error, "the load generator failed, exit status: 2: unknown flag --x");
        assert!(matches!(parse(&output(0, "not json", "")), Err(LoadError::Shape(_))));
        assert!(matches!(parse(&output(3, "", "")), Err(LoadError::Failed { .. })));
        assert!(matches!(parse(&output(1, "", "a reason")), Err(LoadError::Failed { .. })));
        // A run in which no request was due ends with 1, and has a result.
        assert!(matches!(parse(&output(1, "{}", "")), Err(LoadError::Shape(_))));
    }
}
