//! The library behind the C functions, without pointers: the polling sets, the payload of each descriptor,
//! and the events for which a caller had no room.
//!
//! A caller frees a payload's memory when it is done with the descriptor. No event may therefore have a
//! payload that was replaced or unregistered. Invariants:
//!
//! - A descriptor is in `undelivered` at most once, so a call delivers at most one event of it. A deadline
//!   that passed together with another event is one more bit of that event.
//! - `undelivered` is empty whenever the sets are polled. An entry whose descriptor was unregistered or
//!   updated since has no bits and is skipped. Readiness is a level, so the next poll finds it again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use base::{Clock, Nanos, RealClock};
use dispatch::Waited;
use dispatch::locality::{self, PollingSets, Settings};
use sys::readiness::poll::bits;

use crate::error::Error;

/// The deadline of a descriptor has passed; poll(2) does not use this bit.
pub(crate) const TIMED_OUT: i16 = 0x4000;

/// The event that a call delivers for one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event<P> {
    pub(crate) fd: RawFd,
    /// poll(2)'s bits and [`TIMED_OUT`].
    pub(crate) bits: i16,
    /// The payload; `None` before the first update.
    pub(crate) payload: Option<P>,
}

struct Registered<P> {
    payload: Option<P>,
    /// Bits that are not delivered yet.
    happened: i16,
}

/// The library between start and stop.
pub(crate) struct Instance<P, C = RealClock> {
    sets: PollingSets<C>,
    clock: C,
    /// Registrations by descriptor number.
    registered: Vec<Option<Registered<P>>>,
    undelivered: VecDeque<RawFd>,
    /// The reports of the sets. The vector is kept for its memory.
    reported: Vec<locality::Event>,
}

impl<P: Copy, C: Clock + Clone> Instance<P, C> {
    /// An instance without descriptors. `sets` is 1 to 255, `live_counter` at least 2.
    pub(crate) fn new(sets: i32, live_counter: i32, clock: C) -> Result<Instance<P, C>, Error> {
        let sets = u8::try_from(sets).ok().filter(|sets| *sets >= 1).ok_or(Error::Invalid)?;
        let live_counter = u32::try_from(live_counter).ok().filter(|n| *n >= 2).ok_or(Error::Invalid)?;
        Ok(Instance {
            sets: PollingSets::new(Settings { sets, live_counter, ..Settings::default() }, clock.clone()),
            clock,
            registered: Vec::new(),
            undelivered: VecDeque::new(),
            reported: Vec::new(),
        })
    }

    /// Adds a descriptor that the caller knows to be open. The instance keeps memory for every number up to
    /// it.
    pub(crate) fn register(&mut self, fd: RawFd, direction: i16, locked: bool) -> Result<(), Error> {
        let (index, direction) = (index(fd)?, one_direction(direction)?);
        if index >= self.registered.len() {
            self.registered.resize_with(index + 1, || None);
        }
        if self.registered[index].is_some() {
            return Err(Error::Known);
        }
        self.registered[index] = Some(Registered { payload: None, happened: 0 });
        self.sets.register(fd, direction, 0, locked);
        Ok(())
    }

    pub(crate) fn unregister(&mut self, fd: RawFd) -> Result<(), Error> {
        self.registered.get_mut(index(fd)?).and_then(Option::take).ok_or(Error::Unknown)?;
        self.sets.unregister(fd);
        Ok(())
    }

    /// Replaces direction, payload and deadline. `within` counts from now.
    pub(crate) fn update(
        &mut self,
        fd: RawFd,
        direction: i16,
        payload: P,
        within: Option<Nanos>,
    ) -> Result<(), Error> {
        let (index, direction) = (index(fd)?, one_direction(direction)?);
        let entry = self.registered.get_mut(index).and_then(Option::as_mut).ok_or(Error::Unknown)?;
        *entry = Registered { payload: Some(payload), happened: 0 };
        let deadline = within.map(|within| self.clock.now().saturating_add(within));
        self.sets.update(fd, direction, 0, deadline);
        Ok(())
    }

    /// Waits until there are events to deliver or the timeout passes. Makes no system call if events of the
    /// last wait are left.
    pub(crate) fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), Error> {
        while let Some(fd) = self.undelivered.front() {
            if self.registered[*fd as usize].as_ref().is_some_and(|entry| entry.happened != 0) {
                return Ok(());
            }
            self.undelivered.pop_front();
        }
        let waited = self.sets.wait(&mut self.reported, timeout).map_err(poll_error)?;
        for event in self.reported.drain(..) {
            let Some(entry) = &mut self.registered[event.fd as usize] else { continue };
            if entry.happened == 0 {
                self.undelivered.push_back(event.fd);
            }
            entry.happened |= event.bits | if event.timed_out { TIMED_OUT } else { 0 };
        }
        if waited == Waited::Interrupted { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// The next event among those that the last wait found.
    pub(crate) fn next_event(&mut self) -> Option<Event<P>> {
        while let Some(fd) = self.undelivered.pop_front() {
            let Some(entry) = &mut self.registered[fd as usize] else { continue };
            let happened = std::mem::take(&mut entry.happened);
            if happened != 0 {
                return Some(Event { fd, bits: happened, payload: entry.payload });
            }
        }
        None
    }
}

fn index(fd: RawFd) -> Result<usize, Error> {
    usize::try_from(fd).map_err(|_| Error::BadDescriptor)
}

fn one_direction(direction: i16) -> Result<i16, Error> {
    if direction == bits::IN || direction == bits::OUT { Ok(direction) } else { Err(Error::Invalid) }
}

fn poll_error(error: io::Error) -> Error {
    Error::Poll(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests;
