//! The messages between the processes of one run: the assignment of a process, and the lines that it writes.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::RawFd;
use std::str::FromStr;
use std::sync::mpsc::Sender;

use base::Nanos;
use serde::{Deserialize, Serialize};

use crate::execution::run::ThreadInterval;
use crate::measurement::result::Reports;
use crate::plan::terms::share::Share;

/// The message that makes a process a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub(crate) role: Role,
    /// The run's start on the monotonic clock, which all processes of a machine share.
    pub(crate) origin: Nanos,
}

/// The work of a process in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A share of the threads and of the populations.
    Share(Share),
    /// The handler of a pair, with the descriptor of its end of the socket.
    Handler(RawFd),
}

impl Assignment {
    /// A message for the handler of a pair.
    pub(crate) fn handler(socket: RawFd, origin: Nanos) -> Assignment {
        Assignment { role: Role::Handler(socket), origin }
    }

    /// Returns true for a handler, which runs until its establisher ends. A signal that should end it earlier
    /// has to kill the process.
    pub fn is_handler(self) -> bool {
        matches!(self.role, Role::Handler(_))
    }
}

/// The text is not an assignment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not part of a run")]
pub struct NotAnAssignment(String);

impl FromStr for Assignment {
    type Err = NotAnAssignment;

    fn from_str(text: &str) -> Result<Assignment, NotAnAssignment> {
        let parse = || {
            let (role, origin) = text.split_once('@')?;
            let origin = Nanos(origin.parse().ok()?);
            if let Some(socket) = role.strip_prefix("handler:") {
                return Some(Assignment::handler(socket.parse().ok()?, origin));
            }
            let (index, count) = role.split_once('/')?;
            let share = Share { index: index.parse().ok()?, count: count.parse().ok()? };
            (share.index < share.count).then_some(Assignment { role: Role::Share(share), origin })
        };
        parse().ok_or_else(|| NotAnAssignment(text.to_owned()))
    }
}

impl fmt::Display for Assignment {
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
    Interval(Box<ThreadInterval>),
    Reports(Box<Reports>),
}

/// Forwards the lines of a part until it ends. Its standard error, if any, becomes the error of the run. Reads both at
/// once, because a part blocks on a full pipe.
pub(crate) fn read(
    index: u32,
    stdout: Option<impl Read>,
    stderr: Option<impl Read + Send>,
    sender: &Sender<(u32, io::Result<Line>)>,
) {
    std::thread::scope(|scope| {
        let said = scope.spawn(|| stderr.map(io::read_to_string));
        for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
            let line = line.and_then(|line| Ok(serde_json::from_str(&line)?));
            if sender.send((index, line)).is_err() {
                return;
            }
        }
        if let Ok(Some(Ok(said))) = said.join()
            && !said.is_empty()
        {
            // The receiver may have stopped because another part failed.
            let _ = sender.send((index, Err(io::Error::other(said.trim().to_owned()))));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_parse_back() {
        for text in ["0/1@0", "2/3@123456789", "handler:7@5"] {
            assert_eq!(text.parse::<Assignment>().unwrap().to_string(), text);
        }
        for text in ["", "3/3@1", "1@1", "1/3", "a/b@c", "handler:@1", "handler:x@1"] {
            assert!(text.parse::<Assignment>().is_err(), "{text:?}");
        }
    }
}
