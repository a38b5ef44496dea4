//! The law in simulation: its promises to clients, at every load.
//!
//! Every test prints its seed and its figures: `cargo test -p inrush-overload --test law -- --nocapture`.

mod simulation;

use base::{Nanos, Seed};
use simulation::{Bursts, Costs, Disturbance, Hook, Ledger, Scenario, run};

const SEED: Seed = Seed(20);

const fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// Half the capacity for half a second, then `times` the capacity for ten seconds.
fn rush(costs: Costs, times: f64) -> Scenario {
    Scenario { seed: SEED, ..Scenario::new(costs, &[(ms(500), 0.5), (ms(10_500), times)]) }
}

/// A load below the capacity for 20 s.
fn calm(costs: Costs, times: f64) -> Scenario {
    Scenario { seed: SEED, ..Scenario::new(costs, &[(ms(20_000), times)]) }
}

/// Goodput from a time on, as a fraction of the capacity.
fn goodput(scenario: &Scenario, ledger: &Ledger, from: Nanos) -> f64 {
    let seconds = (scenario.end() - from).as_secs_f64();
    ledger.between(from, scenario.end()).good as f64 / seconds / scenario.capacity()
}

/// Goodput of the rush, onset included, as a fraction of the possible; and the 99th percentile of answered
/// requests in milliseconds.
fn served(name: &str, scenario: &Scenario, times: f64) -> (f64, f64) {
    let ledger = run(scenario);
    let (good, best) = (goodput(scenario, &ledger, ms(500)), scenario.best(times));
    let p99 = ledger.first_ms(99.0);
    println!("seed {SEED}, {name} at {times} x: goodput {good:.3} of {best:.3} possible, p99 {p99:.1} ms");
    (good / best, p99)
}

#[test]
fn without_control_almost_nobody_is_served_in_time() {
    let scenario = Scenario { control: None, hook: Hook::None, ..rush(Costs::WORK, 10.0) };
    let (share, _) = served("no control", &scenario, 10.0);
    assert!(share < 0.1, "the simulation is kinder than the world");
}

#[test]
fn saturated_server_serves_its_capacity_in_time() {
    // Server; the least fraction of the possible goodput; the highest 99th percentile in milliseconds.
    let servers = [
        ("fast", Costs::FAST, 0.985, 75.0),
        ("work", Costs::WORK, 0.98, 80.0),
        ("tls", Costs::TLS, 0.97, 70.0),
    ];
    for (name, costs, least, most_p99) in servers {
        for hook in [Hook::Sink, Hook::Bucket, Hook::Device] {
            for times in [1.2, 2.0, 4.0, 10.0] {
                let scenario = Scenario { hook, ..rush(costs, times) };
                let (share, p99) = served(&format!("{name}, {hook:?}"), &scenario, times);
                assert!(share >= least, "{name} {hook:?} {times}");
                assert!(p99 <= most_p99, "{name} {hook:?} {times}");
            }
        }
    }
}

#[test]
fn fast_server_keeps_its_feasible_capacity() {
    // The limit is 1 - 9 x 28,000/s x the cost of a drop: 0.79 for the sink, 0.94 in tc.
    for (hook, least) in [(Hook::Sink, 0.78), (Hook::Bucket, 0.92)] {
        let scenario = Scenario { hook, ..rush(Costs::FAST, 10.0) };
        let (share, _) = served(&format!("{hook:?}"), &scenario, 10.0);
        assert!(share * scenario.best(10.0) >= least);
    }
}

#[test]
fn nothing_is_refused_below_the_capacity() {
    for (name, costs, length) in
        [("fast", Costs::FAST, 600), ("work", Costs::WORK, 600), ("tls", Costs::TLS, 600)]
    {
        let scenario = Scenario { load: vec![(Nanos::from_secs(length), 0.9)], ..calm(costs, 0.9) };
        let ledger = run(&scenario);
        println!("seed {SEED}, {name}: {} of {} refused", ledger.turned_away(), ledger.all_offered());
        assert_eq!(ledger.turned_away(), 0, "{name}");
    }
}

#[test]
fn distant_clients_handshake_below_capacity() {
    // At 300 ms a slow server has more handshakes in progress than five target delays of work.
    let load = vec![(Nanos::from_secs(60), 0.9)];
    let ledger = run(&Scenario { load, round_trip: ms(300), ..calm(Costs::TLS, 0.9) });
    println!("seed {SEED}: {} of {} refused", ledger.turned_away(), ledger.all_offered());
    assert_eq!(ledger.turned_away(), 0);
}

#[test]
fn bursts_over_a_load_below_the_capacity_are_served() {
    for (name, costs, hook) in [
        ("fast", Costs::FAST, Hook::Sink),
        ("fast", Costs::FAST, Hook::Bucket),
        ("work", Costs::WORK, Hook::Sink),
        ("tls", Costs::TLS, Hook::Sink),
    ] {
        let scenario = Scenario { hook, ..calm(costs, 0.7) };
        // 28.5 ms of work in 4 ms: 800 connections of a fast server.
        let connections = (0.0285 * scenario.capacity()) as u32;
        let bursts = Some(Bursts { every: ms(250), connections, within: ms(4) });
        let ledger = run(&Scenario { bursts, ..scenario.clone() });
        println!("seed {SEED}, {name}, {hook:?}, bursts of {connections}: {} refused", ledger.turned_away());
        assert_eq!(ledger.turned_away(), 0, "{name} {hook:?}");
    }
}

#[test]
fn bursts_after_a_rush_are_served_as_well() {
    // Half a second at twice the capacity refuses half a second's work; the bursts after it cause almost no
    // refusals.
    let load = vec![(ms(500), 0.5), (ms(1000), 2.0), (ms(20_000), 0.7)];
    let scenario = Scenario { load, ..calm(Costs::FAST, 0.7) };
    let bursts = Some(Bursts { every: ms(150), connections: 800, within: ms(4) });
    let ledger = run(&Scenario { bursts, ..scenario.clone() });
    let after = ledger.between(ms(1500), ms(20_000));
    println!("seed {SEED}: {:.4} of the arrivals after the rush in time", after.share());
    assert!(after.share() >= 0.99);
}

#[test]
fn a_stall_of_the_processor_refuses_next_to_nobody() {
    for (name, costs) in [("fast", Costs::FAST), ("tls", Costs::TLS)] {
        let disturbance = Disturbance::Stalls { length: ms(30), every: ms(400) };
        let ledger = run(&Scenario { disturbance, ..calm(costs, 0.7) });
        let part = ledger.turned_away() as f64 / ledger.all_offered() as f64;
        println!("seed {SEED}, {name}: {part:.5} refused");
        assert!(part <= 0.001, "{name}");
    }
}

#[test]
fn server_recovers_at_once_after_a_second_of_pause() {
    for (name, costs) in [("fast", Costs::FAST), ("work", Costs::WORK), ("tls", Costs::TLS)] {
        // The first stall comes at 0.5 s, and no other one within the run.
        let disturbance = Disturbance::Stalls { length: ms(1000), every: Nanos::from_secs(1_000_000) };
        let load = vec![(ms(3500), 2.0)];
        let scenario = Scenario { disturbance, load, hook: Hook::Bucket, ..rush(costs, 2.0) };
        let ledger = run(&scenario);
        let good = goodput(&scenario, &ledger, ms(2000));
        println!("seed {SEED}, {name}: goodput {good:.3} from half a second after the stall on");
        assert!(good >= 0.95, "{name}");
    }
}

#[test]
fn a_capacity_that_changes_two_fold_is_followed() {
    for (name, costs) in [("fast", Costs::FAST), ("work", Costs::WORK), ("tls", Costs::TLS)] {
        for period in [ms(300), ms(700), ms(3000)] {
            let disturbance = Disturbance::Slower { period, times: 2.0 };
            let scenario = Scenario { disturbance, hook: Hook::Bucket, ..rush(costs, 3.0) };
            let ledger = run(&scenario);
            let good = goodput(&scenario, &ledger, ms(500));
            // Half of the time at the capacity and half at half the capacity: 0.75 without refusals.
            println!("seed {SEED}, {name}, {period}: goodput {good:.3}, p99 {:.1} ms", ledger.first_ms(99.0));
            assert!(good >= 0.75 * 0.91, "{name} {period}");
            assert!(ledger.first_ms(99.0) <= 80.0, "{name} {period}");
        }
    }
}

#[test]
fn the_state_does_not_flap() {
    for (name, costs) in [("fast", Costs::FAST), ("work", Costs::WORK), ("tls", Costs::TLS)] {
        for times in [0.95, 1.0, 1.02, 1.05, 1.1, 1.5, 10.0] {
            let ledger = run(&rush(costs, times));
            println!("seed {SEED}, {name} at {times} x: {} changes in 10 s", ledger.changes);
            assert!(ledger.changes <= 6, "{name} {times}");
        }
    }
}

#[test]
fn distant_clients_are_controlled_without_oscillation() {
    for (name, costs) in [("fast", Costs::FAST), ("work", Costs::WORK), ("tls", Costs::TLS)] {
        for hook in [Hook::Sink, Hook::Bucket, Hook::Device] {
            for times in [2.0, 10.0] {
                let scenario = Scenario { hook, round_trip: ms(50), ..rush(costs, times) };
                let (share, _) = served(&format!("{name}, {hook:?}, 50 ms away"), &scenario, times);
                assert!(share >= 0.92, "{name} {hook:?} {times}");
            }
        }
    }
}

#[test]
fn established_sessions_are_served_first() {
    for (name, costs) in [("fast", Costs::FAST), ("work", Costs::WORK), ("tls", Costs::TLS)] {
        let scenario = Scenario { sessions: true, ..rush(costs, 10.0) };
        let ledger = run(&scenario);
        let p99 = ledger.later_ms(99.0);
        println!("seed {SEED}, {name}: {} requests, p99 {p99:.1} ms", ledger.later_sent);
        assert_eq!(ledger.later_answered(), ledger.later_sent, "{name}: every request is answered");
        assert!(p99 <= 20.0, "{name}");
    }
}

#[test]
fn adaptive_accept_limit_equals_the_best_fixed_one() {
    for (name, costs) in [("fast", Costs::FAST), ("work", Costs::WORK)] {
        for sessions in [false, true] {
            for times in [0.9, 1.5, 2.3] {
                let with = |accept_limit| run(&Scenario { sessions, accept_limit, ..rush(costs, times) });
                let adaptive = with(None);
                let fixed = [1, 10, 100].map(|limit| (limit, with(Some(limit))));
                let (best, ledger) =
                    fixed.iter().max_by_key(|(_, ledger)| ledger.in_time).expect("there are three");
                let ratio = adaptive.in_time as f64 / ledger.in_time as f64;
                let (p99, p99_of_best) = (adaptive.later_ms(99.0), ledger.later_ms(99.0));
                println!(
                    "seed {SEED}, {name}, sessions {sessions}, {times} x: {ratio:.3} of limit {best}; \
                     p99 of sessions {p99:.1} ms against {p99_of_best:.1}"
                );
                assert!(ratio >= 0.97, "{name} {sessions} {times}");
                assert!(p99 <= p99_of_best.max(20.0), "{name} {sessions} {times}");
            }
        }
    }
}

#[test]
fn an_accept_limit_without_bound_starves_sessions() {
    let scenario = Scenario { sessions: true, accept_limit: Some(u32::MAX), ..rush(Costs::WORK, 2.0) };
    let ledger = run(&Scenario { control: None, hook: Hook::None, ..scenario });
    println!("seed {SEED}: p99 of sessions {:.1} ms", ledger.later_ms(99.0));
    assert!(ledger.later_ms(99.0) > 200.0, "the simulation is kinder than the world");
}

#[test]
fn the_first_second_after_a_long_rush_is_served() {
    for (name, costs) in [("fast", Costs::FAST), ("work", Costs::WORK), ("tls", Costs::TLS)] {
        for hook in [Hook::Sink, Hook::Bucket] {
            let load = vec![(ms(500), 0.7), (ms(5500), 10.0), (ms(8000), 0.7)];
            let ledger = run(&Scenario { load, hook, ..rush(costs, 0.7) });
            let share = ledger.between(ms(5500), ms(6500)).share();
            println!("seed {SEED}, {name}, {hook:?}: {share:.4} of the first second after the rush");
            assert!(share >= 0.97, "{name} {hook:?}");
        }
    }
}

#[test]
fn recovery_takes_a_twentieth_of_a_second() {
    for (length, least) in [(200, 0.3), (5000, 0.65)] {
        let end = 500 + length;
        let load = vec![(ms(500), 0.7), (ms(end), 10.0), (ms(end + 1000), 0.7)];
        let ledger = run(&Scenario { load, ..rush(Costs::FAST, 0.7) });
        let curve: Vec<f64> =
            (0..6).map(|bin| ledger.between(ms(end + 50 * bin), ms(end + 50 * (bin + 1))).share()).collect();
        println!("seed {SEED}, after {length} ms, by 50 ms: {curve:.3?}");
        assert!(curve[0] >= least && curve[1..].iter().all(|share| *share >= 0.97), "after {length} ms");
    }
}

#[test]
fn an_echo_ends_when_its_clients_give_up() {
    // Clients try for 2 s: refused clients return once, a second later, at nine times the capacity.
    for (length, least) in [(200_u64, [0.75, 0.9, 0.97]), (5000, [0.1, 0.7, 0.97])] {
        let end = 1000 + length;
        let load = vec![(ms(1000), 0.7), (ms(end), 10.0), (ms(end + 4000), 0.7)];
        let ledger = run(&Scenario { load, patience: ms(2000), ..rush(Costs::FAST, 0.7) });
        let second =
            |second: u64| ledger.between(ms(end + second * 1000), ms(end + second * 1000 + 1000)).share();
        let curve = [0, 1, 2].map(second);
        println!("seed {SEED}, after {length} ms, by seconds: {curve:.3?} of new clients in time");
        assert!(curve.iter().zip(least).all(|(share, least)| *share >= least), "after {length} ms");
    }
}

#[test]
fn echo_of_a_rush_with_room_is_no_new_rush() {
    // 0.2 s at 1.6 times the capacity: the refused clients return a second later and fit beside the load.
    let load = vec![(ms(1000), 0.3), (ms(1200), 1.6), (ms(5000), 0.3)];
    let with = |patience| run(&Scenario { load: load.clone(), patience, ..rush(Costs::FAST, 0.3) });
    let (impatient, patient) = (with(ms(500)), with(ms(8000)));
    println!("seed {SEED}: {} refused, {} with those that come back", impatient.refused, patient.refused);
    assert!(impatient.refused > 500, "there is an echo");
    assert!(patient.refused <= impatient.refused * 102 / 100, "and it is admitted");
    assert!(patient.between(ms(1900), ms(2600)).share() >= 0.999, "beside new clients");
}

#[test]
fn retransmissions_do_not_displace_servable_clients() {
    for (times, least) in [(2.0, 0.9), (10.0, 0.65)] {
        let patient = |hook| {
            let scenario = Scenario { hook, patience: ms(2000), ..rush(Costs::FAST, times) };
            let ledger = run(&scenario);
            let good = goodput(&scenario, &ledger, ms(2500));
            println!("seed {SEED}, {hook:?} at {times} x: goodput {good:.3} of clients that try for 2 s");
            good
        };
        let (by_identity, by_chance) = (patient(Hook::Sink), patient(Hook::RandomSink));
        assert!(by_identity >= 1.3 * by_chance, "{times}");
        assert!(patient(Hook::Device) >= 1.3 * patient(Hook::Bucket), "{times}");
        assert!(by_identity >= least * rush(Costs::FAST, times).best(times), "{times}");
    }
}

#[test]
fn rush_start_is_bounded_on_a_never_busy_server() {
    for times in [2.0, 10.0, 50.0] {
        let load = vec![(ms(500), 0.01), (ms(1000), times)];
        let scenario = Scenario { load, ..rush(Costs::WORK, times) };
        let ledger = run(&scenario);
        // A client whose final ACK was dropped repeats its request 200 ms later, and waits in the queue then.
        println!("seed {SEED}, {times} x: the longest wait is {:.1} ms", ledger.first_ms(100.0));
        assert!(ledger.first_ms(100.0) <= 350.0, "{times}");
    }
}

#[test]
fn the_target_delay_is_the_one_setting() {
    let waits = [ms(5), ms(20), ms(100)].map(|target| {
        let mut scenario = rush(Costs::FAST, 3.0);
        scenario.settings.target = target;
        let ledger = run(&scenario);
        let (p50, p99) = (ledger.first_ms(50.0), ledger.first_ms(99.0));
        println!("seed {SEED}, target {target}: p50 {p50:.1} ms, p99 {p99:.1} ms");
        assert!(p50 <= target.as_secs_f64() * 1e3 && p99 <= 3.0 * target.as_secs_f64() * 1e3, "{target}");
        assert!(goodput(&scenario, &ledger, ms(500)) >= 0.9, "{target}");
        p50
    });
    assert!(waits[2] >= 5.0 * waits[0] && waits.is_sorted(), "{waits:?}");
}

#[test]
fn remembering_device_prefers_new_clients_to_an_echo() {
    let servers = [("fast", Costs::FAST, 0.97), ("work", Costs::WORK, 0.97), ("tls", Costs::TLS, 0.94)];
    for (name, costs, least) in servers {
        for length in [200_u64, 5000] {
            let end = 1000 + length;
            let load = vec![(ms(1000), 0.7), (ms(end), 10.0), (ms(end + 5000), 0.7)];
            let ledger = run(&Scenario { load, hook: Hook::Device, patience: ms(8000), ..rush(costs, 0.7) });
            let at = |second: u64| ms(end + 1000 * second);
            let curve = [0, 1, 2, 3, 4].map(|second| ledger.between(at(second), at(second + 1)).share());
            println!(
                "seed {SEED}, {name}, after {length} ms, by seconds: {curve:.3?} of new clients in time"
            );
            assert!(curve.iter().all(|share| *share >= least), "{name} after {length} ms");
        }
    }
}

#[test]
fn requests_as_long_as_the_target_are_refused_early() {
    for (costs, times) in [(Costs::LONG, 2.0), (Costs::LONG, 6.0), (Costs::LONG, 50.0)] {
        for hook in [Hook::Sink, Hook::Device] {
            let scenario = Scenario { hook, ..rush(costs, times) };
            let ledger = run(&scenario);
            let good = goodput(&scenario, &ledger, ms(500));
            println!(
                "seed {SEED}, {hook:?} at {times} x: goodput {good:.3}, {} refused, {} late of {}",
                ledger.refused,
                ledger.late,
                ledger.all_offered()
            );
            assert!(ledger.late * 20 <= ledger.all_offered(), "a 503 costs a client more than a refused SYN");
            assert!(good >= 0.8, "{hook:?} {times}");
        }
    }
}

#[test]
fn bucket_bounds_the_first_tick_of_a_rush() {
    // The first second at ten times the capacity, on a server that was never saturated.
    for before in [0.01, 0.5] {
        let load = vec![(ms(500), before), (ms(1500), 10.0)];
        let onset = |hook| run(&Scenario { load: load.clone(), hook, ..rush(Costs::WORK, 10.0) });
        let (sink, device) = (onset(Hook::Sink), onset(Hook::Device));
        for (name, ledger) in [("sink", &sink), ("device", &device)] {
            println!(
                "seed {SEED}, {name}, {before} before: p99 {:.0} ms, {} handshakes dropped",
                ledger.first_ms(99.0),
                ledger.dropped
            );
        }
        // Only the kernel drops what a sink lets pass before the law's first tick.
        assert!(device.dropped * 10 <= sink.dropped, "{before}");
        assert!(device.first_ms(99.0) <= 60.0, "{before}");
    }
}
