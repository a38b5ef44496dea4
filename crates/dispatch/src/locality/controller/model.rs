//! The cost of a choice of N and of the longest time between two polls of every set.
//!
//! N decides by gap in which set a member ends. T is the time between two calls. Members with gaps below the
//! *horizon* h = N·T stay active, members with gaps below N·h stay in the next set, and so on. The histogram
//! of gaps therefore gives the cost of every N, and no N has to be tried out. Let set k have r_k events per
//! second, and let m_k be the number of members in sets 0 to k. Let p_k be the time between two of its polls:
//! h·N^(k-1), or the chosen longest time if that is less. N² calls are a bad period for the rarest set once N
//! is as large as busy connections want it. Then a second costs, in seconds of processor time,
//!
//! ```text
//!     the active set   (look(m_0) + q · (block(m_0) - look(m_0))) / c     q of its polls find nothing and block
//!                      + PRICE · r_0 · b² / 2c                            its events wait while the loop is busy
//!     looking          Σ look_k · (1/p_k - 1/p_k+1)                       a look through set k goes on to the next
//!                      + PRICE · r · look_k² · (1/p_k - 1/p_k+1) / 2      at times; events wait meanwhile
//!     delay            Σ PRICE · r_k · p_k / 2                            half a period of a set on average
//! ```
//!
//! where c is the time between two polls of the active set, and b is the busy part of c. look_k sums the
//! costs of the members of each set by the time since their last poll. Data that the processor's caches have
//! forgotten costs four times as much.

use super::gaps::{Gaps, Traffic};
use super::{LIVE_COUNTERS, LONGEST, PRICE};

/// Fraction of the cost that a change must save.
const WORTH: f64 = 0.01;
/// Mean gaps without an event after which the rate must have changed: one gap in 1000 is as long.
const SURPRISE: f64 = 7.0;
/// Ratio of two neighbours on the grid of periods.
const STEP: f64 = std::f64::consts::SQRT_2;
/// Smallest fraction of the processor that requests leave in the model.
const LEFT_OVER: f64 = 0.05;

/// Seconds to poll one TCP socket, `since` seconds after its last poll, measured on Linux 6.18. It takes 100
/// ns within a few milliseconds and 450 ns from about 20 ms on, because caches forget the socket.
pub(super) fn look_at_one(since: f64) -> f64 {
    0.1e-6 - 0.35e-6 * (-since / 10e-3).exp_m1()
}

/// Seconds to poll `members` sockets whose last poll was just before.
pub(super) fn look(members: f64) -> f64 {
    0.5e-6 + look_at_one(0.0) * members
}

/// Seconds to block on `members` sockets and to wake up: 2.1 ms for 6000.
pub(super) fn block(members: f64) -> f64 {
    35e-6 + 0.34e-6 * members
}

/// A choice of the two times, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Members with shorter gaps stay active.
    pub(super) horizon: f64,
    /// Longest time between two polls of every set.
    pub(super) longest: f64,
}

/// The observations that a choice is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model<'a> {
    pub(super) gaps: &'a Gaps,
    pub(super) sets: usize,
    pub(super) members: usize,
    /// Length of an empty call, in seconds.
    pub(super) nap: f64,
    /// Time to serve an event, in seconds.
    pub(super) service: f64,
}

/// The active set, polled again and again.
struct Active {
    traffic: Traffic,
    /// Time between two polls, in seconds.
    cycle: f64,
    /// Busy part of a cycle, in seconds.
    busy: f64,
    /// Fraction of the polls that find nothing and block.
    blocks: f64,
    /// Time from one call to the next, in seconds.
    call: f64,
}

impl Active {
    /// The N with this horizon. One call in N looks; the others poll this set alone.
    fn live_counter(&self, horizon: f64) -> u32 {
        let n = (1.0 + horizon / self.call).round() as u32;
        n.clamp(*LIVE_COUNTERS.start(), *LIVE_COUNTERS.end())
    }
}

impl Model<'_> {
    /// The N that gives a choice its horizon.
    pub(super) fn live_counter(&self, choice: Choice) -> u32 {
        self.active(choice).live_counter(choice.horizon)
    }

    fn active(&self, choice: Choice) -> Active {
        let traffic = self.gaps.below(choice.horizon);
        let (look, block) = (look(traffic.members), block(traffic.members));
        let left = (1.0 - self.service * self.gaps.all().rate).max(LEFT_OVER);
        let nap = 1.0 / (traffic.rate + 1.0 / choice.horizon.min(choice.longest));
        let cycle = |blocks: f64| (look + blocks * (block - look + nap)) / left;
        // Finds the fixed point by halving steps, so that the value does not oscillate.
        let blocks = (0..6).fold(1.0, |blocks, _| {
            let busy = cycle(blocks) - blocks * nap;
            f64::midpoint(blocks, (-traffic.rate * busy).exp())
        });
        // Naps end at random times and count as whole calls.
        let calls = blocks / -(-self.nap / nap).exp_m1() + (1.0 - blocks);
        let cycle = cycle(blocks);
        Active { traffic, cycle, busy: cycle - blocks * nap, blocks, call: cycle / calls }
    }

    fn cost(&self, choice: Choice) -> f64 {
        let active = self.active(choice);
        let (look, block) = (look(active.traffic.members), block(active.traffic.members));
        let polls = (look + active.blocks * (block - look)) / active.cycle;
        let waits = PRICE * active.traffic.rate * active.busy.powi(2) / (2.0 * active.cycle);
        polls + waits + self.looking(choice, &active, self.gaps.all().rate)
    }

    /// Cost of a second without events in the active set.
    fn cost_of_emptiness(&self, choice: Choice) -> f64 {
        let active = self.active(choice);
        let naps = block(active.traffic.members) / choice.horizon.min(choice.longest);
        naps + self.looking(choice, &active, 0.0)
    }

    /// Cost of the looks of a second, of the delay they cause at this rate of events, and of the delay
    /// between them.
    fn looking(&self, choice: Choice, active: &Active, rate: f64) -> f64 {
        let Choice { horizon, longest } = choice;
        let n = f64::from(active.live_counter(horizon));
        let last = self.sets as i32 - 1;
        let polls = |set| if set > last { 0.0 } else { 1.0 / (horizon * n.powi(set - 1)).min(longest) };
        let mut before = active.traffic;
        let mut look = look(before.members);
        let mut cost = 0.0;
        for set in 1..=last {
            let here = if set == last { self.all() } else { self.gaps.below(horizon * n.powi(set)) };
            look += look_at_one(1.0 / polls(set)) * (here.members - before.members).max(0.0);
            cost += (look + PRICE * rate * look * look / 2.0) * (polls(set) - polls(set + 1));
            cost += PRICE * (here.rate - before.rate) / polls(set) / 2.0;
            before = here;
        }
        cost
    }

    /// All traffic plus one event, because a member that was silent so far may speak.
    fn all(&self) -> Traffic {
        Traffic { members: self.members as f64, rate: self.gaps.all().rate + self.gaps.rate_of_one() }
    }

    /// The choice of least cost, or the present one if the gain is too small.
    pub(super) fn best(&self, present: Choice) -> Choice {
        let longest_horizon = f64::from(*LIVE_COUNTERS.end()) * self.nap;
        let choices = grid(2.0 * self.nap, 2.0, longest_horizon).flat_map(|horizon| {
            grid(self.nap, STEP, LONGEST.as_secs_f64()).map(move |longest| Choice { horizon, longest })
        });
        let costs = choices.map(|choice| (choice, self.cost(choice)));
        let best = costs.min_by(|one, other| one.1.total_cmp(&other.1));
        let worth_it = best.filter(|(_, cost)| *cost < self.cost(present) * (1.0 - WORTH));
        worth_it.map_or(present, |(best, _)| best)
    }

    /// Seconds that a wait goes on calling before it sleeps.
    pub(super) fn emptiness(&self, choice: Choice) -> f64 {
        let rental = block(self.members as f64) / self.cost_of_emptiness(choice);
        let gap = 1.0 / self.gaps.all().rate;
        if gap < rental { rental.max(SURPRISE * gap) } else { rental }
    }
}

/// The values from `first` to `last`, each `step` times the one before.
fn grid(first: f64, step: f64, last: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), move |at| (at * step <= last).then_some(at * step))
}
