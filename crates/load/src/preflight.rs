//! Works out a run before it begins: the target's address, the most pending connects, the source addresses,
//! and the limits that the run will reach.
//!
//! `refusals` checks for configurations that cannot or must not be run.

mod refusals;

use std::fs;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use base::{Nanos, PerSecond};
use sys::descriptors;
use usertcp::SourceNet;

use crate::LoadError;
use crate::config::{
    Client, Close, Config, PROCESSES_MAX, Processes, SOURCE_NET, SOURCE_NET_V6, Sockets, Stack,
};
use crate::ledger::Window;
use crate::parts::Share;
use crate::population::Population;
use crate::sources::{self, SourceRange, Sources, TIME_WAIT};
use crate::tempo::Tempo;
use crate::tls::Tls;
use crate::workload::{Length, Think, Workload};
pub use refusals::RATE_UNASKED;
use refusals::{
    check_conduct, check_http2, check_pair, check_populations, check_stack, check_times, single_target,
};

/// Added to rate x timeout. After a stall of the generator, late sessions are pending together with punctual
/// ones: rate x stall of them. 5 % of 500 ms is a stall of 25 ms.
const PENDING_MARGIN: f64 = 1.05;

/// A lower bound on pending connects would save nothing.
const PENDING_MIN: f64 = 16.0;

/// Descriptors that are not connections: standard streams, interest sets, descriptors of the caller.
pub(crate) const DESCRIPTORS_ASIDE: u64 = 64;

/// The connections per second assumed for a closed client when source addresses are counted: more than one
/// core makes.
const CLOSED_RATE_MOST: f64 = 50_000.0;

/// A checked run.
#[derive(Debug)]
pub struct Plan {
    pub(crate) config: Config,
    pub(crate) workload: Workload,
    /// The workload of each population: the measured workload with the population's session length and think
    /// time.
    pub(crate) population_workloads: Vec<Workload>,
    pub(crate) target: SocketAddr,
    /// TLS state for an https URL.
    pub(crate) tls: Option<Tls>,
    pub(crate) sources: Option<SourceRange>,
    /// The most connects pending at once, all threads together.
    pending_max: u64,
    processes: u32,
    lanes: u32,
    /// The descriptors that one process may open; `None` for no limit.
    pub(crate) descriptor_limit: Option<u64>,
    /// The most connections in TIME-WAIT at once.
    pub(crate) time_wait_max: f64,
    /// The ports that the kernel gives to connects from one address.
    pub(crate) ports: RangeInclusive<u16>,
    pub(crate) tempo: Tempo,
    warnings: Vec<String>,
}

impl Plan {
    /// The target's address.
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// The most connects pending at once, all threads together.
    pub fn pending_max(&self) -> u64 {
        self.pending_max
    }

    /// The most connects pending at once in one lane; the shares of all lanes add up to the whole.
    pub(crate) fn pending_max_of(&self, lane: u32) -> u32 {
        let all = u32::try_from(self.pending_max).unwrap_or(u32::MAX);
        Share { index: lane, count: self.lanes }.of(all)
    }

    /// A handle that changes the rate during the run. `None` for a closed loop, which has no rate, and for a
    /// run in several processes, which the handle does not reach. An agent of a fleet is told of each change.
    pub fn tempo(&self) -> Option<Tempo> {
        let has_rate = matches!(self.config.client, Client::SClient { .. });
        let is_reached = match self.config.processes {
            Processes::Agents(_) => true,
            Processes::Pair => false,
            Processes::Auto | Processes::Count(_) => self.processes == 1,
        };
        (has_rate && is_reached).then(|| self.tempo.clone())
    }

    /// The number of processes that share the threads; 1 for a pair, whose establisher has one thread.
    pub fn processes(&self) -> u32 {
        self.processes
    }

    /// Engine threads of all processes: the configured number, and at least one per process.
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Returns true for a run by an establisher and a handler.
    pub fn is_pair(&self) -> bool {
        self.config.processes == Processes::Pair
    }

    /// Threads that report measured traffic: the lanes, and the handler of a pair.
    pub(crate) fn tellers(&self) -> u32 {
        self.lanes + u32::from(self.is_pair())
    }

    /// The source addresses of one thread. Threads begin at different addresses, so that they do not search
    /// the same ports.
    pub(crate) fn sources_of(&self, thread: u32) -> Sources {
        Sources::new(self.sources, thread * 7, self.config.close)
    }

    /// The source net of TCP in user space.
    pub(crate) fn source_net(&self) -> SourceNet {
        let default = if self.target.is_ipv4() { SOURCE_NET } else { SOURCE_NET_V6 };
        match self.config.stack {
            Stack::User { net: Some(net), .. } => net,
            _ => default.parse().expect("the defaults are nets"),
        }
    }

    /// The numbers, in the whole run, of the threads of one process's share: its lanes, then its part of each
    /// population.
    pub(crate) fn threads_of(&self, share: Share) -> Vec<u32> {
        let populations = 0..self.config.populations.len();
        let beside = populations.map(|number| self.population_thread(number, share));
        share.range(self.lanes).chain(beside).collect()
    }

    /// The number, in the whole run, of the thread for a process's part of a population.
    pub(crate) fn population_thread(&self, number: usize, share: Share) -> u32 {
        self.lanes + number as u32 * share.count + share.index
    }

    /// The threads of all processes together.
    pub(crate) fn threads_in_all(&self) -> u32 {
        self.lanes + self.config.populations.len() as u32 * self.processes
    }

    /// Returns true if the connections are kernel sockets, which need descriptors and ports.
    pub(crate) fn has_sockets(&self) -> bool {
        self.config.stack == Stack::Kernel
    }

    /// The clients of all populations, each with a connection.
    pub fn population_clients(&self) -> u64 {
        self.config.populations.iter().map(|population| u64::from(population.clients())).sum()
    }

    /// The source addresses; `None` leaves the choice to the kernel.
    pub fn sources(&self) -> Option<SourceRange> {
        self.sources
    }

    /// Requests per second offered in the measured window: sessions times their mean length. `None` for a
    /// closed client, which has no rate of its own.
    pub fn requests_per_s(&self) -> Option<f64> {
        match &self.config.client {
            Client::SClient { rate, arrivals, .. } => {
                let sessions = arrivals.mean(*rate, self.config.window());
                Some(sessions.0 * self.workload.mean_session_length())
            }
            Client::Closed { .. } => None,
        }
    }

    /// A warning for a run that asks for more than the machine's clean rate.
    pub(crate) fn above_clean_rate(&self) -> Option<String> {
        let clean = self.config.clean_rate?;
        let peak = sessions_peak(&self.config, Nanos::SECOND)?;
        (peak.0 > clean.0).then(|| {
            format!(
                "The run asks for {:.0} sessions a second, but the clean rate of this machine is {:.0} (inrush load \
                 --calibrate): above it the generator distorts the result.",
                peak.0, clean.0
            )
        })
    }

    /// The Hurst parameter of self-similar arrivals: the estimate for this schedule, `None` when it is too
    /// short, and the value of the process.
    pub fn hurst(&self) -> Option<(Option<f64>, f64)> {
        let Client::SClient { rate, arrivals, .. } = &self.config.client else { return None };
        arrivals.hurst(*rate, self.config.window().until, self.config.seed)
    }

    fn arrivals_remark(&self) -> Option<String> {
        let Client::SClient { arrivals, .. } = &self.config.client else { return None };
        arrivals.remark(self.config.window())
    }

    /// Limits of the generator and gaps in what the run will show, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Works out a run: resolves the name (may block), encodes the workload, and raises this process's soft
/// descriptor limit to the hard one.
///
/// # Errors
/// [`LoadError`]: a time that must not be zero; no URL, or URLs of two servers; a name without an address; a
/// source of the wrong family; a public target without `own_this_server`; settings that exclude each other;
/// unusable TLS settings.
pub fn prepare(config: Config) -> Result<Plan, LoadError> {
    check_times(&config)?;
    let target = single_target(&config)?;
    check_populations(&config)?;
    let workload = Workload::new(&config);
    let population_workloads = config.populations.iter().map(|population| of_population(&config, population));
    let population_workloads = population_workloads.collect();
    check_conduct(&config, &workload, target)?;
    check_pair(&config, &workload)?;
    check_stack(&config)?;
    check_http2(&config)?;
    if let Some(setting) = config.expected.content_setting().filter(|_| workload.answers_head()) {
        return Err(LoadError::NoContent { setting });
    }
    if let Some(source) = config.source.filter(|source| source.first().is_ipv4() != target.is_ipv4()) {
        return Err(LoadError::SourceFamily {
            source_ip: source.to_string(),
            target: target.ip().to_string(),
        });
    }
    let ports = port_range();
    let connections = connections_in_time_wait(&config);
    let sources = config.source.or_else(|| sources::automatic(target, connections, &ports));
    let secure = config.urls.iter().find(|url| url.is_secure());
    let tls = secure.map(|url| Tls::new(url.host(), &config.tls, config.streams.is_some())).transpose()?;
    let limit = descriptors::raise_limit(u64::MAX);
    let clients = config.populations.iter().map(|population| u64::from(population.clients())).sum();
    let pending = pending_max(&config, workload.mean_session_length());
    let descriptors = if config.stack == Stack::Kernel { pending + clients } else { 0 };
    let processes = processes(config.processes, descriptors, limit);
    let lanes = config.threads_in_all().max(processes);
    let mut plan = Plan {
        tls,
        config,
        workload,
        population_workloads,
        target,
        sources,
        pending_max: pending.max(u64::from(lanes)),
        processes,
        lanes,
        descriptor_limit: limit,
        time_wait_max: connections,
        ports,
        tempo: Tempo::default(),
        warnings: Vec::new(),
    };
    plan.warnings.extend(plan.arrivals_remark());
    plan.warnings.extend(plan.above_clean_rate());
    if plan.has_sockets() {
        plan.warnings.extend(processes_remark(&plan, descriptors, limit));
        let limit = limit.map(|limit| limit.saturating_mul(u64::from(processes)));
        plan.warnings.extend(descriptor_warning(plan.pending_max(), clients, limit, processes));
        plan.warnings.extend(port_warning(&plan, connections, &plan.ports));
    }
    Ok(plan)
}

/// The measured workload with the session length and think time of a population. Holders send one request per
/// session.
fn of_population(config: &Config, population: &Population) -> Workload {
    let (length, think) = population.sessions().unwrap_or((Length::ONE, Think::NONE));
    let sessions = Config { requests_per_connection: Some(length), think: Some(think), ..config.clone() };
    Workload::new(&sessions)
}

/// The most sessions per second over any span of length `span`; `None` for a closed client.
pub(crate) fn sessions_peak(config: &Config, span: Nanos) -> Option<PerSecond> {
    match &config.client {
        Client::SClient { rate, arrivals, .. } => Some(arrivals.peak(*rate, config.window().until, span)),
        Client::Closed { .. } => None,
    }
}

/// D of Banga 1997, all threads together: the connects pending at the peak rate when every connect times out.
/// A session whose server closes persistent connections early connects again for each request; over HTTP/2 such
/// a connection has taken all its streams. A failed session is retried.
fn pending_max(config: &Config, session_length: f64) -> u64 {
    match &config.client {
        Client::SClient { sockets: Sockets::AtMost(most), .. } => u64::from(most.get()),
        Client::SClient { rate, arrivals, sockets: Sockets::Auto } => {
            let threads = f64::from(config.threads_in_all());
            let peak = arrivals.peak(*rate, config.window().until, config.connect_timeout);
            let attempts = config.retry.attempts_max(config.window().until, config.connect_timeout);
            let streams = config.streams.map_or(1.0, |streams| f64::from(streams.get()));
            let connects = (session_length / streams).max(1.0) * attempts;
            let mean = peak.times(config.connect_timeout) * connects / threads;
            let margin = (mean * PENDING_MARGIN).max(mean + arrivals.excess(mean));
            (margin.max(PENDING_MIN).ceil() * threads) as u64
        }
        Client::Closed { clients } => u64::from(clients.get()),
    }
}

/// The number of processes for `descriptors` descriptors, if each process may open `limit`.
fn processes(asked: Processes, descriptors: u64, limit: Option<u64>) -> u32 {
    match (asked, limit) {
        (Processes::Count(count) | Processes::Agents(count), _) => count.get(),
        (Processes::Pair, _) | (Processes::Auto, None) => 1,
        (Processes::Auto, Some(limit)) => {
            let each = limit.saturating_sub(DESCRIPTORS_ASIDE).max(1);
            descriptors.div_ceil(each).clamp(1, u64::from(PROCESSES_MAX)) as u32
        }
    }
}

/// The most connections in TIME-WAIT at once, if the client closes first.
fn connections_in_time_wait(config: &Config) -> f64 {
    if config.close == Close::Reset {
        return 0.0;
    }
    let run = Window { from: Nanos::ZERO, until: config.window().until };
    let span = run.until.min(TIME_WAIT);
    match &config.client {
        Client::SClient { rate, arrivals, .. } => {
            let all = arrivals.mean(*rate, run).times(run.until);
            arrivals.peak(*rate, run.until, span).times(span).min(all)
        }
        Client::Closed { .. } => PerSecond(CLOSED_RATE_MOST).times(span),
    }
}

/// The ports that the kernel gives to connects.
fn port_range() -> RangeInclusive<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = text.split_whitespace().map(str::parse);
    match (bounds.next(), bounds.next()) {
        (Some(Ok(low)), Some(Ok(high))) => low..=high,
        // The kernel's default.
        _ => 32_768..=60_999,
    }
}

fn processes_remark(plan: &Plan, descriptors: u64, limit: Option<u64>) -> Option<String> {
    let each = limit.filter(|_| plan.config.processes == Processes::Auto && plan.processes > 1)?;
    Some(format!(
        "The run may need {descriptors} descriptors and a process may open {each}: it uses {} processes.",
        plan.processes
    ))
}

fn descriptor_warning(pending_max: u64, clients: u64, limit: Option<u64>, processes: u32) -> Option<String> {
    let limit = limit?;
    let aside = DESCRIPTORS_ASIDE * u64::from(processes);
    let populations =
        if clients > 0 { format!(" beside {clients} clients of populations") } else { String::new() };
    let who = match processes {
        1 => "this process".to_owned(),
        _ => format!("{processes} processes"),
    };
    (pending_max + clients + aside > limit).then(|| {
        format!(
            "{pending_max} connects may be pending at once{populations}, but {who} may open {limit} descriptors. \
             Sessions beyond that end as no_descriptor; raise the hard limit (ulimit -Hn), allow more --processes or \
             shorten --connect-timeout."
        )
    })
}

fn port_warning(plan: &Plan, connections: f64, ports: &RangeInclusive<u16>) -> Option<String> {
    if matches!(plan.config.client, Client::Closed { .. }) {
        return None;
    }
    // Agents of a fleet connect from machines of their own, unless the target is on each of them.
    let machines = match plan.config.processes {
        Processes::Agents(agents) if !plan.target.ip().is_loopback() => agents.get(),
        _ => 1,
    };
    let addresses = plan.sources.map_or(1, SourceRange::count).saturating_mul(machines);
    let available = ports.len() as f64 * f64::from(addresses);
    (connections > available).then(|| {
        format!(
            "Up to {connections:.0} closed connections may keep their ports for 60 s, but {addresses} source address(es) \
             have {available:.0} ports. Sessions without a free port end as no_port; add addresses with --source-ip, or \
             use --close rst."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Process;
    use std::num::NonZeroU32;

    pub(super) fn open(url: &str, rate: f64) -> Config {
        let client =
            Client::SClient { rate: PerSecond(rate), arrivals: Process::Constant, sockets: Sockets::Auto };
        Config::new(vec![url.parse().unwrap()], client)
    }

    #[test]
    fn pending_connects_are_rate_times_time_out_and_a_little() {
        let plan = prepare(open("http://127.0.0.1:80/", 2_000.0)).unwrap();
        assert_eq!(plan.pending_max(), 1_050);
        let mut poisson = open("http://127.0.0.1:80/", 2_000.0);
        poisson.client =
            Client::SClient { rate: PerSecond(2_000.0), arrivals: Process::Poisson, sockets: Sockets::Auto };
        assert_eq!(prepare(poisson).unwrap().pending_max(), 1_159, "1000 and five times its root");
        assert_eq!(prepare(open("http://127.0.0.1:80/", 1.0)).unwrap().pending_max(), 16);
    }

    #[test]
    fn retries_may_all_be_pending() {
        let mut config = open("http://127.0.0.1:80/", 2_000.0);
        config.retry = "fixed:500ms,3".parse().unwrap();
        assert_eq!(prepare(config).unwrap().pending_max(), 4_200);
    }

    #[test]
    fn a_rate_above_the_clean_one_is_told() {
        let mut config = open("http://127.0.0.1:80/", 2_000.0);
        config.clean_rate = Some(PerSecond(2_000.0));
        assert_eq!(prepare(config.clone()).unwrap().above_clean_rate(), None);
        config.clean_rate = Some(PerSecond(1_500.0));
        let plan = prepare(config).unwrap();
        let told = plan.above_clean_rate().unwrap();
        assert!(told.starts_with("The run asks for 2000 sessions a second, but the clean rate"), "{told}");
        assert!(plan.warnings().contains(&told));
    }

    #[test]
    fn bursts_are_bounded_by_their_peak() {
        let pending = |arrivals: &str| {
            let mut config = open("http://127.0.0.1:80/", 0.0);
            let arrivals = arrivals.parse().unwrap();
            config.client = Client::SClient { rate: PerSecond(2_000.0), arrivals, sockets: Sockets::Auto };
            prepare(config).unwrap().pending_max()
        };
        assert_eq!(pending("on-off:6,5%"), 6_300);
        assert_eq!(pending("ramp:4k..0"), 2_100);
        assert_eq!(pending("steps:10x10s,6kx1s"), 3_150);
        assert_eq!(pending("pareto:1.5"), 3_065, "2.8 times the mean, and five times its root");
    }

    #[test]
    fn threads_share_a_given_bound() {
        let mut config = open("http://127.0.0.1:80/", 2_000.0);
        let most = NonZeroU32::new(100).unwrap();
        config.client = Client::SClient {
            rate: PerSecond(10.0),
            arrivals: Process::Constant,
            sockets: Sockets::AtMost(most),
        };
        config.threads = NonZeroU32::new(4).unwrap();
        assert_eq!(prepare(config).unwrap().pending_max(), 100);
    }

    #[test]
    fn there_are_as_many_processes_as_the_descriptors_need() {
        let needed = |descriptors| processes(Processes::Auto, descriptors, Some(20_064));
        assert_eq!((needed(20_000), needed(20_001), needed(60_000)), (1, 2, 3));
        assert_eq!((needed(u64::MAX), processes(Processes::Auto, u64::MAX, None)), (64, 1));
        let given = Processes::Count(NonZeroU32::new(5).unwrap());
        assert_eq!(processes(given, 1, Some(20_064)), 5);
        let mut config = open("http://127.0.0.1:80/", 2_000.0);
        config.processes = given;
        let plan = prepare(config).unwrap();
        assert_eq!((plan.processes(), plan.lanes(), plan.pending_max()), (5, 5, 1_050));
        assert_eq!(processes_remark(&plan, 30_000, Some(20_000)), None, "as it was asked for");
    }

    #[test]
    fn limits_that_will_bite_are_told() {
        assert!(descriptor_warning(20_000, 0, Some(20_000), 1).unwrap().contains("no_descriptor"));
        assert_eq!(descriptor_warning(10_000, 0, Some(20_000), 1), None);
        assert_eq!(descriptor_warning(u64::MAX / 2, 0, None, 1), None);
        let told = descriptor_warning(10_000, 12_000, Some(20_000), 1).unwrap();
        assert!(told.contains("at once beside 12000 clients of populations, but"), "{told}");
        let mut config = open("http://10.0.0.1/", 5_000.0);
        config.duration = Nanos::from_secs(60);
        let plan = prepare(config).unwrap();
        let told = port_warning(&plan, 300_000.0, &(32_768..=60_999)).unwrap();
        assert!(told.contains("300000") && told.contains("28232"), "{told}");
    }
}
