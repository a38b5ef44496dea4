//! One agent's share of a run that several machines carry out together.
//!
//! An agent is one more process of a run ([`super::processes`]): it makes the same plan and carries out its share of
//! the lanes and of each population. All lanes of all agents are one arrival process. The caller moves settings,
//! intervals and reports between the machines, and gives the start on the agent's own clock.

use base::Nanos;
use record::{LoadResult, Point};

use crate::engine::wire::transport::Links;
use crate::error::LoadError;
use crate::execution::run::{Gathering, Member, ThreadInterval, carry_out};
use crate::execution::threads::Start;
use crate::measurement::observer::Snapshot;
use crate::measurement::result::Reports;
use crate::measurement::series::point;
use crate::plan::Plan;
use crate::plan::terms::share::Share;

/// The end of an agent's share.
pub struct AgentEnd {
    /// The reports, which add up to the reports of the whole run.
    pub reports: Reports,
    /// The same share as a result of its own, with its verdict.
    pub result: LoadResult,
    /// The time from the run's start to the first turn of the last thread that began.
    pub began: Nanos,
}

impl Plan {
    /// Returns true if agent `index` may deliver this interval: it is of a thread in the agent's share.
    pub fn expects(&self, index: u32, ThreadInterval(member, _): &ThreadInterval) -> bool {
        let share = Share { index, count: self.processes() };
        match member {
            Member::Lane(lane) => share.range(self.lanes()).contains(lane),
            Member::Population(number) => *number < self.config.populations.len(),
        }
    }

    /// The number of lanes that agent `index` carries out.
    pub fn lanes_of(&self, index: u32) -> usize {
        Share { index, count: self.processes() }.range(self.lanes()).len()
    }

    /// The fraction of the lanes that agent `index` carries out.
    pub fn fraction_of(&self, index: u32) -> f64 {
        Share { index, count: self.processes() }.fraction(self.lanes())
    }
}

impl ThreadInterval {
    /// The record of an interval of measured traffic; `None` for a population.
    pub fn point(&self) -> Option<Point> {
        match self.0 {
            Member::Lane(_) => Some(point(&self.1)),
            Member::Population(_) => None,
        }
    }
}

/// Carries out the share of agent `index`. `origin` is the run's start on the monotonic clock. Blocks until the
/// planned end or until `should_stop`, which each thread asks at least every 50 ms. Tells of each interval.
///
/// # Errors
/// As [`crate::run`].
pub fn run_agent(
    plan: &Plan,
    index: u32,
    origin: Nanos,
    should_stop: &(dyn Fn() -> bool + Sync),
    tell: &mut dyn FnMut(&ThreadInterval),
) -> Result<AgentEnd, LoadError> {
    sys::process::descriptors::make_room(u64::MAX);
    let share = Share { index, count: plan.processes() };
    let mut unseen = |_: &Snapshot<'_>| {};
    let mut gathering = Gathering::of_share(plan, share, &mut unseen);
    let mut hear = |told: ThreadInterval| {
        tell(&told);
        gathering.add_interval(index, told);
    };
    let reports = carry_out(plan, share, Start::at(origin), Links::default(), None, should_stop, &mut hear)?;
    let began = reports.lanes.began;
    let result = gathering.result(reports.clone());
    Ok(AgentEnd { reports, result, began })
}
