//! The plan and the needs of a run, before it begins: for `inrush load --dry-run`.
//!
//! A pure function of a [`Plan`]: it sends nothing and opens no socket.

use base::Nanos;
use serde::Serialize;

use crate::plan::Plan;
use crate::plan::choices::arrivals::Lane;
use crate::plan::choices::population::Population;
use crate::plan::choices::source_addresses::SourceRange;
use crate::plan::config::Client;
use crate::plan::preflight::DESCRIPTORS_ASIDE;
use crate::plan::terms::window::Window;

/// The schema that this version writes.
const SCHEMA: &str = "inrush.load-plan/1";

/// The number of scheduled times that the outline shows.
const FIRST: usize = 5;

/// A planned run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outline {
    /// `inrush.load-plan/1`.
    pub schema: &'static str,
    /// The address and port that the load would go to.
    pub target: String,
    /// The warm-up, in seconds.
    pub warmup_s: f64,
    /// The measured time, in seconds.
    pub duration_s: f64,
    /// The text of the arrival process; `None` for a closed client.
    pub arrivals: Option<String>,
    /// The intended times of the first sessions, in seconds since the run's start; empty for a client without a rate.
    pub first_s: Vec<f64>,
    /// Rates and totals; `None` for a client without a rate of its own.
    pub rates: Option<Rates>,
    /// The Hurst parameter of self-similar arrivals.
    pub hurst: Option<Hurst>,
    /// The populations beside the measured traffic.
    pub populations: Vec<String>,
    /// Engine threads of all processes, the handler of a pair included.
    pub threads: u32,
    /// Generator processes, the handler of a pair included.
    pub processes: u32,
    /// Descriptors that the run needs.
    pub descriptors: Descriptors,
    /// Source addresses and their ports.
    pub sources: SourcePorts,
    /// Limits of the generator and gaps in what the run will show, one sentence each.
    pub warnings: Vec<String>,
}

/// The load that an open-loop run offers, without retries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Mean sessions per second over the measured time.
    pub sessions_per_s_mean: f64,
    /// The highest number of sessions in any second.
    pub sessions_per_s_peak: f64,
    /// Mean requests per second over the measured time.
    pub requests_per_s_mean: f64,
    /// The highest number of requests in any second.
    pub requests_per_s_peak: f64,
    /// Requests expected in the measured time.
    pub requests_measured: f64,
    /// Requests expected in the whole run, warm-up included.
    pub requests_in_all: f64,
}

/// The self-similarity of the arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hurst {
    /// The estimate for the schedule of this run; `None` when the schedule is too short.
    pub schedule: Option<f64>,
    /// The Hurst parameter of the process.
    pub process: f64,
}

/// The descriptors that a run needs, all its processes together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Descriptors {
    /// The most connects pending at once: D of the S-client, or the clients of a closed loop.
    pub pending_max: u64,
    /// Clients of the populations, each with one connection.
    pub populations: u64,
    /// Descriptors of the program itself, in all processes.
    pub aside: u64,
    /// The sum of these.
    pub needed: u64,
    /// Further descriptors if the server accepts every connection and answers none: established connections
    /// that wait for their request timeout.
    pub unanswered_max: u64,
    /// The descriptors that all processes may open; `None` for no limit.
    pub limit: Option<u64>,
}

/// The source addresses of connections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourcePorts {
    /// The addresses; `None` leaves the choice to the kernel.
    pub addresses: Option<String>,
    /// The number of addresses.
    pub count: u32,
    /// Ports that the kernel has for connects from all addresses together.
    pub ports: u64,
    /// The most ports that closed connections hold at once, if the client closes first; `None` for a closed
    /// client, which has no rate of its own.
    pub ports_in_time_wait_max: Option<u64>,
}

impl Plan {
    /// Outlines the run. Estimating the Hurst parameter takes about a second.
    pub fn outline(&self) -> Outline {
        let config = &self.config;
        Outline {
            schema: SCHEMA,
            target: self.target.to_string(),
            warmup_s: config.warmup.as_secs_f64(),
            duration_s: config.duration.as_secs_f64(),
            arrivals: match &config.client {
                Client::SClient { arrivals, .. } => Some(arrivals.to_string()),
                Client::Pending { connects } => Some(format!("{connects} connects pending at any time")),
                Client::Closed { .. } => None,
            },
            first_s: self.first_s(),
            rates: self.rates(),
            hurst: self.hurst().map(|(schedule, process)| Hurst { schedule, process }),
            populations: config.populations.iter().map(Population::to_string).collect(),
            threads: self.tellers(),
            processes: self.processes() + u32::from(self.is_pair()),
            descriptors: self.descriptors(),
            sources: self.source_ports(),
            warnings: self.warnings().to_vec(),
        }
    }

    /// The first intended times of all lanes.
    fn first_s(&self) -> Vec<f64> {
        let Client::SClient { rate, arrivals, .. } = &self.config.client else { return Vec::new() };
        let (until, count) = (self.config.window().until, self.lanes());
        let of_lane = |index| {
            let times = arrivals.arrivals(*rate, until, Lane { index, count }, self.config.seed);
            times.take_while(|at| *at < until).take(FIRST)
        };
        let mut times: Vec<Nanos> = (0..count).flat_map(of_lane).collect();
        times.sort();
        times.into_iter().take(FIRST).map(Nanos::as_secs_f64).collect()
    }

    fn rates(&self) -> Option<Rates> {
        let Client::SClient { rate, arrivals, .. } = &self.config.client else { return None };
        let window = self.config.window();
        let length = self.workload.mean_session_length();
        let (mean, peak) = (arrivals.mean(*rate, window).0, self.config.sessions_peak(Nanos::SECOND)?.0);
        let all = Window { from: Nanos::ZERO, until: window.until };
        Some(Rates {
            sessions_per_s_mean: mean,
            sessions_per_s_peak: peak,
            requests_per_s_mean: mean * length,
            requests_per_s_peak: peak * length,
            requests_measured: mean * length * window.length().as_secs_f64(),
            requests_in_all: arrivals.mean(*rate, all).0 * length * all.length().as_secs_f64(),
        })
    }

    fn descriptors(&self) -> Descriptors {
        let (pending_max, populations) = (self.pending_max(), self.population_clients());
        let processes = u64::from(self.processes());
        let aside = DESCRIPTORS_ASIDE * processes;
        let (connects, clients) = self.kernel_sockets();
        Descriptors {
            pending_max,
            populations,
            aside,
            needed: connects + clients + aside,
            unanswered_max: if self.has_sockets() { self.unanswered_max() } else { 0 },
            limit: self.descriptor_limit.map(|limit| limit.saturating_mul(processes)),
        }
    }

    /// The most sessions that wait for their first reply at once, each until its request timeout. The
    /// sessions of closed clients are counted already: there is one for each client.
    fn unanswered_max(&self) -> u64 {
        let config = &self.config;
        if config.connections.is_some() {
            return 0;
        }
        let span = config.request_timeout.min(config.window().until);
        let peak = config.sessions_peak(span).map_or(0.0, |peak| peak.times(span));
        (peak * config.retry.attempts_max(config.window().until, config.request_timeout)).ceil() as u64
    }

    fn source_ports(&self) -> SourcePorts {
        if !self.has_sockets() {
            let net = self.source_net();
            return SourcePorts {
                addresses: Some(net.to_string()),
                count: net.addresses(),
                ports: net.names().into(),
                ports_in_time_wait_max: None,
            };
        }
        let count = self.sources().map_or(1, SourceRange::count);
        let is_open = matches!(self.config.client, Client::SClient { .. });
        SourcePorts {
            addresses: self.sources().map(|sources| sources.to_string()),
            count,
            ports: self.ports.len() as u64 * u64::from(count),
            ports_in_time_wait_max: is_open.then(|| self.time_wait_max.ceil() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::config::{Config, Sockets};
    use crate::plan::preflight::prepare;
    use base::PerSecond;
    use std::num::NonZeroU32;

    fn outline(arrivals: &str, change: impl FnOnce(&mut Config)) -> Outline {
        let client = Client::SClient {
            rate: PerSecond(100.0),
            arrivals: arrivals.parse().unwrap(),
            sockets: Sockets::Auto,
        };
        let mut config = Config::new(vec!["http://127.0.0.1:80/".parse().unwrap()], client);
        change(&mut config);
        prepare(config).unwrap().outline()
    }

    #[test]
    fn rates_and_totals_are_of_the_schedule() {
        let shown = outline("steps:100x10s,300x1h", |config| {
            config.requests_per_connection = Some("2".parse().unwrap());
        });
        let rates = shown.rates.unwrap();
        // 5 s of warm-up, then 5 s at 100/s and 25 s at 300/s.
        assert_eq!((rates.requests_measured.round(), rates.requests_in_all.round()), (16_000.0, 17_000.0));
        assert_eq!((rates.sessions_per_s_peak, rates.requests_per_s_peak), (300.0, 600.0));
        assert!((rates.sessions_per_s_mean - 8_000.0 / 30.0).abs() < 1e-6, "{rates:?}");
    }

    #[test]
    fn the_first_times_do_not_depend_on_the_threads() {
        let one = outline("constant", |_| ()).first_s;
        let three = outline("constant", |config| config.threads = NonZeroU32::new(3).unwrap()).first_s;
        assert_eq!(one.len(), FIRST);
        assert_eq!(one, three);
        assert!((one[1] - one[0] - 0.01).abs() < 1e-9, "{one:?}");
    }

    #[test]
    fn descriptors_cover_connects_and_populations() {
        let shown = outline("constant", |config| {
            config.populations = vec!["idle:500".parse().unwrap(), "hot:20".parse().unwrap()];
        });
        let Descriptors { pending_max, populations, needed, unanswered_max, .. } = shown.descriptors;
        assert_eq!((pending_max, populations, needed), (53, 520, 53 + 520 + 64));
        assert_eq!(unanswered_max, 1_000, "100/s for the 10 s of a request timeout");
        assert_eq!(shown.sources.ports_in_time_wait_max, Some(3_500));
        assert_eq!(shown.populations, ["idle:500", "hot:20"]);
    }

    #[test]
    fn a_closed_client_has_no_rate() {
        let shown = outline("constant", |config| {
            config.client = Client::Closed { clients: NonZeroU32::new(64).unwrap() };
        });
        assert_eq!((shown.rates, shown.arrivals, shown.first_s.len()), (None, None, 0));
        assert_eq!((shown.descriptors.pending_max, shown.descriptors.unanswered_max), (64, 0));
        assert_eq!(shown.sources.ports_in_time_wait_max, None);
    }
}
