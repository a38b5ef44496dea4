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
//! prints. A part that ends without its report makes the run fail, because the load was then not the load
//! that was asked for.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::fd::RawFd;
use std::str::FromStr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;

use base::{Clock, Nanos, RealClock};
use record::LoadResult;
use serde::{Deserialize, Serialize};
use sys::descriptors;
use sys::process::{Child, Program};

use crate::LoadError;
use crate::lanes::Start;
use crate::observer::Observer;
use crate::pair;
use crate::preflight::Plan;
use crate::run::{Gathering, Reports, Told, carry_out};
use crate::stop::Stop;
use crate::transport::Links;

/// From now to the run's start, so that the parts are ready for the first session; the second value is added
/// for each part.
const HEAD_START: Nanos = Nanos::from_millis(200);
const HEAD_START_EACH: Nanos = Nanos::from_millis(20);

/// The longest sleep of the parent; a request to stop is noticed after it.
const TICK: Nanos = Nanos::from_millis(50);

/// One of several equal shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub index: u32,
    pub count: u32,
}

impl Share {
    /// The only share, of everything.
    pub const ALL: Share = Share { index: 0, count: 1 };

    /// The size of this share of `things`; shares differ by one at most.
    pub fn of(self, things: u32) -> u32 {
        things / self.count + u32::from(self.index < things % self.count)
    }

    /// The fraction of `things` in this share.
    pub fn fraction(self, things: u32) -> f64 {
        f64::from(self.of(things)) / f64::from(things)
    }

    /// The numbers of this share's things, counted in order.
    pub fn range(self, things: u32) -> Range<u32> {
        let before = (0..self.index).map(|index| Share { index, ..self }.of(things)).sum();
        before..before + self.of(things)
    }
}

/// The message that makes a process a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    role: Role,
    /// The run's start on the monotonic clock, which all processes of a machine share.
    origin: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Share(Share),
    /// The handler of a pair, with the descriptor of its end of the socket.
    Handler(RawFd),
}

impl Part {
    /// A message for the handler of a pair.
    pub(crate) fn handler(socket: RawFd, origin: Nanos) -> Part {
        Part { role: Role::Handler(socket), origin }
    }

    /// Returns true for a handler, which runs until its establisher ends. A signal that should end it earlier
    /// has to kill the process.
    pub fn is_handler(self) -> bool {
        matches!(self.role, Role::Handler(_))
    }
}

/// The text names no part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a part of a run")]
pub struct NotAPart(String);

impl FromStr for Part {
    type Err = NotAPart;

    fn from_str(text: &str) -> Result<Part, NotAPart> {
        let parse = || {
            let (role, origin) = text.split_once('@')?;
            let origin = Nanos(origin.parse().ok()?);
            if let Some(socket) = role.strip_prefix("handler:") {
                return Some(Part::handler(socket.parse().ok()?, origin));
            }
            let (index, count) = role.split_once('/')?;
            let share = Share { index: index.parse().ok()?, count: count.parse().ok()? };
            (share.index < share.count).then_some(Part { role: Role::Share(share), origin })
        };
        parse().ok_or_else(|| NotAPart(text.to_owned()))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            Role::Share(Share { index, count }) => write!(f, "{index}/{count}@{}", self.origin.0),
            Role::Handler(socket) => write!(f, "handler:{socket}@{}", self.origin.0),
        }
    }
}

/// One line of a part's output.
#[derive(Serialize, Deserialize)]
pub(crate) enum Line {
    Told(Box<Told>),
    Reports(Box<Reports>),
}

/// Carries out a part of a run in this process and writes its lines to `out`. Blocks until the planned end or
/// until `stop` is raised; a handler blocks until its establisher has ended.
///
/// # Errors
/// As [`crate::run`]; also a failed write to `out`.
pub fn run_part(plan: &Plan, part: Part, out: &mut impl Write, stop: &Stop) -> Result<(), LoadError> {
    let start = start_at(part.origin);
    let mut failure = None;
    let mut write = |line: &Line| {
        let written = serde_json::to_writer(&mut *out, line).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
            // The parent has ended.
            failure.get_or_insert(error);
            stop.request();
        }
    };
    let mut hear = |told| write(&Line::Told(Box::new(told)));
    let reports = match part.role {
        Role::Share(share) => {
            descriptors::make_room(u64::MAX);
            let links = Links::open(plan, share)?;
            carry_out(plan, share, start, links, None, &|| stop.is_requested(), &mut hear)?
        }
        Role::Handler(socket) => pair::handle(plan, socket, start, &mut hear)?,
    };
    write(&Line::Reports(Box::new(reports)));
    failure.map_or(Ok(()), |source| Err(LoadError::System { operation: "telling the parent", source }))
}

/// The run's start for this process; a part that is late finds its sessions overdue.
pub(crate) fn start_at(origin: Nanos) -> Start {
    Start { clock: RealClock::new(), origin }
}

/// Carries out a planned run in the processes that it needs, or by a pair; `program` describes how to start
/// this program as a part. Blocks as [`crate::run`] does.
///
/// # Errors
/// [`LoadError::System`] when a part cannot be started, or ends without its report.
pub fn run_in_processes(
    plan: &Plan,
    program: &dyn Fn(Part) -> Program<'static>,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<LoadResult, LoadError> {
    if plan.is_pair() {
        return pair::run(plan, program, observer, stop);
    }
    let count = plan.processes();
    let origin = RealClock.now() + HEAD_START + HEAD_START_EACH * u64::from(count);
    let mut gathering = Gathering::new(plan, observer);
    let start = |index| {
        let part = Part { role: Role::Share(Share { index, count }), origin };
        program(part).start().map_err(LoadError::system("starting a part of the generator"))
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
        let (mut reports, mut reported, mut failure) = (Reports::of(plan), 0, None);
        let mut told_to_end = false;
        loop {
            match receiver.recv_timeout(TICK.into()) {
                Ok((process, Ok(Line::Told(told)))) => gathering.hear(process, *told),
                Ok((_, Ok(Line::Reports(of_part)))) => {
                    reports.merge(&of_part);
                    reported += 1;
                }
                Ok((_, Err(error))) => {
                    failure.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let is_over = stop.is_requested() || given_up.is_requested() || failure.is_some();
            if is_over && !told_to_end {
                told_to_end = true;
                let told = children.iter().try_for_each(Child::ask_to_end);
                told.map_err(LoadError::system("ending a part of the generator"))?;
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

/// Forwards the lines of a part until it ends. Its standard error, if any, becomes the error of the run.
pub(crate) fn read(
    index: u32,
    stdout: Option<impl Read>,
    stderr: Option<impl Read>,
    sender: &Sender<(u32, io::Result<Line>)>,
) {
    let Some(stdout) = stdout else { return };
    for line in BufReader::new(stdout).lines() {
        let line = line.and_then(|line| Ok(serde_json::from_str(&line)?));
        if sender.send((index, line)).is_err() {
            return;
        }
    }
    let mut said = String::new();
    if stderr.is_some_and(|mut pipe| pipe.read_to_string(&mut said).is_ok()) && !said.is_empty() {
        // The receiver may have stopped because another part failed.
        let _ = sender.send((index, Err(io::Error::other(said.trim().to_owned()))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_parse_back() {
        for text in ["0/1@0", "2/3@123456789", "handler:7@5"] {
            assert_eq!(text.parse::<Part>().unwrap().to_string(), text);
        }
        for text in ["", "3/3@1", "1@1", "1/3", "a/b@c", "handler:@1", "handler:x@1"] {
            assert!(text.parse::<Part>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn shares_are_all_there_is_and_differ_by_one(things in 0u32..10_000, count in 1u32..100) {
            let mut next = 0;
            for index in 0..count {
                let share = Share { index, count };
                let range = share.range(things);
                prop_assert_eq!(range.start, next);
                prop_assert_eq!(range.len(), share.of(things) as usize);
                prop_assert!(share.of(things).abs_diff(things / count) <= 1);
                next = range.end;
            }
            prop_assert_eq!(next, things);
        }
    }
}
