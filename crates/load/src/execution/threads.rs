//! The threads of a run: each carries out a lane of the measured traffic, or a share of a population.

use std::num::{NonZeroU32, NonZeroU64};
use std::os::fd::OwnedFd;

use base::{Nanos, PerSecond, RealClock, Rng};
use rand::Rng as _;
use rustix::thread::set_current_timer_slack;
use usertcp::SourceNet;

use crate::engine::Engine;
use crate::engine::holders::{Holders, SLOW_BUFFER};
use crate::engine::settings::Settings;
use crate::engine::time::schedule::Schedule;
use crate::engine::wire::transport::sources::Sources;
use crate::engine::wire::transport::{AnyLink, KernelSockets, Transport, UserTcp};
use crate::error::LoadError;
use crate::measurement::recorder::Interval;
use crate::measurement::thread_metrics::ThreadReport;
use crate::plan::Plan;
use crate::plan::choices::arrivals::Lane;
use crate::plan::choices::population::Manner;
use crate::plan::config::Client;
use crate::plan::terms::draws::Draws;
use crate::plan::terms::share::Share;
use crate::plan::terms::window::Window;

/// The clock of a run and its start on that clock.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub clock: RealClock,
    pub origin: Nanos,
}

impl Start {
    /// The start at a time of the monotonic clock; a process that is late finds its sessions overdue.
    pub fn at(origin: Nanos) -> Start {
        Start { clock: RealClock::new(), origin }
    }
}

/// Runs one engine in its own thread. With a `handler` socket it is the establisher of a pair.
pub(crate) fn run_lane(
    plan: &Plan,
    lane: Lane,
    start: Start,
    link: Option<(AnyLink, SourceNet)>,
    handler: Option<OwnedFd>,
    should_stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Interval),
) -> Result<ThreadReport, LoadError> {
    let config = &plan.config;
    let until = config.window().until;
    let (schedule, rate_peak) = match &config.client {
        Client::SClient { rate, arrivals, .. } => {
            let peak = arrivals.peak(*rate, until, Nanos::SECOND);
            let share = PerSecond(peak.0 / f64::from(lane.count));
            let arrivals = arrivals.arrivals(*rate, until, lane, config.seed);
            (Schedule::open(arrivals, plan.tempo.clone()), Some(share))
        }
        Client::Pending { .. } => {
            (Schedule::pending(plan.pending_max_of(lane.index), config.connect_timeout), None)
        }
        Client::Closed { .. } => (Schedule::closed(plan.pending_max_of(lane.index), Nanos::ZERO), None),
    };
    let pending_max = plan.pending_max_of(lane.index);
    let share = Share { index: lane.index, count: lane.count };
    let kept_connections = config.connections.map(|_| pending_max);
    let settings = Settings { rate_peak, pending_max, kept_connections, lane: share, ..Settings::of(plan) };
    let seeds = config.seed.child(&format!("sessions/{}", lane.index)).rng();
    sleep_precisely()?;
    let work = Engines { start, settings, schedule, seeds, handler, should_stop, tell };
    run_on_transport(plan, lane.index, link, None, start, work)
}

/// The work of one thread, over the transport that it gets.
trait Work {
    /// Carries out the work.
    fn carry_out<T: Transport>(self, transport: T) -> Result<ThreadReport, LoadError>;
}

/// Carries out a thread's work over kernel sockets, or over its link. `slow_bytes` is the receive buffer of
/// clients that read slowly.
fn run_on_transport(
    plan: &Plan,
    thread: u32,
    link: Option<(AnyLink, SourceNet)>,
    slow_bytes: Option<u32>,
    start: Start,
    work: impl Work,
) -> Result<ThreadReport, LoadError> {
    let close = plan.config.close;
    let Some((link, net)) = link else {
        let sources = Sources::of_thread(plan, thread).with_receive_buffer(slow_bytes);
        return work.carry_out(KernelSockets::new(&plan.target, sources)?);
    };
    let epoch = start.origin;
    // Each run has its own names: a server may still have connections of a run that was killed.
    let seed = plan.config.seed.child(&format!("TCP {thread} {}", epoch.0));
    let syn_linear_timeouts = syn_linear_timeouts();
    let config = usertcp::Config { server: plan.user_target(), net, seed, epoch, syn_linear_timeouts };
    match link {
        AnyLink::Tun(link) => work.carry_out(UserTcp::new(*link, config, close, slow_bytes)),
        AnyLink::AfXdp(link) => work.carry_out(UserTcp::new(*link, config, close, slow_bytes)),
    }
}

/// Reads the kernel's setting, so that SYNs in user space are sent again as those of this namespace's sockets are. A kernel
/// before Linux 6.5 has no such setting, and doubles the timeout at once.
fn syn_linear_timeouts() -> u8 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_syn_linear_timeouts").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The work of an engine.
struct Engines<'a, 'b> {
    start: Start,
    settings: Settings<'a>,
    schedule: Schedule,
    seeds: Rng,
    handler: Option<OwnedFd>,
    should_stop: &'b dyn Fn() -> bool,
    tell: &'b mut dyn FnMut(Interval),
}

impl Work for Engines<'_, '_> {
    fn carry_out<T: Transport>(self, transport: T) -> Result<ThreadReport, LoadError> {
        let Start { clock, origin } = self.start;
        let engine = Engine::new(clock, origin, self.settings, self.schedule, self.seeds, transport);
        let engine = match self.handler {
            Some(socket) => engine.establishing(socket),
            None => engine,
        };
        engine.run(self.should_stop, self.tell)
    }
}

/// The work of clients that hold connections.
struct Holding<'a, 'b> {
    start: Start,
    settings: Settings<'a>,
    manner: Manner,
    schedule: Schedule,
    draws: Draws,
    should_stop: &'b dyn Fn() -> bool,
    tell: &'b mut dyn FnMut(Interval),
}

impl Work for Holding<'_, '_> {
    fn carry_out<T: Transport>(self, transport: T) -> Result<ThreadReport, LoadError> {
        let Holding { start: Start { clock, origin }, settings, manner, schedule, draws, .. } = self;
        let holders = Holders::new(clock, origin, settings, manner, schedule, draws, transport);
        holders.run(self.should_stop, self.tell)
    }
}

/// Runs the handler of a pair; `establisher` is the socket to the other half.
pub(crate) fn run_handler(
    plan: &Plan,
    start: Start,
    establisher: OwnedFd,
    tell: &mut dyn FnMut(Interval),
) -> Result<ThreadReport, LoadError> {
    let (nobody, unused) = (Schedule::closed(0, Nanos::ZERO), plan.config.seed.child("handler").rng());
    sleep_precisely()?;
    let sockets = KernelSockets::new(&plan.target, Sources::of_thread(plan, 0))?;
    Engine::new(start.clock, start.origin, Settings::of(plan), nobody, unused, sockets)
        .handling(establisher)
        .run(&|| false, tell)
}

/// By default the kernel rounds a sleep of this thread by 50 us to save wake-ups; this run needs them.
fn sleep_precisely() -> Result<(), LoadError> {
    set_current_timer_slack(NonZeroU64::new(1))
        .map_err(|error| LoadError::System { operation: "asking for precise timers", source: error.into() })
}

/// The settings of this number of clients of a population.
fn settings_of_population(plan: &Plan, number: usize, clients: u32) -> Settings<'_> {
    let config = &plan.config;
    Settings {
        workload: &plan.population_workloads[number],
        follows_redirects: false,
        kept_connections: None,
        pending_max: clients,
        pending_follows_rate: false,
        rate_peak: None,
        counted: Window { from: Nanos::ZERO, until: config.window().until },
        // These clients wait for each reply.
        streams: config.streams.and(Some(NonZeroU32::MIN)),
        ..Settings::of(plan)
    }
}

/// Runs a process's share of a population in its own thread.
pub(crate) fn run_population(
    plan: &Plan,
    number: usize,
    share: Share,
    start: Start,
    link: Option<(AnyLink, SourceNet)>,
    should_stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Interval),
) -> Result<ThreadReport, LoadError> {
    let (config, population) = (&plan.config, &plan.config.populations[number]);
    let clients = share.of(population.clients());
    let settings = settings_of_population(plan, number, clients);
    let schedule = Schedule::closed(clients, population.spread(config.warmup)).with_clients_in_mid_session();
    let mut seeds = config.seed.child(&format!("population/{population}/{}", share.index)).rng();
    let thread = plan.population_thread(number, share);
    if population.sessions().is_some() {
        sleep_precisely()?;
        let work = Engines { start, settings, schedule, seeds, handler: None, should_stop, tell };
        return run_on_transport(plan, thread, link, None, start, work);
    }
    let (manner, draws) = (population.manner, Draws::new(seeds.next_u64()));
    let slow_bytes = matches!(manner, Manner::SlowRead { .. }).then_some(SLOW_BUFFER);
    run_on_transport(
        plan,
        thread,
        link,
        slow_bytes,
        start,
        Holding { start, settings, manner, schedule, draws, should_stop, tell },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::config::Config;
    use crate::plan::preflight::prepare;

    #[test]
    fn clients_of_a_population_do_not_follow_redirects() {
        let client = Client::Closed { clients: NonZeroU32::MIN };
        let mut config = Config::new(vec!["http://127.0.0.1:9/".parse().unwrap()], client);
        (config.follow, config.populations) = (true, vec!["hot:3".parse().unwrap()]);
        let plan = prepare(config).unwrap();
        assert!(Settings::of(&plan).follows_redirects);
        assert!(!settings_of_population(&plan, 0, 3).follows_redirects);
    }
}
