//! Clients that retry, against servers that fail them.

use std::num::NonZeroU32;

use base::{Nanos, PerSecond};
use load::{Client, Process, Sockets};
use record::{LoadResult, Outcome};

use super::servers::Server;
use super::{all_at_the_beginning, assert_all, config, run};

const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn retrying(server: &Server, policy: &str) -> load::Config {
    load::Config { retry: policy.parse().unwrap(), ..config(server) }
}

/// Asserts the demand: the requests scheduled by rate and time.
#[track_caller]
fn assert_demand(result: &LoadResult, requests: u64) {
    assert_eq!(result.offered - result.retries.offered, requests, "{:?}", result.retries);
}

#[test]
fn refusing_server_is_offered_amplified_demand() {
    let mut config = retrying(&Server::replying(BUSY), "fixed:1ms,4");
    // Few requests and a long time: on a busy machine, too, most of them come to their last retry.
    config.client =
        Client::SClient { rate: PerSecond(40.0), arrivals: Process::constant(), sockets: Sockets::Auto };
    config.duration = Nanos::SECOND;
    let result = run(config);
    assert_demand(&result, 40);
    assert_all(&result, Outcome::Shed);
    assert!(result.amplification() > 3.0 && result.amplification() <= 5.5, "{}", result.amplification());
    assert!(result.offered_per_s > 3.0 * result.target_per_s.unwrap());
    let in_series: u64 = result.series.iter().map(|point| point.retries).sum();
    assert!(in_series >= result.retries.offered);
}

#[test]
fn demand_is_not_amplified_without_retries() {
    for (server, policy) in [(Server::replying(OK), "fixed:0,inf"), (Server::replying(BUSY), "none")] {
        let result = run(retrying(&server, policy));
        assert_eq!((result.retries.offered, result.amplification()), (0, 1.0));
    }
}

#[test]
fn retry_latency_counts_from_the_first_attempt() {
    let server = Server::alternating(BUSY, OK);
    let mut config = retrying(&server, "fixed:20ms");
    config.expected.deadline = Some(Nanos::from_millis(20));
    let result = run(config);
    assert_demand(&result, 100);
    let succeeded = result.retries.outcomes.get(Outcome::Ok);
    assert!(succeeded > 0, "{:?}", result.retries);
    let latency = result.latency_intended_ns;
    assert_eq!(latency.all(), 100, "an attempt that is retried is not counted beside its retry: {latency:?}");
    assert!(result.latency_intended_ns.answered.max >= 20_000_000, "{:?}", result.latency_intended_ns);
    // A few requests scheduled in the warm-up may be answered after it.
    let in_time = result.outcomes.get(Outcome::Ok) - succeeded;
    assert!(result.goodput_per_s * result.duration_s <= in_time as f64 + 5.0, "retries came too late");
}

#[test]
fn what_a_session_had_left_is_offered_again_as_one() {
    let server = Server::resetting(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhel");
    let mut sessions = retrying(&server, "exponential:1ms,4ms,2");
    sessions.requests_per_connection = Some("4".parse().unwrap());
    let result = run(sessions);
    assert_demand(&result, 400);
    assert!(result.retries.offered > 100, "each session is retried up to twice: {:?}", result.retries);
    let first_attempts = 100 + result.retries.offered;
    assert!(result.outcomes.get(Outcome::Reset) > first_attempts, "the rest fails with its session");
}

#[test]
fn a_refusal_within_a_session_is_retried_beside_it() {
    let server = Server::alternating(OK, BUSY);
    let mut sessions = retrying(&server, "fixed:1ms,1");
    sessions.requests_per_connection = Some("4".parse().unwrap());
    let result = run(all_at_the_beginning(400, sessions));
    assert_demand(&result, 400);
    assert!(result.retries.offered > 0);
    let refused = result.outcomes.get(Outcome::Shed);
    assert!(refused > 0 && result.outcomes.get(Outcome::Ok) + refused == result.outcomes.total());
}

#[test]
fn a_closed_client_waits_for_its_retries() {
    let mut closed = retrying(&Server::replying(BUSY), "fixed:1h,inf");
    closed.client = Client::Closed { clients: NonZeroU32::new(5).unwrap() };
    closed.warmup = base::Nanos::ZERO;
    let result = run(closed);
    assert_eq!((result.offered, result.outcomes.get(Outcome::Shed)), (5, 5));
}

#[test]
fn a_wrong_reply_is_final() {
    let missing = Server::replying(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let result = run(retrying(&missing, "fixed:0,inf"));
    assert_all(&result, Outcome::StatusError);
    assert_eq!(result.retries.offered, 0);
}
