//! The threads of a run: a lane of the measured traffic, or a share of a population.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use base::{Nanos, PerSecond, RealClock};
use rand::Rng as _;
use rustix::thread::set_current_timer_slack;

use crate::LoadError;
use crate::arrivals::Lane;
use crate::books::Report;
use crate::config::{Client, Sockets};
use crate::draws::Draws;
use crate::engine::{Engine, Settings};
use crate::ledger::Window;
use crate::parts::Share;
use crate::population::holders::Holders;
use crate::preflight::Plan;
use crate::recorder::Interval;
use crate::schedule::Schedule;

/// When a run begins, on which clock.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub clock: RealClock,
    pub origin: Nanos,
}

/// One engine, in its own thread; where there is a socket, only the establisher of a pair.
pub(crate) fn run_lane(
    plan: &Plan,
    lane: Lane,
    start: Start,
    handler: Option<OwnedFd>,
    should_stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Interval),
) -> Result<Report, LoadError> {
    let config = &plan.config;
    let until = config.window().until;
    let (schedule, rate_peak) = match &config.client {
        Client::SClient { rate, arrivals, .. } => {
            let peak = arrivals.peak(*rate, until, Nanos::SECOND);
            let share = PerSecond(peak.0 / f64::from(lane.count));
            let arrivals = arrivals.arrivals(*rate, until, lane, config.seed);
            (Schedule::open(arrivals, plan.tempo.clone()), Some(share))
        }
        Client::Closed { clients } => {
            let clients = clients.get();
            let share = clients / lane.count + u32::from(lane.index < clients % lane.count);
            (Schedule::closed(share, Nanos::ZERO), None)
        }
    };
    let settings = Settings { rate_peak, ..settings(plan) };
    let seeds = config.seed.child(&format!("sessions/{}", lane.index)).rng();
    let sources = plan.sources_of(lane.index);
    sleep_precisely()?;
    let engine = Engine::new(start.clock, start.origin, settings, schedule, seeds, sources)?;
    let engine = match handler {
        Some(socket) => engine.establishing(socket),
        None => engine,
    };
    engine.run(should_stop, tell)
}

/// The handler of a pair, whose establisher is behind the socket.
pub(crate) fn run_handler(
    plan: &Plan,
    start: Start,
    establisher: OwnedFd,
    tell: &mut dyn FnMut(Interval),
) -> Result<Report, LoadError> {
    let (nobody, unused) = (Schedule::closed(0, Nanos::ZERO), plan.config.seed.child("handler").rng());
    sleep_precisely()?;
    Engine::new(start.clock, start.origin, settings(plan), nobody, unused, plan.sources_of(0))?
        .handling(establisher)
        .run(&|| false, tell)
}

/// What is the same in all lanes.
pub(crate) fn settings(plan: &Plan) -> Settings<'_> {
    let config = &plan.config;
    Settings {
        target: plan.target,
        tls: plan.tls.as_ref(),
        workload: &plan.workload,
        connect_timeout: config.connect_timeout,
        request_timeout: config.request_timeout,
        expected: &config.expected,
        retry: config.retry,
        pending_max: plan.pending_max_per_lane,
        pending_follows_rate: matches!(config.client, Client::SClient { sockets: Sockets::Auto, .. }),
        rate_peak: None,
        window: config.window(),
        counted: config.window(),
        interval: config.interval,
    }
}

/// By default the kernel rounds a sleep of this thread by 50 us, to save wake-ups: here they are wanted.
fn sleep_precisely() -> Result<(), LoadError> {
    set_current_timer_slack(NonZeroU64::new(1))
        .map_err(|error| LoadError::System { operation: "asking for precise timers", source: error.into() })
}

/// A process's share of a population, in its own thread.
pub(crate) fn run_population(
    plan: &Plan,
    number: usize,
    share: Share,
    start: Start,
    should_stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Interval),
) -> Result<Report, LoadError> {
    let (config, population) = (&plan.config, &plan.config.populations[number]);
    let clients = share.of(population.clients());
    let settings = Settings {
        workload: &plan.population_workloads[number],
        pending_max: clients,
        pending_follows_rate: false,
        rate_peak: None,
        counted: Window { from: Nanos::ZERO, until: config.window().until },
        ..settings(plan)
    };
    let schedule = Schedule::closed(clients, population.spread(config));
    let mut seeds = config.seed.child(&format!("population/{population}/{}", share.index)).rng();
    let offset = plan.lanes() + number as u32 * share.count + share.index;
    let sources = plan.sources_of(offset);
    let Start { clock, origin } = start;
    if population.sessions().is_some() {
        sleep_precisely()?;
        return Engine::new(clock, origin, settings, schedule, seeds, sources)?.run(should_stop, tell);
    }
    let (manner, draws) = (population.manner, Draws::new(seeds.next_u64()));
    Holders::new(clock, origin, settings, manner, schedule, draws, sources)?.run(should_stop, tell)
}
