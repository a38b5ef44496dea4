//! The tables of a study: every trial, and the machine and command lines that produced them.

use record::{Outcome, Study, Trial};

use crate::format::{multiple, number, rate, time};
use crate::table::{Table, command_line, machine};

const TRIAL_HEAD: [&str; 24] = [
    "server",
    "load",
    "repetition",
    "order",
    "verdict",
    "offered/s",
    "sent/s",
    "replies/s",
    "goodput/s",
    "median",
    "p99",
    "p99.9",
    "largest",
    "median from sent",
    "p99 lateness",
    "connect median",
    "sockets",
    "listen drops",
    "of them queue full",
    "SYN queue full",
    "cookies sent",
    "accept queue mean / max / limit",
    "accepted per phase",
    "CPU server / client",
];

/// Every trial with its numbers, in the order they were run.
pub fn trials(study: &Study) -> Table {
    let mut trials: Vec<&Trial> = study.trials.iter().collect();
    trials.sort_by_key(|trial| trial.order);
    let outcomes = Outcome::ALL.into_iter().map(|outcome| outcome.name().replace('_', " "));
    Table {
        head: TRIAL_HEAD
            .map(str::to_owned)
            .into_iter()
            .chain(outcomes)
            .chain(["in flight".to_owned()])
            .collect(),
        rows: trials.into_iter().map(trial).collect(),
    }
}

fn trial(trial: &Trial) -> Vec<String> {
    let load = &trial.load;
    let latency = |ns: u64| {
        if load.latency_intended_ns.answered.count == 0 { "–".to_owned() } else { time(ns as f64) }
    };
    let queue = trial.queue.map_or("–".to_owned(), |queue| {
        format!("{} / {} / {}", number(queue.depth_mean), queue.depth_max, queue.limit)
    });
    let mut cells = vec![
        trial.server.clone(),
        multiple(trial.factor),
        (u64::from(trial.repeat) + 1).to_string(),
        (u64::from(trial.order) + 1).to_string(),
        load.verdict.name().to_owned(),
        rate(load.offered_per_s),
        rate(load.sent_per_s),
        rate(load.replies_per_s),
        rate(load.goodput_per_s),
        latency(load.latency_intended_ns.answered.p50),
        latency(load.latency_intended_ns.answered.p99),
        latency(load.latency_intended_ns.answered.p999),
        latency(load.latency_intended_ns.answered.max),
        latency(load.latency_sent_ns.answered.p50),
        time(load.lateness_ns.p99 as f64),
        time(load.connect_ns.answered.p50 as f64),
        load.connections.sockets_peak.to_string(),
        trial.kernel.listen_drops.to_string(),
        trial.kernel.listen_overflows.to_string(),
        trial.kernel.req_q_full_drops.to_string(),
        trial.kernel.syn_cookies_sent.to_string(),
        queue,
        trial.mean_accepted_per_phase().map_or("–".to_owned(), number),
        format!("{} / {}", number(trial.server_cpu), number(trial.client_cpu)),
    ];
    cells.extend(load.outcomes.iter().map(|(_, count)| count.to_string()));
    cells.push(load.in_flight_at_end.to_string());
    cells
}

/// Where the results come from: the machine, the settings, the servers' command lines.
pub fn manifest(study: &Study) -> Table {
    let mut table = machine(&study.schema, &study.manifest);
    for server in &study.servers {
        let [low, high] = server.capacity_interval_per_s;
        table.rows.push(vec![format!("{}: command", server.name), command_line(&server.command)]);
        table.rows.push(vec![
            format!("{}: capacity", server.name),
            format!("{}, between {} and {}", rate(server.capacity_per_s), rate(low), rate(high)),
        ]);
    }
    table
}
