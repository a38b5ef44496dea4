//! A study made from formulas: three servers, five loads, two repetitions.

use std::collections::BTreeMap;

use base::Seed;
use record::load::{self, Connections};
use record::trial;
use record::{
    Distribution, KernelDrops, LoadResult, Manifest, Outcome, Outcomes, QueueDepth, ServerEntry, Study,
    Topology, TopologyKind, Trial, Verdict,
};
use serde_json::json;

const FACTORS: [f64; 5] = [0.5, 0.9, 1.2, 2.0, 3.0];
const DURATION_S: f64 = 3.0;
const MILLISECOND: f64 = 1e6;

/// How a server of the fixture behaves.
struct Model {
    name: &'static str,
    description: &'static str,
    capacity_per_s: f64,
    /// The share of its capacity lost for each further capacity's worth of load.
    loss: f64,
    /// Its queueing delay when saturated, in milliseconds.
    delay_ms: f64,
    per_phase_max: f64,
}

const MODELS: [Model; 3] = [
    Model {
        name: "accept-limit 1",
        description: "One process, one connection accepted each time the listener is ready.",
        capacity_per_s: 9_400.0,
        loss: 0.21,
        delay_ms: 420.0,
        per_phase_max: 1.0,
    },
    Model {
        name: "accept-limit 10",
        description: "One process, up to ten connections accepted each time.",
        capacity_per_s: 11_900.0,
        loss: 0.035,
        delay_ms: 138.0,
        per_phase_max: 9.7,
    },
    Model {
        name: "accept-limit inf",
        description: "One process, every pending connection accepted each time.",
        capacity_per_s: 12_300.0,
        loss: 0.09,
        delay_ms: 61.0,
        per_phase_max: 74.0,
    },
];

/// The study: measured on loopback, the generator at its limit in one trial, one server not installed.
pub fn study() -> Study {
    let mut trials = Vec::new();
    for (repeat, wobble) in [(0, 1.0), (1, 0.965)] {
        for (place, factor) in FACTORS.into_iter().enumerate() {
            for (index, model) in MODELS.iter().enumerate() {
                // A fixed shuffle stands for the random order of a real experiment.
                let order = (trials.len() as u32 * 7 + 3) % 30;
                let limited = repeat == 1 && place == 4 && index == 2;
                trials.push(model.trial(factor, repeat, order, wobble, limited));
            }
        }
    }
    trials.sort_by_key(|trial| trial.order);
    let mut servers: Vec<ServerEntry> = MODELS.iter().map(Model::entry).collect();
    servers.push(ServerEntry {
        name: "nginx".to_owned(),
        description: "One worker, open_file_cache on.".to_owned(),
        command: vec!["nginx".to_owned(), "-c".to_owned(), "nginx.conf".to_owned()],
        capacity_per_s: 0.0,
        capacity_interval_per_s: [0.0, 0.0],
        excluded: Some("nginx is not installed".to_owned()),
    });
    Study {
        schema: trial::SCHEMA.to_owned(),
        title: "How many connections to accept at once".to_owned(),
        topology: Topology {
            kind: TopologyKind::Loopback,
            warnings: vec![
                "Without root, processes could not be pinned to processors of their own.".to_owned(),
            ],
        },
        servers,
        trials,
        manifest: manifest(),
    }
}

fn manifest() -> Manifest {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    Manifest {
        version: "0.1.0".to_owned(),
        command: ["inrush", "demo", "--quick", "--seed", "42"].map(str::to_owned).to_vec(),
        config: map(&[("duration", "3s"), ("repetitions", "2"), ("connect-timeout", "500ms")]),
        seed: Some(Seed(42)),
        started_unix_s: 1_795_297_448,
        kernel: "6.18.0".to_owned(),
        cpu: "Example Processor 9000 @ 3.0 GHz".to_owned(),
        cpus: 2,
        cpus_allowed: "0-1".to_owned(),
        descriptor_limit: Some(20_000),
        sysctls: map(&[("net.core.somaxconn", "4096"), ("net.ipv4.tcp_syncookies", "1")]),
    }
}

impl Model {
    fn entry(&self) -> ServerEntry {
        ServerEntry {
            name: self.name.to_owned(),
            description: self.description.to_owned(),
            command: vec!["inrush".to_owned(), "serve".to_owned(), "./public dir".to_owned()],
            capacity_per_s: self.capacity_per_s,
            capacity_interval_per_s: [self.capacity_per_s * 0.97, self.capacity_per_s * 1.03],
            excluded: None,
        }
    }

    fn trial(&self, factor: f64, repeat: u32, order: u32, wobble: f64, limited: bool) -> Trial {
        let over = (factor - 1.0).max(0.0);
        let good = self.capacity_per_s * factor.min(1.0) * (1.0 - self.loss * over).max(0.1);
        let good = if factor > 1.0 { good * wobble } else { good };
        let drops = self.capacity_per_s * over * 1.4 * (2.0 - wobble);
        let phases = 1.0 + (self.per_phase_max - 1.0) * (factor / (factor + 0.6)).powi(2);
        Trial {
            server: self.name.to_owned(),
            factor,
            repeat,
            order,
            load: self.load(factor, good, wobble, limited),
            kernel: KernelDrops {
                over_s: DURATION_S,
                listen_drops: (drops * DURATION_S) as u64,
                listen_overflows: (drops * DURATION_S * 0.8) as u64,
                ..KernelDrops::default()
            },
            queue: Some(QueueDepth { depth_max: 128, depth_mean: 128.0 * (over / 2.0).min(1.0), limit: 128 }),
            server_cpu: factor.min(1.0) * 0.98,
            client_cpu: factor * 0.2,
            server_status: Some(json!({
                "accepts": (good * DURATION_S) as u64,
                "accept_phases": (good * DURATION_S / phases) as u64,
            })),
        }
    }

    fn load(&self, factor: f64, good_per_s: f64, wobble: f64, limited: bool) -> LoadResult {
        let target = self.capacity_per_s * factor;
        let offered = (target * DURATION_S) as u64;
        let ok = (good_per_s * DURATION_S) as u64;
        let mut outcomes = Outcomes::default();
        outcomes.add(Outcome::Ok, ok);
        let lost = offered - ok;
        outcomes.add(Outcome::ResponseTimeout, lost / 5);
        outcomes.add(Outcome::Reset, lost / 40);
        outcomes.add(Outcome::NoTime, if limited { lost / 10 } else { 0 });
        let in_flight = if factor > 1.0 { lost / 30 } else { 0 };
        outcomes.add(Outcome::ConnectTimeout, offered - outcomes.total() - in_flight);
        let p50 = if factor > 1.0 {
            self.delay_ms * (0.6 + 0.13 * factor) / wobble
        } else {
            0.35 + factor * factor
        };
        LoadResult {
            schema: load::SCHEMA.to_owned(),
            duration_s: DURATION_S,
            offered,
            in_flight_at_end: in_flight,
            not_due_at_end: 0,
            conclusion: String::new(),
            statuses: Default::default(),
            outcomes,
            handshakes: None,
            connections: Connections { attempted: offered, established: ok, sockets_peak: 2_000 },
            target_per_s: Some(target),
            offered_per_s: target,
            sent_per_s: target,
            replies_per_s: good_per_s,
            goodput_per_s: good_per_s,
            content_bytes_per_s: good_per_s * 1_024.0,
            latency_intended_ns: distribution(ok, p50 * MILLISECOND).into(),
            latency_sent_ns: distribution(ok, p50 * MILLISECOND * 0.8).into(),
            connect_ns: distribution(ok, 0.1 * MILLISECOND).into(),
            lateness_ns: distribution(offered, 0.02 * MILLISECOND),
            generator_cpu: factor * 0.2,
            retries: Default::default(),
            populations: BTreeMap::new(),
            series: Vec::new(),
            thresholds: Vec::new(),
            verdict: if limited { Verdict::GeneratorLimited } else { Verdict::Valid },
            reasons: if limited { vec!["3 % of sessions began too late.".to_owned()] } else { Vec::new() },
            manifest: Manifest::default(),
        }
    }
}

fn distribution(count: u64, p50: f64) -> Distribution {
    let at = |factor: f64| (p50 * factor) as u64;
    Distribution {
        count,
        mean: p50 * 1.2,
        p50: at(1.0),
        p90: at(2.1),
        p95: at(3.2),
        p99: at(5.5),
        p999: at(8.0),
        max: at(11.0),
    }
}
