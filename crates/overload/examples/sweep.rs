//! Sweeps the constants of the law over simulated servers, and prints the table of decision 0017.
//!
//!     cargo run --release -p inrush-overload --example sweep [CONSTANT]
//!
//! Each line changes one constant from its chosen value. Columns are means over three seeds, onset included:
//! goodput within 200 ms as a fraction of the capacity, and in brackets the 99th percentile of answered
//! requests in milliseconds.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use base::{Nanos, Seed};
use overload::law::Constants;
use simulation::{Bursts, Costs, Disturbance, Hook, Ledger, Scenario, run};

const SEEDS: [Seed; 3] = [Seed(1), Seed(2), Seed(3)];

const fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// Half the capacity for half a second, then `times` the capacity for five seconds.
fn rush(costs: Costs, times: f64) -> Scenario {
    Scenario::new(costs, &[(ms(500), 0.5), (ms(5500), times)])
}

/// A rush whose clients pause for 6 ms in every 100 ms, and then send twice as much for as long.
fn pauses(costs: Costs, times: f64) -> Scenario {
    let parts = (0..50).flat_map(|part| {
        let at = 500 + part * 100;
        [(ms(at + 88), times), (ms(at + 94), 0.0), (ms(at + 100), 2.0 * times)]
    });
    Scenario::new(costs, &std::iter::once((ms(500), 0.5)).chain(parts).collect::<Vec<_>>())
}

/// A load of 0.7 times the capacity for 20 s.
fn calm(costs: Costs) -> Scenario {
    Scenario::new(costs, &[(ms(20_000), 0.7)])
}

/// Runs a scenario with each seed.
fn runs(scenario: &Scenario, constants: Constants) -> Vec<Ledger> {
    let with = |seed| Scenario { seed, control: Some(constants), ..scenario.clone() };
    SEEDS.map(with).iter().map(run).collect()
}

fn mean(ledgers: &[Ledger], of: impl Fn(&Ledger) -> f64) -> f64 {
    ledgers.iter().map(of).sum::<f64>() / ledgers.len() as f64
}

/// Goodput and 99th percentile.
fn goodput(scenario: &Scenario, constants: Constants) -> String {
    let ledgers = runs(scenario, constants);
    let good =
        |ledger: &Ledger| ledger.between(ms(500), scenario.end()).good as f64 / 5.0 / scenario.capacity();
    let p99 = mean(&ledgers, |ledger| ledger.first_ms(99.0));
    format!("{:.3} ({p99:.0})", mean(&ledgers, good))
}

/// The fraction of SYNs turned away, in hundredths of a percent.
fn refused(scenario: &Scenario, constants: Constants) -> String {
    let ledgers = runs(scenario, constants);
    format!("{:.1}", mean(&ledgers, |ledger| ledger.turned_away() as f64 / ledger.all_offered() as f64) * 1e4)
}

fn columns(constants: Constants) -> Vec<(&'static str, String)> {
    let with = |scenario: Scenario| goodput(&scenario, constants);
    let far = |scenario| Scenario { round_trip: ms(50), ..scenario };
    let bucket = |scenario| Scenario { hook: Hook::Bucket, ..scenario };
    let drift =
        |scenario| Scenario { disturbance: Disturbance::Slower { period: ms(700), times: 2.0 }, ..scenario };
    let bursts = |costs| {
        let connections = (0.0285 * calm(costs).capacity()) as u32;
        Scenario { bursts: Some(Bursts { every: ms(300), connections, within: ms(4) }), ..calm(costs) }
    };
    let stalls =
        Scenario { disturbance: Disturbance::Stalls { length: ms(30), every: ms(400) }, ..calm(Costs::FAST) };
    let stalls_in_a_rush = Scenario {
        disturbance: Disturbance::Stalls { length: ms(60), every: ms(250) },
        ..rush(Costs::FAST, 10.0)
    };
    let stall_of_a_second = Scenario {
        disturbance: Disturbance::Stalls { length: ms(1000), every: Nanos::from_secs(1_000_000) },
        ..Scenario::new(Costs::FAST, &[(ms(5500), 2.0)])
    };
    let long = Scenario::new(Costs::TLS, &[(Nanos::from_secs(60), 0.9)]);
    let after = |end: u64| {
        let rush = Scenario::new(Costs::FAST, &[(ms(500), 0.7), (ms(end), 10.0), (ms(end + 2500), 0.7)]);
        let share = |ledger: &Ledger| ledger.between(ms(end), ms(end + 1000)).share();
        format!("{:.4}", mean(&runs(&rush, constants), share))
    };
    vec![
        ("sink 1.1 x", with(rush(Costs::FAST, 1.1))),
        ("sink 10 x", with(rush(Costs::FAST, 10.0))),
        ("bucket 10 x", with(bucket(rush(Costs::FAST, 10.0)))),
        ("pauses 10 x", with(pauses(Costs::FAST, 10.0))),
        ("work 10 x", with(rush(Costs::WORK, 10.0))),
        ("tls 2 x", with(rush(Costs::TLS, 2.0))),
        ("far 2 x", with(far(rush(Costs::FAST, 2.0)))),
        ("far bucket 10 x", with(far(bucket(rush(Costs::FAST, 10.0))))),
        ("patient 2 x", with(Scenario { patience: ms(2000), ..rush(Costs::FAST, 2.0) })),
        ("drift 3 x", with(drift(rush(Costs::FAST, 3.0)))),
        ("stall of 1 s", with(stall_of_a_second)),
        ("stalls in 10 x", with(stalls_in_a_rush)),
        ("sessions 10 x", with(Scenario { sessions: true, ..rush(Costs::FAST, 10.0) })),
        ("after 0.2 s", after(700)),
        ("after 5 s", after(5500)),
        ("0.9 tls", refused(&long, constants)),
        ("bursts", refused(&bursts(Costs::FAST), constants)),
        ("bursts tls", refused(&bursts(Costs::TLS), constants)),
        ("stalls", refused(&stalls, constants)),
    ]
}

type Set = fn(&mut Constants, f64);

/// Every constant, with values around the chosen one.
const SWEEP: [(&str, Set, &[f64]); 25] = [
    ("enter_wait", |c, v| c.enter_wait = v, &[1.5, 5.0]),
    ("enter_queue", |c, v| c.enter_queue = v, &[0.0, 16.0, 128.0]),
    ("enter_horizon", |c, v| c.enter_horizon = v, &[0.0, 0.5]),
    ("enter_ticks", |c, v| c.enter_ticks = v as u32, &[1.0, 4.0]),
    ("set_point", |c, v| c.set_point = v, &[0.1, 0.4, 0.8]),
    ("set_point_queue", |c, v| c.set_point_queue = v, &[1.0, 16.0]),
    ("drain_time", |c, v| c.drain_time = v, &[1.25, 2.5, 10.0]),
    ("least_admitted", |c, v| c.least_admitted = v, &[0.01, 0.5]),
    ("probe", |c, v| c.probe = v, &[0.0, 0.1, 0.4]),
    ("most_probe", |c, v| c.most_probe = v, &[0.2, 4.0]),
    ("drains_below", |c, v| c.drains_below = v, &[0.0, 0.8, 0.97]),
    ("drains_connections", |c, v| c.drains_connections = v, &[0.0, 64.0]),
    ("drain_ticks", |c, v| c.drain_ticks = v as u32, &[1.0, 3.0, 4.0]),
    ("refuse_ticks", |c, v| c.refuse_ticks = v as u32, &[1.0, 2.0, 8.0]),
    ("leave_after", |c, v| c.leave_after = v, &[5.0, 100.0]),
    ("standing", |c, v| c.standing = v, &[4.0, 1e9]),
    ("alarm", |c, v| c.alarm = v, &[0.5, 1e9]),
    ("backlog", |c, v| c.backlog = v, &[2.5, 5.0]),
    ("memory", |c, v| c.memory = v, &[0.5, 2.5, 5.0]),
    ("memory_connections", |c, v| c.memory_connections = v, &[0.0, 128.0]),
    ("fade", |c, v| c.fade = v, &[5.0, 500.0]),
    ("smoothing", |c, v| c.smoothing = v, &[0.15, 0.6]),
    ("correction", |c, v| c.correction = v, &[2.5, 40.0, 1e9]),
    ("most_counted", |c, v| c.most_counted = v, &[0.0, 0.5]),
    ("burst", |c, v| c.burst = v, &[0.1, 0.5]),
];

fn line(name: &str, constants: Constants) {
    let columns: Vec<String> = columns(constants).into_iter().map(|(_, value)| value).collect();
    println!("| {name} | {} |", columns.join(" | "));
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let names: Vec<&str> = columns(Constants::CHOSEN).into_iter().map(|(name, _)| name).collect();
    println!("| | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    line("chosen", Constants::CHOSEN);
    for (name, set, values) in SWEEP.into_iter().filter(|(name, _, _)| name.contains(&only)) {
        for value in values {
            let mut constants = Constants::CHOSEN;
            set(&mut constants, *value);
            line(&format!("{name} {value}"), constants);
        }
    }
}
