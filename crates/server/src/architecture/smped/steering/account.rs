//! The parent's account of workers that take connections from queues of their own.
//!
//! ```text
//!             started             first turn            idle for too long
//!   vacant ────────────> starting ──────────> running ───────────────────> leaving ──> vacant
//!                           ^                  |   ^
//!                  replaced |      no turn for |   | a turn
//!                           |  100 ms, and     v   |
//!                          down    somebody  silent
//!                           ^      waits       |
//!                           └───── died ───────┘
//! ```
//!
//! A worker counts its turns in shared memory. A worker that makes none for 100 ms while connections wait in its
//! queue is silent: it is stopped, or waits for its disk. A worker that sleeps while its queue is empty is not
//! silent.
//!
//! Owns the state of each worker, whether it is alive (gets connections), the number of workers, and their idle times. Pure:
//! no clock, no memory, no socket. The parent passes in readings and carries out the results.
//!
//! Invariants: only a running worker is alive, except for those that the server starts with. There are never more
//! than P_max workers.

use base::Nanos;

use super::super::resources::{Resources, Surplus};
use crate::architecture::smped::settings::{ANSWER_WITHIN, SmpedSettings};

/// Time for which a starting worker keeps others from being started.
const BEGINS_WITHIN: Nanos = Nanos::SECOND;

/// Time without a change after which counted connections that the worker does not have are taken for SYNs without a
/// client.
const GHOSTS_AFTER: Nanos = Nanos::SECOND;

/// The state of a worker's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The slot has no worker.
    Vacant,
    /// It has been started and has made no turn yet.
    Starting,
    /// It works, or waits for work.
    Running,
    /// It does not answer.
    Silent,
    /// It was told to end.
    Leaving,
    /// It has died, and another is to be started.
    Down,
}

/// A reading of a worker's shared memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Turns of its loop.
    pub turns: u64,
    /// Open connections.
    pub open: u64,
    /// C_i: open connections, connections in the queue, and those that the kernel has given the worker since its last
    /// report.
    pub connections: u64,
    /// Connections that the kernel has ever given to the slot.
    pub assigned: u64,
}

/// The result of a look at a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing is to be done.
    Nothing,
    /// It has begun, or answers again, and is alive from now on.
    Answers,
    /// It has fallen silent. It is no longer alive, and its queue is for others.
    FallsSilent,
    /// C_i counts connections that never came: the worker has to count anew.
    Ghosts,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    state: State,
    alive: bool,
    seen: Seen,
    /// The time since which connections have waited without a turn.
    stuck_since: Option<Nanos>,
    /// The time at which its turns or its assigned connections last changed.
    moved_at: Nanos,
    idle_since: Nanos,
}

/// The table of workers, by slot.
#[derive(Debug)]
pub struct Account {
    resources: Resources,
    c_max: u64,
    places: Vec<Place>,
    /// No worker is started before this time.
    pause_until: Nanos,
}

impl Account {
    /// An account without workers.
    pub fn new(settings: &SmpedSettings) -> Account {
        let vacant = Place {
            state: State::Vacant,
            alive: false,
            seen: Seen::default(),
            stuck_since: None,
            moved_at: Nanos::ZERO,
            idle_since: Nanos::ZERO,
        };
        Account {
            resources: Resources::new(settings),
            c_max: settings.c_max.into(),
            places: vec![vacant; settings.p_max],
            pause_until: Nanos::ZERO,
        }
    }

    /// Records a worker that was started in a vacant slot, or in place of one that died. The workers that the server
    /// starts with are `alive` at once.
    pub fn started(&mut self, slot: usize, alive: bool, now: Nanos) {
        let place = &mut self.places[slot];
        assert!(matches!(place.state, State::Vacant | State::Down), "the slot has a worker");
        let seen = Seen { assigned: place.seen.assigned, ..Seen::default() };
        *place =
            Place { state: State::Starting, alive, seen, stuck_since: None, moved_at: now, idle_since: now };
    }

    /// Records the death of a worker.
    pub fn died(&mut self, slot: usize) {
        let place = &mut self.places[slot];
        place.alive = false;
        place.state = if place.state == State::Leaving { State::Vacant } else { State::Down };
    }

    /// Records the end of a worker that was told to end.
    pub fn left(&mut self, slot: usize) {
        self.places[slot].alive = false;
        self.places[slot].state = State::Vacant;
    }

    /// Returns the state of a slot.
    pub fn state(&self, slot: usize) -> State {
        self.places[slot].state
    }

    /// Returns the slots that listen: those of workers, and of workers that died and are to be replaced.
    pub fn listening(&self) -> impl Iterator<Item = usize> + use<> {
        let listens = |state: State| !matches!(state, State::Vacant | State::Leaving);
        let slots: Vec<usize> = (0..self.places.len()).filter(|slot| listens(self.state(*slot))).collect();
        slots.into_iter()
    }

    /// Returns true if another worker is alive.
    pub fn another_is_alive(&self, slot: usize) -> bool {
        self.places.iter().enumerate().any(|(other, place)| other != slot && place.alive)
    }

    /// Returns true if another worker is alive and has room.
    pub fn another_has_room(&self, slot: usize) -> bool {
        let has_room = |place: &Place| place.alive && place.seen.connections < self.c_max;
        self.places.iter().enumerate().any(|(other, place)| other != slot && has_room(place))
    }

    /// Returns true if a worker has C_max open connections.
    pub fn is_full(&self, slot: usize) -> bool {
        self.places[slot].alive && self.places[slot].seen.open >= self.c_max
    }

    /// Returns true if no worker has a connection, and none is starting or silent.
    pub fn is_idle(&self) -> bool {
        let awaited = |place: &Place| matches!(place.state, State::Starting | State::Silent);
        self.places.iter().all(|place| place.seen.connections == 0 && !awaited(place))
    }

    /// Evaluates a reading of a worker. `waits` returns true if its queue has a connection; it is called only if that
    /// matters. Returns the result, and true if the kernel has given the worker connections since the last look.
    pub fn evaluate_reading(
        &mut self,
        slot: usize,
        seen: Seen,
        waits: impl FnOnce() -> bool,
        now: Nanos,
    ) -> (Sight, bool) {
        let place = &mut self.places[slot];
        let turned = seen.turns != place.seen.turns;
        let given = seen.assigned != place.seen.assigned;
        if seen.connections > 0 || given {
            place.idle_since = now;
        }
        if turned || given {
            place.moved_at = now;
        }
        place.seen = seen;
        (place.sight(turned, waits, now), given)
    }

    /// Returns the slot for one more worker, if one may be started. A worker that does not begin delays the next one
    /// by a second.
    pub fn vacancy(&self, now: Nanos) -> Option<usize> {
        let free = self.places.iter().position(|place| place.state == State::Vacant);
        free.filter(|_| !self.one_starts(now) && now >= self.pause_until && self.may_start())
    }

    /// Returns true if another worker starts or may be started.
    pub fn may_grow(&self, now: Nanos) -> bool {
        self.one_starts(now) || self.may_start()
    }

    fn one_starts(&self, now: Nanos) -> bool {
        self.places
            .iter()
            .any(|place| place.state == State::Starting && now.saturating_sub(place.moved_at) < BEGINS_WITHIN)
    }

    fn may_start(&self) -> bool {
        self.resources.may_start(self.count(|state| state != State::Vacant))
    }

    /// Starts no worker until this time, because the last one could not be started.
    pub fn pause(&mut self, until: Nanos) {
        self.pause_until = until;
    }

    /// Returns the worker to stop next, and the time to stop it.
    pub fn next_surplus(&self) -> Option<Surplus> {
        let idle = self.places.iter().enumerate().filter_map(|(slot, place)| {
            let idles = place.state == State::Running && place.seen.connections == 0;
            idles.then_some((slot, place.idle_since))
        });
        let workers = self.count(|state| !matches!(state, State::Vacant | State::Leaving));
        self.resources.surplus(workers, idle)
    }

    /// Returns a worker that has been idle for too long, to be told to end. It is not alive any more.
    pub fn take_surplus(&mut self, now: Nanos) -> Option<usize> {
        let surplus = self.next_surplus().filter(|surplus| surplus.at <= now)?;
        self.places[surplus.slot].state = State::Leaving;
        self.places[surplus.slot].alive = false;
        Some(surplus.slot)
    }

    fn count(&self, counts: impl Fn(State) -> bool) -> usize {
        self.places.iter().filter(|place| counts(place.state)).count()
    }
}

impl Place {
    fn sight(&mut self, turned: bool, waits: impl FnOnce() -> bool, now: Nanos) -> Sight {
        match self.state {
            State::Starting | State::Silent if turned => {
                (self.state, self.alive, self.stuck_since) = (State::Running, true, None);
                Sight::Answers
            }
            State::Running if turned => {
                self.stuck_since = None;
                Sight::Nothing
            }
            State::Running if waits() => {
                let since = *self.stuck_since.get_or_insert(now);
                if now.saturating_sub(since) < ANSWER_WITHIN {
                    return Sight::Nothing;
                }
                (self.state, self.alive, self.stuck_since) = (State::Silent, false, None);
                Sight::FallsSilent
            }
            State::Running => {
                self.stuck_since = None;
                let expects = self.seen.open == 0 && self.seen.connections > 0;
                if !expects || now.saturating_sub(self.moved_at) < GHOSTS_AFTER {
                    return Sight::Nothing;
                }
                self.moved_at = now;
                Sight::Ghosts
            }
            _ => Sight::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;
