//! epoll, level-triggered: the kernel keeps the interest set, and a wait costs by the number of ready
//! descriptors. It descends from /dev/poll (FDM, section 2): state-based, updated by calls, fetched in
//! batches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use base::Nanos;
use sys::readiness::epoll::{self, Operation, bits};

use super::{Change, Mechanism, event};
use crate::capabilities::{Capabilities, InitialState, Overflow, Trigger};
use crate::{Event, Interest, Token, Waited, unless_interrupted};

/// Maximum events per call. The kernel keeps further events, in order, for the next turn.
const EVENTS_PER_WAIT: usize = 512;

/// The level-triggered mechanism.
pub struct Epoll(EpollSet);

/// The kernel's set and the buffer for its reports, shared by the level-triggered and the edge-triggered
/// form.
pub(super) struct EpollSet {
    epoll: OwnedFd,
    reported: Box<[epoll::Event]>,
    trigger: u32,
}

impl EpollSet {
    pub(super) fn new(trigger: u32) -> io::Result<EpollSet> {
        let reported = vec![epoll::Event::EMPTY; EVENTS_PER_WAIT].into_boxed_slice();
        Ok(EpollSet { epoll: epoll::create()?, reported, trigger })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(super) fn update(&mut self, change: Change) -> io::Result<()> {
        let (from, to) = (watched(change.from), watched(change.to));
        let operation = match (from, to) {
            (None, Some(_)) => Operation::Add,
            (Some(_), Some(_)) => Operation::Modify,
            (Some(_), None) => Operation::Delete,
            (None, None) => return Ok(()),
        };
        let wanted = self.trigger | to.map_or(0, to_bits);
        epoll::control(&self.epoll, operation, change.fd, wanted, change.token.0)
    }

    pub(super) fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        let waited = epoll::wait(&self.epoll, &mut self.reported, timeout);
        let Some(count) = unless_interrupted(waited)? else { return Ok(Waited::Interrupted) };
        events.extend(self.reported[..count].iter().map(|report| {
            let reported = report.bits();
            event(
                Token(report.data()),
                reported & (bits::IN | bits::RDHUP) != 0,
                reported & bits::OUT != 0,
                reported & (bits::ERR | bits::HUP) != 0,
            )
        }));
        Ok(if count == self.reported.len() { Waited::More } else { Waited::Ready })
    }
}

/// The interest that the kernel is given. A descriptor without interest is not a member, because the kernel
/// reports hang-ups of every member.
fn watched(interest: Option<Interest>) -> Option<Interest> {
    interest.filter(|interest| *interest != Interest::None)
}

fn to_bits(interest: Interest) -> u32 {
    match interest {
        Interest::None => 0,
        Interest::Read => bits::IN | bits::RDHUP,
        Interest::Write => bits::OUT,
        Interest::Both => bits::IN | bits::RDHUP | bits::OUT,
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Mechanism for Epoll {
    const CAPABILITIES: Capabilities = Capabilities {
        name: "epoll",
        scales: true,
        collapses: true,
        many_events_per_call: true,
        overflow: Overflow::Never,
        kernel_falls_back: false,
        recovers_by: None,
        initial_state: InitialState::Reported,
        many_interest_sets: true,
        one_set_per_file: false,
        trigger: Trigger::Level,
        descriptor_limit: "fs.epoll.max_user_watches",
        exclusive_wake: true,
        settings: &[],
    };

    fn new() -> io::Result<Epoll> {
        EpollSet::new(0).map(Epoll)
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        self.0.update(change)
    }

    // The kernel forgets a file when its last descriptor is closed.
    fn closing(&mut self, _fd: RawFd) {}

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        self.0.wait(events, timeout)
    }
}
