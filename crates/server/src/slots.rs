//! The connection limit: one number for every loop and thread that shares it.
//!
//! A [`Slot`] is the right to have one connection open. It is taken before the accept and given back when
//! it is dropped, however its connection ends.
//!
//! Loops that share a limit tell each other since when their longest-idle connections have been idle
//! ([`Share::show`]). A loop without a slot for a newcomer can so ask the loop that has the longest-idle
//! connection of all to close it ([`Share::reclaim_elsewhere`]).
//!
//! Invariant: never more slots than the limit, but for connections that others have accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::Nanos;

use crate::driver::Stop;

/// A number of connections that may be open at once.
#[derive(Debug)]
pub struct Slots {
    most: usize,
    taken: AtomicUsize,
    /// The loops that share the limit, where there are several.
    members: Vec<Member>,
}

/// One of several loops that share a limit, as the others see it.
#[derive(Debug)]
struct Member {
    /// Since when its longest-idle connection has been idle; [`Nanos::MAX`] without one.
    idle_from: AtomicU64,
    /// Idle connections that others have asked it to close.
    asked: AtomicUsize,
    wake: Stop,
}

/// The right to have one connection open.
#[derive(Debug)]
pub struct Slot(Arc<Slots>);

/// The limit as one of those who share it uses it.
#[derive(Clone, Debug)]
pub struct Share {
    slots: Arc<Slots>,
    member: usize,
}

impl Slots {
    fn take(self: &Arc<Slots>) -> Option<Slot> {
        let one_more = |taken| (taken < self.most).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok().then(|| Slot(Arc::clone(self)))
    }

    fn take_beyond(self: &Arc<Slots>) -> Slot {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Slot(Arc::clone(self))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Share {
    /// A limit of one's own, or of threads that reclaim each other's idle connections by themselves.
    pub fn alone(most: usize) -> Share {
        Share::among(most, Vec::new()).pop().expect("there is one")
    }

    /// The shares of several loops in one limit. Each is woken by its [`Stop`] when it is asked for a connection.
    pub fn among(most: usize, loops: Vec<Stop>) -> Vec<Share> {
        let count = loops.len().max(1);
        let member =
            |wake| Member { idle_from: AtomicU64::new(Nanos::MAX.0), asked: AtomicUsize::new(0), wake };
        let members = loops.into_iter().map(member).collect();
        let slots = Arc::new(Slots { most, taken: AtomicUsize::new(0), members });
        (0..count).map(|member| Share { slots: Arc::clone(&slots), member }).collect()
    }

    /// A slot, if one is left.
    pub fn take(&self) -> Option<Slot> {
        self.slots.take()
    }

    /// A slot for a connection that is open already, whatever the limit.
    pub fn take_beyond(&self) -> Slot {
        self.slots.take_beyond()
    }

    /// Whether no slot is left.
    pub fn is_full(&self) -> bool {
        self.taken() >= self.slots.most
    }

    /// Slots taken now, by all who share the limit.
    pub fn taken(&self) -> usize {
        self.slots.taken.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn most(&self) -> usize {
        self.slots.most
    }

    /// Shows the others since when the longest-idle connection of this loop has been idle; [`Nanos::MAX`] without
    /// one. A store, and nothing where nobody shares.
    pub fn show(&self, idle_from: Nanos) {
        if let Some(member) = self.slots.members.get(self.member) {
            member.idle_from.store(idle_from.0, Ordering::Relaxed);
        }
    }

    /// Idle connections that others have asked this loop to close.
    pub fn asked(&self) -> usize {
        self.slots.members.get(self.member).map_or(0, |member| member.asked.load(Ordering::Acquire))
    }

    /// Ends one of the requests that [`Share::asked`] counts, after its connection was closed: a loop that looks
    /// meanwhile asks no second time.
    pub fn answered(&self) {
        self.slots.members[self.member].asked.fetch_sub(1, Ordering::Release);
    }

    /// Asks the loop with the longest-idle connection to close it, if it has been idle since before `idle_from`. Asks
    /// no second time while a loop has not done what it was asked for. Returns whether there is a slot to wait for.
    pub fn reclaim_elsewhere(&self, idle_from: Nanos) -> bool {
        let others = || self.slots.members.iter().enumerate().filter(|(index, _)| *index != self.member);
        if others().any(|(_, member)| member.asked.load(Ordering::Relaxed) > 0) {
            return true;
        }
        let since = |member: &Member| member.idle_from.load(Ordering::Relaxed);
        let longest = others().map(|(_, member)| member).min_by_key(|member| since(member));
        let Some(longest) = longest.filter(|member| since(member) < idle_from.0) else { return false };
        longest.asked.fetch_add(1, Ordering::Release);
        longest.wake.wake();
        true
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
        assert_eq!(share.taken(), 2);
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
    fn the_loop_with_the_longest_idle_connection_is_asked_and_woken_once() {
        let stops: Vec<Stop> = (0..3).map(|_| Stop::new().unwrap()).collect();
        let shares = Share::among(9, stops.clone());
        assert!(!shares[0].reclaim_elsewhere(Nanos::MAX), "nobody has one");
        shares[1].show(Nanos(50));
        shares[2].show(Nanos(40));
        assert!(!shares[0].reclaim_elsewhere(Nanos(40)), "its own is as old");
        assert!(shares[0].reclaim_elsewhere(Nanos(41)));
        assert!(shares[0].reclaim_elsewhere(Nanos(41)), "it has not answered yet");
        assert_eq!([shares[1].asked(), shares[2].asked()], [0, 1]);
        assert!(shares[0].reclaim_elsewhere(Nanos(41)), "it has begun and not ended");
        assert_eq!(shares[2].asked(), 1);
        shares[2].answered();
        assert_eq!(shares[2].asked(), 0);
        let woken = |stop: &Stop| rustix::io::read(stop.descriptor(), &mut [0; 8]).is_ok();
        assert_eq!([woken(&stops[1]), woken(&stops[2])], [false, true]);
        shares[2].show(Nanos::MAX);
        assert!(shares[0].reclaim_elsewhere(Nanos::MAX));
        assert_eq!(shares[1].asked(), 1);
    }
}
