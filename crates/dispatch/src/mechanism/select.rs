//! select(2), over bitmaps that grow with the largest descriptor; the FDM paper's servers stop at 1024. A
//! wait costs by the largest descriptor number. It reports no failure of its own: a failed descriptor is
//! readable and writable.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;
use sys::readiness::select::{self, FdSet};

use super::signals::Recovery;
use super::{Change, Mechanism, Poll, event};
use crate::capabilities::Capabilities;
use crate::{Event, Interest, Token, Waited, unless_interrupted};

/// The mechanism on select(2).
#[derive(Default)]
pub struct Select {
    read: FdSet,
    write: FdSet,
    ready_read: FdSet,
    ready_write: FdSet,
    /// Tokens by descriptor number.
    tokens: Vec<Token>,
    /// One more than the largest descriptor that was ever in a set.
    end: RawFd,
}

impl Select {
    fn put(&mut self, fd: RawFd, interest: Interest) {
        let put = |set: &mut FdSet, wanted: bool| if wanted { set.insert(fd) } else { set.remove(fd) };
        put(&mut self.read, interest.reads());
        put(&mut self.write, interest.writes());
    }
}

impl Recovery for Select {}

impl Mechanism for Select {
    const CAPABILITIES: Capabilities = Capabilities { name: "select", ..Poll::CAPABILITIES };

    fn new() -> io::Result<Select> {
        Ok(Select::default())
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        let index = change.fd as usize;
        if index >= self.tokens.len() {
            self.tokens.resize(index + 1, change.token);
        }
        self.tokens[index] = change.token;
        self.end = self.end.max(change.fd + 1);
        self.put(change.fd, change.to.unwrap_or(Interest::None));
        Ok(())
    }

    fn closing(&mut self, fd: RawFd) {
        self.put(fd, Interest::None);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        let waited = select::wait(
            self.end,
            (&self.read, &mut self.ready_read),
            (&self.write, &mut self.ready_write),
            timeout,
        );
        if unless_interrupted(waited)?.is_none() {
            return Ok(Waited::Interrupted);
        }
        let (tokens, ready_write) = (&self.tokens, &self.ready_write);
        self.ready_read.for_each_below(self.end, |fd| {
            events.push(event(tokens[fd as usize], true, ready_write.contains(fd), false));
        });
        let ready_read = &self.ready_read;
        self.ready_write.for_each_below(self.end, |fd| {
            if !ready_read.contains(fd) {
                events.push(event(tokens[fd as usize], false, true, false));
            }
        });
        Ok(Waited::Ready)
    }
}
