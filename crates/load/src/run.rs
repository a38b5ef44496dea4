//! A run: engines in threads of their own, their intervals put together while they go on, their books
//! when they are done.
//!
//! The calling thread waits for intervals and tells the observer; it does nothing that an engine waits
//! for. A target that refuses everything in the first second is not measured any longer.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::mpsc::channel;
use std::thread;

use base::{Clock, Nanos, PerSecond, RealClock};
use rand::Rng as _;
use record::load::{Connections, Handshakes, Retries, SCHEMA};
use record::{Distribution, LoadResult, Manifest};
use rustix::thread::set_current_timer_slack;

use crate::LoadError;
use crate::arrivals::Lane;
use crate::assembly::Assembly;
use crate::books::Report;
use crate::config::Client;
use crate::draws::Draws;
use crate::engine::{Engine, Settings};
use crate::ledger::{Ledger, Window};
use crate::observer::Observer;
use crate::population::Population;
use crate::population::holders::Holders;
use crate::preflight::Plan;
use crate::recorder::{Interval, Totals};
use crate::schedule::Schedule;
use crate::sources::Sources;
use crate::stop::Stop;
use crate::tls::Tls;
use crate::verdict::{self, Evidence};

/// From now to the run's start: for the threads to be there when the first session is due.
const HEAD_START: Nanos = Nanos::from_millis(5);

/// A target that has refused everything for so long is given up.
const PATIENCE: Nanos = Nanos::SECOND;

/// Carries out a planned run. Blocks until the planned time is over, `stop` is raised, or the target has
/// refused everything for a second. The result's ledger balances.
///
/// # Errors
/// [`LoadError::System`], for what the generator itself needs of the machine. What the target does is
/// in the result.
pub fn run(plan: &Plan, observer: &mut dyn Observer, stop: &Stop) -> Result<LoadResult, LoadError> {
    let clock = RealClock::new();
    let config = &plan.config;
    let manifest = Manifest::of_this_machine(clock.wall(), config.describe(), Some(config.seed));
    let origin = clock.now() + HEAD_START;
    let lanes = config.threads.get();
    let mut assembly = Assembly::new(lanes, config.window(), &config.populations);
    let given_up = Stop::new();
    let reports: Result<Reports, LoadError> = thread::scope(|scope| {
        let (sender, receiver) = channel();
        let start = |of: Part| {
            let (sender, given_up) = (sender.clone(), given_up.clone());
            // The receiver outlives the engines, unless the observer has panicked.
            let mut tell = move |interval: Interval| drop(sender.send((of, interval)));
            let should_stop = move || stop.is_requested() || given_up.is_requested();
            scope.spawn(move || match of {
                Part::Lane(index) => {
                    let lane = Lane { index, count: lanes };
                    run_lane(plan, lane, clock, origin, &should_stop, &mut tell)
                }
                Part::Population(number) => {
                    run_population(plan, number, clock, origin, &should_stop, &mut tell)
                }
            })
        };
        let populations: Vec<_> =
            (0..config.populations.len()).map(|number| start(Part::Population(number))).collect();
        let engines: Vec<_> = (0..lanes).map(|index| start(Part::Lane(index))).collect();
        drop(sender);
        for (of, interval) in receiver {
            match of {
                Part::Lane(lane) => assembly.add(lane, interval, observer),
                Part::Population(number) => assembly.add_population(number, &interval),
            }
            if assembly.reached() >= PATIENCE && assembly.nobody_is_there() {
                given_up.request();
            }
        }
        let join = |engine: thread::ScopedJoinHandle<'_, _>| match engine.join() {
            Ok(report) => report,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(Reports {
            lanes: engines.into_iter().map(join).collect::<Result<_, _>>()?,
            populations: populations.into_iter().map(join).collect::<Result<_, _>>()?,
        })
    });
    Ok(result(plan, &reports?, assembly, manifest))
}

/// A thread of a run.
#[derive(Clone, Copy)]
enum Part {
    /// One engine of the measured traffic.
    Lane(u32),
    /// One population.
    Population(usize),
}

/// What all threads have to say.
struct Reports {
    lanes: Vec<Report>,
    populations: Vec<Report>,
}

/// One engine, in its own thread.
fn run_lane(
    plan: &Plan,
    lane: Lane,
    clock: RealClock,
    origin: Nanos,
    should_stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Interval),
) -> Result<Report, LoadError> {
    let config = &plan.config;
    let until = config.window().until;
    let (schedule, rate_peak) = match &config.client {
        Client::SClient { rate, arrivals, .. } => {
            let peak = arrivals.peak(*rate, until, Nanos::SECOND);
            let share = PerSecond(peak.0 / f64::from(lane.count));
            (Schedule::open(arrivals.arrivals(*rate, until, lane, config.seed)), Some(share))
        }
        Client::Closed { clients } => {
            let clients = clients.get();
            let share = clients / lane.count + u32::from(lane.index < clients % lane.count);
            (Schedule::closed(share, Nanos::ZERO), None)
        }
    };
    let settings = Settings {
        target: plan.target,
        tls: plan.tls.as_ref(),
        workload: &plan.workload,
        connect_timeout: config.connect_timeout,
        request_timeout: config.request_timeout,
        expected: &config.expected,
        retry: config.retry,
        pending_max: plan.pending_max_per_thread,
        rate_peak,
        window: config.window(),
        counted: config.window(),
        interval: config.interval,
    };
    let seeds = config.seed.child(&format!("sessions/{}", lane.index)).rng();
    // Lanes begin at different source addresses, so that they do not search the same ports.
    let sources = Sources::new(plan.sources, lane.index * 7);
    sleep_precisely()?;
    Engine::new(clock, origin, settings, schedule, seeds, sources)?.run(should_stop, tell)
}

/// By default the kernel rounds a sleep of this thread by 50 us, to save wake-ups: here they are wanted.
fn sleep_precisely() -> Result<(), LoadError> {
    set_current_timer_slack(NonZeroU64::new(1))
        .map_err(|error| LoadError::System { operation: "asking for precise timers", source: error.into() })
}

/// One population, in its own thread.
fn run_population(
    plan: &Plan,
    number: usize,
    clock: RealClock,
    origin: Nanos,
    should_stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Interval),
) -> Result<Report, LoadError> {
    let (config, population) = (&plan.config, &plan.config.populations[number]);
    let settings = Settings {
        target: plan.target,
        tls: plan.tls.as_ref(),
        workload: &plan.population_workloads[number],
        connect_timeout: config.connect_timeout,
        request_timeout: config.request_timeout,
        expected: &config.expected,
        retry: config.retry,
        pending_max: population.clients(),
        rate_peak: None,
        window: config.window(),
        counted: Window { from: Nanos::ZERO, until: config.window().until },
        interval: config.interval,
    };
    let schedule = Schedule::closed(population.clients(), population.spread(config));
    let mut seeds = config.seed.child(&format!("population/{population}")).rng();
    let sources = Sources::new(plan.sources, (config.threads.get() + number as u32) * 7);
    if population.sessions().is_some() {
        sleep_precisely()?;
        return Engine::new(clock, origin, settings, schedule, seeds, sources)?.run(should_stop, tell);
    }
    let (manner, draws) = (population.manner, Draws::new(seeds.next_u64()));
    Holders::new(clock, origin, settings, manner, schedule, draws, sources)?.run(should_stop, tell)
}

/// The record of what the engines report.
fn result(plan: &Plan, reports: &Reports, assembly: Assembly, manifest: Manifest) -> LoadResult {
    let (mut ledger, mut totals, mut connections) =
        (Ledger::default(), Totals::default(), Connections::default());
    let (mut ended, mut cpu) = (Nanos::ZERO, Nanos::ZERO);
    for report in &reports.lanes {
        ledger.merge(&report.ledger);
        totals.merge(&report.totals);
        connections.attempted += report.connections.attempted;
        connections.established += report.connections.established;
        connections.sockets_peak += report.connections.sockets_peak;
        ended = ended.max(report.ended);
    }
    for report in reports.lanes.iter().chain(&reports.populations) {
        cpu += report.cpu;
    }
    let duration_s = ended.saturating_sub(plan.config.warmup).as_secs_f64();
    let rate = |count: u64| if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 };
    let (all, again) = (ledger.all(), ledger.retries());
    let outcomes = all.outcomes();
    let retries = Retries {
        offered: again.offered(),
        in_flight_at_end: again.in_flight_at_end(),
        outcomes: again.outcomes(),
        given_up: reports.lanes.iter().map(|report| report.given_up).sum(),
    };
    let lateness = Distribution::from(&totals.lateness);
    let (outcomes_of_run, established) = assembly.totals();
    let populations = populations(plan, &reports.populations, duration_s);
    let (verdict, mut reasons) = verdict::judge(&Evidence {
        offered: all.offered(),
        outcomes: &outcomes,
        lateness: &lateness,
        outcomes_of_run: &outcomes_of_run,
        established,
        populations: &populations,
        given_up: retries.given_up,
    });
    reasons
        .extend(plan.tls.as_ref().and_then(Tls::failure).map(|why| format!("The first TLS failure: {why}.")));
    let beside = plan.config.populations.iter().zip(&reports.populations);
    reasons.extend(beside.filter_map(|(population, report)| population.missing(report.open[0])));
    LoadResult {
        schema: SCHEMA.to_owned(),
        duration_s,
        offered: all.offered(),
        in_flight_at_end: all.in_flight_at_end(),
        outcomes,
        retries,
        connections,
        handshakes: plan.tls.as_ref().map(|_| Handshakes {
            full: totals.handshakes_full,
            resumed: totals.handshakes_resumed,
            full_per_s: rate(totals.handshakes_full),
            resumed_per_s: rate(totals.handshakes_resumed),
        }),
        target_per_s: plan.requests_per_s(),
        offered_per_s: rate(all.offered()),
        sent_per_s: rate(totals.sent),
        replies_per_s: rate(totals.replies),
        goodput_per_s: rate(totals.good),
        content_bytes_per_s: rate(totals.content_bytes),
        latency_intended_ns: Distribution::from(&totals.latency_intended),
        latency_sent_ns: Distribution::from(&totals.latency_sent),
        connect_ns: Distribution::from(&totals.connect),
        lateness_ns: lateness,
        generator_cpu: if duration_s > 0.0 { cpu.as_secs_f64() / duration_s } else { 0.0 },
        populations,
        series: assembly.into_points(),
        verdict,
        reasons,
        manifest,
    }
}

/// The records of the populations, by name.
fn populations(plan: &Plan, reports: &[Report], duration_s: f64) -> BTreeMap<String, record::Population> {
    let record = |(population, report): (&Population, &Report)| {
        let replies = report.totals.replies as f64;
        let record = record::Population {
            clients: u64::from(population.clients()),
            offered: report.ledger.all().offered(),
            in_flight_at_end: report.ledger.all().in_flight_at_end(),
            outcomes: report.ledger.all().outcomes(),
            connections: report.connections,
            open_at_start: report.open[0],
            open_at_end: report.open[1],
            replies_per_s: if duration_s > 0.0 { replies / duration_s } else { 0.0 },
            latency_intended_ns: Distribution::from(&report.totals.latency_intended),
        };
        (population.to_string(), record)
    };
    plan.config.populations.iter().zip(reports).map(record).collect()
}
