//! The treatment of waiting connections while every thread or process of a pool is busy. Each member serves one
//! connection at a time.
//!
//! ```text
//!   nobody serves ──a connection comes──> some serve ──a look every 50 ms: all serve──> full
//!
//!   full:  a connection waits ──10 ms──> reclaim: the longest-idle connection is closed, and its member free
//!                                  └──> none is idle: it waits; after a second without a free member, turn away
//! ```
//!
//! Busy members come free by themselves, so a full pool refuses nobody at first: connections wait in the accept queue,
//! as in every server with a pool. Idle connections make room for connections that keep waiting. A pool that has taken
//! no connection for [`STILL`] turns newcomers away. With [`IdleSessions::Stay`] it does neither: connections wait.
//!
//! Owns the decision and its times. A [`Pool`] reports the state of its members.

use base::Nanos;

use crate::connections::accept::RECLAIM_PAUSE;
use crate::ground::choices::IdleSessions;

/// The interval of checks for a full pool while some members are busy. It bounds the delay until a newcomer's wait is
/// noticed. Twenty checks a second cost nothing.
const LOOK_EVERY: Nanos = Nanos::from_millis(50);
/// The time that waiting connections are left to members that come free by themselves; it covers many short requests.
const PATIENCE: Nanos = Nanos::from_millis(10);
/// The time without a taken connection after which a pool turns waiting connections away. It is also their
/// `Retry-After`.
pub const STILL: Nanos = Nanos::SECOND;

/// A pool at one moment.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// At least one member serves.
    pub serves: bool,
    /// A member is about to accept, or waits for a connection.
    pub has_free: bool,
    /// The time when a member last took a connection.
    pub last_taken: Nanos,
}

/// Members that accept and serve.
pub trait Pool {
    /// Returns the current state.
    fn state(&self) -> State;

    /// Makes the member with the longest-idle connection close it, unless one has come free since [`Pool::state`]. Returns
    /// true if a member is free, or will be.
    fn reclaim(&mut self, now: Nanos) -> bool;

    /// Turns away the waiting connections.
    fn turn_away(&mut self, now: Nanos);
}

/// The terms of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// Waiting connections in the accept queues end the sleep.
    pub queues: bool,
    /// The time when it ends in any case.
    pub until: Option<Nanos>,
}

/// The watch over a pool, for a thread that does nothing else.
#[derive(Debug, Default)]
pub struct Watch {
    /// The watch ignores the queues until this time.
    rests_until: Nanos,
    /// At the last check all members were busy and connections waited.
    waited: bool,
    idle: IdleSessions,
}

impl Watch {
    /// Watches over a pool whose idle connections give way, or stay.
    pub fn of(idle: IdleSessions) -> Watch {
        Watch { idle, ..Watch::default() }
    }

    /// Returns the terms of the sleep before the next check.
    pub fn sleep(&mut self, pool: &impl Pool, now: Nanos) -> Sleep {
        let State { serves, has_free, .. } = pool.state();
        self.waited &= !has_free;
        if self.rests_until > now {
            Sleep { queues: false, until: Some(self.rests_until) }
        } else if serves {
            Sleep { queues: !has_free, until: Some(now + LOOK_EVERY) }
        } else {
            Sleep { queues: true, until: None }
        }
    }

    /// Acts after a sleep, if connections wait in the accept queues.
    pub fn check_pool(&mut self, pool: &mut impl Pool, now: Nanos) {
        let State { has_free, last_taken, .. } = pool.state();
        let still_at = last_taken.saturating_add(STILL);
        self.rests_until = if has_free {
            now + RECLAIM_PAUSE
        } else if self.idle == IdleSessions::Stay {
            now + LOOK_EVERY
        } else if !std::mem::replace(&mut self.waited, true) {
            now + PATIENCE
        } else if pool.reclaim(now) {
            now + RECLAIM_PAUSE
        } else if still_at > now {
            still_at.min(now + LOOK_EVERY)
        } else {
            pool.turn_away(now);
            now + RECLAIM_PAUSE
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed {
        state: State,
        idle: usize,
        reclaimed: usize,
        turned_away: usize,
    }

    impl Pool for Fixed {
        fn state(&self) -> State {
            self.state
        }

        fn reclaim(&mut self, _now: Nanos) -> bool {
            let idle = self.idle > 0;
            self.idle -= usize::from(idle);
            self.reclaimed += usize::from(idle);
            idle
        }

        fn turn_away(&mut self, _now: Nanos) {
            self.turned_away += 1;
        }
    }

    const NOW: Nanos = Nanos::from_secs(100);

    fn pool(serves: bool, has_free: bool, idle: usize) -> Fixed {
        let state = State { serves, has_free, last_taken: NOW };
        Fixed { state, idle, reclaimed: 0, turned_away: 0 }
    }

    #[test]
    fn idle_pool_sleeps_and_full_pool_watches_queues() {
        let mut watch = Watch::default();
        let look = Some(NOW + LOOK_EVERY);
        assert_eq!(watch.sleep(&pool(false, true, 0), NOW), Sleep { queues: true, until: None });
        assert_eq!(watch.sleep(&pool(true, true, 0), NOW), Sleep { queues: false, until: look });
        assert_eq!(watch.sleep(&pool(true, false, 0), NOW), Sleep { queues: true, until: look });
    }

    #[test]
    fn full_pool_closes_idle_connections_one_at_a_time() {
        let (mut watch, mut full) = (Watch::default(), pool(true, false, 2));
        let mut now = NOW;
        for (reclaimed, rest) in [(0, PATIENCE), (1, RECLAIM_PAUSE), (2, RECLAIM_PAUSE)] {
            watch.check_pool(&mut full, now);
            assert_eq!((full.reclaimed, full.turned_away), (reclaimed, 0));
            assert_eq!(watch.sleep(&full, now), Sleep { queues: false, until: Some(now + rest) });
            now += rest;
        }
    }

    #[test]
    fn connections_of_a_pool_that_stay_are_left_alone() {
        let (mut watch, mut full) = (Watch::of(IdleSessions::Stay), pool(true, false, 2));
        for look in 0..100 {
            watch.check_pool(&mut full, NOW + STILL * look);
        }
        assert_eq!((full.reclaimed, full.turned_away), (0, 0));
    }

    #[test]
    fn briefly_full_pool_keeps_its_idle_connections() {
        let (mut watch, mut full, mut free) = (Watch::default(), pool(true, false, 2), pool(true, true, 2));
        for turn in 0..9 {
            let now = NOW + PATIENCE * 2 * turn;
            watch.check_pool(&mut full, now);
            watch.sleep(&free, now + PATIENCE);
            assert_eq!(full.reclaimed, 0);
        }
        watch.check_pool(&mut free, NOW);
        assert_eq!(free.reclaimed, 0);
    }

    #[test]
    fn a_free_member_takes_the_connection_itself() {
        let (mut watch, mut free) = (Watch::default(), pool(true, true, 2));
        watch.check_pool(&mut free, NOW);
        assert_eq!((free.reclaimed, free.turned_away), (0, 0));
    }

    #[test]
    fn stalled_full_pool_refuses_after_a_second() {
        let (mut watch, mut full) = (Watch::default(), pool(true, false, 0));
        let mut now = NOW;
        while full.turned_away == 0 {
            watch.check_pool(&mut full, now);
            now = watch.sleep(&full, now).until.unwrap();
        }
        assert_eq!(now - RECLAIM_PAUSE, NOW + STILL);
    }
}
