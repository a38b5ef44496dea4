//! The connection limit: one number for all loops and threads that share it.
//!
//! A [`Slot`] is the right to have one connection open. It is taken before the accept, and returned when it is
//! dropped, however its connection ends.
//!
//! Each loop shows the time since which its longest-idle connection has been idle ([`Share::show`]). A loop without a
//! slot for a newcomer asks the loop with the longest-idle connection of all to close it
//! ([`Share::reclaim_elsewhere`]). A loop that does not answer for [`ANSWERS_WITHIN`] hangs, on a slow disk for example,
//! and is passed over until it does.
//!
//! Each worker process counts in a word of shared memory ([`Share::of_process`], [`words::limit`]). The parent clears
//! the word of a dead process.
//!
//! Invariant: never more slots than the limit, except for connections that are already accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::Nanos;
use sys::thread::stop::Stop;
use words::limit;

use crate::ground::scoreboard;

/// The time within which a loop that is not stuck closes the connection that another has asked for.
const ANSWERS_WITHIN: Nanos = Nanos::from_millis(100);

/// A limit of open connections.
#[derive(Debug)]
pub struct Slots {
    most: usize,
    taken: Taken,
    /// The loops that share the limit, if there are several.
    members: Vec<Member>,
}

/// The count of slots taken.
#[derive(Debug)]
enum Taken {
    /// In this process.
    Here(AtomicUsize),
    /// In this word of every process that shares the limit.
    InEveryProcess(Arc<scoreboard::Slot>, usize),
}

impl Taken {
    fn add_one(&self, most: usize) -> bool {
        match self {
            Taken::Here(taken) => {
                let one_more = |taken| (taken < most).then_some(taken + 1);
                taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
            }
            Taken::InEveryProcess(place, word) => {
                limit::take(&place.own()[*word], || self.get() as u64, most as u64)
            }
        }
    }

    fn add_one_beyond(&self) {
        match self {
            Taken::Here(taken) => {
                taken.fetch_add(1, Ordering::Relaxed);
            }
            Taken::InEveryProcess(place, word) => limit::take_beyond(&place.own()[*word]),
        }
    }

    fn remove_one(&self) {
        match self {
            Taken::Here(taken) => {
                let before = taken.fetch_sub(1, Ordering::Relaxed);
                debug_assert!(before > 0, "a slot was given back twice");
            }
            Taken::InEveryProcess(place, word) => limit::give_back(&place.own()[*word]),
        }
    }

    fn get(&self) -> usize {
        match self {
            Taken::Here(taken) => taken.load(Ordering::Relaxed),
            Taken::InEveryProcess(place, word) => {
                place.of_all(*word).map(|taken| taken.load(Ordering::Relaxed) as usize).sum()
            }
        }
    }

    fn get_here(&self) -> usize {
        match self {
            Taken::Here(_) => self.get(),
            Taken::InEveryProcess(place, word) => place.own()[*word].load(Ordering::Relaxed) as usize,
        }
    }
}

/// One of several loops that share a limit, in the view of the others.
#[derive(Debug)]
struct Member {
    /// The time since which its longest-idle connection has been idle; [`Nanos::MAX`] without one.
    idle_from: AtomicU64,
    /// Idle connections that other loops have asked it to close.
    asked: AtomicUsize,
    /// The time of the last such request.
    asked_at: AtomicU64,
    wake: Stop,
}

impl Member {
    fn of(wake: Stop) -> Member {
        let (idle_from, asked) = (AtomicU64::new(Nanos::MAX.0), AtomicUsize::new(0));
        Member { idle_from, asked, asked_at: AtomicU64::new(0), wake }
    }

    fn idle_from(&self) -> Nanos {
        Nanos(self.idle_from.load(Ordering::Relaxed))
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire) > 0
    }

    fn hangs(&self, now: Nanos) -> bool {
        let asked_at = || Nanos(self.asked_at.load(Ordering::Relaxed));
        self.is_asked() && now.saturating_sub(asked_at()) > ANSWERS_WITHIN
    }

    fn ask(&self, now: Nanos) {
        self.asked_at.store(now.0, Ordering::Relaxed);
        self.asked.fetch_add(1, Ordering::Release);
        self.wake.wake();
    }
}

/// The right to have one connection open.
#[derive(Debug)]
pub struct Slot(Arc<Slots>);

/// The limit, for one of its users.
#[derive(Clone, Debug)]
pub struct Share {
    slots: Arc<Slots>,
    member: usize,
}

impl Slots {
    fn take(self: &Arc<Slots>) -> Option<Slot> {
        self.taken.add_one(self.most).then(|| Slot(Arc::clone(self)))
    }

    fn take_beyond(self: &Arc<Slots>) -> Slot {
        self.taken.add_one_beyond();
        Slot(Arc::clone(self))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.remove_one();
    }
}

impl Share {
    /// Makes a limit with one user, or for threads that reclaim each other's idle connections by themselves.
    pub fn alone(most: usize) -> Share {
        Share::among(most, Vec::new()).pop().expect("there is one")
    }

    /// Makes the shares of several loops in one limit. The [`Stop`] of a loop wakes it when it is asked for a
    /// connection.
    pub fn among(most: usize, loops: Vec<Stop>) -> Vec<Share> {
        let count = loops.len().max(1);
        let members = loops.into_iter().map(Member::of).collect();
        let slots = Arc::new(Slots { most, taken: Taken::Here(AtomicUsize::new(0)), members });
        (0..count).map(|member| Share { slots: Arc::clone(&slots), member }).collect()
    }

    /// Makes the share of a worker process in a common limit: `word` of its own words counts its slots.
    pub fn of_process(most: usize, place: Arc<scoreboard::Slot>, word: usize) -> Share {
        let slots = Slots { most, taken: Taken::InEveryProcess(place, word), members: Vec::new() };
        Share { slots: Arc::new(slots), member: 0 }
    }

    /// Takes a slot, if one is left.
    pub fn take(&self) -> Option<Slot> {
        self.slots.take()
    }

    /// Takes a slot for a connection that is already open, even beyond the limit.
    pub fn take_beyond(&self) -> Slot {
        self.slots.take_beyond()
    }

    /// Tells whether no slot is left.
    pub fn is_full(&self) -> bool {
        self.taken() >= self.slots.most
    }

    /// Returns the number of slots taken now, by all users of the limit.
    pub fn taken(&self) -> usize {
        self.slots.taken.get()
    }

    /// Returns the used fraction of the limit.
    pub fn occupancy(&self) -> f64 {
        self.taken() as f64 / self.most() as f64
    }

    /// Returns the number of slots taken now in this process.
    pub fn taken_here(&self) -> usize {
        self.slots.taken.get_here()
    }

    /// Returns the limit.
    pub fn most(&self) -> usize {
        self.slots.most
    }

    /// Shows the other loops the time since which this loop's longest-idle connection has been idle; [`Nanos::MAX`]
    /// without one. Costs one store, and nothing for a limit with one user.
    pub fn show(&self, idle_from: Nanos) {
        if let Some(member) = self.slots.members.get(self.member) {
            member.idle_from.store(idle_from.0, Ordering::Relaxed);
        }
    }

    /// Returns the number of idle connections that other loops have asked this loop to close.
    pub fn asked(&self) -> usize {
        self.slots.members.get(self.member).map_or(0, |member| member.asked.load(Ordering::Acquire))
    }

    /// Completes a request that [`Share::asked`] counts. Call it after the connection was closed, so that other loops
    /// do not ask twice.
    pub fn answered(&self) {
        self.slots.members[self.member].asked.fetch_sub(1, Ordering::Release);
    }

    /// Asks the loop with the longest-idle connection to close it, if that has been idle since before `idle_from`.
    /// Does not ask again while a request is open. Returns true if a slot will become free.
    pub fn reclaim_elsewhere(&self, idle_from: Nanos, now: Nanos) -> bool {
        let others = self.slots.members.iter().enumerate().filter(|(index, _)| *index != self.member);
        let able = || others.clone().map(|(_, member)| member).filter(|member| !member.hangs(now));
        if able().any(Member::is_asked) {
            return true;
        }
        let longest = able().min_by_key(|member| member.idle_from());
        let longest = longest.filter(|member| member.idle_from() < idle_from);
        longest.inspect(|member| member.ask(now)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_slots_as_the_limit_says() {
        let share = Share::alone(2);
        let first = share.take().unwrap();
        let _second = share.take().unwrap();
        assert!(share.take().is_none());
        assert_eq!((share.taken(), share.occupancy()), (2, 1.0));
        drop(first);
        assert!(share.take().is_some());
        assert_eq!(share.taken(), 1);
        let _beyond = (share.take_beyond(), share.take_beyond());
        assert!(share.take().is_none());
    }

    #[test]
    fn several_loops_share_one_number() {
        let stops = || Stop::new().unwrap();
        let shares = Share::among(2, vec![stops(), stops()]);
        let _slots = (shares[0].take().unwrap(), shares[0].take().unwrap());
        assert!(shares[1].take().is_none());
    }

    #[test]
    fn several_processes_share_one_number() {
        let places = scoreboard::Slot::neighbours(2, 2).into_iter().map(Arc::new);
        let shares: Vec<Share> = places.map(|place| Share::of_process(2, place, 1)).collect();
        let first = shares[0].take().unwrap();
        let _second = shares[1].take().unwrap();
        assert!(shares[0].take().is_none() && shares[1].take().is_none() && shares[0].is_full());
        let _beyond = shares[1].take_beyond();
        drop(first);
        assert_eq!((shares[0].taken(), shares[0].taken_here(), shares[1].taken_here()), (2, 0, 2));
        assert!(shares[0].take().is_none());
    }

    #[test]
    fn last_slot_goes_to_one_of_two_processes() {
        let places = scoreboard::Slot::neighbours(1, 4).into_iter().map(Arc::new);
        let shares: Vec<Share> = places.map(|place| Share::of_process(3, place, 0)).collect();
        let open = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for share in &shares {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(slot) = share.take() else { continue };
                        assert!(open.fetch_add(1, Ordering::SeqCst) < 3);
                        open.fetch_sub(1, Ordering::SeqCst);
                        drop(slot);
                    }
                });
            }
        });
        assert_eq!(shares[0].taken(), 0);
    }

    #[test]
    fn loop_with_longest_idle_connection_is_woken_once() {
        let now = Nanos::SECOND;
        let stops: Vec<Stop> = (0..3).map(|_| Stop::new().unwrap()).collect();
        let shares = Share::among(9, stops.clone());
        assert!(!shares[0].reclaim_elsewhere(Nanos::MAX, now), "nobody has one");
        shares[1].show(Nanos(50));
        shares[2].show(Nanos(40));
        assert!(!shares[0].reclaim_elsewhere(Nanos(40), now), "its own is as old");
        assert!(shares[0].reclaim_elsewhere(Nanos(41), now));
        assert!(shares[0].reclaim_elsewhere(Nanos(41), now), "it has not answered yet");
        assert_eq!([shares[1].asked(), shares[2].asked()], [0, 1]);
        assert!(shares[0].reclaim_elsewhere(Nanos(41), now), "it has begun and not ended");
        assert_eq!(shares[2].asked(), 1);
        shares[2].answered();
        assert_eq!(shares[2].asked(), 0);
        let woken = |stop: &Stop| rustix::io::read(stop.descriptor(), &mut [0; 8]).is_ok();
        assert_eq!([woken(&stops[1]), woken(&stops[2])], [false, true]);
        shares[2].show(Nanos::MAX);
        assert!(shares[0].reclaim_elsewhere(Nanos::MAX, now));
        assert_eq!(shares[1].asked(), 1);
    }

    #[test]
    fn a_loop_that_hangs_is_passed_over_until_it_answers() {
        let shares = Share::among(9, (0..3).map(|_| Stop::new().unwrap()).collect());
        shares[1].show(Nanos(50));
        shares[2].show(Nanos(40));
        let (asked, in_time) = (Nanos::SECOND, Nanos::SECOND + ANSWERS_WITHIN);
        let late = in_time + Nanos(1);
        assert!(
            shares[0].reclaim_elsewhere(Nanos::MAX, asked)
                && shares[0].reclaim_elsewhere(Nanos::MAX, in_time)
        );
        assert_eq!([shares[1].asked(), shares[2].asked()], [0, 1]);
        assert!(shares[0].reclaim_elsewhere(Nanos::MAX, late));
        assert_eq!([shares[1].asked(), shares[2].asked()], [1, 1]);
        shares[1].show(Nanos::MAX);
        shares[1].answered();
        assert!(!shares[0].reclaim_elsewhere(Nanos::MAX, late), "nobody else has one");
        shares[2].answered();
        assert!(shares[0].reclaim_elsewhere(Nanos::MAX, late));
        assert_eq!(shares[2].asked(), 1);
    }
}
