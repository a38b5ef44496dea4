//! The common part of the mechanisms on real-time signals: which descriptors announce their events, the queue
//! and the ways to fetch it, and the owner of each announcement (FDM, section 2; `sigio(7)`).
//!
//! The kernel queues an announcement, with the descriptor's *number*, for each event of a descriptor. Three
//! tasks remain for this module:
//!
//! - Polling new states. The kernel does not announce the state that a descriptor has when it is registered
//!   or when its interest changes. One call at the beginning of the next wait polls all such descriptors.
//! - Telling lives apart. Announcements outlive the descriptor. A *generation* is the time between two
//!   moments at which the queue was seen empty. The queue may still hold announcements of a number that was
//!   closed in the current generation. If the number is used again, its descriptor is polled instead of
//!   believed. Numbers that were closed earlier have no announcements left and are believed.
//! - Recovering from overflows. A full queue announces itself as SIGIO. The rest of the queue is thrown away
//!   and every descriptor is polled, by the mechanism that [`Recovering`] keeps in step.
//!
//! Announcements go to the thread that made the set (F_SETOWN_EX); only that thread may wait. The signals
//! stay blocked in it for good, because some may arrive after the set is gone. A thread can have one such set
//! at a time.
//!
//! A file announces to one thread by one number, whoever has it open: a later set takes it away from an earlier
//! one.
//!
//! Known limit: the kernel remembers a refused send only while announcements are on. Room in a *Unix* socket
//! that was full before its registration is therefore not announced. (TCP remembers a refused send when it is
//! polled.)
//!
//! Descriptors that cannot announce anything (an eventfd, a regular file) are polled: beside the queue when
//! the wait blocks, and in one of [`LOOK_EVERY`] waits when it does not.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use base::setting::{Chosen, Declaration, Setting};
use base::{Clock, Nanos, RealClock};
use sys::readiness::poll::{self, PollFd, bits};
use sys::readiness::rt_signal::{self, Announced, Place};
use sys::thread::Thread;

use super::upkeep::{UPKEEP, Upkeep};
use super::{Change, Mechanism, MechanismCounts, poll_bits, poll_event};
use crate::capabilities::Capabilities;
use crate::patience::Patience;
use crate::{Event, Interest, Token, Waited, unless_interrupted};

/// Maximum announcements per read of the queue, which take 8 KiB.
const BATCH: usize = 64;
/// Number of waits without blocking in which mute descriptors are polled once.
const LOOK_EVERY: u32 = 8;

/// The way in which the queue is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtFetch {
    /// Up to 64 announcements per call, from a signalfd.
    Batch,
    /// One announcement per call, by sigtimedwait, as in the paper.
    One,
}

/// The setting for [`RtFetch`].
pub(super) static FETCH: Setting<RtFetch> = Setting::parsed_by(
    Declaration {
        flag: "--rt-fetch",
        value: "HOW",
        help: "fetch signals in batches or one at a time: batch (default) or sigtimedwait",
        more: None,
        without: "has no queue of signals",
        in_kernel: None,
    },
    |text| match text {
        "batch" => Ok(RtFetch::Batch),
        "sigtimedwait" => Ok(RtFetch::One),
        _ => Err("expected batch or sigtimedwait".to_owned()),
    },
);

/// The state of one descriptor number.
#[derive(Clone, Copy)]
struct Member {
    token: Token,
    /// The member's interest; `None` for a number that is not a member.
    interest: Option<Interest>,
    /// The generation in which the number was closed last.
    closed_in: Option<u64>,
    /// The descriptor is in `to_poll`.
    to_poll: bool,
    /// Announced events that are not reported yet, if announcements are collapsed.
    pending: i16,
}

const ABSENT: Member =
    Member { token: Token(0), interest: None, closed_in: None, to_poll: false, pending: 0 };

/// The relation of announcements to reports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Each announcement is a report, and a wait fetches one batch.
    Each,
    /// All announcements of a descriptor are one report, and a wait fetches the whole queue.
    Collapsed,
}

/// The descriptors and the queue.
struct Signals {
    queue: OwnedFd,
    thread: Thread,
    fetch: RtFetch,
    delivery: Delivery,
    places: Box<[Place]>,
    /// Members by descriptor number.
    members: Vec<Member>,
    /// Descriptors to be polled before the next wait ends.
    to_poll: Vec<RawFd>,
    /// Descriptors with something pending, in the order of their first announcement.
    pending: Vec<RawFd>,
    /// Members that cannot announce.
    mute: Vec<RawFd>,
    waits_without_look: u32,
    set: Vec<PollFd>,
    generation: u64,
    /// The paper's upkeep, if it was chosen.
    upkeep: Option<Upkeep>,
    counts: MechanismCounts,
}

/// A mechanism on real-time signals: its capabilities, and what sets it apart from the others.
pub trait Variant {
    /// The mechanism's capabilities.
    const CAPABILITIES: Capabilities;
    /// The relation of announcements to reports.
    const DELIVERY: Delivery;
    /// Finds every ready member after an overflow.
    type Recovery: Recovery;
}

/// A mechanism that finds every ready member after an overflow.
pub trait Recovery: Mechanism {
    /// Puts its array into order, for a round of upkeep. A mechanism without an array does nothing.
    fn rearrange(&mut self) {}
}

/// Signals, and the mechanism that finds every ready member after an overflow. It belongs to the thread that makes it.
pub struct Recovering<V: Variant> {
    signals: Signals,
    /// All members; the mechanism waits for them only after an overflow.
    all: V::Recovery,
}

impl<V: Variant> Recovering<V> {
    /// An empty interest set whose queue is fetched as `fetch` says.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    pub fn with(fetch: RtFetch) -> io::Result<Recovering<V>> {
        Ok(Recovering { signals: Signals::new(fetch, V::DELIVERY)?, all: V::Recovery::new()? })
    }
}

impl<V: Variant> Mechanism for Recovering<V> {
    const CAPABILITIES: Capabilities = V::CAPABILITIES;

    fn new() -> io::Result<Recovering<V>> {
        Recovering::with(RtFetch::Batch)
    }

    fn configured(chosen: &Chosen) -> io::Result<Recovering<V>> {
        let mut this = Recovering::with(chosen.get(&FETCH).unwrap_or(RtFetch::Batch))?;
        this.signals.upkeep = chosen.get(&UPKEEP).map(Upkeep::every);
        Ok(this)
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        self.signals.update(change)?;
        self.all.update(change)
    }

    fn closing(&mut self, fd: RawFd) {
        self.signals.forget(fd);
        self.all.closing(fd);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        let all = &mut self.all;
        let waited = self.signals.wait(events, timeout, |events| {
            while all.wait(events, Some(Nanos::ZERO))? == Waited::Interrupted {}
            Ok(())
        });
        if self.signals.upkeep.as_mut().is_some_and(|upkeep| upkeep.round(RealClock::new().now())) {
            all.rearrange();
        }
        waited
    }

    fn counts(&self) -> MechanismCounts {
        self.signals.counts
    }
}

/// The result of fetching.
struct Fetched {
    announcements: usize,
    overflow: bool,
    /// The queue may have more.
    more: bool,
}

/// The reason why a sleep ended.
enum Slept {
    Interrupted,
    /// The queue has an announcement.
    Announced,
    /// The queue is empty.
    Quiet,
}

impl Signals {
    fn new(fetch: RtFetch, delivery: Delivery) -> io::Result<Signals> {
        rt_signal::block()?;
        let mut this = Signals {
            queue: rt_signal::queue()?,
            thread: Thread::current(),
            fetch,
            delivery,
            places: vec![Place::empty(); BATCH].into_boxed_slice(),
            members: Vec::new(),
            to_poll: Vec::new(),
            pending: Vec::new(),
            mute: Vec::new(),
            waits_without_look: 0,
            set: Vec::new(),
            generation: 0,
            upkeep: None,
            counts: MechanismCounts::default(),
        };
        // An earlier set of this thread may have left announcements behind.
        this.empty_queue()?;
        Ok(this)
    }

    fn member(&mut self, fd: RawFd) -> &mut Member {
        let index = fd as usize;
        if index >= self.members.len() {
            self.members.resize(index + 1, ABSENT);
        }
        &mut self.members[index]
    }

    fn update(&mut self, change: Change) -> io::Result<()> {
        let fd = change.fd;
        let Some(interest) = change.to else {
            self.forget(fd);
            return rt_signal::announce(fd, false).map(drop);
        };
        if change.from.is_none() {
            self.begin(fd)?;
        }
        let member = self.member(fd);
        (member.token, member.interest) = (change.token, Some(interest));
        self.poll_soon(fd);
        Ok(())
    }

    /// Lets a descriptor announce its events, by four system calls.
    fn begin(&mut self, fd: RawFd) -> io::Result<()> {
        // An earlier set may have left the file's announcements on. The kernel would keep that set's number.
        rt_signal::announce(fd, false)?;
        rt_signal::set_owner(fd, self.thread)?;
        rt_signal::set_signal(fd)?;
        if !rt_signal::announce(fd, true)? {
            self.mute.push(fd);
        }
        Ok(())
    }

    /// Forgets a descriptor. Its number is free, and announcements in the queue belong to its past life.
    fn forget(&mut self, fd: RawFd) {
        self.mute.retain(|mute| *mute != fd);
        let (generation, member) = (self.generation, self.member(fd));
        // The number may be in `to_poll`. The poll skips it, or polls its next life.
        *member = Member { closed_in: Some(generation), to_poll: member.to_poll, ..ABSENT };
    }

    fn poll_soon(&mut self, fd: RawFd) {
        let member = self.member(fd);
        if !member.to_poll {
            member.to_poll = true;
            self.to_poll.push(fd);
        }
    }

    /// Waits as a mechanism does. After an overflow, `recover` reports every ready member.
    fn wait(
        &mut self,
        events: &mut Vec<Event>,
        timeout: Option<Nanos>,
        mut recover: impl FnMut(&mut Vec<Event>) -> io::Result<()>,
    ) -> io::Result<Waited> {
        let (before, patience) = (events.len(), Patience::new(timeout));
        loop {
            self.poll_those_due(events)?;
            let mut fetched = self.fetch(events)?;
            let idle = fetched.announcements == 0 && events.len() == before;
            if idle {
                match self.sleep(events, patience.left())? {
                    Slept::Interrupted => return Ok(Waited::Interrupted),
                    Slept::Announced => fetched = self.fetch(events)?,
                    Slept::Quiet => {}
                }
            }
            if fetched.overflow {
                self.counts.overflows += 1;
                self.empty_queue()?;
                recover(events)?;
                fetched.more = false;
            }
            self.poll_those_due(events)?;
            self.look_at_mute(events, idle)?;
            if events.len() > before || patience.is_over() {
                return Ok(if fetched.more { Waited::More } else { Waited::Ready });
            }
        }
    }

    /// Fetches without blocking. Turns believed announcements into events, and marks the descriptors of
    /// suspect ones to be polled.
    fn fetch(&mut self, events: &mut Vec<Event>) -> io::Result<Fetched> {
        let mut fetched = Fetched { announcements: 0, overflow: false, more: false };
        loop {
            let count = match self.fetch {
                RtFetch::Batch => self.fetch_batch(&mut fetched, events)?,
                RtFetch::One => self.fetch_one(&mut fetched, events)?,
            };
            if let Some(upkeep) = &mut self.upkeep {
                upkeep.fetched();
            }
            fetched.more = count == self.most();
            if !fetched.more {
                self.generation += 1;
            }
            if !fetched.more || fetched.overflow || self.delivery == Delivery::Each {
                break;
            }
        }
        for fd in self.pending.drain(..) {
            let member = &mut self.members[fd as usize];
            report(events, member, member.pending);
            member.pending = 0;
        }
        Ok(fetched)
    }

    /// Maximum announcements per call; a call that returns fewer has emptied the queue.
    fn most(&self) -> usize {
        match self.fetch {
            RtFetch::Batch => self.places.len(),
            RtFetch::One => 1,
        }
    }

    fn fetch_batch(&mut self, fetched: &mut Fetched, events: &mut Vec<Event>) -> io::Result<usize> {
        let count = rt_signal::fetch(self.queue.as_fd(), &mut self.places)?;
        for index in 0..count {
            self.sort(self.places[index].announced(), fetched, events);
        }
        Ok(count)
    }

    fn fetch_one(&mut self, fetched: &mut Fetched, events: &mut Vec<Event>) -> io::Result<usize> {
        let Some(announced) = rt_signal::fetch_one(Some(Nanos::ZERO))? else { return Ok(0) };
        self.sort(announced, fetched, events);
        Ok(1)
    }

    fn sort(&mut self, announced: Announced, fetched: &mut Fetched, events: &mut Vec<Event>) {
        fetched.announcements += 1;
        let (fd, bits) = match announced {
            Announced::Event(fd, bits) => (fd, bits),
            Announced::Overflow => {
                fetched.overflow = true;
                return;
            }
            Announced::Foreign => {
                self.counts.disbelieved += 1;
                return;
            }
        };
        if let Some(upkeep) = &mut self.upkeep {
            upkeep.stamp(fd, RealClock::new().now());
        }
        let (generation, delivery) = (self.generation, self.delivery);
        let member = self.member(fd);
        if member.interest.is_none() {
            self.counts.disbelieved += 1;
        } else if member.closed_in == Some(generation) {
            self.counts.disbelieved += 1;
            self.poll_soon(fd);
        } else if delivery == Delivery::Each {
            report(events, member, bits);
        } else {
            let first = member.pending == 0;
            member.pending |= bits;
            if first {
                self.pending.push(fd);
            }
        }
    }

    /// Throws the queue away, because the announced descriptors are about to be polled.
    fn empty_queue(&mut self) -> io::Result<()> {
        while rt_signal::fetch(self.queue.as_fd(), &mut self.places)? > 0 {}
        self.generation += 1;
        Ok(())
    }

    /// Sleeps until the queue has an announcement or a mute descriptor is ready. Reports the mute ones.
    fn sleep(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Slept> {
        if timeout == Some(Nanos::ZERO) && self.mute.is_empty() {
            return Ok(Slept::Quiet);
        }
        self.set.clear();
        self.set.push(PollFd::new(self.queue.as_raw_fd(), bits::IN));
        self.push_mute();
        let polled = poll::wait(&mut self.set, timeout);
        if unless_interrupted(polled)?.is_none() {
            return Ok(Slept::Interrupted);
        }
        self.report_polled(1, events);
        Ok(if self.set[0].reported() != 0 { Slept::Announced } else { Slept::Quiet })
    }

    /// Polls the mute descriptors. They must not starve while announcements arrive faster than they are
    /// served.
    fn look_at_mute(&mut self, events: &mut Vec<Event>, looked: bool) -> io::Result<()> {
        self.waits_without_look = if looked { 0 } else { self.waits_without_look + 1 };
        if self.mute.is_empty() || self.waits_without_look < LOOK_EVERY {
            return Ok(());
        }
        self.waits_without_look = 0;
        self.set.clear();
        self.push_mute();
        self.poll_set(events)
    }

    fn push_mute(&mut self) {
        for fd in &self.mute {
            let member = &self.members[*fd as usize];
            let interest = member.interest.filter(|interest| *interest != Interest::None);
            self.set.extend(interest.map(|interest| PollFd::new(*fd, poll_bits(interest))));
        }
    }

    /// Polls the descriptors whose state the announcements do not tell.
    fn poll_those_due(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        if self.to_poll.is_empty() {
            return Ok(());
        }
        self.set.clear();
        for fd in self.to_poll.drain(..) {
            let member = &mut self.members[fd as usize];
            member.to_poll = false;
            match member.interest {
                None | Some(Interest::None) => {}
                Some(interest) => self.set.push(PollFd::new(fd, poll_bits(interest))),
            }
        }
        self.poll_set(events)
    }

    fn poll_set(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        loop {
            match poll::wait(&mut self.set, Some(Nanos::ZERO)) {
                // The call does not block: the signal's handler has run, and the next call succeeds.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                polled => break polled.map(|_| self.report_polled(0, events)),
            }
        }
    }

    fn report_polled(&mut self, from: usize, events: &mut Vec<Event>) {
        for polled in self.set[from..].iter().filter(|polled| polled.reported() != 0) {
            report(events, &self.members[polled.fd() as usize], polled.reported());
        }
    }
}

/// Appends an event if the member's interest includes the announced bits.
fn report(events: &mut Vec<Event>, member: &Member, happened: i16) {
    let Some(interest) = member.interest.filter(|interest| *interest != Interest::None) else { return };
    let always = bits::ERR | bits::HUP | bits::NVAL;
    let reported = happened & (poll_bits(interest) | always);
    if reported != 0 {
        events.push(poll_event(member.token, reported));
    }
}
