//! The adaptive accept-limit: how many connections an accept phase may take.
//!
//! Brecht 2004 (section 3) leaves open how to choose the limit. Too small a limit wastes a wait for events on few
//! connections; no limit lets strangers starve sessions. Here a turn of the loop is bounded by time instead:
//!
//! ```text
//!   |<- work on open connections ->|<- accept ->|      the next turn's work:
//!   |                              |  <= 2 ms   |      those that stay open + those accepted
//!                                                      <= a quarter of the target delay
//! ```
//!
//! A request waits for two turns at most, so that the p99 of sessions stays below the target delay, unless a single
//! request takes longer than that. At least one connection is taken, or strangers would wait for ever beside sessions
//! that never end.
//!
//! Costs are measured in wall time, which includes what the kernel does for the network meanwhile: it is the time that
//! a turn takes. No clock, no I/O: times are handed in.

use base::Nanos;

/// The longest accept phase.
const ACCEPT_PHASE: Nanos = Nanos::from_millis(2);
/// The turns that fit into a target delay: two for the wait, and as much again for what cannot be foreseen.
const TURNS_PER_TARGET: u64 = 4;
/// What accepting a connection and a turn of it are taken to cost before they have been measured.
const FIRST_GUESS: f64 = 20e3;
/// The connections over which a cost is measured.
const MEMORY: f64 = 64.0;

/// Bounds the accept phases of one loop.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimit {
    /// The longest that the work phase is to take, in nanoseconds.
    turn: f64,
    /// What accepting a connection takes, in nanoseconds.
    accept_cost: f64,
    /// What a turn of a connection takes, in nanoseconds.
    work_cost: f64,
    /// Connections that had a turn and are still open.
    staying: f64,
}

impl AcceptLimit {
    /// A limit that keeps turns to a quarter of the target delay.
    pub fn new(target: Nanos) -> AcceptLimit {
        AcceptLimit {
            turn: (target / TURNS_PER_TARGET).0 as f64,
            accept_cost: FIRST_GUESS,
            work_cost: FIRST_GUESS,
            staying: 0.0,
        }
    }

    /// A work phase is over: `turns` connections had a turn, and `closed` of them have ended.
    pub fn worked(&mut self, turns: u32, closed: u32, took: Nanos) {
        smooth(&mut self.work_cost, turns, took);
        self.staying = f64::from(turns.saturating_sub(closed));
    }

    /// An accept phase is over that took this many connections.
    pub fn accepted(&mut self, connections: u32, took: Nanos) {
        smooth(&mut self.accept_cost, connections, took);
    }

    /// The most connections that the next accept phase may take, 1 or more.
    pub fn limit(&self) -> u32 {
        let phase = ACCEPT_PHASE.0 as f64 / self.accept_cost;
        let room = (self.turn - self.staying * self.work_cost) / (self.accept_cost + self.work_cost);
        phase.min(room).max(1.0) as u32
    }

    /// What a turn of a connection costs.
    pub fn work_cost(&self) -> Nanos {
        Nanos(self.work_cost as u64)
    }
}

/// Smooths the cost of each by what several have taken together.
fn smooth(cost: &mut f64, count: u32, took: Nanos) {
    if count > 0 {
        let count = f64::from(count);
        // A quarter at most, so that one phase which the processor was taken from does not count for all.
        *cost += (count / MEMORY).min(0.25) * (took.0 as f64 / count - *cost);
        // A clock may stand still for a phase.
        *cost = cost.max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that has seen phases of 100 connections, at these costs.
    fn measured(accept_us: u64, work_us: u64, closed: u32) -> AcceptLimit {
        let mut limit = AcceptLimit::new(Nanos::from_millis(20));
        for _ in 0..100 {
            limit.worked(100, closed, Nanos::from_micros(100 * work_us));
            limit.accepted(100, Nanos::from_micros(100 * accept_us));
        }
        limit
    }

    #[test]
    fn an_accept_phase_takes_two_milliseconds_at_most() {
        assert_eq!(measured(20, 5, 100).limit(), 100);
    }

    #[test]
    fn no_more_are_accepted_than_can_be_served_in_the_next_turn() {
        assert_eq!(measured(10, 90, 100).limit(), 50);
        assert_eq!(measured(10, 990, 100).limit(), 5);
    }

    #[test]
    fn sessions_come_before_strangers() {
        // 100 sessions at 25 us fill half a turn of 5 ms.
        assert_eq!(measured(10, 25, 0).limit(), 71);
        assert_eq!(measured(10, 50, 0).limit(), 1, "and at 50 us all of it");
    }

    #[test]
    fn a_stranger_is_accepted_each_turn_however_slow_the_work_is() {
        assert_eq!(measured(10, 100_000, 100).limit(), 1);
    }

    #[test]
    fn phases_without_connections_and_clocks_that_stand_still_do_no_harm() {
        let mut limit = AcceptLimit::new(Nanos::from_millis(20));
        let before = limit.limit();
        limit.worked(0, 0, Nanos::SECOND);
        limit.accepted(0, Nanos::SECOND);
        assert_eq!(limit.limit(), before);
        for _ in 0..1000 {
            limit.worked(1000, 1000, Nanos::ZERO);
            limit.accepted(1000, Nanos::ZERO);
        }
        assert!(limit.limit() >= 1);
    }
}
