//! The engine against servers that behave, fail and misbehave, on loopback. The ledger balances for all of
//! them, and no test depends on speed.

mod addressing;
mod http2;
mod identity;
mod populations;
mod requests;
mod retries;
mod servers;
mod stacks;
mod tls;

use std::num::NonZeroU32;

use base::{Nanos, PerSecond};
use load::{Client, Close, Config, Process, Snapshot, Sockets, Stop};
use proptest::prelude::*;
use record::{LoadResult, Outcome, Verdict};
use servers::Server;

/// 400 sessions per second for 250 ms after 50 ms of warm-up, with timeouts that a slow test machine does not
/// reach.
fn config(server: &Server) -> Config {
    let client =
        Client::SClient { rate: PerSecond(400.0), arrivals: Process::constant(), sockets: Sockets::Auto };
    let mut config = Config::new(vec![server.url()], client);
    config.warmup = Nanos::from_millis(50);
    config.duration = Nanos::from_millis(250);
    config.interval = Nanos::from_millis(50);
    config.connect_timeout = Nanos::from_secs(5);
    config
}

/// Begins sessions at this rate long before the run ends, so that no timing decides which requests are counted.
fn all_at_the_beginning(rate_per_s: u32, config: Config) -> Config {
    let arrivals = format!("steps:{rate_per_s}x249ms,0x1h").parse().unwrap();
    let client = Client::SClient { rate: PerSecond(1.0), arrivals, sockets: Sockets::Auto };
    Config { client, warmup: Nanos::ZERO, duration: Nanos::from_secs(2), ..config }
}

fn run(config: Config) -> LoadResult {
    let plan = load::prepare(config).unwrap();
    let result = load::run(&plan, &mut |_: &Snapshot<'_>| {}, &Stop::new()).unwrap();
    result.balance().unwrap();
    assert!(result.connections.established <= result.connections.attempted);
    let offered_in_series: u64 = result.series.iter().map(|point| point.offered).sum();
    assert!(offered_in_series >= result.offered);
    result
}

/// Asserts that every request that ended has this outcome.
#[track_caller]
fn assert_all(result: &LoadResult, outcome: Outcome) {
    assert!(result.outcomes.get(outcome) > 0, "{:?}", result.outcomes);
    assert_eq!(result.outcomes.get(outcome), result.outcomes.total(), "{:?}", result.outcomes);
}

#[test]
fn replies_are_counted_and_timed() {
    let server = Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let result = run(config(&server));
    assert_all(&result, Outcome::Ok);
    assert_eq!(result.offered, 100, "400/s for 250 ms, whatever the server does");
    assert_eq!(result.latency_intended_ns.answered.count, result.outcomes.get(Outcome::Ok));
    assert_eq!(
        (result.failed(), result.latency_intended_ns.unanswered),
        (0, 0),
        "the last ones are waited for"
    );
    assert!(result.latency_intended_ns.max >= result.latency_sent_ns.p50);
    assert!(result.goodput_per_s > 0.0 && result.content_bytes_per_s > result.goodput_per_s);
    assert_eq!(result.lateness_ns.count, 100);
}

/// A closed loop would record one slow request per client.
#[test]
fn a_stall_of_the_server_shows_in_full() {
    let server = Server::stalling(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 20, Nanos::SECOND);
    let mut stalled = config(&server);
    stalled.client =
        Client::SClient { rate: PerSecond(100.0), arrivals: Process::constant(), sockets: Sockets::Auto };
    (stalled.warmup, stalled.duration) = (Nanos::ZERO, Nanos::from_secs(2));
    let result = run(stalled);
    let latency = result.latency_intended_ns.answered;
    assert!(latency.max >= 1_000_000_000, "{latency:?}");
    // A hundred of the 200 requests come during the stall, the first fifty of them at least half a second
    // before its end.
    let more_than = |share: f64| Nanos::from_secs_f64(share).0;
    assert!(latency.p90 >= more_than(0.78) && latency.p99 >= more_than(0.95), "{latency:?}");
}

#[test]
fn a_session_makes_its_requests_on_one_connection() {
    let server = Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut sessions = config(&server);
    sessions.requests_per_connection = Some("3..7".parse().unwrap());
    sessions.think = Some("0..2ms".parse().unwrap());
    let result = run(sessions);
    assert_all(&result, Outcome::Ok);
    // A busy client has not made all requests of its sessions when the window ends.
    assert!(result.offered > 100 && result.offered <= 700, "{}", result.offered);
    assert_eq!(result.connections.attempted, 100, "those of the warm-up left out, as of requests");
    assert_eq!(result.latency_intended_ns.unanswered, result.in_flight_at_end, "what was due is answered");
}

#[test]
fn first_byte_of_a_streamed_reply_has_its_own_time() {
    let pause = Nanos::from_millis(100);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let result = run(config(&Server::streaming(head, pause, b"hello")));
    assert_all(&result, Outcome::Ok);
    let (first, last) = (result.first_byte_ns, result.latency_sent_ns);
    assert_eq!((first.answered.count, first.unanswered), (last.answered.count, last.unanswered));
    assert!(last.p50 >= Some(pause.0) && first.p50 < last.p50, "{first:?} {last:?}");
    let gap = result.gap_ns;
    // The pieces are sent a pause apart. A busy client may be late to read the first one.
    assert!(gap.p50 >= Some(pause.0 / 2) && gap.p50 <= last.max, "{gap:?} {last:?}");
    assert_eq!((gap.answered.count, gap.unanswered), (last.answered.count, last.unanswered));
    let whole = run(config(&Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")));
    assert_eq!(whole.first_byte_ns.answered.count, whole.latency_sent_ns.answered.count);
    assert_eq!(whole.gap_ns.p50, Some(0), "a reply in one piece has no gap");
}

#[test]
fn replies_to_head_end_with_their_head() {
    let server = Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    let mut heads = config(&server);
    heads.form.method = Some("HEAD".parse().unwrap());
    heads.requests_per_connection = Some("3".parse().unwrap());
    let result = run(heads);
    assert_all(&result, Outcome::Ok);
    assert_eq!((result.outcomes.total(), result.content_bytes_per_s), (result.offered, 0.0));
    assert!(result.offered > 100, "more than the first request of each session");
}

#[test]
fn goodput_is_what_was_expected_and_came_in_time() {
    let server = Server::replying(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
    let mut judged = config(&server);
    assert_all(&run(judged.clone()), Outcome::StatusError);
    judged.expected.status = "404".parse().unwrap();
    let result = run(judged.clone());
    assert_all(&result, Outcome::Ok);
    assert!(result.goodput_per_s > 0.0);
    judged.expected.deadline = Some(Nanos(1));
    let late = run(judged);
    assert_all(&late, Outcome::Ok);
    assert_eq!(late.goodput_per_s, 0.0, "nothing is answered within a nanosecond");
    assert_eq!(
        late.latency_intended_ns.answered.count,
        late.outcomes.get(Outcome::Ok),
        "and its latency counts"
    );
}

#[test]
fn the_wrong_content_is_no_correct_reply() {
    let server = Server::replying(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
    );
    let mut judged = config(&server);
    judged.requests_per_connection = Some("3".parse().unwrap());
    let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    (judged.expected.length, judged.expected.digest) = (Some(3), Some(abc.parse().unwrap()));
    assert_all(&run(judged.clone()), Outcome::Ok);
    judged.expected.digest = Some(abc.replace('b', "c").parse().unwrap());
    let wrong = run(judged.clone());
    assert_all(&wrong, Outcome::WrongBody);
    assert_eq!((wrong.goodput_per_s, wrong.latency_intended_ns.answered.count), (0.0, 0));
    (judged.expected.length, judged.expected.digest) = (Some(4), None);
    assert_all(&run(judged.clone()), Outcome::WrongBody);
    judged.form.method = Some("HEAD".parse().unwrap());
    let refused = load::prepare(judged).unwrap_err().to_string();
    assert_eq!(refused, "--expect-length expects content, but replies to HEAD have none");
}

#[test]
fn a_trace_is_replayed_once_and_all_of_it() {
    let server = Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let file = std::env::temp_dir().join(format!("inrush-trace-{}", std::process::id()));
    std::fs::write(&file, "7.00\n7.06\n7.06\n7.10\n9.00\n").unwrap();
    let arrivals: Process = format!("trace:{}", file.display()).parse().unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut replay = config(&server);
    replay.threads = NonZeroU32::new(2).unwrap();
    replay.client = Client::SClient { rate: PerSecond(1.0), arrivals, sockets: Sockets::Auto };
    let result = run(replay);
    assert_all(&result, Outcome::Ok);
    assert_eq!(
        (result.offered, result.connections.attempted),
        (3, 3),
        "the first is in the warm-up, the last after the end"
    );
    assert_eq!(result.target_per_s, Some(12.0));
}

#[test]
fn listener_without_accepts_is_offered_every_connect() {
    let server = Server::never_accepting();
    let mut overload = config(&server);
    // More places than the run needs, so that a short stall of the test machine makes no difference.
    let sockets = Sockets::AtMost(NonZeroU32::new(600).unwrap());
    overload.client = Client::SClient { rate: PerSecond(2_000.0), arrivals: Process::constant(), sockets };
    overload.connect_timeout = Nanos::from_millis(100);
    overload.request_timeout = Nanos::from_millis(100);
    let result = run(overload);
    // The few connects that fit the accept queue are established, and their replies never come.
    let (connect, response) = (Outcome::ConnectTimeout, Outcome::ResponseTimeout);
    let outcomes = &result.outcomes;
    assert!(outcomes.get(connect) > 0, "{outcomes:?}");
    assert_eq!(outcomes.get(connect) + outcomes.get(response), outcomes.total(), "{outcomes:?}");
    assert_eq!((result.offered, result.connections.attempted), (500, 500));
    let (latency, connect) = (result.latency_intended_ns, result.connect_ns);
    assert_eq!((latency.p50, latency.unanswered, result.failed()), (None, 500, 500));
    assert_eq!((latency.beyond_ns, connect.p99, connect.beyond_ns), (200_000_000, None, 100_000_000));
    assert_ne!(result.verdict, Verdict::Unreachable);
}

#[test]
fn a_server_that_hangs_fails_every_request() {
    let result = run(config(&Server::silent()));
    assert_eq!((result.in_flight_at_end, result.failed()), (100, 100));
    let (intended, sent) = (result.latency_intended_ns, result.latency_sent_ns);
    assert_eq!((intended.answered.count, intended.unanswered, sent.unanswered), (0, 100, 100));
    assert_eq!((intended.p50, intended.max, intended.beyond_ns), (None, None, 250_000_000));
    let in_series: u64 = result.series.iter().map(|point| point.latency_intended_ns.unanswered).sum();
    assert_eq!(in_series, 120, "all that never ended are in the last interval");
}

#[test]
fn broken_sessions_count_only_due_requests() {
    let mut sessions = config(&Server::resetting(b""));
    sessions.requests_per_connection = Some("100".parse().unwrap());
    sessions.think = Some("1s".parse().unwrap());
    let result = run(sessions);
    assert_eq!((result.failed(), result.latency_intended_ns.unanswered), (100, 100));
}

/// Sessions of a length, every second one of a single request, with a think time, by an open or a closed loop after a
/// warm-up.
fn sessions() -> impl Strategy<Value = (u32, u64, u64, bool)> {
    (prop_oneof![Just(1u32), 2u32..200], 0u64..40, 0u64..100, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn offered_requests_are_those_due_in_the_window((length, think, warmup, is_closed) in sessions()) {
        const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for server in [Server::replying(REPLY), Server::resetting(b""), Server::alternating(REPLY, b"")] {
            let mut config = config(&server);
            config.requests_per_connection = Some(length.to_string().parse().unwrap());
            config.think = (length > 1).then(|| format!("{think}ms").parse().unwrap());
            (config.warmup, config.duration) = (Nanos::from_millis(warmup), Nanos::from_millis(100));
            if is_closed {
                config.client = Client::Closed { clients: NonZeroU32::new(8).unwrap() };
            }
            let result = run(config);
            if length == 1 && !is_closed {
                prop_assert_eq!(result.offered, 40, "400/s for 100 ms, whatever the server does");
            }
            prop_assert_eq!(result.offered, result.latency_intended_ns.all());
            prop_assert!(result.offered >= result.outcomes.total());
            prop_assert_eq!(result.offered, result.outcomes.total() + result.in_flight_at_end);
        }
    }
}

#[test]
fn sometimes_hung_server_has_median_and_no_p90() {
    let server = Server::alternating(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"");
    let result = run(config(&server));
    let latency = result.latency_intended_ns;
    assert_eq!((latency.all(), latency.unanswered), (100, result.failed()));
    assert!(latency.unanswered > 30 && latency.p90.is_none(), "{latency:?}");
}

/// Each reply takes longer than the measured time.
#[test]
fn replies_on_their_way_at_the_end_are_waited_for() {
    let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let result = run(config(&Server::delaying(reply, Nanos::from_millis(400))));
    assert_eq!((result.outcomes.get(Outcome::Ok), result.failed()), (100, 0), "{:?}", result.outcomes);
    assert!(result.latency_intended_ns.p50.unwrap() >= 400_000_000, "{:?}", result.latency_intended_ns);
    assert_eq!((result.replies_per_s, result.goodput_per_s), (0.0, 0.0), "none came in the measured time");
    let last = result.series.last().unwrap();
    assert_eq!(
        (last.replies, last.outcomes.get(Outcome::Ok)),
        (0, 120),
        "and it is told with the last interval"
    );
}

#[test]
fn sessions_beyond_the_socket_bound_are_reported() {
    let server = Server::never_accepting();
    let mut bounded = config(&server);
    let sockets = Sockets::AtMost(NonZeroU32::new(2).unwrap());
    bounded.client = Client::SClient { rate: PerSecond(400.0), arrivals: Process::constant(), sockets };
    let result = run(bounded);
    assert_eq!(result.offered, 100);
    // On a processor that others keep busy, sessions come late, and those without a place then lacked time.
    let limited = [Outcome::NoDescriptor, Outcome::NoTime].map(|outcome| result.outcomes.get(outcome));
    assert!(limited.iter().sum::<u64>() > 0, "{:?}", result.outcomes);
    assert!(result.connections.sockets_peak <= 2 + 2, "two pending, and two in the server's queue");
    assert_eq!(result.verdict, Verdict::GeneratorLimited);
    let tells_of = |word: &str| result.reasons.iter().any(|reason| reason.contains(word));
    assert!(tells_of("--sockets") == (limited[0] > 0) && tells_of("fell behind") == (limited[1] > 0));
}

#[test]
fn a_closed_port_refuses_everything() {
    let nobody = Server::closed();
    let result = run(config(&nobody));
    assert_all(&result, Outcome::Refused);
    assert_eq!(result.verdict, Verdict::Unreachable);
    assert_eq!(result.connections.established, 0);
}

#[test]
fn a_target_that_refuses_everything_is_given_up() {
    let nobody = Server::closed();
    let mut long = config(&nobody);
    long.duration = Nanos::from_secs(3_600);
    let result = run(long);
    assert_eq!(result.verdict, Verdict::Unreachable);
    assert_all(&result, Outcome::Refused);
}

#[test]
fn a_reset_within_a_reply_ends_the_session() {
    let server = Server::resetting(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhel");
    let mut sessions = config(&server);
    sessions.requests_per_connection = Some("4".parse().unwrap());
    let result = run(sessions);
    assert_all(&result, Outcome::Reset);
    assert_eq!(result.outcomes.get(Outcome::Reset) % 4, 0, "what a session had left shares its outcome");
}

#[test]
fn a_connection_is_ended_in_order_or_by_a_reset() {
    for (close, was_reset) in [(Close::Fin, false), (Close::Reset, true)] {
        let (server, resets) = Server::noting_resets(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let mut closing = config(&server);
        closing.close = close;
        assert_all(&run(closing), Outcome::Ok);
        assert_eq!(resets.recv(), Ok(was_reset), "of the first connection");
    }
}

#[test]
fn a_reply_that_does_not_come_is_given_up() {
    let mut impatient = config(&Server::silent());
    impatient.request_timeout = Nanos::from_millis(30);
    let result = run(impatient);
    assert_all(&result, Outcome::ResponseTimeout);
    assert!(result.connections.established > 0);
}

#[test]
fn a_reply_that_is_not_http_is_malformed() {
    assert_all(&run(config(&Server::replying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"))), Outcome::Malformed);
    let settings_frame = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64";
    assert_all(&run(config(&Server::replying(settings_frame))), Outcome::Malformed);
    let tls_alert = b"\x15\x03\x03\0\x02\x02\x46";
    assert_all(&run(config(&Server::replying(tls_alert))), Outcome::Malformed);
}

#[test]
fn statuses_have_outcomes() {
    let missing = Server::replying(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    assert_all(&run(config(&missing)), Outcome::StatusError);
    let busy = Server::replying(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    let result = run(config(&busy));
    assert_all(&result, Outcome::Shed);
    assert_eq!(result.latency_intended_ns.answered.count, 0, "a fast refusal is not a fast reply");
    assert!(result.replies_per_s > 0.0 && result.goodput_per_s == 0.0);
}

#[test]
fn session_outlives_connections_closed_by_the_server() {
    for reply in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
    ] {
        for think in ["0", "1ms"] {
            let mut sessions = config(&Server::replying_once(reply));
            sessions.requests_per_connection = Some("3".parse().unwrap());
            sessions.think = Some(think.parse().unwrap());
            let result = run(sessions);
            assert_all(&result, Outcome::Ok);
            assert!(result.connections.established >= result.outcomes.get(Outcome::Ok));
        }
    }
}

#[test]
fn large_replies_are_read_to_their_end() {
    const CONTENT: usize = 1 << 20;
    let reply =
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {CONTENT}\r\n\r\n").into_bytes(), vec![b'x'; CONTENT]]
            .concat();
    let mut few = config(&Server::replying(Box::leak(reply.into_boxed_slice())));
    few.client =
        Client::SClient { rate: PerSecond(40.0), arrivals: Process::constant(), sockets: Sockets::Auto };
    let result = run(few);
    assert_all(&result, Outcome::Ok);
    let ratio = result.content_bytes_per_s / result.goodput_per_s;
    assert!((ratio - CONTENT as f64).abs() < 1.0, "{ratio}");
}

#[test]
fn closed_clients_wait_for_their_replies() {
    let server = Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut closed = config(&server);
    closed.client = Client::Closed { clients: NonZeroU32::new(5).unwrap() };
    closed.think = Some("1ms".parse().unwrap());
    let result = run(closed);
    assert_all(&result, Outcome::Ok);
    assert!(result.connections.sockets_peak <= 5 && result.target_per_s.is_none());
    let silent = Server::silent();
    let mut stuck = config(&silent);
    stuck.client = Client::Closed { clients: NonZeroU32::new(5).unwrap() };
    stuck.warmup = Nanos::ZERO;
    assert_eq!(run(stuck).offered, 5, "a simple client offers no more than the server takes");
}

#[test]
fn connects_stay_pending_whatever_the_server_does() {
    let pending = |server: &Server, connects| {
        let mut pending = config(server);
        pending.client = Client::Pending { connects: NonZeroU32::new(connects).unwrap() };
        pending.connect_timeout = Nanos::from_millis(50);
        pending
    };
    let queue_full = run(pending(&Server::never_accepting(), 10));
    // A place begins a connect every 50 ms, but for the few that the queue takes at once.
    assert!((11..=70).contains(&queue_full.offered), "{}", queue_full.offered);
    assert!(queue_full.outcomes.get(Outcome::ConnectTimeout) > 0 && queue_full.target_per_s.is_none());
    let mut hanging = pending(&Server::silent(), 2);
    hanging.think = Some("5ms".parse().unwrap());
    let hanging = run(hanging);
    assert!(hanging.offered > 2, "a reply that does not come keeps no connect from beginning");
    assert_eq!(hanging.offered, hanging.in_flight_at_end);
}

#[test]
fn window_requests_of_earlier_sessions_are_timed() {
    let server = Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut closed = config(&server);
    closed.client = Client::Closed { clients: NonZeroU32::new(2).unwrap() };
    closed.requests_per_connection = Some("1000000".parse().unwrap());
    closed.think = Some("1ms".parse().unwrap());
    let result = run(closed);
    assert_eq!(result.connections.attempted, 0, "the connections are of the warm-up");
    assert_eq!(result.offered, result.outcomes.total() + result.in_flight_at_end);
    let replies = (result.replies_per_s * result.duration_s).round() as u64;
    assert!(replies > 0 && result.outcomes.get(Outcome::Ok).abs_diff(replies) <= 2, "{replies}: {result:?}");
}

#[test]
fn threads_share_the_rate() {
    let server = Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut threads = config(&server);
    threads.threads = NonZeroU32::new(3).unwrap();
    let result = run(threads);
    assert_all(&result, Outcome::Ok);
    assert_eq!((result.offered, result.connections.attempted), (100, 100));
}

#[test]
fn stopped_run_has_a_whole_result() {
    let server = Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut long = config(&server);
    long.duration = Nanos::from_secs(3_600);
    let (stop, mut seen) = (Stop::new(), Vec::new());
    let mut observer = |snapshot: &Snapshot<'_>| {
        seen.push((snapshot.warming_up, snapshot.elapsed));
        if seen.len() == 5 {
            stop.request();
        }
    };
    let result = load::run(&load::prepare(long).unwrap(), &mut observer, &stop).unwrap();
    result.balance().unwrap();
    assert!(result.duration_s > 0.0 && result.duration_s < 3_600.0);
    assert!(seen[0].0 && !seen[4].0, "{seen:?}");
    assert!(seen.is_sorted_by_key(|(_, elapsed)| *elapsed));
}

#[test]
fn the_same_seed_begins_sessions_at_the_same_times() {
    let server = Server::replying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let offered = |seed| {
        let mut random = config(&server);
        random.client = Client::SClient {
            rate: PerSecond(400.0),
            arrivals: "poisson".parse().unwrap(),
            sockets: Sockets::Auto,
        };
        random.seed = base::Seed(seed);
        run(random).lateness_ns.count
    };
    assert_eq!(offered(5), offered(5));
    assert_ne!(offered(5), offered(6));
}

#[test]
fn the_same_seed_offers_the_same_requests() {
    let offered = |seed| {
        let (server, lines) = Server::noting_requests(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let mut random = all_at_the_beginning(400, config(&server));
        random.workload = "specweb99".parse().unwrap();
        random.seed = base::Seed(seed);
        assert_all(&run(random), Outcome::Ok);
        // Requests after a session's first depend on the replies' times.
        let mut first: Vec<String> =
            lines.try_iter().filter_map(|(nth, line)| (nth == 0).then_some(line)).collect();
        first.sort_unstable();
        first
    };
    let five = offered(5);
    assert_eq!(five.len(), 100);
    assert_eq!(five, offered(5));
    assert_ne!(five, offered(6));
}

#[test]
fn closed_connections_are_opened_again_for_requests() {
    let closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    for (reply, attempted) in [(&closing[..], 100), (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0)] {
        let mut pooled = config(&Server::replying(reply));
        pooled.connections = NonZeroU32::new(4);
        let result = run(pooled);
        assert_all(&result, Outcome::Ok);
        assert_eq!((result.offered, result.connections.attempted), (100, attempted));
        assert_eq!(result.target_per_s, Some(400.0));
        assert!(result.connections.sockets_peak <= 4);
    }
}

#[test]
fn unassigned_requests_time_out_from_their_due_time() {
    let mut pooled = config(&Server::silent());
    pooled.connections = NonZeroU32::new(2);
    pooled.request_timeout = Nanos::from_millis(50);
    let result = run(pooled);
    assert_all(&result, Outcome::ResponseTimeout);
    assert_eq!(result.offered, 100);
    assert!(result.connections.attempted < 50, "{:?}", result.connections);
}
