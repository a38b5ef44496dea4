//! Works out a run before it begins: the target's addresses, the most pending connects, the source addresses,
//! and the limits that the run will reach.
//!
//! `refusals` checks for configurations that cannot or must not be run.

mod refusals;

use std::fs;
use std::ops::RangeInclusive;

use base::{Nanos, PerSecond};
use sys::process::descriptors;

use crate::error::LoadError;
use crate::plan::Plan;
use crate::plan::choices::population::Population;
use crate::plan::choices::source_addresses::{self, SourceRange, TIME_WAIT};
use crate::plan::choices::tempo::Tempo;
use crate::plan::choices::tls::Tls;
use crate::plan::choices::workload::{Length, Think};
use crate::plan::config::{Client, Close, Config, PROCESSES_MAX, Processes, Sockets, Stack};
use crate::plan::requests::Workload;
use crate::plan::terms::window::Window;
pub use refusals::{RATE_UNASKED, check_threads_here};
use refusals::{
    check_conduct, check_connections, check_http2, check_pair, check_populations, check_requests,
    check_shares, check_source, check_stack, check_think, check_threads, check_times, single_target,
};

/// Added to rate x timeout. After a stall of the generator, late sessions are pending together with punctual
/// ones: rate x stall of them. 5 % of 500 ms is a stall of 25 ms.
const PENDING_MARGIN: f64 = 1.05;

/// A lower bound on pending connects would save nothing.
const PENDING_MIN: f64 = 16.0;

/// Descriptors that are not connections: standard streams, interest sets, descriptors of the caller.
pub(crate) const DESCRIPTORS_ASIDE: u64 = 64;

/// The connections per second assumed for a client without a rate when source addresses are counted: more than one
/// core makes.
const CLOSED_RATE_MOST: f64 = 50_000.0;

/// Works out a run: resolves the name (may block), encodes the workload, and raises this process's soft
/// descriptor limit to the hard one.
///
/// # Errors
/// [`LoadError`]: a time that must not be zero; no URL, or URLs of two servers; a name without an address; a
/// source of the wrong family; a public target without `own_this_server`; settings that exclude each other;
/// unusable TLS settings.
pub fn prepare(mut config: Config) -> Result<Plan, LoadError> {
    if config.connections.is_some() {
        // Kept connections have no other length.
        config.requests_per_connection.take_if(|length| *length == Length::ENDLESS);
    }
    check_times(&config)?;
    check_threads(&config)?;
    let target = single_target(&config)?;
    check_populations(&config)?;
    let workload = Workload::new(&config)?;
    let population_workloads = config.populations.iter().map(|population| of_population(&config, population));
    let population_workloads = population_workloads.collect::<Result<_, _>>()?;
    check_conduct(&config, &workload, &target)?;
    check_think(&config, &workload)?;
    check_pair(&config, &workload)?;
    check_connections(&config, &workload)?;
    check_stack(&config, &target)?;
    check_http2(&config)?;
    check_requests(&config, &workload)?;
    if let Some(setting) = config.expected.content_setting().filter(|_| workload.has_head()) {
        return Err(LoadError::NoContent { setting });
    }
    check_source(&config, &target)?;
    let ports = port_range();
    let connections = connections_in_time_wait(&config);
    let automatic = |target| source_addresses::automatic(target, connections, &ports);
    let sources = config.source.or_else(|| target.first().and_then(automatic));
    let secure = config.urls.iter().find(|url| url.is_secure());
    let tls = secure.map(|url| Tls::new(url.host(), &config.tls, config.streams.is_some())).transpose()?;
    let limit = descriptors::raise_limit(u64::MAX);
    let clients: u64 = config.populations.iter().map(|population| u64::from(population.clients())).sum();
    let pending = pending_max(&config, workload.mean_session_length());
    let descriptors = if config.stack == Stack::Kernel { pending + clients } else { 0 };
    let processes = check_shares(&config, processes(config.processes, descriptors, limit))?;
    let lanes = config.threads_in_all().max(processes);
    let has_rate = matches!(config.client, Client::SClient { .. });
    // A higher rate to a public address would have been refused.
    let is_ours = config.own_this_server || target.first_public().is_none();
    let mut plan = Plan {
        tls,
        config,
        workload,
        population_workloads,
        target,
        sources,
        // Without a rate, threads beyond the number of sockets have none.
        pending_max: if has_rate { pending.max(u64::from(lanes)) } else { pending },
        processes,
        lanes,
        descriptor_limit: limit,
        time_wait_max: connections,
        ports,
        tempo: Tempo::up_to(if is_ours { f64::INFINITY } else { 1.0 }),
        warnings: Vec::new(),
    };
    plan.warnings.extend(plan.recording_remark());
    plan.warnings.extend(plan.arrivals_remark());
    plan.warnings.extend(plan.above_clean_rate());
    let (connects, clients) = plan.kernel_sockets();
    let all = limit.map(|limit| limit.saturating_mul(u64::from(processes)));
    plan.warnings.extend(processes_remark(&plan, descriptors, limit));
    plan.warnings.extend(descriptor_warning(connects, clients, all, processes));
    plan.warnings.extend(port_warning(&plan, connections, &plan.ports));
    Ok(plan)
}

/// The measured workload with the session length and think time of a population. Holders send one request per
/// session.
fn of_population(config: &Config, population: &Population) -> Result<Workload, LoadError> {
    let (length, think) = population.sessions().unwrap_or((Length::ONE, Think::NONE));
    let sessions = Config { requests_per_connection: Some(length), think: Some(think), ..config.clone() };
    Workload::new(&sessions)
}

/// D of Banga 1997, all threads together: the connects pending at the peak rate when every connect times out.
/// A session whose server closes persistent connections early connects again for each request; over HTTP/2 such
/// a connection has taken all its streams. A failed session is retried.
fn pending_max(config: &Config, session_length: f64) -> u64 {
    if let Some(connections) = config.connections {
        return u64::from(connections.get());
    }
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
        Client::Pending { connects: places } | Client::Closed { clients: places } => u64::from(places.get()),
    }
}

/// The number of processes for `descriptors` descriptors, if each process may open `limit`.
fn processes(asked: Processes, descriptors: u64, limit: Option<u64>) -> u32 {
    match (asked, limit) {
        (Processes::Count(count) | Processes::Agents(count), _) => count.get(),
        (Processes::Pair, _) | (Processes::Auto, None) => 1,
        (Processes::Auto, Some(limit)) => {
            let each = limit.saturating_sub(DESCRIPTORS_ASIDE);
            // More processes would need more for themselves than they add.
            if each < DESCRIPTORS_ASIDE {
                return 1;
            }
            descriptors.div_ceil(each).clamp(1, u64::from(PROCESSES_MAX)) as u32
        }
    }
}

/// The most connections in TIME-WAIT at once, if the client closes first.
fn connections_in_time_wait(config: &Config) -> f64 {
    if config.close == Close::Reset {
        return 0.0;
    }
    if let Some(connections) = config.connections {
        // They are kept. A server that closes each one makes as many as there are requests, which nobody asks for.
        return f64::from(connections.get());
    }
    let run = Window { from: Nanos::ZERO, until: config.window().until };
    let span = run.until.min(TIME_WAIT);
    match &config.client {
        Client::SClient { rate, arrivals, .. } => {
            let all = arrivals.mean(*rate, run).times(run.until);
            arrivals.peak(*rate, run.until, span).times(span).min(all)
        }
        Client::Pending { .. } | Client::Closed { .. } => PerSecond(CLOSED_RATE_MOST).times(span),
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
    if !plan.has_sockets() || !matches!(plan.config.client, Client::SClient { .. }) {
        return None;
    }
    // Agents of a fleet connect from machines of their own, unless the target is on each of them.
    let machines = match plan.config.processes {
        Processes::Agents(agents) if !plan.target.is_local() => agents.get(),
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
    use crate::plan::choices::arrivals::Process;
    use std::num::NonZeroU32;

    pub(super) fn open(url: &str, rate: f64) -> Config {
        let client =
            Client::SClient { rate: PerSecond(rate), arrivals: Process::constant(), sockets: Sockets::Auto };
        Config::new(vec![url.parse().unwrap()], client)
    }

    #[test]
    fn pending_connects_are_rate_times_timeout_and_slack() {
        let plan = prepare(open("http://127.0.0.1:80/", 2_000.0)).unwrap();
        assert_eq!(plan.pending_max(), 1_050);
        let mut poisson = open("http://127.0.0.1:80/", 2_000.0);
        poisson.client = Client::SClient {
            rate: PerSecond(2_000.0),
            arrivals: "poisson".parse().unwrap(),
            sockets: Sockets::Auto,
        };
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
            arrivals: Process::constant(),
            sockets: Sockets::AtMost(most),
        };
        config.threads = NonZeroU32::new(4).unwrap();
        assert_eq!(prepare(config).unwrap().pending_max(), 100);
    }

    #[test]
    fn every_process_has_a_kept_connection() {
        let mut config = open("http://127.0.0.1:80/", 2_000.0);
        config.connections = NonZeroU32::new(2);
        config.processes = Processes::Count(NonZeroU32::new(3).unwrap());
        let refused = prepare(config.clone()).unwrap_err().to_string();
        assert_eq!(refused, "--connections 2: expected at least one for each of 3 processes");
        config.processes = Processes::Count(NonZeroU32::new(2).unwrap());
        assert_eq!(prepare(config).unwrap().pending_max(), 2);
    }

    #[test]
    fn processes_suffice_for_the_descriptors() {
        let needed = |descriptors| processes(Processes::Auto, descriptors, Some(20_064));
        assert_eq!((needed(20_000), needed(20_001), needed(60_000)), (1, 2, 3));
        assert_eq!((needed(u64::MAX), processes(Processes::Auto, u64::MAX, None)), (64, 1));
        assert_eq!(processes(Processes::Auto, 1_000, Some(64)), 1, "a process adds none for connections");
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
