//! The members of each polling set and the rules that move them, without system calls and without a clock.
//!
//! All sets share one array, the most often polled first. Any number of sets from the first on is one
//! contiguous slice for one poll. A move between neighbours is a swap at their border:
//!
//! ```text
//!     | active         | doze               | idle                            |
//!     0             ends[0]              ends[1]                           ends[2]
//! ```
//!
//! Invariants: `fds` and `members` are parallel; `places` holds the position of each known descriptor; a
//! locked descriptor is in the first set.

use std::ops::Range;
use std::os::fd::RawFd;

use base::Nanos;
use sys::readiness::poll::PollFd;

/// The rule that moves descriptors between sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Section 4.1: falls after N-1 polls of its set without an event, and rises after events in two consecutive polls
    /// of its set.
    #[default]
    Silences,
    /// Section 3: a counter goes down by one with each poll of its set without an event, and up by one with an event.
    /// It begins with N in each set. At 0 the descriptor falls; two above N it rises.
    Counter,
}

/// Marks a descriptor without a position in the array.
const ABSENT: u32 = u32::MAX;
/// A number that no poll has.
const NEVER: u64 = u64::MAX;

/// The data kept beside a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// The payload of the member's events.
    pub(super) payload: u64,
    /// Time at which the member is reported as timed out.
    pub(super) deadline: Option<Nanos>,
    locked: bool,
    /// The poll of the member's set that saw its last event or put it into the set.
    quiet_since: u64,
    /// The poll of the member's set that saw its last event in that set.
    event_at: u64,
    /// Time of the member's last event or of its insertion. Zero if nothing tunes itself.
    since: Nanos,
    /// The counter of [`Rule::Counter`].
    counter: u64,
}

impl Member {
    pub(super) fn new(payload: u64, locked: bool, since: Nanos) -> Member {
        Member { payload, deadline: None, locked, quiet_since: 0, event_at: NEVER, since, counter: 0 }
    }

    /// The silence before an event at `now`. A locked member reports none, because it stays active however
    /// long its silence is.
    fn gap(&mut self, now: Nanos) -> Nanos {
        let since = std::mem::replace(&mut self.since, now);
        if self.locked { Nanos::ZERO } else { now.saturating_sub(since) }
    }
}

/// The polling sets.
pub(super) struct Sets {
    fds: Vec<PollFd>,
    members: Vec<Member>,
    /// End of each set; the last set ends with the array.
    ends: Vec<usize>,
    /// Number of polls of each set. Every call polls the first set.
    polls: Vec<u64>,
    /// The call that polled each set last.
    polled_at: Vec<u64>,
    /// Positions by descriptor number.
    places: Vec<u32>,
    pub(super) rule: Rule,
    live_counter: u64,
    /// A silence below the horizon moves a member up with a single event.
    horizon: Nanos,
    /// Descriptors that change sets after a poll. The vector is kept for its memory.
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
            rule: Rule::default(),
            live_counter: u64::from(live_counter),
            horizon: Nanos::ZERO,
            moving: Vec::new(),
        }
    }

    /// Sets N and the horizon.
    pub(super) fn tune(&mut self, live_counter: u32, horizon: Nanos) {
        (self.live_counter, self.horizon) = (u64::from(live_counter), horizon);
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Number of members in each set, the most often polled first.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        (0..self.count()).map(|set| self.range(set).len())
    }

    /// Number of sets that the next call polls. Set k is polled N^k calls after its last poll.
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

    /// Number of coming calls that poll the first set alone.
    pub(super) fn until_due(&self) -> u64 {
        if self.count() == 1 { u64::MAX } else { (self.live_counter - 1).saturating_sub(self.calls_since(1)) }
    }

    fn calls_since(&self, set: usize) -> u64 {
        self.polls[0] - self.polled_at[set]
    }

    /// The descriptors of the first `sets` sets, for poll.
    pub(super) fn fds(&mut self, sets: usize) -> &mut [PollFd] {
        &mut self.fds[..self.ends[sets - 1]]
    }

    pub(super) fn member(&mut self, fd: RawFd) -> Option<&mut Member> {
        self.place(fd).map(|place| &mut self.members[place])
    }

    /// Number of members in all sets.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// True if the first `sets` sets contain every member.
    pub(super) fn are_all(&self, sets: usize) -> bool {
        self.ends[sets - 1] == self.members.len()
    }

    /// Inserts a member into the active set.
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

    /// Removes a member and returns its data.
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

    /// Applies the rules after a poll of the first `sets` sets that counts as `calls` calls and ended at
    /// `now`. `happened` returns the reported events of a descriptor, or 0. `report` is called for each
    /// member with events, with the silence before them.
    pub(super) fn apply_rules(
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
                    member.counter += 1;
                    let rises = match self.rule {
                        Rule::Silences => member.event_at == poll - 1 || gap < self.horizon,
                        Rule::Counter => member.counter >= self.live_counter + 2,
                    };
                    if set == 0 {
                        // Nothing is above: the counter would delay the fall.
                        member.counter = member.counter.min(self.live_counter);
                    } else if rises {
                        self.moving.push((fd, Move::Up));
                    }
                    (member.event_at, member.quiet_since) = (poll, poll);
                } else {
                    member.counter = member.counter.saturating_sub(calls);
                    let falls = match self.rule {
                        Rule::Silences => poll - member.quiet_since >= self.live_counter - 1,
                        Rule::Counter => member.counter == 0,
                    };
                    if falls && !member.locked {
                        self.moving.push((fd, Move::Down));
                    }
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

    /// The earliest deadline in the first `sets` sets.
    pub(super) fn next_deadline(&self, sets: usize) -> Option<Nanos> {
        self.members[..self.ends[sets - 1]].iter().filter_map(|member| member.deadline).min()
    }

    /// Takes the passed deadlines from the members of the first `sets` sets. Returns their number.
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

    /// The set of a member.
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

    /// Moves a member from its set into the first set.
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

    /// Moves a member into the next set, if there is one.
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
        (member.quiet_since, member.event_at, member.counter) = (self.polls[set], NEVER, self.live_counter);
    }
}

#[cfg(test)]
mod tests;
