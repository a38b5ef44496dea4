//! The plan of a run: the load that the user asks for, checked and worked out before anything is sent.
//!
//! A [`config::Config`] holds the settings. [`preflight`] checks them and makes a [`Plan`], which every thread,
//! process and agent of the run carries out in the same way.
//!
//! Leaves out connections, figures and threads: nothing here sends load. The exception is `round_trip`, which makes
//! one connect before the run.
//!
//! The modules, from the bottom up:
//!
//! - `terms`, and `choices`, a module for each thing that the user chooses.
//! - The whole: `config`, `description`, which has it as texts, and `settings`, which takes it to another machine.
//! - The plan: `requests` encodes the workload, `preflight` checks and works out, `outline` sums up, `round_trip`
//!   warns of a connect timeout that is too short.

pub mod choices;
pub(crate) mod config;
mod description;
pub(crate) mod outline;
pub mod preflight;
pub(crate) mod requests;
pub(crate) mod round_trip;
mod settings;
pub(crate) mod terms;

use std::ops::RangeInclusive;

use base::Nanos;
use usertcp::SourceNet;

use choices::retry::Retry;
use choices::source_addresses::SourceRange;
use choices::tempo::Tempo;
use choices::tls::Tls;
use config::{Client, Config, Link, Processes, SOURCE_NET, SOURCE_NET_V6, Stack};
use requests::Workload;
use terms::share::Share;
use terms::target::addressing::Target;

/// The least time for which a run waits for replies after its schedule's end.
pub(crate) const LAST_REPLIES_LEAST: Nanos = Nanos::SECOND;

/// A checked run.
#[derive(Debug)]
pub struct Plan {
    pub(crate) config: Config,
    pub(crate) workload: Workload,
    /// The workload of each population: the measured workload with the population's session length and think
    /// time.
    pub(crate) population_workloads: Vec<Workload>,
    pub(crate) target: Target,
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
    /// The destination of the connections.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The address for TCP in user space, which connects to one address.
    pub(crate) fn user_target(&self) -> std::net::SocketAddr {
        self.target.first().expect("the preflight refuses a socket file with --stack user")
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

    /// A handle that changes the rate during the run. `None` for a client without a rate, and for a
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

    /// The source net of TCP in user space.
    pub(crate) fn source_net(&self) -> SourceNet {
        let default = if self.user_target().is_ipv4() { SOURCE_NET } else { SOURCE_NET_V6 };
        match self.config.stack {
            Stack::User { net: Some(net), .. } => net,
            _ => default.parse().expect("the defaults are nets"),
        }
    }

    /// The numbers, in the whole run, of the threads of one process's share that have a link over TCP in user space: its
    /// lanes, then its part of each population.
    pub(crate) fn threads_with_link(&self, share: Share) -> Vec<u32> {
        let populations = 0..self.config.populations.len();
        let populations = populations.filter(|_| self.populations_have_links());
        let beside = populations.map(|number| self.population_thread(number, share));
        share.range(self.lanes).chain(beside).collect()
    }

    /// Returns true if populations connect over links of their own, and not through the kernel.
    fn populations_have_links(&self) -> bool {
        matches!(self.config.stack, Stack::User { link: Link::Tun, .. })
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

    /// The most kernel sockets at once: connects pending, and clients of populations.
    pub(crate) fn kernel_sockets(&self) -> (u64, u64) {
        let connects = if self.has_sockets() { self.pending_max() } else { 0 };
        let clients = if self.populations_have_links() { 0 } else { self.population_clients() };
        (connects, clients)
    }

    /// The clients of all populations, each with a connection.
    pub fn population_clients(&self) -> u64 {
        self.config.populations.iter().map(|population| u64::from(population.clients())).sum()
    }

    /// The source addresses; `None` leaves the choice to the kernel.
    pub fn sources(&self) -> Option<SourceRange> {
        self.sources
    }

    /// The names of the requests of a file.
    pub fn request_names(&self) -> &[String] {
        self.workload.names()
    }

    /// Requests per second offered in the measured window: sessions times their mean length. `None` for a
    /// client without a rate of its own.
    pub(crate) fn requests_per_s(&self) -> Option<f64> {
        match &self.config.client {
            Client::SClient { rate, arrivals, .. } => {
                let sessions = arrivals.mean(*rate, self.config.window());
                Some(sessions.0 * self.workload.mean_session_length())
            }
            Client::Pending { .. } | Client::Closed { .. } => None,
        }
    }

    /// The mean number of requests of a session, and the mean of its think times together.
    pub fn session(&self) -> (f64, Nanos) {
        (self.workload.mean_session_length(), self.workload.mean_thinking())
    }

    /// The longest latency that a run of this length can observe: without retries the client gives up after its
    /// timeouts, and the run ends.
    pub(crate) fn longest_latency(&self, run: Nanos) -> Nanos {
        let config = &self.config;
        match config.retry {
            Retry::Never => run.min(config.connect_timeout.saturating_add(config.request_timeout)),
            Retry::Fixed { .. } | Retry::Exponential { .. } => run,
        }
    }

    /// The longest time for which the run waits for replies after its schedule's end: at least a second, and otherwise the
    /// latency of the slowest reply, up to the run's length.
    pub fn longest_wait(&self) -> Nanos {
        let config = &self.config;
        let run = config.window().until;
        // Others wait for a connection, a stream or several replies, and only the run's length bounds their latency.
        let is_bounded = config.retry == Retry::Never
            && config.connections.is_none()
            && config.streams.is_none()
            && !config.follow;
        // A server may close a kept connection instead of a reply, and then gets the request once more.
        let sending_twice = config.request_timeout.saturating_add(config.request_timeout);
        let timeouts = config.connect_timeout.saturating_add(sending_twice);
        let longest = if is_bounded { run.min(timeouts) } else { run };
        longest.max(LAST_REPLIES_LEAST)
    }

    /// A warning for a run that asks for more than the machine's clean rate.
    pub(crate) fn above_clean_rate(&self) -> Option<String> {
        let clean = self.config.clean_rate?;
        let peak = self.config.sessions_peak(Nanos::SECOND)?;
        (peak.0 > clean.0).then(|| {
            format!(
                "The run asks for {:.0} sessions a second, but the clean rate of this machine is {:.0} (inrush load \
                 calibrate): above it the generator distorts the result.",
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

    fn recording_remark(&self) -> Option<String> {
        self.config.requests.as_ref()?.remark(&self.config.urls[0])
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    /// The longest wait after a minute at a rate, with the default timeouts of 0.5 s and 10 s.
    fn longest_wait(change: impl FnOnce(&mut Config)) -> Nanos {
        let (rate, arrivals) = ("100".parse().unwrap(), "constant".parse().unwrap());
        let client = Client::SClient { rate, arrivals, sockets: Default::default() };
        let mut config = Config::new(vec!["http://127.0.0.1:9/".parse().unwrap()], client);
        (config.warmup, config.duration) = (Nanos::ZERO, Nanos::from_secs(60));
        change(&mut config);
        preflight::prepare(config).unwrap().longest_wait()
    }

    #[test]
    fn run_bounds_the_wait_of_requests_that_queue() {
        let minute = Nanos::from_secs(60);
        assert_eq!(longest_wait(|_| {}), Nanos::from_millis(20_500));
        assert_eq!(longest_wait(|config| config.connections = NonZeroU32::new(2)), minute);
        assert_eq!(longest_wait(|config| config.streams = NonZeroU32::new(2)), minute);
        assert_eq!(longest_wait(|config| config.follow = true), minute);
        assert_eq!(longest_wait(|config| config.retry = "fixed:1s,3".parse().unwrap()), minute);
        assert_eq!(longest_wait(|config| config.duration = Nanos::MILLISECOND), Nanos::SECOND);
    }
}
