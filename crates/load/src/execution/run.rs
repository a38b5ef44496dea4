//! A run: starts engines in threads of their own, assembles their intervals while they run, and collects
//! their reports at the end.
//!
//! The calling thread waits for intervals and calls the observer; no engine waits for that thread. The run
//! ends early for a target that refuses everything in the first second. A run in several processes is the
//! same, with the threads in other processes ([`super::processes`]).

use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::thread;

use base::{Clock, Nanos, RealClock};
use record::{LoadResult, Manifest};
use sys::process::descriptors;

use crate::engine::wire::transport::Links;
use crate::error::LoadError;
use crate::execution::stop::Stop;
use crate::execution::threads::{Start, run_lane, run_population};
use crate::measurement::assembly::Assembly;
use crate::measurement::observer::{AgentStanding, Observer};
use crate::measurement::recorder::Interval;
use crate::measurement::result::{Reports, result};
use crate::plan::Plan;
use crate::plan::choices::arrivals::Lane;
use crate::plan::choices::tls::Tls;
use crate::plan::terms::share::Share;

/// From now to the run's start, so that the threads are ready for the first session.
const HEAD_START: Nanos = Nanos::from_millis(5);

/// The run gives up a target that has refused everything for this long.
const PATIENCE: Nanos = Nanos::SECOND;

/// Carries out a planned run in this process. Blocks until the planned time is over, `stop` is raised, or the
/// target has refused everything for a second. The result's ledger balances.
///
/// # Errors
/// [`LoadError::System`] when the kernel refuses an operation that the generator needs. Failures of the
/// target are part of the result.
pub fn run(plan: &Plan, observer: &mut dyn Observer, stop: &Stop) -> Result<LoadResult, LoadError> {
    // Each may take longer than the head start.
    descriptors::make_room(u64::MAX);
    let links = Links::open(plan, Share::ALL)?;
    let clock = RealClock::new();
    let start = Start { clock, origin: clock.now() + HEAD_START };
    let mut gathering = Gathering::new(plan, observer);
    let given_up = gathering.given_up.clone();
    let stopped = || stop.is_requested() || given_up.is_requested();
    let reports = carry_out(plan, Share::ALL, start, links, None, &stopped, &mut |told| {
        gathering.add_interval(0, told)
    })?;
    Ok(gathering.result(reports))
}

/// A thread of a run.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Member {
    /// A lane of the measured traffic, by its number.
    Lane(u32),
    /// A population, by its position in the configuration.
    Population(usize),
}

/// A thread and the interval it delivers, to be sent to the process that gathers the run.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct ThreadInterval(pub(crate) Member, pub(crate) Interval);

/// Runs a process's share of a plan, with a thread for each lane and each population, and passes on their
/// intervals. With a `handler` socket, the first lane is the establisher of a pair.
pub(crate) fn carry_out(
    plan: &Plan,
    share: Share,
    start: Start,
    mut links: Links,
    mut handler: Option<OwnedFd>,
    should_stop: &(dyn Fn() -> bool + Sync),
    hear: &mut dyn FnMut(ThreadInterval),
) -> Result<Reports, LoadError> {
    let count = plan.lanes();
    let lanes = share.range(count).map(Member::Lane);
    let populations = plan.config.populations.iter().enumerate();
    let populations = populations.filter(|(_, population)| share.of(population.clients()) > 0);
    let members: Vec<Member> =
        populations.map(|(number, _)| Member::Population(number)).chain(lanes).collect();
    let failed = Stop::new();
    let should_stop = || should_stop() || failed.is_requested();
    thread::scope(|scope| {
        let (sender, receiver) = channel();
        let mut begin = |member: &Member| {
            let (member, sender) = (*member, sender.clone());
            let handler = if matches!(member, Member::Lane(_)) { handler.take() } else { None };
            // The receiver outlives the engines unless the gathering thread panicked.
            let mut tell = move |interval: Interval| drop(sender.send(ThreadInterval(member, interval)));
            let link = links.take(match member {
                Member::Lane(index) => index,
                Member::Population(number) => plan.population_thread(number, share),
            });
            let should_stop = &should_stop;
            let run = move || match member {
                Member::Lane(index) => {
                    run_lane(plan, Lane { index, count }, start, link, handler, should_stop, &mut tell)
                }
                Member::Population(number) => {
                    run_population(plan, number, share, start, link, should_stop, &mut tell)
                }
            };
            let begun = thread::Builder::new().spawn_scoped(scope, run);
            // The threads that have begun would offer a part of the load.
            Ok((
                member,
                begun.inspect_err(|_| failed.request()).map_err(LoadError::system("starting a thread"))?,
            ))
        };
        let threads: Vec<_> = members.iter().map(&mut begin).collect::<Result<_, LoadError>>()?;
        drop(sender);
        receiver.into_iter().for_each(hear);
        let mut reports = Reports::of(plan);
        for (member, thread) in threads {
            let report = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            match member {
                Member::Lane(_) => reports.lanes.merge(&report),
                Member::Population(number) => reports.populations[number].merge(&report),
            }
        }
        reports.tls_failure = plan.tls.as_ref().and_then(Tls::failure).map(|why| why.to_string());
        Ok(reports)
    })
}

/// Gathers what the threads of a run deliver, in any process, and builds the result.
pub struct Gathering<'a> {
    plan: &'a Plan,
    /// The part of the run that is gathered.
    share: Share,
    assembly: Assembly,
    observer: &'a mut dyn Observer,
    manifest: Manifest,
    /// Raised when the run gives up its target.
    pub given_up: Stop,
}

impl<'a> Gathering<'a> {
    /// Gathers the whole of a run, in all its processes.
    pub fn new(plan: &'a Plan, observer: &'a mut dyn Observer) -> Gathering<'a> {
        let config = &plan.config;
        Gathering {
            plan,
            share: Share::ALL,
            assembly: Assembly::new(plan.tellers(), plan.processes(), config.window(), &config.populations),
            observer,
            manifest: Manifest::of_this_machine(
                RealClock::new().wall(),
                config.describe(),
                Some(config.seed),
            ),
            given_up: Stop::new(),
        }
    }

    /// Gathers one share of a run.
    pub(crate) fn of_share(plan: &'a Plan, share: Share, observer: &'a mut dyn Observer) -> Gathering<'a> {
        let mut gathering = Gathering { share, ..Gathering::new(plan, observer) };
        (0..share.count)
            .filter(|other| *other != share.index)
            .for_each(|other| gathering.forget_process(other));
        gathering
    }

    /// Waits no longer for the intervals of a process.
    pub fn forget_process(&mut self, process: u32) {
        let share = Share { index: process, count: self.plan.processes() };
        share.range(self.plan.lanes()).for_each(|lane| self.assembly.forget_thread(lane, self.observer));
    }

    /// Takes an interval of a thread in a process.
    pub fn add_interval(&mut self, process: u32, ThreadInterval(member, interval): ThreadInterval) {
        match member {
            Member::Lane(lane) => self.assembly.add(lane, interval, self.observer),
            Member::Population(number) => self.assembly.add_population(number, process, &interval),
        }
        if self.assembly.reached() >= PATIENCE && self.assembly.nobody_is_there() {
            self.given_up.request();
        }
    }

    /// Shows the observer the agents of a fleet.
    pub fn show_agents(&mut self, agents: &[AgentStanding]) {
        self.observer.agents(agents);
    }

    /// The result; call it when every thread has reported.
    pub fn result(mut self, reports: Reports) -> LoadResult {
        // Threads that notice an early end on either side of a boundary deliver different numbers of intervals.
        (0..self.plan.processes()).for_each(|process| self.forget_process(process));
        result(self.plan, self.share, reports, self.assembly, self.manifest)
    }
}
