//! Our server with idle connections beside it, put under one load after another.
//!
//! One event loop on one CPU serves a file of 1 KiB. Idle connections have asked for it once and stay. Owns
//! starting, holding, measuring and ending; what is compared with what is a benchmark's.
//!
//! The cost of a request is the busy time of the server's CPU, packet work included, over the replies of
//! the same time: it means nothing where something else runs on that CPU, which shows in that the server's
//! process was charged far less. The response time runs from when a request was meant to be sent; under a
//! closed loop that is when it was sent. Overflows of the event queue are those that the server counts.

mod holders;

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context, ensure};
use base::{Clock, Nanos};
use lab::stage::kernel::Observer;
use lab::stage::owner::temporary_folder;
use lab::stage::server_under_test::RunningServer;
use record::LoadResult;
use record::load::Verdict;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::rivals::generators::inrush_result;
use crate::rivals::servers;
use crate::test_bed::{FILE_LENGTH, TICK, TestBed, allow_descriptors};

/// The file that is asked for.
pub const FILE_NAME: &str = "1k.html";
/// Longer than any measurement.
const IDLE_TIMEOUT: &str = "1h";
/// What we have open beside connections.
const OTHER_DESCRIPTORS: u32 = 64;
/// How long after its time a load generator may end.
const PATIENCE: Nanos = Nanos::from_secs(20);
/// Sockets of a server that has ended are gone in less.
const GONE_WITHIN: Nanos = Nanos::SECOND;
/// How often the server is asked for its status page, half a second each time.
const STATUS_ATTEMPTS: u32 = 10;

/// What one run of the load generator found.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// In which round.
    pub round: u32,
    /// Correct replies a second.
    pub replies_per_s: f64,
    /// Half of the responses came within so many milliseconds.
    pub response_ms_p50: f64,
    /// The mean of the same.
    pub response_ms_mean: f64,
    /// Of the server's CPU; absent where the sides share their CPUs, or nothing was replied.
    pub cpu_us_per_request: Option<f64>,
    /// What the kernel charged the server's process; far below the CPU's, where something else ran there.
    pub process_us_per_request: Option<f64>,
    /// How often the event mechanism's queue was full, warm-up included.
    pub overflows: u64,
    /// The generator could not offer what it was asked to.
    pub generator_limited: bool,
}

/// What is offered to the server.
#[derive(Clone, Debug)]
pub struct Load {
    /// Flags of `inrush load`: how many, and what they do.
    pub flags: Vec<String>,
    /// Before anything counts.
    pub warmup: Nanos,
    /// The length of the measurement.
    pub seconds: u32,
}

/// A folder with the file that is asked for.
///
/// # Errors
/// Those of the file system.
pub fn folder() -> anyhow::Result<tempfile::TempDir> {
    let folder = temporary_folder().context("cannot make a folder to serve")?;
    fs::write(folder.path().join(FILE_NAME), vec![b'x'; FILE_LENGTH])?;
    Ok(folder)
}

/// Raises our descriptor limit to what so many connections need: the server has its ends, a listener and the
/// file, we have the other ends of the idle ones.
///
/// # Errors
/// When the hard limit is lower, with `flag` as what asks for so many.
pub fn allow(flag: &str, idle: u32, others: u32) -> anyhow::Result<()> {
    allow_descriptors(flag, (idle + others + OTHER_DESCRIPTORS) as usize)
}

/// Has programs that are started from now on get by with queues of so many signals (RLIMIT_SIGPENDING).
///
/// # Errors
/// When the hard limit is lower.
pub fn shorten_signal_queue(length: u32) -> anyhow::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Sigpending);
    setrlimit(Resource::Sigpending, Rlimit { current: Some(length.into()), maximum })
        .with_context(|| format!("cannot make signal queues {length} long: ulimit -Hi is lower"))
}

/// How long it takes to start a server with so many idle connections, and to end it; for an estimate only.
pub fn preparation(idle: u32) -> Nanos {
    // Measured with room to spare: the slowest mechanisms open 3000 a second.
    Nanos::SECOND + Nanos::from_millis(u64::from(idle) / 3)
}

/// A server that runs, with its idle connections. Dropping it kills the server.
pub struct Stand<'a> {
    bed: &'a TestBed,
    server: RunningServer,
    observer: Observer,
    held: Vec<TcpStream>,
}

impl<'a> Stand<'a> {
    /// Starts the server with these flags and their values, room for `others` beside the idle connections, and
    /// opens those. Blocks.
    ///
    /// # Errors
    /// When the server does not start, or does not answer.
    pub fn start(
        bed: &'a TestBed,
        root: &Path,
        (idle, others): (u32, u32),
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Stand<'a>> {
        let observer = Observer::of(&bed.topology).context("cannot look at the server's side")?;
        let settings = [settings, &[("--idle-timeout", IDLE_TIMEOUT)]].concat();
        let server = servers::start_inrush(bed, root, idle + others, &settings)?;
        let address = server.address;
        let held = bed.topology.client.enter(|| holders::hold(address, FILE_NAME, idle));
        let held = held.context("cannot open the idle connections")?;
        Ok(Stand { bed, server, observer, held })
    }

    /// One run of the load generator. Blocks for its length.
    ///
    /// # Errors
    /// When the generator fails, or the server says nothing about itself.
    pub fn measure(&mut self, load: &Load, round: u32) -> anyhow::Result<Sample> {
        let overflows = self.overflows()?;
        let (result, before, after) = self.generate(load, round)?;
        let overflows = self.overflows()? - overflows;
        let elapsed = after.0.since(&before.0);
        let replies = result.goodput_per_s * elapsed.drops.over_s;
        let measurable = self.bed.topology.sides_have_own_cpus() && replies > 0.0;
        // A closed client means to send when it sends.
        let open = result.latency_intended_ns.answered.count > 0;
        let response = if open { result.latency_intended_ns } else { result.latency_sent_ns }.answered;
        let process_us = (after.1 - before.1).as_secs_f64() * 1e6;
        Ok(Sample {
            round,
            replies_per_s: result.goodput_per_s,
            response_ms_p50: response.p50 as f64 / 1e6,
            response_ms_mean: response.mean / 1e6,
            cpu_us_per_request: measurable.then(|| elapsed.server_cpu * 1e6 / result.goodput_per_s),
            process_us_per_request: (replies > 0.0).then(|| process_us / replies),
            overflows,
            generator_limited: result.verdict == Verdict::GeneratorLimited,
        })
    }

    /// Runs the generator, and looks at the server at both ends of the measured time.
    fn generate(&mut self, load: &Load, round: u32) -> anyhow::Result<(LoadResult, Look, Look)> {
        let bed = self.bed;
        let program = bed.topology.client.program(&bed.inrush).arguments([
            "load".to_owned(),
            format!("http://{}/{FILE_NAME}", self.server.address),
            format!("--warmup={}ns", load.warmup.0),
            format!("--duration={}s", load.seconds),
            format!("--seed={round}"),
            "--output=json".to_owned(),
        ]);
        let child = program.arguments(&load.flags).start().context("cannot start inrush load")?;
        let begins = bed.clock.now() + load.warmup;
        let ends = begins + Nanos::from_secs(u64::from(load.seconds));
        let (mut before, mut after) = (None, None);
        let mut look = || Some((self.observer.read(&bed.clock).ok()?, server_time(&self.server)?));
        let output = child.output(TICK, || {
            let now = bed.clock.now();
            if now >= begins && before.is_none() {
                before = look();
            }
            if now >= ends && after.is_none() {
                after = look();
            }
            now < ends + PATIENCE
        })?;
        let result = inrush_result(&output)?;
        let (before, after) = before.zip(after).context("it ended before its time")?;
        Ok((result, before, after))
    }

    /// How often the event mechanism's queue has been full.
    fn overflows(&self) -> anyhow::Result<u64> {
        // Its thread may have to wait for the loop, which has more to do than there is time for.
        let mut attempts = (0..STATUS_ATTEMPTS).map(|_| self.server.status(&self.bed.topology));
        let status = attempts.find_map(|status| status).context("the server says nothing about itself")?;
        let count = status["counters"]["event_queue_overflows"].as_u64();
        count.context("its status has no event_queue_overflows")
    }

    /// Sees that the idle connections are still there, and ends. Blocks for a moment.
    ///
    /// # Errors
    /// When some of them are not.
    pub fn end(self) -> anyhow::Result<()> {
        let Stand { bed, server, mut observer, held } = self;
        let open = observer.sockets_in_use()?;
        ensure!(open >= held.len() as u64, "only {open} of {} idle connections are still open", held.len());
        // Whoever closes first keeps the connection in TIME-WAIT: let that be the server that is gone.
        server.stop()?;
        drop(held);
        // The next one counts from what there is when it begins, and these are not to go meanwhile.
        let deadline = bed.clock.now() + GONE_WITHIN;
        while observer.sockets_in_use()? > 0 && bed.clock.now() < deadline {
            sys::poll::wait(&mut [], Some(TICK))?;
        }
        Ok(())
    }
}

/// What the server's side and the server's process had used at some moment.
type Look = (lab::stage::kernel::Reading, Nanos);

/// CPU time that the server's process has used.
fn server_time(server: &RunningServer) -> Option<Nanos> {
    let pid = Pid::from_raw(i32::try_from(server.pid()).ok()?)?;
    sys::cpu::process_time_of(pid).ok()
}
