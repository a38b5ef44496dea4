//! Refuses runs that cannot be carried out, and settings that exclude each other. It also holds the one rule
//! of conduct: only owners may overload a server.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::num::{NonZeroU32, NonZeroUsize};
use std::thread::available_parallelism;

use base::{Nanos, PerSecond};

use crate::error::LoadError;
use crate::plan::choices::population::Population;
use crate::plan::choices::retry::Retry;
use crate::plan::choices::workload::{Field, Length, Spec};
use crate::plan::config::{AGENT_THREADS_MAX, Client, Config, Link, Processes, Stack, THREADS_PER_CPU};
use crate::plan::requests::Workload;
use crate::plan::terms::target;
use crate::plan::terms::target::addressing::Target;

/// The highest rate of requests per second to a public address without `own_this_server`.
pub const RATE_UNASKED: PerSecond = PerSecond(100.0);

pub(super) fn check_times(config: &Config) -> Result<(), LoadError> {
    let times = [
        ("duration", config.duration),
        ("connect-timeout", config.connect_timeout),
        ("request-timeout", config.request_timeout),
        ("interval", config.interval),
        ("deadline", config.expected.deadline.unwrap_or(Nanos::MAX)),
    ];
    match times.into_iter().find(|(_, time)| *time == Nanos::ZERO) {
        Some((setting, _)) => Err(LoadError::Zero { setting }),
        None => Ok(()),
    }
}

/// Refuses more threads than a machine has use for.
pub(super) fn check_threads(config: &Config) -> Result<(), LoadError> {
    match config.processes {
        Processes::Agents(_) if config.threads.get() > AGENT_THREADS_MAX => Err(LoadError::Threads {
            threads: config.threads.get(),
            cpus: "an agent has at most 128 CPUs".to_owned(),
            most: AGENT_THREADS_MAX,
        }),
        Processes::Agents(_) => Ok(()),
        Processes::Auto | Processes::Count(_) | Processes::Pair => check_threads_here(config.threads),
    }
}

/// Refuses more threads than `THREADS_PER_CPU` for each CPU that this process may use.
///
/// # Errors
/// [`LoadError::Threads`].
pub fn check_threads_here(threads: NonZeroU32) -> Result<(), LoadError> {
    // A machine that does not tell its CPUs has one at least.
    let cpus = available_parallelism().map_or(1, NonZeroUsize::get);
    let most = u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(THREADS_PER_CPU);
    if threads.get() <= most {
        return Ok(());
    }
    let cpus = format!("this process may use {cpus} CPUs");
    Err(LoadError::Threads { threads: threads.get(), cpus, most })
}

pub(super) fn single_target(config: &Config) -> Result<Target, LoadError> {
    let first = config.urls.first().ok_or(LoadError::NoUrl)?;
    for other in &config.urls {
        if !other.has_server_of(first) {
            return Err(LoadError::TwoServers { first: first.to_string(), other: other.to_string() });
        }
    }
    if config.form.hosts().nth(1).is_some() {
        return Err(LoadError::TwoHosts);
    }
    if config.workload.has_own_paths() && config.urls.len() > 1 {
        return Err(LoadError::TwoRoots { workload: config.workload.to_string() });
    }
    config.addressing.target(first, config.connect_timeout)
}

/// Refuses a think time that no client would take. The clients of a closed loop also think between two sessions.
pub(super) fn check_think(config: &Config, workload: &Workload) -> Result<(), LoadError> {
    let is_open = matches!(config.client, Client::SClient { .. });
    match config.think {
        Some(_) if is_open && workload.mean_session_length() == 1.0 => Err(LoadError::Think),
        _ => Ok(()),
    }
}

/// Refuses settings that a pair does not support.
pub(super) fn check_pair(config: &Config, workload: &Workload) -> Result<(), LoadError> {
    let why = match config {
        Config { processes: Processes::Auto | Processes::Count(_) | Processes::Agents(_), .. } => {
            return Ok(());
        }
        Config { client: Client::Closed { .. }, .. } => {
            "a closed loop has no pair; expected an open loop".to_owned()
        }
        Config { threads, .. } if threads.get() > 1 => {
            format!("--threads {threads}: establisher and handler have one thread each; leave --threads out")
        }
        Config { urls, .. } if urls.iter().any(|url| url.is_secure()) => {
            "a TLS connection cannot change its process; expected http://".to_owned()
        }
        Config { retry, .. } if *retry != Retry::Never => {
            format!("--retry {retry}: the handler sees failures but cannot connect again; leave --retry out")
        }
        Config { follow: true, .. } => "the handler cannot connect again; leave --follow out".to_owned(),
        _ if workload.mean_session_length() != 1.0 => {
            "it makes one request a connection; expected --requests-per-connection 1".to_owned()
        }
        _ => return Ok(()),
    };
    Err(LoadError::Pair { why })
}

/// Refuses settings that make no sense with connections that requests share.
pub(super) fn check_connections(config: &Config, workload: &Workload) -> Result<(), LoadError> {
    let is_closed = matches!(config.client, Client::Closed { .. });
    let Some(connections) = config.connections else {
        let is_endless = config.requests_per_connection == Some(Length::ENDLESS);
        return if is_endless && !is_closed { Err(LoadError::Endless) } else { Ok(()) };
    };
    let why = match config {
        Config { client: Client::Closed { .. } | Client::Pending { .. }, .. } => {
            "requests share them at a --rate; a closed loop has --sockets".to_owned()
        }
        Config { processes: Processes::Pair, .. } => {
            "the connections of a pair have one request each; expected --client s-client".to_owned()
        }
        Config { requests_per_connection: Some(length), .. } => {
            format!(
                "they carry requests until the server closes them; leave out --requests-per-connection {length}"
            )
        }
        _ if workload.mean_session_length() != 1.0 => {
            format!(
                "--workload {} has sessions of its own; expected one-packet or urls:FILE",
                config.workload
            )
        }
        _ if config.threads_in_all() > connections.get() => {
            format!("expected at least one for each of {} threads", config.threads_in_all())
        }
        _ => return Ok(()),
    };
    Err(LoadError::Connections { connections, why })
}

/// Refuses more processes than connections that requests share: each process has one at least. Returns their number. Where
/// nobody has asked for a number, it is at most that of the connections.
pub(super) fn check_shares(config: &Config, processes: u32) -> Result<u32, LoadError> {
    match config.connections.filter(|connections| processes > connections.get()) {
        None => Ok(processes),
        Some(connections) if config.processes == Processes::Auto => Ok(connections.get()),
        Some(connections) => {
            let why = format!("expected at least one for each of {processes} processes");
            Err(LoadError::Connections { connections, why })
        }
    }
}

/// Refuses settings that HTTP/2 does not support.
pub(super) fn check_http2(config: &Config) -> Result<(), LoadError> {
    if config.streams.is_none() {
        return Ok(());
    }
    let forbidden = |field: &&Field| http2::client::is_forbidden(field.name(), field.value());
    let speaks_http1 = |population: &&Population| population.sessions().is_none();
    let why = if config.processes == Processes::Pair {
        "streams of one connection cannot change their process; expected --client s-client or closed"
            .to_owned()
    } else if config.follow {
        "redirects are followed over HTTP/1.1; leave --follow out".to_owned()
    } else if let Some(population) = config.populations.iter().find(speaks_http1) {
        format!("--population {population} speaks HTTP/1.1; expected hot or cold")
    } else if let Some(field) = config.form.fields.iter().find(forbidden) {
        format!("--header '{field}' belongs to HTTP/1.1 (RFC 9113, 8.2.2); leave it out")
    } else {
        return Ok(());
    };
    Err(LoadError::Http2 { why })
}

/// Refuses settings that requests of a file do not support, and data without a file of requests.
pub(super) fn check_requests(config: &Config, workload: &Workload) -> Result<(), LoadError> {
    let why = match (config, workload.script()) {
        (Config { requests: None, data: None, .. }, _) => return Ok(()),
        (Config { data: Some(_), .. }, None) => {
            "--data has no {{name}} in --requests that uses it; leave it out".to_owned()
        }
        (Config { requests_per_connection: Some(length), .. }, _) if workload.is_replay() => {
            format!("requests at their times have one each; leave --requests-per-connection {length} out")
        }
        (Config { workload: Spec::OnePacket, .. }, None) => return Ok(()),
        (Config { workload, .. }, _) if *workload != Spec::OnePacket => {
            format!("--workload {workload} has requests of its own; leave one of the two out")
        }
        (Config { streams: Some(_), .. }, _) => "they speak HTTP/1.1; leave --http2 out".to_owned(),
        (Config { processes: Processes::Pair, .. }, _) => {
            "the handler does not know their values; expected --client s-client or closed".to_owned()
        }
        (Config { retry, .. }, _) if *retry != Retry::Never => {
            format!("a session does not go back; leave --retry {retry} out")
        }
        (Config { populations, .. }, _) if !populations.is_empty() => {
            "populations request the URLs; leave --population out".to_owned()
        }
        (Config { requests_per_connection: Some(length), .. }, Some(script)) if script.is_ordered => {
            format!("a session has the requests of its line; leave --requests-per-connection {length} out")
        }
        _ => return Ok(()),
    };
    Err(LoadError::Script { why })
}

/// Refuses settings that the chosen stack does not support.
pub(super) fn check_stack(config: &Config, target: &Target) -> Result<(), LoadError> {
    let Stack::User { link, net, server_cpus, .. } = &config.stack else { return Ok(()) };
    let why = match config {
        Config { own_this_server: false, .. } if net.is_some_and(|net| !target::is_private(net.network())) => {
            "--source-net is not a private network, so the run would cut off its hosts; expected a private one \
             such as 10.94.0.0/16"
                .to_owned()
        }
        _ if target.first().is_none() => "a socket file is no TCP; expected --stack kernel".to_owned(),
        Config { source: Some(source), .. } => {
            format!("--source-ip {source} is for kernel sockets; expected --source-net")
        }
        Config { processes: Processes::Pair, .. } => {
            "its connections cannot change their process; expected --client s-client or closed".to_owned()
        }
        _ if !server_cpus.is_empty() && *link != Link::Tun => {
            format!("--server-cpus steers a TUN device; leave it out with --link {link}")
        }
        Config { threads, processes, .. } if matches!(link, Link::AfXdp(_)) => {
            let one_process = matches!(processes, Processes::Auto | Processes::Count(NonZeroU32::MIN));
            if threads.get() == 1 && one_process {
                return Ok(());
            }
            format!("--link {link} has one thread; leave out --threads and --processes")
        }
        _ => return Ok(()),
    };
    Err(LoadError::Stack { stack: "user", why })
}

/// Refuses source addresses from which no connect can reach the target.
pub(super) fn check_source(config: &Config, target: &Target) -> Result<(), LoadError> {
    let Some(source) = config.source else { return Ok(()) };
    let source_ip = source.to_string();
    let Some(target) = target.first() else {
        let setting = format!("--source-ip {source_ip}");
        return Err(LoadError::Redirection { setting, why: "a socket file has no address".to_owned() });
    };
    if source.first().is_ipv4() != target.is_ipv4() {
        return Err(LoadError::SourceFamily { source_ip, target: target.ip().to_string() });
    }
    match UdpSocket::bind((source.first(), 0)) {
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            Err(LoadError::SourceNotHere { source_ip })
        }
        _ => Ok(()),
    }
}

pub(super) fn check_populations(config: &Config) -> Result<(), LoadError> {
    let names: Vec<String> = config.populations.iter().map(Population::to_string).collect();
    let twice = (1..names.len()).find(|number| names[..*number].contains(&names[*number]));
    twice.map_or(Ok(()), |number| Err(LoadError::TwoPopulations { population: names[number].clone() }))
}

pub(super) fn check_conduct(config: &Config, workload: &Workload, target: &Target) -> Result<(), LoadError> {
    // A closed client adapts to the server and has no rate of its own.
    let Some(public) = target.first_public().filter(|_| !config.own_this_server) else { return Ok(()) };
    if !config.populations.is_empty() {
        return Err(LoadError::PopulationNotYours { target: public.to_string() });
    }
    let peak = config.sessions_peak(Nanos::SECOND);
    // Counted for a server that never answers, without the timeouts that slow retries down.
    let attempts = config.retry.attempts_max(config.window().until, Nanos(1));
    let length = workload.mean_session_length();
    let modest = peak.is_some_and(|peak| peak.0 * length * attempts <= RATE_UNASKED.0);
    if modest {
        return Ok(());
    }
    Err(LoadError::NotYours { target: public.to_string(), allowed: RATE_UNASKED })
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::super::tests::open;
    use super::*;

    #[test]
    fn public_targets_need_their_owners_word() {
        let refused = prepare(open("http://203.0.114.1/", 101.0)).unwrap_err().to_string();
        assert!(refused.contains("--i-own-this-server"), "{refused}");
        assert!(prepare(open("http://203.0.114.1/", 100.0)).is_ok());
        let mut own = open("http://203.0.114.1/", 1e5);
        own.own_this_server = true;
        assert!(prepare(own).is_ok());
    }

    #[test]
    fn populations_are_unique_and_need_an_own_server() {
        let mut config = open("http://127.0.0.1:80/", 1.0);
        config.populations =
            vec!["idle:5".parse().unwrap(), "hot:5".parse().unwrap(), "idle:5".parse().unwrap()];
        let refused = prepare(config.clone()).unwrap_err().to_string();
        assert_eq!(refused, "--population idle:5 is given twice; give their sum");
        config.populations.pop();
        assert_eq!(prepare(config.clone()).unwrap().population_clients(), 10);
        config.urls = vec!["http://203.0.114.1/".parse().unwrap()];
        assert!(matches!(prepare(config), Err(LoadError::PopulationNotYours { .. })));
    }

    #[test]
    fn times_that_make_no_sense_are_refused() {
        let mut config = open("http://127.0.0.1:80/", 1.0);
        config.interval = Nanos::ZERO;
        let refused = prepare(config).unwrap_err().to_string();
        assert_eq!(refused, "--interval is 0; expected a time above 0 such as 500ms or 10s");
    }

    #[test]
    fn one_run_has_one_server_and_one_family() {
        let mut two = open("http://127.0.0.1:80/", 1.0);
        two.urls.push("http://127.0.0.1:81/".parse().unwrap());
        assert!(matches!(prepare(two), Err(LoadError::TwoServers { .. })));
        let mut roots = open("http://127.0.0.1:80/", 1.0);
        roots.urls.push("http://127.0.0.1:80/other".parse().unwrap());
        roots.workload = "specweb99".parse().unwrap();
        assert!(matches!(prepare(roots), Err(LoadError::TwoRoots { .. })));
        let mut none = open("http://127.0.0.1:80/", 1.0);
        none.urls.clear();
        assert!(matches!(prepare(none), Err(LoadError::NoUrl)));
        let mut mixed = open("http://127.0.0.1:80/", 1.0);
        mixed.source = Some("203.0.114.1".parse().unwrap());
        let refused = prepare(mixed.clone()).unwrap_err().to_string();
        assert_eq!(refused, "--source-ip 203.0.114.1: this machine does not have the address");
        mixed.source = Some("::1".parse().unwrap());
        assert!(matches!(prepare(mixed), Err(LoadError::SourceFamily { .. })));
    }
}
