//! The adaptive accept-limit: the most connections that an accept phase may take.
//!
//! Brecht 2004 (section 3) leaves the choice of the limit open. Too small a limit wastes a wait for events on
//! few connections; no limit lets strangers starve sessions. This limit bounds what a turn takes on by time
//! instead:
//!
//! ```text
//!   |<- work on open connections ->|<- accept ->|      limit x (accept + life)  <= 4 ms
//!                                  |  <= 2 ms   |      open connections + accepted ones, in the next turn
//!                                                                               <= a quarter of the target delay
//! ```
//!
//! The life of a connection is all work that it causes until it closes. In a steady state each turn does as much work
//! as it takes on, so turns stay short however many requests a session has. The work of the last turn alone does not
//! show this: most sessions are with their clients at any moment, and come back together.
//!
//! At least one connection is taken, because otherwise sessions that never end would starve strangers.
//!
//! Costs are measured in wall time, which is the length of a turn: it includes the kernel's network work
//! during the turn. No clock, no I/O: times are passed in.

use base::Nanos;

/// The longest accept phase.
const ACCEPT_PHASE: Nanos = Nanos::from_millis(2);
/// The most work that a turn takes on. At 2 ms, connections with one request are a tenth slower to come in.
const TAKEN_ON: Nanos = Nanos::from_millis(4);
/// Turns per target delay: two for the wait, and two as a reserve.
const TURNS_PER_TARGET: u64 = 4;
/// The assumed cost of an accept, and of a turn of a connection, before a measurement.
const FIRST_GUESS: f64 = 20e3;
/// The number of connections over which a cost is measured.
const MEMORY: f64 = 64.0;

/// Bounds the accept phases of one loop.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveLimit {
    /// The longest work phase, in nanoseconds.
    turn: f64,
    /// The cost of accepting a connection, in nanoseconds.
    accept_cost: f64,
    /// The cost of a connection's turn, in nanoseconds.
    work_cost: f64,
    /// Connections that had a turn in the last work phase and are still open.
    staying: f64,
    /// Connections that have closed, and the work since, in nanoseconds; older ones weigh less.
    closed: f64,
    work: f64,
    /// A connection has had a turn, so that the work is no mere guess.
    has_worked: bool,
}

impl AdaptiveLimit {
    /// A limit that keeps the work phase within a quarter of the target delay.
    pub fn new(target: Nanos) -> AdaptiveLimit {
        AdaptiveLimit {
            turn: turn(target),
            accept_cost: FIRST_GUESS,
            work_cost: FIRST_GUESS,
            staying: 0.0,
            closed: 1.0,
            work: FIRST_GUESS,
            has_worked: false,
        }
    }

    /// Keeps turns to a quarter of another target delay.
    pub fn set_target(&mut self, target: Nanos) {
        self.turn = turn(target);
    }

    /// Records a work phase: `turns` connections had a turn, and `closed` connections ended since the last one.
    pub fn worked(&mut self, turns: u32, closed: u32, took: Nanos) {
        smooth(&mut self.work_cost, turns, took);
        self.staying = f64::from(turns.saturating_sub(closed));
        if turns > 0 || closed > 0 {
            self.has_worked = true;
            let kept = 1.0 - weight(closed);
            self.closed = kept * self.closed + f64::from(closed);
            // This bound already brings the limit to 1, so sessions that last longer need not count for more.
            self.work = (kept * self.work + took.0 as f64).min(self.closed * TAKEN_ON.0 as f64);
        }
    }

    /// Records an accept phase that took this number of connections.
    pub fn accepted(&mut self, connections: u32, took: Nanos) {
        smooth(&mut self.accept_cost, connections, took);
    }

    /// The most connections that the next accept phase may take, 1 or more.
    pub fn limit(&self) -> u32 {
        let phase = ACCEPT_PHASE.0 as f64 / self.accept_cost;
        let taken_on = TAKEN_ON.0 as f64 / (self.accept_cost + self.work / self.closed);
        let room = (self.turn - self.staying * self.work_cost) / (self.accept_cost + self.work_cost);
        phase.min(taken_on).min(room).max(1.0) as u32
    }

    /// The cost of a connection from its accept to its close; 0 before a measurement.
    pub fn connection_cost(&self) -> Nanos {
        let cost = self.accept_cost + self.work / self.closed;
        if self.has_worked { Nanos(cost as u64) } else { Nanos::ZERO }
    }

    /// The cost of a connection's turn.
    pub fn work_cost(&self) -> Nanos {
        Nanos(self.work_cost as u64)
    }
}

/// The longest work phase for a target delay, in nanoseconds.
fn turn(target: Nanos) -> f64 {
    (target / TURNS_PER_TARGET).0 as f64
}

/// Updates a smoothed cost by the common time of several operations.
fn smooth(cost: &mut f64, count: u32, took: Nanos) {
    if count > 0 {
        *cost += weight(count) * (took.0 as f64 / f64::from(count) - *cost);
        // The clock may not advance within a phase.
        *cost = cost.max(1.0);
    }
}

/// The weight of a measurement beside those before it.
fn weight(count: u32) -> f64 {
    // At most a quarter, so that one phase without the processor does not dominate.
    (f64::from(count) / MEMORY).min(0.25)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that has seen phases of 100 connections, at these costs.
    fn measured(accept_us: u64, work_us: u64, closed: u32) -> AdaptiveLimit {
        let mut limit = AdaptiveLimit::new(Nanos::from_millis(20));
        for _ in 0..100 {
            limit.worked(100, closed, Nanos::from_micros(100 * work_us));
            limit.accepted(100, Nanos::from_micros(100 * accept_us));
        }
        limit
    }

    #[test]
    fn an_accept_phase_takes_two_milliseconds_at_most() {
        assert_eq!(measured(21, 5, 100).limit(), 95);
    }

    #[test]
    fn no_more_are_accepted_than_can_be_served() {
        assert_eq!(measured(10, 83, 100).limit(), 43, "in four milliseconds");
        assert_eq!(measured(10, 890, 100).limit(), 4);
    }

    #[test]
    fn a_connection_counts_with_all_its_requests() {
        // One connection in ten closes in each turn: it had ten requests of 19 us.
        let limit = measured(10, 19, 10).limit();
        assert!((18..=20).contains(&limit), "{limit}");
    }

    #[test]
    fn accept_only_loop_knows_no_connection_cost() {
        let mut limit = AdaptiveLimit::new(Nanos::from_millis(20));
        limit.accepted(100, Nanos::MILLISECOND);
        limit.worked(0, 0, Nanos::MILLISECOND);
        assert_eq!(limit.connection_cost(), Nanos::ZERO);
        limit.worked(1, 1, Nanos::MILLISECOND);
        assert!(limit.connection_cost() > Nanos::from_micros(500));
    }

    #[test]
    fn changed_connection_life_is_learned_anew() {
        let mut limit = measured(15, 29, 0);
        assert_eq!(limit.limit(), 1, "they never end");
        for _ in 0..200 {
            limit.worked(10, 10, Nanos::from_micros(290));
        }
        assert!((89..=91).contains(&limit.limit()), "{}", limit.limit());
    }

    #[test]
    fn sessions_come_before_strangers() {
        // The next work phase of 5 ms has room for 135 turns of 37 us.
        let mut limit = measured(10, 37, 100);
        assert_eq!(limit.limit(), 85);
        limit.worked(130, 0, Nanos::from_micros(130 * 37));
        assert_eq!(limit.limit(), 4);
    }

    #[test]
    fn slow_work_still_accepts_one_connection_a_turn() {
        assert_eq!(measured(10, 100_000, 100).limit(), 1);
    }

    #[test]
    fn empty_phases_and_still_clocks_do_no_harm() {
        let mut limit = AdaptiveLimit::new(Nanos::from_millis(20));
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
