//! Which polling set a descriptor is in: the rules, without system calls and without a clock.
//!
//! All sets live in one array, the most often polled first, so that any number of them from the first on
//! is one contiguous piece for one call, and a move between neighbours is a swap at their border:
//!
//! ```text
//!     | active         | doze               | idle                            |
//!     0             ends[0]              ends[1]                           ends[2]
//! ```
//!
//! Invariants: `fds` and `members` are parallel; `places` says where each known descriptor stands; a locked
//! one stands in the first set.

use std::ops::Range;
use std::os::fd::RawFd;

use base::Nanos;
use sys::poll::PollFd;

/// No place in the array.
const ABSENT: u32 = u32::MAX;
/// No poll has this number.
const NEVER: u64 = u64::MAX;

/// What is kept beside a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Comes back with its events.
    pub(super) payload: u64,
    /// When it is reported as timed out.
    pub(super) deadline: Option<Nanos>,
    locked: bool,
    /// The poll of its set with its last event, or with which it came into the set.
    quiet_since: u64,
    /// The poll of its set with its last event in that set.
    event_at: u64,
    /// When it had its last event, or came, where something tunes itself.
    since: Nanos,
}

impl Member {
    pub(super) fn new(payload: u64, locked: bool, since: Nanos) -> Member {
        Member { payload, deadline: None, locked, quiet_since: 0, event_at: NEVER, since }
    }

    /// For how long it was silent before an event now. None at all for a locked one: that stays active,
    /// however long it is.
    fn gap(&mut self, now: Nanos) -> Nanos {
        let since = std::mem::replace(&mut self.since, now);
        if self.locked { Nanos::ZERO } else { now.saturating_sub(since) }
    }
}

/// The sets.
pub(super) struct Sets {
    fds: Vec<PollFd>,
    members: Vec<Member>,
    /// Where each set ends; the last one ends with the array.
    ends: Vec<usize>,
    /// How often each set was polled. The first one is with every call.
    polls: Vec<u64>,
    /// The call that polled each set last.
    polled_at: Vec<u64>,
    /// By descriptor number.
    places: Vec<u32>,
    live_counter: u64,
    /// An event after less silence brings a member up by itself.
    horizon: Nanos,
    /// Descriptors that change sets after a poll; kept for its memory.
    moving: Vec<(RawFd, Move)>,
}

#[derive(Clone, Copy)]
enum Move {
    Up,
    Down,
}

impl Sets {
    pub(super) fn new(count: usize, live_counter: u32) -> Sets {
        Sets {
            fds: Vec::new(),
            members: Vec::new(),
            ends: vec![0; count],
            polls: vec![0; count],
            polled_at: vec![0; count],
            places: Vec::new(),
            live_counter: u64::from(live_counter),
            horizon: Nanos::ZERO,
            moving: Vec::new(),
        }
    }

    /// Another N and another horizon from now on.
    pub(super) fn tune(&mut self, live_counter: u32, horizon: Nanos) {
        (self.live_counter, self.horizon) = (u64::from(live_counter), horizon);
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Members in each set, the most often polled first.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        (0..self.count()).map(|set| self.range(set).len())
    }

    /// How many sets the next call polls: set k is polled N^k calls after it was polled last.
    pub(super) fn due(&self) -> usize {
        let mut every = 1_u64;
        let mut due = 1;
        for set in 1..self.count() {
            every = every.saturating_mul(self.live_counter);
            if self.calls_since(set) + 1 >= every {
                due = set + 1;
            }
        }
        due
    }

    /// How many of the next calls poll the first set alone.
    pub(super) fn until_due(&self) -> u64 {
        if self.count() == 1 { u64::MAX } else { (self.live_counter - 1).saturating_sub(self.calls_since(1)) }
    }

    fn calls_since(&self, set: usize) -> u64 {
        self.polls[0] - self.polled_at[set]
    }

    /// The descriptors of the first sets, for poll.
    pub(super) fn fds(&mut self, sets: usize) -> &mut [PollFd] {
        &mut self.fds[..self.ends[sets - 1]]
    }

    pub(super) fn member(&mut self, fd: RawFd) -> Option<&mut Member> {
        self.place(fd).map(|place| &mut self.members[place])
    }

    /// How many members all sets have.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// Whether the first sets have every member.
    pub(super) fn are_all(&self, sets: usize) -> bool {
        self.ends[sets - 1] == self.members.len()
    }

    /// A new member starts active.
    pub(super) fn insert(&mut self, fd: RawFd, bits: i16, member: Member) {
        let index = fd as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, ABSENT);
        }
        self.places[index] = self.fds.len() as u32;
        self.fds.push(PollFd::new(fd, bits));
        self.members.push(member);
        let last = self.count() - 1;
        self.ends[last] += 1;
        self.move_up(fd);
    }

    pub(super) fn set_bits(&mut self, fd: RawFd, bits: i16) {
        if let Some(place) = self.place(fd) {
            self.fds[place].set_bits(bits);
        }
    }

    /// Returns what was kept beside it.
    pub(super) fn remove(&mut self, fd: RawFd) -> Option<Member> {
        let place = self.place(fd)?;
        for set in self.set_of(place)..self.count() - 1 {
            self.move_down_from(fd, set);
        }
        let place = self.place(fd)?;
        self.swap(place, self.fds.len() - 1);
        self.fds.pop();
        self.places[fd as usize] = ABSENT;
        let last = self.count() - 1;
        self.ends[last] -= 1;
        self.members.pop()
    }

    /// Applies the rules after a poll of the first sets that stands for so many calls and ended now:
    /// `happened` says what was reported of a descriptor (0: nothing), `report` is called for those with
    /// something, and is told how long they were silent before.
    pub(super) fn settle(
        &mut self,
        (sets, calls, now): (usize, u64, Nanos),
        happened: impl Fn(&PollFd) -> i16,
        mut report: impl FnMut(RawFd, &Member, i16, Nanos),
    ) {
        for set in 0..sets {
            self.polls[set] += calls;
            self.polled_at[set] = self.polls[0];
            let poll = self.polls[set];
            for place in self.range(set) {
                let (fd, bits) = (self.fds[place].fd(), happened(&self.fds[place]));
                let member = &mut self.members[place];
                if bits != 0 {
                    let gap = member.gap(now);
                    report(fd, member, bits, gap);
                    if set > 0 && (member.event_at == poll - 1 || gap < self.horizon) {
                        self.moving.push((fd, Move::Up));
                    }
                    (member.event_at, member.quiet_since) = (poll, poll);
                } else if poll - member.quiet_since >= self.live_counter - 1 && !member.locked {
                    self.moving.push((fd, Move::Down));
                }
            }
        }
        let mut moving = std::mem::take(&mut self.moving);
        for (fd, direction) in moving.drain(..) {
            match direction {
                Move::Up => self.move_up(fd),
                Move::Down => self.move_down(fd),
            }
        }
        self.moving = moving;
    }

    /// The earliest deadline of a member of the first sets.
    pub(super) fn next_deadline(&self, sets: usize) -> Option<Nanos> {
        self.members[..self.ends[sets - 1]].iter().filter_map(|member| member.deadline).min()
    }

    /// Takes the deadlines that have passed from the members of the first sets; returns how many.
    pub(super) fn take_passed(
        &mut self,
        sets: usize,
        now: Nanos,
        mut passed: impl FnMut(RawFd, u64),
    ) -> usize {
        let end = self.ends[sets - 1];
        let mut count = 0;
        for (polled, member) in self.fds[..end].iter().zip(&mut self.members[..end]) {
            if member.deadline.take_if(|deadline| *deadline <= now).is_some() {
                passed(polled.fd(), member.payload);
                count += 1;
            }
        }
        count
    }

    /// Which set a member is in.
    #[cfg(test)]
    pub(super) fn set_of_member(&self, fd: RawFd) -> usize {
        self.set_of(self.place(fd).expect("a member"))
    }

    fn place(&self, fd: RawFd) -> Option<usize> {
        self.places.get(fd as usize).filter(|place| **place != ABSENT).map(|place| *place as usize)
    }

    fn range(&self, set: usize) -> Range<usize> {
        let start = if set == 0 { 0 } else { self.ends[set - 1] };
        start..self.ends[set]
    }

    fn set_of(&self, place: usize) -> usize {
        self.ends.iter().take_while(|end| **end <= place).count()
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.fds.swap(one, other);
        self.members.swap(one, other);
        self.places[self.fds[one].fd() as usize] = one as u32;
        self.places[self.fds[other].fd() as usize] = other as u32;
    }

    /// From wherever it is into the first set.
    fn move_up(&mut self, fd: RawFd) {
        let Some(place) = self.place(fd) else { return };
        let mut at = place;
        for set in (1..=self.set_of(place)).rev() {
            let start = self.ends[set - 1];
            self.swap(at, start);
            self.ends[set - 1] += 1;
            at = start;
        }
        self.enter(at, 0);
    }

    /// Into the next set, if there is one.
    fn move_down(&mut self, fd: RawFd) {
        let Some(place) = self.place(fd) else { return };
        let set = self.set_of(place);
        if set + 1 < self.count() {
            self.move_down_from(fd, set);
        }
    }

    fn move_down_from(&mut self, fd: RawFd, set: usize) {
        let Some(place) = self.place(fd) else { return };
        let last = self.ends[set] - 1;
        self.swap(place, last);
        self.ends[set] = last;
        self.enter(last, set + 1);
    }

    fn enter(&mut self, place: usize, set: usize) {
        let member = &mut self.members[place];
        (member.quiet_since, member.event_at) = (self.polls[set], NEVER);
    }
}

#[cfg(test)]
mod tests;
