//! A run in several processes, for more descriptors than one process may open.
//!
//! ```text
//!   parent ---- starts ----> part 0/3 ---- a line for each interval, and one for the report ----+
//!     |-------- starts ----> part 1/3 ----------------------------------------------------------|
//!     |-------- starts ----> part 2/3 ----------------------------------------------------------|
//!     +--> one ledger, one series, one verdict <-------------------------------------------------+
//! ```
//!
//! A part runs this program with the same settings; it is told its number and the run's start. It makes the
//! same plan and carries out its share of the lanes and of each population. It writes lines of JSON to its
//! standard output.
//!
//! The parent adds up counts and histograms, so the result equals that of a single process. Only the parent
//! prints. A part that ends without its report makes the run fail, because the run then did not offer the
//! requested load. A part that falls silent is killed ([`Watch`]), so that the parent ends too.

use std::io::{self, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use base::{Clock, Nanos, RealClock};
use record::LoadResult;
use sys::process::descriptors;
use sys::process::{Child, Program};

use crate::engine::wire::transport::Links;
use crate::error::LoadError;
use crate::execution::protocol::{Assignment, Line, Role, read};
use crate::execution::run::{Gathering, carry_out};
use crate::execution::s_client_pair;
use crate::execution::stop::Stop;
use crate::execution::threads::Start;
use crate::measurement::observer::Observer;
use crate::measurement::result::Reports;
use crate::plan::Plan;
use crate::plan::terms::share::Share;

/// From now to the run's start, so that the parts are ready for the first session; the second value is added
/// for each part.
const HEAD_START: Nanos = Nanos::from_millis(200);
const HEAD_START_EACH: Nanos = Nanos::from_millis(20);

/// The longest sleep of the parent; a request to stop is noticed after it.
const TICK: Nanos = Nanos::from_millis(50);

/// A part that works ends within this time after it was told to: it waits 1 s for replies on their way. A silence may
/// be longer by this time than a run explains.
const GRACE: Nanos = Nanos::from_secs(5);

/// Carries out the assignment of this process and writes its lines to `out`. Blocks until the planned end or
/// until `stop` is raised; a handler blocks until its establisher has ended.
///
/// # Errors
/// As [`crate::run`]; also a failed write to `out`.
pub fn run_assignment(
    plan: &Plan,
    assignment: Assignment,
    out: &mut impl Write,
    stop: &Stop,
) -> Result<(), LoadError> {
    let start = Start::at(assignment.origin);
    let mut failure = None;
    let mut write = |line: &Line| {
        let written = serde_json::to_writer(&mut *out, line).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
            // The parent has ended.
            failure.get_or_insert(error);
            stop.request();
        }
    };
    let mut hear = |told| write(&Line::Interval(Box::new(told)));
    let reports = match assignment.role {
        Role::Share(share) => {
            descriptors::make_room(u64::MAX);
            let links = Links::open(plan, share)?;
            carry_out(plan, share, start, links, None, &|| stop.is_requested(), &mut hear)?
        }
        Role::Handler(socket) => s_client_pair::handle(plan, socket, start, &mut hear)?,
    };
    write(&Line::Reports(Box::new(reports)));
    failure.map_or(Ok(()), |source| Err(LoadError::System { operation: "telling the parent", source }))
}

/// Carries out a planned run in the processes that it needs, or by a pair; `program` describes how to start
/// this program as a part. Blocks as [`crate::run`] does.
///
/// # Errors
/// [`LoadError::System`] when a part cannot be started, or ends without its report.
pub fn run_in_processes(
    plan: &Plan,
    program: &dyn Fn(Assignment) -> Program<'static>,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<LoadResult, LoadError> {
    if plan.is_pair() {
        return s_client_pair::run(plan, program, observer, stop);
    }
    let count = plan.processes();
    let origin = RealClock.now() + HEAD_START + HEAD_START_EACH * u64::from(count);
    let mut gathering = Gathering::new(plan, observer);
    let start = |index| {
        let assignment = Assignment { role: Role::Share(Share { index, count }), origin };
        program(assignment).start().map_err(LoadError::system("starting a part of the generator"))
    };
    // This thread starts the children because it outlives them: a child ends with the thread that started it.
    let mut children: Vec<Child> = (0..count).map(start).collect::<Result<_, _>>()?;
    let (sender, receiver) = channel();
    let given_up = gathering.given_up.clone();
    let reports = thread::scope(|scope| {
        for (index, child) in children.iter_mut().enumerate() {
            let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
            let sender = sender.clone();
            scope.spawn(move || read(index as u32, stdout, stderr, &sender));
        }
        drop(sender);
        let watched = &children;
        let (mut reports, mut reported, mut failure) = (Reports::of(plan), 0, None);
        let mut watch = Watch::new(plan, count);
        loop {
            match receiver.recv_timeout(TICK.into()) {
                Ok((process, line)) => {
                    watch.heard[process as usize] = RealClock.now();
                    match line {
                        Ok(Line::Interval(told)) => gathering.add_interval(process, *told),
                        Ok(Line::Reports(of_part)) => {
                            reports.merge(&of_part);
                            reported += 1;
                            watch.heard[process as usize] = Nanos::MAX;
                        }
                        Err(error) => drop(failure.get_or_insert(error)),
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(silent) = watch.silent(watched) {
                        failure.get_or_insert(silent);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.is_requested() || given_up.is_requested() || failure.is_some() {
                watch.ask_to_end(watched).map_err(LoadError::system("ending a part of the generator"))?;
            }
        }
        let missing = || io::Error::other(format!("only {reported} of {count} have reported"));
        match failure.or_else(|| (reported < count).then(missing)) {
            None => Ok(reports),
            Some(error) => Err(LoadError::system("a part of the generator")(error)),
        }
    });
    Ok(gathering.result(reports?))
}

/// The parent's patience with its parts. A part tells of each interval, so silence means that it is stopped or stuck.
struct Watch {
    /// The time at which each part was last heard; [`Nanos::MAX`] after its report.
    heard: Vec<Nanos>,
    /// The longest silence of a part that works.
    most: Nanos,
    /// The time at which the parts were told to end.
    told_to_end: Option<Nanos>,
}

impl Watch {
    fn new(plan: &Plan, count: u32) -> Watch {
        let most = plan.config.interval.saturating_add(plan.longest_wait()).saturating_add(GRACE);
        Watch { heard: vec![RealClock.now(); count as usize], most, told_to_end: None }
    }

    /// Tells the parts to end, once.
    fn ask_to_end(&mut self, parts: &[Child]) -> io::Result<()> {
        if self.told_to_end.is_some() {
            return Ok(());
        }
        self.told_to_end = Some(RealClock.now());
        parts.iter().try_for_each(Child::ask_to_end)
    }

    /// Kills the parts if one was silent for too long, and names it. The parts that have ended are not affected.
    fn silent(&self, parts: &[Child]) -> Option<io::Error> {
        let now = RealClock.now();
        let until = |heard: Nanos| match self.told_to_end {
            Some(told) => told.saturating_add(GRACE),
            None => heard.saturating_add(self.most),
        };
        let (part, heard) = self.heard.iter().enumerate().find(|(_, heard)| now > until(**heard))?;
        // A child of this user can be killed; one that has ended already is no error.
        parts.iter().for_each(|child| drop(child.kill()));
        let silence = now.saturating_sub(*heard).approximate();
        Some(io::Error::other(format!("part {} of {} was silent for {silence}", part + 1, parts.len())))
    }
}
