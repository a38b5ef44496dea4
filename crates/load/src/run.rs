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
use record::load::{Connections, SCHEMA};
use record::{Distribution, LoadResult, Manifest};
use rustix::thread::set_current_timer_slack;

use crate::LoadError;
use crate::arrivals::Lane;
use crate::assembly::Assembly;
use crate::config::Client;
use crate::engine::{Engine, Report, Settings};
use crate::ledger::Ledger;
use crate::observer::Observer;
use crate::preflight::Plan;
use crate::recorder::{Interval, Totals};
use crate::schedule::Schedule;
use crate::sources::Sources;
use crate::stop::Stop;
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
    let mut assembly = Assembly::new(lanes, config.window());
    let given_up = Stop::new();
    let reports: Result<Vec<Report>, LoadError> = thread::scope(|scope| {
        let (sender, receiver) = channel();
        let start = |index| {
            let (sender, given_up) = (sender.clone(), given_up.clone());
            // The receiver outlives the engines, unless the observer has panicked.
            let mut tell = move |interval: Interval| drop(sender.send((index, interval)));
            let should_stop = move || stop.is_requested() || given_up.is_requested();
            scope.spawn(move || {
                run_lane(plan, Lane { index, count: lanes }, clock, origin, &should_stop, &mut tell)
            })
        };
        let engines: Vec<_> = (0..lanes).map(start).collect();
        drop(sender);
        for (lane, interval) in receiver {
            assembly.add(lane, interval, observer);
            if assembly.reached() >= PATIENCE && assembly.nobody_is_there() {
                given_up.request();
            }
        }
        let join = |engine: thread::ScopedJoinHandle<'_, _>| match engine.join() {
            Ok(report) => report,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        engines.into_iter().map(join).collect()
    });
    Ok(result(plan, &reports?, assembly, manifest))
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
            (Schedule::closed(share), None)
        }
    };
    let settings = Settings {
        target: plan.target,
        workload: &plan.workload,
        connect_timeout: config.connect_timeout,
        request_timeout: config.request_timeout,
        expected: &config.expected,
        pending_max: plan.pending_max_per_thread,
        rate_peak,
        window: config.window(),
        interval: config.interval,
    };
    let seeds = config.seed.child(&format!("sessions/{}", lane.index)).rng();
    // Lanes begin at different source addresses, so that they do not search the same ports.
    let sources = Sources::new(plan.sources, lane.index * 7);
    // By default the kernel rounds a sleep by 50 us, to save wake-ups: here they are wanted.
    set_current_timer_slack(NonZeroU64::new(1)).map_err(|error| LoadError::System {
        operation: "asking for precise timers",
        source: error.into(),
    })?;
    Engine::new(clock, origin, settings, schedule, seeds, sources)?.run(should_stop, tell)
}

/// The record of what the engines report.
fn result(plan: &Plan, reports: &[Report], assembly: Assembly, manifest: Manifest) -> LoadResult {
    let (mut ledger, mut totals, mut connections) =
        (Ledger::default(), Totals::default(), Connections::default());
    let (mut ended, mut cpu) = (Nanos::ZERO, Nanos::ZERO);
    for report in reports {
        ledger.merge(&report.ledger);
        totals.merge(&report.totals);
        connections.attempted += report.connections.attempted;
        connections.established += report.connections.established;
        connections.sockets_peak += report.connections.sockets_peak;
        ended = ended.max(report.ended);
        cpu += report.cpu;
    }
    let duration_s = ended.saturating_sub(plan.config.warmup).as_secs_f64();
    let rate = |count: u64| if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 };
    let outcomes = ledger.outcomes();
    let lateness = Distribution::from(&totals.lateness);
    let (outcomes_of_run, established) = assembly.totals();
    let (verdict, reasons) = verdict::judge(&Evidence {
        offered: ledger.offered(),
        outcomes: &outcomes,
        lateness: &lateness,
        outcomes_of_run: &outcomes_of_run,
        established,
    });
    LoadResult {
        schema: SCHEMA.to_owned(),
        duration_s,
        offered: ledger.offered(),
        in_flight_at_end: ledger.in_flight_at_end(),
        outcomes,
        connections,
        target_per_s: plan.requests_per_s(),
        offered_per_s: rate(ledger.offered()),
        sent_per_s: rate(totals.sent),
        replies_per_s: rate(totals.replies),
        goodput_per_s: rate(totals.good),
        content_bytes_per_s: rate(totals.content_bytes),
        latency_intended_ns: Distribution::from(&totals.latency_intended),
        latency_sent_ns: Distribution::from(&totals.latency_sent),
        connect_ns: Distribution::from(&totals.connect),
        lateness_ns: lateness,
        generator_cpu: if duration_s > 0.0 { cpu.as_secs_f64() / duration_s } else { 0.0 },
        populations: BTreeMap::new(),
        series: assembly.into_points(),
        verdict,
        reasons,
        manifest,
    }
}
