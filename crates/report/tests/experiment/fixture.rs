//! The records of an experiment that was never run: made from formulas, with noise and a drift that all
//! trials of a repetition share.

use std::collections::BTreeMap;
use std::path::Path;

use base::{Rng, Seed};
use rand::RngExt;
use rand::seq::SliceRandom;
use record::experiment::{
    CapacityRecord, Directory, Flaw, Form, RUN_SCHEMA, RunDirectory, RunRecord, ServerRecord, TRIAL_SCHEMA,
    TrialRecord, Value,
};
use record::{Manifest, Topology, TopologyKind};

/// The experiment file, with a claim of every kind whose truth the formulas decide.
pub const TEXT: &str = include_str!("fixture.toml");

const CAPACITY_PER_S: f64 = 12_000.0;
const OFFERED: [f64; 7] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0];
const LOSSES: [&str; 3] = ["0%", "1%", "5%"];
/// Name, share of its capacity that a further capacity's worth of load costs, accepted at most per phase.
const SERVERS: [(&str, f64, f64); 3] = [("one", 0.22, 1.0), ("ten", 0.06, 10.0), ("inf", 0.02, 90.0)];

/// A run in its folder's shape: complete, ten repetitions, some trials flawed, one server not installed.
pub fn run() -> RunDirectory {
    run_with(10, Seed(1), |_| 1.0)
}

/// Makes a run of `repeats` repetitions. `faster` gives the speed-up of each server.
pub fn run_with(repeats: u32, seed: Seed, faster: fn(&str) -> f64) -> RunDirectory {
    let mut rng = seed.rng();
    let mut trials = Vec::new();
    for repeat in 0..repeats {
        let drift = 1.0 - 0.05 * f64::from(repeat) / f64::from(repeats);
        let mut round = Vec::new();
        for (server, loss, per_phase) in SERVERS {
            for offered in OFFERED {
                let noise = drift * (1.0 + 0.02 * (rng.random::<f64>() - 0.5)) * faster(server);
                round.push(one_packet(server, repeat, offered, (loss, per_phase), noise));
            }
        }
        for lost in LOSSES {
            round.push(lossy(repeat, lost, &mut rng));
        }
        round.push(fixed(repeat, drift));
        round.shuffle(&mut rng);
        trials.append(&mut round);
    }
    for (order, trial) in trials.iter_mut().enumerate() {
        trial.order = order as u32;
    }
    let superseded = flawed(&mut trials);
    RunDirectory { run: record(repeats, trials.len() as u32), trials, superseded }
}

/// Writes the records as a run does.
pub fn write(run: &RunDirectory, dir: &Path) {
    let directory = Directory::new(dir);
    std::fs::create_dir_all(directory.trials_folder()).unwrap();
    record::file::write(&directory.run_file(), &run.run).unwrap();
    for trial in run.trials.iter().chain(&run.superseded) {
        record::file::write(&directory.trial_file(trial.order, trial.attempt), trial).unwrap();
    }
}

fn record(repeats: u32, planned: u32) -> RunRecord {
    let server = |name: &str| ServerRecord {
        name: name.to_owned(),
        command: ["inrush", "serve", "--accept-limit", name].map(str::to_owned).to_vec(),
        excluded: None,
    };
    let mut servers: Vec<ServerRecord> =
        SERVERS.iter().map(|(name, _, _)| server(name)).chain([server("fixed")]).collect();
    servers.push(ServerRecord {
        name: "nginx".to_owned(),
        command: Vec::new(),
        excluded: Some("nginx is not installed".to_owned()),
    });
    RunRecord {
        schema: RUN_SCHEMA.to_owned(),
        name: "fixture".to_owned(),
        text: TEXT.to_owned(),
        form: Form::Full,
        trials: repeats,
        topology: Topology {
            kind: TopologyKind::Loopback,
            warnings: vec!["On loopback a refused SYN costs the server nothing.".to_owned()],
        },
        servers,
        capacities: vec![CapacityRecord {
            server: "inf".to_owned(),
            load: "one-packet".to_owned(),
            per_s: CAPACITY_PER_S,
            interval_per_s: [11_700.0, 12_300.0],
            lower_bound_only: false,
        }],
        planned,
        finished: true,
        warnings: Vec::new(),
        manifest: manifest(),
    }
}

fn manifest() -> Manifest {
    Manifest {
        version: "0.1.0".to_owned(),
        command: ["inrush", "lab", "run", "fixture.toml"].map(str::to_owned).to_vec(),
        config: BTreeMap::new(),
        seed: Some(Seed(1)),
        started_unix_s: 1_795_297_448,
        kernel: "6.18.0".to_owned(),
        cpu: "Example Processor 9000 @ 3.0 GHz".to_owned(),
        cpus: 2,
        cpus_allowed: "0-1".to_owned(),
        descriptor_limit: Some(20_000),
        sysctls: BTreeMap::from([("net.ipv4.tcp_syncookies".to_owned(), "1".to_owned())]),
    }
}

fn trial(
    server: &str,
    load: &str,
    repeat: u32,
    axes: &[(&str, Value)],
    metrics: &[(&str, f64)],
) -> TrialRecord {
    TrialRecord {
        schema: TRIAL_SCHEMA.to_owned(),
        server: server.to_owned(),
        load: Some(load.to_owned()),
        axes: axes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        repeat,
        order: 0,
        attempt: 1,
        flaws: Vec::new(),
        failure: None,
        capacity_per_s: Some(CAPACITY_PER_S),
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        client: None,
        herd: None,
        kernel: None,
        queue: None,
        in_force: None,
        speed: None,
        cpu_busy: BTreeMap::from([(0, 0.97), (1, 0.4)]),
        server_status: None,
        started_unix_s: 1_795_297_448,
    }
}

/// A server at a multiple of the capacity: it keeps up, and then loses some for what it has to refuse.
fn one_packet(
    name: &str,
    repeat: u32,
    offered: f64,
    (loss, per_phase): (f64, f64),
    noise: f64,
) -> TrialRecord {
    let past = (offered - 1.0).max(0.0);
    let good = CAPACITY_PER_S * offered.min(1.0) * (1.0 - loss * past).max(0.1) * noise;
    let latency_ms = if past > 0.0 { 60.0 * (1.0 + past) / noise } else { 0.4 + offered * offered };
    let phases = good / (1.0 + (per_phase - 1.0) * (offered / 3.0).powi(2));
    trial(
        name,
        "one-packet",
        repeat,
        &[("offered", Value::Number(offered))],
        &[
            ("offered_per_s", offered * CAPACITY_PER_S),
            ("capacity_per_s", CAPACITY_PER_S),
            ("replies_per_s", good),
            ("goodput_per_s", good),
            ("latency_ms_p50", latency_ms),
            ("drops_per_s", CAPACITY_PER_S * past * 1.3 / noise),
            ("get_events_per_s", phases),
            ("accepted_per_phase", good / phases),
            ("server_cpu_cores", offered.min(1.0) * 0.98),
        ],
    )
}

/// One server behind a network that loses packets.
fn lossy(repeat: u32, loss: &str, rng: &mut Rng) -> TrialRecord {
    let place = LOSSES.iter().position(|one| *one == loss).unwrap() as f64;
    let good = 6_000.0 * (1.0 - 0.15 * place) * (1.0 + 0.03 * rng.random::<f64>());
    trial(
        "inf",
        "lossy",
        repeat,
        &[("loss", Value::Text(loss.to_owned()))],
        &[("goodput_per_s", good), ("latency_ms_p50", 1.0 + 40.0 * place)],
    )
}

/// A server whose only load mentions no axis.
fn fixed(repeat: u32, drift: f64) -> TrialRecord {
    trial(
        "fixed",
        "one-packet",
        repeat,
        &[],
        &[
            ("capacity_per_s", CAPACITY_PER_S),
            ("replies_per_s", 7_000.0 * drift),
            ("goodput_per_s", 7_000.0 * drift),
        ],
    )
}

/// One trial was noisy and is good in its second attempt, one stays generator-limited; all of one point died.
fn flawed(trials: &mut [TrialRecord]) -> Vec<TrialRecord> {
    let is_at = |trial: &TrialRecord, server: &str, offered: f64| {
        trial.server == server && trial.axes.get("offered") == Some(&Value::Number(offered))
    };
    let mut superseded = Vec::new();
    for trial in trials.iter_mut() {
        if is_at(trial, "ten", 0.5) && trial.repeat == 0 {
            superseded.push(TrialRecord { flaws: vec![Flaw::Noisy], ..trial.clone() });
            trial.attempt = 2;
        } else if is_at(trial, "inf", 3.0) && trial.repeat == 1 {
            trial.flaws = vec![Flaw::GeneratorLimited];
            let halved = trial.metrics["goodput_per_s"] * 0.5;
            trial.metrics.insert("goodput_per_s".to_owned(), halved);
            trial.metrics.insert("replies_per_s".to_owned(), halved);
        } else if is_at(trial, "one", 2.0) {
            trial.flaws = vec![Flaw::ServerDied];
            trial.failure = Some("the server ended with signal 11".to_owned());
        }
    }
    superseded
}
