//! Populations beside the measured traffic, against servers that hold them, answer them and turn them away.

use base::Nanos;
use record::{LoadResult, Outcome, Population};

use super::servers::Server;
use super::{config, run};

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn run_beside(server: &Server, populations: &[&str]) -> LoadResult {
    let mut beside = config(server);
    beside.populations = populations.iter().map(|text| text.parse().unwrap()).collect();
    // Room for clients that connect late on a busy machine.
    beside.warmup = Nanos::from_millis(200);
    let result = run(beside);
    assert_eq!(result.populations.len(), populations.len());
    result
}

fn only(result: &LoadResult) -> &Population {
    result.populations.values().next().unwrap()
}

/// Asserts that all connections were held from the first to the last moment.
#[track_caller]
fn assert_held(population: &Population, clients: u64) {
    assert_eq!((population.clients, population.offered), (clients, clients), "{population:?}");
    assert_eq!((population.in_flight_at_end, population.open_at_end), (clients, clients), "{population:?}");
    assert_eq!(population.connections.established, clients);
}

/// Asserts that sessions offer all their requests, but for each client's first session, which begins in the middle, and its
/// last one, which ends with the run.
#[track_caller]
fn assert_sessions(population: &Population, clients: u64, requests: u64) {
    let begun = population.connections.attempted;
    let whole = begun.saturating_sub(2 * clients);
    let offered = whole * requests + (begun - whole)..=begun * requests;
    assert!(offered.contains(&population.offered), "{offered:?}: {population:?}");
}

#[test]
fn idle_population_leaves_measured_traffic_unchanged() {
    let server = Server::replying(REPLY);
    let result = run_beside(&server, &["idle:150", "idle:30,half-request"]);
    assert_eq!((result.offered, result.outcomes.get(Outcome::Ok)), (100, 100));
    assert_held(&result.populations["idle:150"], 150);
    assert_held(&result.populations["idle:30,half-request"], 30);
    for population in result.populations.values() {
        assert_eq!(population.latency_intended_ns.all(), 0, "nobody asks");
    }
}

#[test]
fn half_a_request_is_half_a_request() {
    let (server, heard) = Server::listening();
    let result = run_beside(&server, &["idle:1,half-request"]);
    assert_held(only(&result), 1);
    let halves: Vec<Vec<u8>> =
        heard.try_iter().filter(|said| said.starts_with(b"GET /") && !said.ends_with(b"\r\n\r\n")).collect();
    assert_eq!(halves.len(), 1, "{halves:?}");
}

#[test]
fn closed_idle_connections_reopen_after_a_pause() {
    let mut long = config(&Server::closing());
    long.populations = vec!["idle:20".parse().unwrap()];
    long.duration = Nanos::from_secs(2);
    let result = run(long);
    let population = only(&result);
    assert_eq!(population.outcomes.get(Outcome::Reset), population.outcomes.total());
    // Each comes back after 0.5 to 1.5 s.
    assert!((21..=100).contains(&population.offered), "{population:?}");
    let told = "connections of population idle:20 were open";
    assert!(result.reasons.iter().any(|reason| reason.contains(told)), "{result:?}");
}

#[test]
fn reply_to_half_a_request_is_its_outcome() {
    let refusing = Server::greeting(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
    let result = run_beside(&refusing, &["idle:5,half-request"]);
    let population = only(&result);
    assert!(population.outcomes.get(Outcome::StatusError) >= 5, "{population:?}");
    assert_eq!(population.outcomes.get(Outcome::StatusError), population.outcomes.total());
}

#[test]
fn hot_and_cold_clients_await_replies_and_think() {
    let server = Server::replying(REPLY);
    let result = run_beside(&server, &["hot:4", "cold:3"]);
    assert_eq!(result.outcomes.get(Outcome::Ok), result.outcomes.total(), "{:?}", result.outcomes);
    let hot = &result.populations["hot:4"];
    assert!(hot.outcomes.get(Outcome::Ok) > 4, "{hot:?}");
    assert_sessions(hot, 4, 5);
    assert!(hot.latency_intended_ns.answered.count > 0 && hot.replies_per_s > 0.0);
    let cold = &result.populations["cold:3"];
    assert_sessions(cold, 3, 20);
    let sessions = cold.connections.established;
    assert_eq!(cold.outcomes.get(Outcome::Ok), sessions, "their second requests are 5 s away");
    assert_eq!(cold.latency_intended_ns.answered.count, 0, "all of them asked in the warm-up");
}

#[test]
fn a_slow_sender_sends_all_and_reads_its_reply() {
    let server = Server::replying(REPLY);
    let result = run_beside(&server, &["slow-send:5,1KiB/s", "slow-send:5,10B/s"]);
    let quick = &result.populations["slow-send:5,1KiB/s"];
    assert!(quick.outcomes.get(Outcome::Ok) > 0, "{quick:?}");
    assert_eq!(quick.outcomes.get(Outcome::Ok), quick.outcomes.total());
    let slow = &result.populations["slow-send:5,10B/s"];
    assert_held(slow, 5);
    let latency = slow.latency_intended_ns;
    assert_eq!((latency.unanswered, latency.p50), (5, None), "what is in flight at the end has no latency");
}

#[test]
fn a_slow_reader_leaves_the_reply_with_the_server() {
    const CONTENT: usize = 4 << 20;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {CONTENT}\r\n\r\n");
    let reply = [head.into_bytes(), vec![b'x'; CONTENT]].concat();
    let server = Server::replying(Box::leak(reply.into_boxed_slice()));
    let mut few = config(&server);
    few.populations = vec!["slow-read:3,1KiB/s".parse().unwrap(), "slow-read:3,1GiB/s".parse().unwrap()];
    few.client = load::Client::Closed { clients: std::num::NonZeroU32::MIN };
    let result = run(few);
    assert_held(&result.populations["slow-read:3,1KiB/s"], 3);
    let quick = &result.populations["slow-read:3,1GiB/s"];
    assert!(quick.outcomes.get(Outcome::Ok) > 0, "{quick:?}");
    assert_eq!(quick.outcomes.get(Outcome::Ok), quick.outcomes.total(), "{quick:?}");
}

#[test]
fn silence_ends_slow_clients_after_request_timeout() {
    let mut silent = config(&Server::silent());
    silent.request_timeout = Nanos::from_millis(20);
    silent.populations = vec!["slow-read:2,1KiB/s".parse().unwrap(), "slow-send:2,1MiB/s".parse().unwrap()];
    let result = run(silent);
    for population in result.populations.values() {
        assert!(population.outcomes.get(Outcome::ResponseTimeout) >= 2, "{population:?}");
        assert_eq!(population.outcomes.get(Outcome::ResponseTimeout), population.outcomes.total());
    }
}

#[test]
fn nobody_there_is_an_outcome_of_populations_too() {
    let nobody = Server::closed();
    let mut closed = config(&nobody);
    closed.populations = ["idle:3", "cold:2", "slow-send:1,1B/s"].map(|text| text.parse().unwrap()).into();
    let result = run(closed);
    for population in result.populations.values() {
        assert!(population.outcomes.get(Outcome::Refused) > 0, "{population:?}");
        assert_eq!(population.outcomes.get(Outcome::Refused), population.outcomes.total(), "{population:?}");
        assert_eq!(population.connections.established, 0);
    }
}
