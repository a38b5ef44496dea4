//! What a choice of N and of the longest time between two polls of every set would cost.
//!
//! N decides by gap in which set a member ends: with a time T between two calls, those with gaps below the
//! *horizon* h = N·T stay active, those below N·h in the next set, and so on. So the histogram of gaps says
//! what any N costs, not only the one in force, and none has to be tried out. Let set k have r_k events a
//! second, m_k be the members of it and all before it, and p_k the time between two of its polls, which is
//! h·N^(k-1), or the longest time that is chosen if that is less: N² calls are a bad period for the rarest
//! set once N is as large as busy connections want it. Then a second costs, in seconds of processor,
//!
//! ```text
//!     the active set   (look(m_0) + q · (block(m_0) - look(m_0))) / c     q of its polls find nothing and block
//!                      + PRICE · r_0 · b² / 2c                            its events wait while the loop is busy
//!     looking          Σ look_k · (1/p_k - 1/p_k+1)                       a look through set k goes on to the next
//!                      + PRICE · r · look_k² · (1/p_k - 1/p_k+1) / 2      at times; events wait meanwhile
//!     delay            Σ PRICE · r_k · p_k / 2                            half a period of a set on average
//! ```
//!
//! where c is the time between two polls of the active set, of which the loop is busy for b, and look_k sums up what
//! the members of each set cost by the time since they were looked at: what the processor's caches have forgotten
//! takes four times as long.

use super::gaps::{Gaps, Traffic};
use super::{LIVE_COUNTERS, LONGEST, PRICE};

/// The part of the cost that a change must save.
const WORTH: f64 = 0.01;
/// So many mean gaps without an event, and the rate is no longer what it was: one in 1000 is as long.
const SURPRISE: f64 = 7.0;
/// A step of the grid of periods.
const STEP: f64 = std::f64::consts::SQRT_2;
/// The part of the processor that requests leave at least, for the model's sake.
const LEFT_OVER: f64 = 0.05;

/// Seconds that it takes to look at one TCP socket that was looked at so long ago, measured on Linux 6.18: 100 ns
/// within a few milliseconds, 450 ns from some twenty on, because caches forget it.
pub(super) fn look_at_one(since: f64) -> f64 {
    0.1e-6 - 0.35e-6 * (-since / 10e-3).exp_m1()
}

/// Seconds that it takes to look at so many that are looked at all the time.
pub(super) fn look(members: f64) -> f64 {
    0.5e-6 + look_at_one(0.0) * members
}

/// Seconds that it takes to block on so many, and to wake up: 2.1 ms for 6000.
pub(super) fn block(members: f64) -> f64 {
    35e-6 + 0.34e-6 * members
}

/// What is chosen, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Members with shorter gaps stay active.
    pub(super) horizon: f64,
    /// Between two polls of every set.
    pub(super) longest: f64,
}

/// What is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model<'a> {
    pub(super) gaps: &'a Gaps,
    pub(super) sets: usize,
    pub(super) members: usize,
    /// The length of an empty call, in seconds.
    pub(super) nap: f64,
    /// What an event takes to be served, in seconds.
    pub(super) service: f64,
}

/// The active set, polled again and again.
struct Active {
    traffic: Traffic,
    /// Between two polls, in seconds.
    cycle: f64,
    /// Of a cycle.
    busy: f64,
    /// The part of the polls that find nothing, and block.
    blocks: f64,
    /// From one call to the next.
    call: f64,
}

impl Active {
    /// N that has such a horizon: one call of N looks, the others are of this set alone.
    fn live_counter(&self, horizon: f64) -> u32 {
        let n = (1.0 + horizon / self.call).round() as u32;
        n.clamp(*LIVE_COUNTERS.start(), *LIVE_COUNTERS.end())
    }
}

impl Model<'_> {
    /// N that has the horizon of a choice.
    pub(super) fn live_counter(&self, choice: Choice) -> u32 {
        self.active(choice).live_counter(choice.horizon)
    }

    fn active(&self, choice: Choice) -> Active {
        let traffic = self.gaps.below(choice.horizon);
        let (look, block) = (look(traffic.members), block(traffic.members));
        let left = (1.0 - self.service * self.gaps.all().rate).max(LEFT_OVER);
        let nap = 1.0 / (traffic.rate + 1.0 / choice.horizon.min(choice.longest));
        let cycle = |blocks: f64| (look + blocks * (block - look + nap)) / left;
        // Its fixed point, by halves so that it does not swing about it.
        let blocks = (0..6).fold(1.0, |blocks, _| {
            let busy = cycle(blocks) - blocks * nap;
            f64::midpoint(blocks, (-traffic.rate * busy).exp())
        });
        // Naps end at random, and count as whole calls.
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

    /// What a second costs without events in the active set.
    fn cost_of_emptiness(&self, choice: Choice) -> f64 {
        let active = self.active(choice);
        let naps = block(active.traffic.members) / choice.horizon.min(choice.longest);
        naps + self.looking(choice, &active, 0.0)
    }

    /// The looks of a second, with what they delay at such a rate of events, and the delays between them.
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

    /// All traffic, and one event more than was observed: what was silent so far may speak.
    fn all(&self) -> Traffic {
        Traffic { members: self.members as f64, rate: self.gaps.all().rate + self.gaps.rate_of_one() }
    }

    /// The choice of least cost, or the present one if that is hardly worse.
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

    /// How long a wait goes on calling before it sleeps.
    pub(super) fn emptiness(&self, choice: Choice) -> f64 {
        let rental = block(self.members as f64) / self.cost_of_emptiness(choice);
        let gap = 1.0 / self.gaps.all().rate;
        if gap < rental { rental.max(SURPRISE * gap) } else { rental }
    }
}

/// From the first to the last, each so many times the one before.
fn grid(first: f64, step: f64, last: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), move |at| (at * step <= last).then_some(at * step))
}
