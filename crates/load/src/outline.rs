//! What a run would do and need, said before it begins: for `inrush load --dry-run`.
//!
//! A pure function of a [`Plan`]: nothing is sent and no socket is opened.

use base::Nanos;
use serde::Serialize;

use crate::arrivals::Lane;
use crate::config::Client;
use crate::ledger::Window;
use crate::population::Population;
use crate::preflight::{DESCRIPTORS_ASIDE, Plan, sessions_peak};
use crate::sources::SourceRange;

/// The schema this version writes.
const SCHEMA: &str = "inrush.load-plan/1";

/// Of the schedule's times, those that are shown.
const FIRST: usize = 5;

/// A run before it begins.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outline {
    /// `inrush.load-plan/1`.
    pub schema: &'static str,
    /// The address and port that the load would go to.
    pub target: String,
    /// What goes before and is not measured, in seconds.
    pub warmup_s: f64,
    /// The measured time, in seconds.
    pub duration_s: f64,
    /// The arrival process, as it is asked for; of a closed client nothing.
    pub arrivals: Option<String>,
    /// When the first sessions would begin, in seconds since the run's start; of a closed client nothing.
    pub first_s: Vec<f64>,
    /// Rates and totals; nothing for a closed client, which has no rate of its own.
    pub rates: Option<Rates>,
    /// Of self-similar arrivals.
    pub hurst: Option<Hurst>,
    /// The populations beside the measured traffic.
    pub populations: Vec<String>,
    /// Engine threads, all processes together, the handler's of a pair among them.
    pub threads: u32,
    /// Processes.
    pub processes: u32,
    /// Descriptors.
    pub descriptors: Descriptors,
    /// Source addresses and their ports.
    pub sources: SourcePorts,
    /// What will limit the generator or what the run will not show, one sentence each.
    pub warnings: Vec<String>,
}

/// How much an open-loop run offers, retries left out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Sessions a second, on average over the measured time.
    pub sessions_per_s_mean: f64,
    /// And at most, over a second.
    pub sessions_per_s_peak: f64,
    /// Requests a second, on average over the measured time.
    pub requests_per_s_mean: f64,
    /// And at most, over a second.
    pub requests_per_s_peak: f64,
    /// Requests expected in the measured time.
    pub requests_measured: f64,
    /// Requests expected in all, warm-up included.
    pub requests_in_all: f64,
}

/// How self-similar the arrivals are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hurst {
    /// The Hurst parameter of this very schedule, where it is long enough for an estimate.
    pub schedule: Option<f64>,
    /// That of the process.
    pub process: f64,
}

/// What a run needs of descriptors, all its processes together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Descriptors {
    /// The most connects pending at once: D of the S-client; of a closed loop, its clients.
    pub pending_max: u64,
    /// The clients of the populations, each with a connection.
    pub populations: u64,
    /// Of the program itself, in each process.
    pub aside: u64,
    /// All of these.
    pub needed: u64,
    /// More on top, where the server accepts everything and answers nothing: what is established and waits for its
    /// request time-out.
    pub unanswered_max: u64,
    /// What they may open; nothing where there is no limit.
    pub limit: Option<u64>,
}

/// Where connections come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourcePorts {
    /// The addresses; nothing where the kernel chooses.
    pub addresses: Option<String>,
    /// How many they are.
    pub count: u32,
    /// Ports that the kernel has for connects from all of them.
    pub ports: u64,
    /// The most that can be held by closed connections at once, if the client's side closes first; nothing for
    /// a closed client, which has no rate of its own.
    pub ports_in_time_wait_max: Option<u64>,
}

impl Plan {
    /// What the run would do and need. Takes as long as an estimate of the Hurst parameter, about a second.
    pub fn outline(&self) -> Outline {
        let config = &self.config;
        Outline {
            schema: SCHEMA,
            target: self.target.to_string(),
            warmup_s: config.warmup.as_secs_f64(),
            duration_s: config.duration.as_secs_f64(),
            arrivals: match &config.client {
                Client::SClient { arrivals, .. } => Some(arrivals.to_string()),
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

    /// The first intended times of all lanes together.
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
        let (mean, peak) = (arrivals.mean(*rate, window).0, sessions_peak(&self.config, Nanos::SECOND)?.0);
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
        Descriptors {
            pending_max,
            populations,
            aside,
            needed: if self.has_sockets() { pending_max + populations + aside } else { aside },
            unanswered_max: if self.has_sockets() { self.unanswered_max() } else { 0 },
            limit: self.descriptor_limit.map(|limit| limit.saturating_mul(processes)),
        }
    }

    /// Sessions that wait for their first reply at once, each until its request time-out. A closed client's are
    /// its clients, which are counted already.
    fn unanswered_max(&self) -> u64 {
        let config = &self.config;
        let span = config.request_timeout.min(config.window().until);
        let peak = sessions_peak(config, span).map_or(0.0, |peak| peak.times(span));
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
    use crate::{Config, Sockets};
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
        crate::prepare(config).unwrap().outline()
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
    fn descriptors_are_for_connects_populations_and_what_waits() {
        let shown = outline("constant", |config| {
            config.populations = vec!["idle:500".parse().unwrap(), "hot:20".parse().unwrap()];
        });
        let Descriptors { pending_max, populations, needed, unanswered_max, .. } = shown.descriptors;
        assert_eq!((pending_max, populations, needed), (53, 520, 53 + 520 + 64));
        assert_eq!(unanswered_max, 1_000, "100/s for the 10 s of a request time-out");
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
