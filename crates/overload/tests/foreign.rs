//! The control of a foreign listener in simulation: its promises to clients and to the server.
//!
//! Every test prints its seed and its figures: `cargo test -p inrush-overload --test foreign -- --nocapture`.

mod foreign_simulation;

use base::{Nanos, Seed};
use foreign_simulation::{Accepting, Beside, Hook, Ledger, Scenario, Server, Watches, run};

const SEED: Seed = Seed(20);

const fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// The servers of other programs, and the requests of their connections.
fn servers() -> [(&'static str, Server, u16); 8] {
    use Accepting::{AtOnce, EachTurn, WhenFree};
    [
        ("java", Server { workers: 8, work: vec![ms(16)], ..Server::new(AtOnce) }, 1),
        ("haproxy", Server::new(AtOnce), 1),
        ("node", Server { workers: 1, work: vec![ms(2)], ..Server::new(EachTurn(usize::MAX)) }, 1),
        ("go", Server::new(EachTurn(1)), 1),
        ("gunicorn", Server { workers: 4, work: vec![ms(8)], ..Server::new(WhenFree) }, 1),
        ("haproxy, kept connections", Server::new(AtOnce), 5),
        ("go, kept connections", Server::new(EachTurn(1)), 5),
        ("nginx over TLS", Server::tls(), 3),
    ]
}

/// Servers of 36 to 50 requests per second.
fn slow_servers() -> [(&'static str, Server); 5] {
    use Accepting::{AtOnce, EachTurn, WhenFree};
    let with = |workers, work, accepting| Server { workers, work: vec![ms(work)], ..Server::new(accepting) };
    [
        ("slow gunicorn", with(4, 100, WhenFree)),
        ("slow java", with(8, 160, AtOnce)),
        ("slow haproxy", with(2, 50, AtOnce)),
        ("slow node", with(1, 28, EachTurn(usize::MAX))),
        ("slow go", with(2, 50, EachTurn(1))),
    ]
}

/// Half the capacity for two seconds, then `times` the capacity for ten seconds.
fn rush(server: Server, times: f64) -> Scenario {
    Scenario { seed: SEED, ..Scenario::new(server, &[(ms(2000), 0.5), (ms(12_000), times)]) }
}

/// Goodput of the rush, as a fraction of the capacity.
fn goodput(name: &str, scenario: &Scenario) -> f64 {
    let (ledger, from, end) = (run(scenario), ms(2000), scenario.end());
    let good = ledger.good_per_s(from, end) / scenario.capacity();
    let [p50, p90] = [50.0, 90.0].map(|percentile| ledger.wait_ms(from, end, percentile));
    println!(
        "seed {SEED}, {name}: goodput {good:.3}, p50 {p50:.0} ms, p90 {p90:.0} ms, {} refused",
        ledger.refused
    );
    good
}

/// The least part of the connections of a second that was served.
fn worst_second(name: &str, scenario: &Scenario, ledger: &Ledger) -> f64 {
    let seconds = scenario.end().0 / Nanos::SECOND.0;
    let served = |second| ledger.served_share(ms(second * 1000), ms(second * 1000 + 1000));
    let shares: Vec<f64> = (0..seconds).map(served).collect();
    println!("seed {SEED}, {name}: served by seconds {shares:.2?}, {} refused", ledger.refused);
    shares.into_iter().fold(1.0, f64::min)
}

#[test]
fn unguarded_servers_serve_nobody_past_capacity() {
    for (name, server, requests) in servers() {
        let scenario = Scenario { requests, guard: None, ..rush(server, 2.0) };
        assert!(
            goodput(&format!("{name} alone"), &scenario) < 0.1,
            "the simulation is kinder than the world"
        );
    }
}

#[test]
fn guarded_servers_keep_their_capacity_at_any_load() {
    for (name, server, requests) in servers() {
        // A session counts if each of its answers is in time.
        let least = if requests == 1 { 0.95 } else { 0.85 };
        for times in [1.1, 1.3, 2.0, 10.0] {
            let scenario = Scenario { requests, ..rush(server.clone(), times) };
            assert!(goodput(&format!("{name} at {times} x"), &scenario) >= least, "{name} {times}");
        }
    }
}

#[test]
fn slow_servers_keep_their_capacity_within_500_ms() {
    // An answer alone takes up to 333 ms here.
    for (name, server) in slow_servers() {
        for (times, least) in [(2.0, 0.85), (10.0, 0.9)] {
            let kept = |guard| {
                let good = |seed| {
                    let scenario = Scenario { seed: Seed(seed), guard, ..rush(server.clone(), times) };
                    run(&scenario).within_per_s(ms(2000), scenario.end(), 500.0) / scenario.capacity()
                };
                (20..25).map(good).sum::<f64>() / 5.0
            };
            let (guarded, alone) = (kept(Some(Watches::Both)), kept(None));
            println!("seeds 20..25, {name} at {times} x: {guarded:.3} guarded, {alone:.3} alone");
            assert!(guarded >= least && alone < 0.1, "{name} {times}");
        }
    }
}

#[test]
fn slow_servers_lose_nothing_near_capacity() {
    for (name, server) in slow_servers() {
        for seed in 20..25 {
            let scenario = Scenario { seed: Seed(seed), ..rush(server.clone(), 0.9) };
            let ledger = run(&scenario);
            let served = ledger.served_share(ms(2000), scenario.end());
            println!("seed {seed}, {name} at 0.9 x: {served:.3} served, {} refused", ledger.refused);
            assert!(served >= 0.99 && ledger.refused <= ledger.syns / 100, "{name} {seed}");
        }
    }
}

#[test]
fn half_requests_cost_slow_servers_little() {
    for (name, server) in
        slow_servers().into_iter().filter(|(_, server)| server.accepting == Accepting::AtOnce)
    {
        for within in [1, 100, 3000] {
            let beside = vec![Beside::half_requests(ms(3000), ms(within), 150)];
            let scenario = Scenario { beside, ..rush(server.clone(), 0.5) };
            let worst = worst_second(&format!("{name} beside 150 half requests"), &scenario, &run(&scenario));
            assert!(worst >= 0.95, "{name} {within}");
        }
    }
}

#[test]
fn sink_keeps_two_thirds_of_a_foreign_capacity() {
    // A share cannot follow the noise of 500 connections a second, and admits some clients at their second SYN.
    for (name, server, requests) in servers() {
        for times in [1.1, 2.0, 10.0] {
            let scenario = Scenario { requests, hook: Hook::Sink, ..rush(server.clone(), times) };
            assert!(
                goodput(&format!("{name} with a sink at {times} x"), &scenario) >= 0.75,
                "{name} {times}"
            );
        }
    }
}

#[test]
fn guard_costs_nothing_near_capacity() {
    for (name, server, requests) in servers() {
        let scenario = Scenario { requests, ..rush(server, 0.9) };
        let alone = goodput(&format!("{name} alone"), &Scenario { guard: None, ..scenario.clone() });
        let (ledger, guarded) = (run(&scenario), goodput(&format!("{name} guarded"), &scenario));
        // The sessions of a hundred connections a second are batches, and some of these make a queue of 100 ms.
        let least = if requests == 5 { 0.9 } else { 0.99 };
        assert!(guarded >= least * alone, "{name}");
        let most = if requests > 1 { 0.1 } else { 0.0 };
        assert!(ledger.refused as f64 <= most * ledger.syns as f64, "{name}: {} refused", ledger.refused);
    }
}

#[test]
fn either_signal_alone_is_blind_to_some_server() {
    let alone = |name: &str, guard| {
        let (name, server, requests) = servers().into_iter().find(|server| server.0 == name).unwrap();
        let scenario = Scenario { requests, guard: Some(guard), ..rush(server, 1.1) };
        goodput(&format!("{name} by {guard:?}"), &scenario)
    };
    assert!(alone("haproxy", Watches::Queue) < 0.5, "its accept queue is empty");
    assert!(alone("nginx over TLS", Watches::Requests) < 0.7, "two answers of three cost nothing");
}

#[test]
fn half_requests_make_nobody_refused_at_half_load() {
    // At once or slowly, and before the server's speed is known.
    for (from, within) in [(3000, 100), (3000, 1), (3000, 3000), (0, 1)] {
        let beside = vec![Beside::half_requests(ms(from), ms(within), 150)];
        let scenario = Scenario { beside, ..rush(Server::new(Accepting::AtOnce), 0.5) };
        let ledger = run(&scenario);
        let worst = worst_second(&format!("150 half requests at {from} ms"), &scenario, &ledger);
        assert!(worst >= 0.97, "{from} {within}");
    }
}

#[test]
fn half_requests_leave_the_capacity_past_saturation() {
    for times in [2.0, 10.0] {
        let beside = vec![Beside::half_requests(ms(3000), ms(100), 150)];
        let scenario = Scenario { beside, ..rush(Server::new(Accepting::AtOnce), times) };
        assert!(goodput(&format!("150 half requests at {times} x"), &scenario) >= 0.95, "{times}");
    }
}

#[test]
fn long_polls_and_uploads_are_left_alone() {
    // Seen from outside, an upload is a request that is answered late.
    let polls = |again| Beside {
        from: ms(1000),
        within: ms(3000),
        clients: 500,
        answered_after: Some(ms(5000)),
        again,
    };
    for again in [true, false] {
        let half = Scenario { beside: vec![polls(again)], ..rush(Server::new(Accepting::AtOnce), 0.5) };
        let worst = worst_second("500 long polls at half load", &half, &run(&half));
        assert!(worst >= 0.97, "{again}");
        let past = Scenario { beside: vec![polls(again)], ..rush(Server::new(Accepting::AtOnce), 2.0) };
        assert!(goodput("500 long polls at 2 x", &past) >= 0.95, "{again}");
    }
}

/// A server whose backend takes 20 ms, another time from the 6th to the 12th second, and 20 ms again, at 400/s.
fn slow_backend(server: Server, slow: u64) -> Scenario {
    let backend = vec![(ms(6000), ms(20)), (ms(12_000), ms(slow)), (ms(20_000), ms(20))];
    let server = Server { backend, ..server };
    let times = 400.0 / server.capacity(1);
    Scenario { seed: SEED, patience: Nanos::from_secs(5), ..Scenario::new(server, &[(ms(20_000), times)]) }
}

#[test]
fn slow_backend_at_equal_capacity_is_no_queue() {
    for work in [400, 2000] {
        for slow in [60, 200, 400] {
            let work = vec![Nanos::from_micros(work)];
            let node = Server { workers: 1, work, ..Server::new(Accepting::EachTurn(usize::MAX)) };
            let scenario = slow_backend(node, slow);
            let worst = worst_second(&format!("a backend of {slow} ms"), &scenario, &run(&scenario));
            assert!(worst >= 0.99, "{slow}");
        }
    }
}

#[test]
fn two_seconds_without_answers_refuse_for_a_time() {
    // No answer comes for two seconds, which no reading tells from a server that stands still.
    let work = vec![Nanos::from_micros(400)];
    let node = Server { workers: 1, work, ..Server::new(Accepting::EachTurn(usize::MAX)) };
    let scenario = slow_backend(node, 2000);
    let ledger = run(&scenario);
    worst_second("a backend of 2000 ms", &scenario, &ledger);
    assert!(ledger.refused > 0);
    assert!(ledger.served_share(ms(9000), ms(20_000)) >= 0.95);
}

#[test]
fn workers_of_a_slow_backend_recover_sooner() {
    // Eight workers that a backend of 100 ms blocks serve 80 requests per second of 400.
    let work = vec![Nanos::from_micros(100)];
    let blocking = Server { workers: 8, work, blocks: true, ..Server::new(Accepting::AtOnce) };
    let guarded = slow_backend(blocking, 100);
    let after = |scenario: &Scenario| run(scenario).good_share(ms(15_000), ms(18_000));
    let (with, without) = (after(&guarded), after(&Scenario { guard: None, ..guarded.clone() }));
    println!("seed {SEED}: {with:.2} in time with a guard, {without:.2} without");
    assert!(with >= without + 0.5);
}
