//! Reclaiming of the longest-idle connection among worker processes.
//!
//! Each worker shows the idle time of its longest-idle connection in a word of shared memory. The parent compares the
//! words and asks one worker. That worker may be stopped, or its connection may have a request by then, so the parent
//! reads the effect from the word.

use std::sync::atomic::Ordering;

use base::Nanos;

use super::fleet::Fleet;
use crate::ground::scoreboard::IDLE_FROM;

/// The time that a worker may take to close a connection before another worker is asked.
const PATIENCE: Nanos = Nanos::from_millis(10);
/// The time that it may take if no other worker has an idle connection. On a busy machine a worker waits for a
/// processor.
const LAST_PATIENCE: Nanos = Nanos::from_millis(100);

/// The requests of a parent to its workers.
#[derive(Debug, Default)]
pub struct Reclaims {
    told: Option<Told>,
}

/// A request to a worker to close its connection that had been idle since `idle_from`.
#[derive(Clone, Copy, Debug)]
struct Told {
    place: usize,
    idle_from: u64,
    at: Nanos,
}

impl Reclaims {
    /// Asks the worker with the longest-idle connection, among those that `may` admits, to close it, if another is still
    /// `wanting` for its place. Asks one worker at a time. Returns true if there is room, or will be.
    pub fn reclaim(
        &mut self,
        fleet: &Fleet,
        may: impl Fn(usize) -> bool,
        wanting: impl FnOnce() -> bool,
        now: Nanos,
    ) -> bool {
        let idle_from = |place: usize| fleet.own(place)[IDLE_FROM].load(Ordering::Relaxed);
        let unchanged =
            self.told.filter(|told| fleet.runs(told.place) && idle_from(told.place) == told.idle_from);
        if unchanged.is_some_and(|told| told.at + PATIENCE > now) {
            return true;
        }
        // The last worker may have taken the waiting connection by now.
        if !wanting() {
            return true;
        }
        let has_been_told = |place| unchanged.is_some_and(|told| told.place == place);
        let places = (0..fleet.places()).filter(|place| fleet.runs(*place) && may(*place));
        let idle = places.filter(|place| !has_been_told(*place) && (1..=now.0).contains(&idle_from(*place)));
        let Some(place) = idle.min_by_key(|place| idle_from(*place)) else {
            return unchanged.is_some_and(|told| may(told.place) && told.at + LAST_PATIENCE > now);
        };
        self.told = Some(Told { place, idle_from: idle_from(place), at: now });
        fleet.tell_to_reclaim(place)
    }
}
