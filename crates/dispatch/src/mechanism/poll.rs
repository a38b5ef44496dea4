//! poll(2): every call hands the whole interest set to the kernel, so a wait costs by the number of
//! registered descriptors. The set is dense: the last descriptor replaces one that leaves.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;
use sys::readiness::poll::{self, PollFd};

use super::signals::Recovery;
use super::{Change, Mechanism, poll_bits, poll_event};
use crate::capabilities::{Capabilities, InitialState, Overflow, Trigger};
use crate::{Event, Interest, Token, Waited, unless_interrupted};

/// Marks a descriptor without a position in the set.
const ABSENT: u32 = u32::MAX;

/// The mechanism on poll(2).
#[derive(Default)]
pub struct Poll {
    set: Vec<PollFd>,
    /// The token of the descriptor at the same place in `set`.
    tokens: Vec<Token>,
    /// Position of each descriptor in `set`, by descriptor number.
    places: Vec<u32>,
}

impl Poll {
    fn place(&self, fd: RawFd) -> Option<usize> {
        self.places.get(fd as usize).filter(|place| **place != ABSENT).map(|place| *place as usize)
    }

    fn set_place(&mut self, fd: RawFd, place: u32) {
        let fd = fd as usize;
        if fd >= self.places.len() {
            self.places.resize(fd + 1, ABSENT);
        }
        self.places[fd] = place;
    }

    fn put(&mut self, fd: RawFd, token: Token, wanted: i16) {
        match self.place(fd) {
            Some(place) => {
                self.set[place].set_bits(wanted);
                self.tokens[place] = token;
            }
            None => {
                self.set_place(fd, self.set.len() as u32);
                self.set.push(PollFd::new(fd, wanted));
                self.tokens.push(token);
            }
        }
    }

    fn remove(&mut self, fd: RawFd) {
        let Some(place) = self.place(fd) else { return };
        self.set.swap_remove(place);
        self.tokens.swap_remove(place);
        self.places[fd as usize] = ABSENT;
        if let Some(moved) = self.set.get(place) {
            self.set_place(moved.fd(), place as u32);
        }
    }
}

impl Recovery for Poll {
    /// Puts the set into the order of descriptor numbers, by a pass over all of it.
    fn rearrange(&mut self) {
        let (mut set, mut tokens) = (Vec::with_capacity(self.set.len()), Vec::with_capacity(self.set.len()));
        for place in self.places.iter_mut().filter(|place| **place != ABSENT) {
            let old = *place as usize;
            *place = set.len() as u32;
            set.push(self.set[old]);
            tokens.push(self.tokens[old]);
        }
        (self.set, self.tokens) = (set, tokens);
    }
}

impl Mechanism for Poll {
    const CAPABILITIES: Capabilities = Capabilities {
        name: "poll",
        scales: false,
        collapses: true,
        many_events_per_call: true,
        overflow: Overflow::Never,
        kernel_falls_back: false,
        recovers_by: None,
        initial_state: InitialState::Reported,
        many_interest_sets: true,
        one_set_per_file: false,
        trigger: Trigger::Level,
        descriptor_limit: "RLIMIT_NOFILE",
        exclusive_wake: false,
        settings: &[],
    };

    fn new() -> io::Result<Poll> {
        Ok(Poll::default())
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        match change.to {
            // poll reports a member's hang-ups even without interest.
            Some(Interest::None) | None => self.remove(change.fd),
            Some(interest) => self.put(change.fd, change.token, poll_bits(interest)),
        }
        Ok(())
    }

    fn closing(&mut self, fd: RawFd) {
        self.remove(fd);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        let waited = poll::wait(&mut self.set, timeout);
        let Some(mut left) = unless_interrupted(waited)? else { return Ok(Waited::Interrupted) };
        for (polled, token) in self.set.iter().zip(&self.tokens) {
            if left == 0 {
                break;
            }
            let reported = polled.reported();
            if reported != 0 {
                left -= 1;
                events.push(poll_event(*token, reported));
            }
        }
        Ok(Waited::Ready)
    }
}
