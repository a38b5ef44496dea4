//! A run: engines in threads of their own, their intervals put together while they go on, their books
//! when they are done.
//!
//! The calling thread waits for intervals and tells the observer; it does nothing that an engine waits
//! for. A target that refuses everything in the first second is not measured any longer. A run in several
//! processes is the same, with the threads in others ([`crate::parts`]).

use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::thread;

use base::{Clock, Nanos, RealClock};
use record::{LoadResult, Manifest};
use sys::descriptors;

use crate::LoadError;
use crate::arrivals::Lane;
use crate::assembly::Assembly;
use crate::books::Report;
use crate::lanes::{Start, run_lane, run_population};
use crate::observer::Observer;
use crate::parts::Share;
use crate::preflight::Plan;
use crate::recorder::Interval;
use crate::result::result;
use crate::stop::Stop;
use crate::tls::Tls;
use crate::transport::Links;

/// From now to the run's start: for the threads to be there when the first session is due.
const HEAD_START: Nanos = Nanos::from_millis(5);

/// A target that has refused everything for so long is given up.
const PATIENCE: Nanos = Nanos::SECOND;

/// Carries out a planned run in this process. Blocks until the planned time is over, `stop` is raised, or
/// the target has refused everything for a second. The result's ledger balances.
///
/// # Errors
/// [`LoadError::System`], for what the generator itself needs of the machine. What the target does is
/// in the result.
pub fn run(plan: &Plan, observer: &mut dyn Observer, stop: &Stop) -> Result<LoadResult, LoadError> {
    // Both may take longer than the head start.
    descriptors::make_room(u64::MAX);
    let links = Links::open(plan, Share::ALL)?;
    let clock = RealClock::new();
    let start = Start { clock, origin: clock.now() + HEAD_START };
    let mut gathering = Gathering::new(plan, Share::ALL, observer);
    let given_up = gathering.given_up.clone();
    let stopped = || stop.is_requested() || given_up.is_requested();
    let reports =
        carry_out(plan, Share::ALL, start, links, None, &stopped, &mut |told| gathering.hear(0, told))?;
    Ok(gathering.result(reports))
}

/// A thread of a run, by its number.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Member {
    /// A lane of the measured traffic.
    Lane(u32),
    /// A population.
    Population(usize),
}

/// What a thread tells while it runs.
pub(crate) type Told = (Member, Interval);

/// What all threads have to say: the lanes together, each population, and how TLS failed first.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reports {
    pub lanes: Report,
    pub populations: Vec<Report>,
    pub tls_failure: Option<String>,
}

impl Reports {
    /// Of a plan, with nothing reported yet.
    pub fn of(plan: &Plan) -> Reports {
        let populations = plan.config.populations.iter().map(|_| Report::default()).collect();
        Reports { populations, ..Reports::default() }
    }

    /// Adds another process's.
    pub fn merge(&mut self, other: &Reports) {
        self.lanes.merge(&other.lanes);
        for (sum, report) in self.populations.iter_mut().zip(&other.populations) {
            sum.merge(report);
        }
        self.tls_failure = self.tls_failure.take().or_else(|| other.tls_failure.clone());
    }
}

/// Runs a process's share of a plan, each lane and each population in a thread, and hands on what they tell. The first
/// lane is the establisher of a pair whose handler is behind the socket, where there is one.
pub(crate) fn carry_out(
    plan: &Plan,
    share: Share,
    start: Start,
    mut links: Links,
    mut handler: Option<OwnedFd>,
    should_stop: &(dyn Fn() -> bool + Sync),
    hear: &mut dyn FnMut(Told),
) -> Result<Reports, LoadError> {
    let count = plan.lanes();
    let lanes = share.range(count).map(Member::Lane);
    let populations = plan.config.populations.iter().enumerate();
    let populations = populations.filter(|(_, population)| share.of(population.clients()) > 0);
    let members: Vec<Member> =
        populations.map(|(number, _)| Member::Population(number)).chain(lanes).collect();
    thread::scope(|scope| {
        let (sender, receiver) = channel();
        let mut begin = |member: &Member| {
            let (member, sender) = (*member, sender.clone());
            let handler = if matches!(member, Member::Lane(_)) { handler.take() } else { None };
            // The receiver outlives the engines, unless who hears has panicked.
            let mut tell = move |interval: Interval| drop(sender.send((member, interval)));
            let link = links.take(match member {
                Member::Lane(index) => index,
                Member::Population(number) => plan.population_thread(number, share),
            });
            let run = move || match member {
                Member::Lane(index) => {
                    run_lane(plan, Lane { index, count }, start, link, handler, should_stop, &mut tell)
                }
                Member::Population(number) => {
                    run_population(plan, number, share, start, link, should_stop, &mut tell)
                }
            };
            (member, scope.spawn(run))
        };
        let threads: Vec<_> = members.iter().map(&mut begin).collect();
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

/// A run as it is put together from what its threads tell, wherever they are.
pub(crate) struct Gathering<'a> {
    plan: &'a Plan,
    assembly: Assembly,
    observer: &'a mut dyn Observer,
    manifest: Manifest,
    /// Raised when the target is given up.
    pub given_up: Stop,
}

impl<'a> Gathering<'a> {
    /// Of a plan that is carried out by as many processes as the share is one of.
    pub fn new(plan: &'a Plan, share: Share, observer: &'a mut dyn Observer) -> Gathering<'a> {
        let config = &plan.config;
        Gathering {
            plan,
            assembly: Assembly::new(plan.tellers(), share.count, config.window(), &config.populations),
            observer,
            manifest: Manifest::of_this_machine(
                RealClock::new().wall(),
                config.describe(),
                Some(config.seed),
            ),
            given_up: Stop::new(),
        }
    }

    /// Takes what a thread of a process has told.
    pub fn hear(&mut self, process: u32, (member, interval): Told) {
        match member {
            Member::Lane(lane) => self.assembly.add(lane, interval, self.observer),
            Member::Population(number) => self.assembly.add_population(number, process, &interval),
        }
        if self.assembly.reached() >= PATIENCE && self.assembly.nobody_is_there() {
            self.given_up.request();
        }
    }

    /// The result, when all have reported.
    pub fn result(self, reports: Reports) -> LoadResult {
        result(self.plan, reports, self.assembly, self.manifest)
    }
}
