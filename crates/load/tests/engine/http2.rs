//! The engine over HTTP/2, against servers that answer, refuse, leave and misbehave. They read frames as a server
//! does, and write whatever their test wants.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::num::NonZeroU32;
use std::sync::Arc;

use base::{Nanos, PerSecond};
use load::{Client, Config, Process, Sockets, Trust};
use record::{LoadResult, Outcome, Verdict};

use super::identity::identity;
use super::servers::Server;
use super::{all_at_the_beginning, assert_all, config, run};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A reply with status 200 and five bytes.
fn reply(stream: u32) -> Vec<u8> {
    // :status: 200
    [frame(HEADERS, END_HEADERS, stream, &[0x88]), frame(0, END_STREAM, stream, b"hello")].concat()
}

fn goaway(last: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat())
}

/// SETTINGS with this MAX_CONCURRENT_STREAMS.
fn allowing(streams: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 3][..], &streams.to_be_bytes()].concat())
}

/// Reads the next frame: type and stream. `None` at the end.
fn read_frame(from: &mut impl Read) -> Option<(u8, u32)> {
    let mut head = [0; 9];
    from.read_exact(&mut head).ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    from.read_exact(&mut payload).ok()?;
    Some((head[3], u32::from_be_bytes(head[5..].try_into().unwrap())))
}

/// Serves one connection: sends `greeting`, then `answer` to each request. `answer` gets the request's number on the
/// connection, counted from 0, and its stream.
fn converse(mut stream: impl Read + Write, greeting: &[u8], mut answer: impl FnMut(usize, u32) -> Vec<u8>) {
    if stream.read_exact(&mut [0; 24]).is_err() || stream.write_all(greeting).is_err() {
        return;
    }
    let mut requests = 0;
    while let Some((kind, number)) = read_frame(&mut stream) {
        if kind == HEADERS {
            let bytes = answer(requests, number);
            requests += 1;
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    }
}

/// A server that answers each request by `answer`.
fn answering(answer: impl FnMut(usize, u32) -> Vec<u8> + Clone + Send + 'static) -> Server {
    Server::accepting(move |stream| converse(stream, &frame(SETTINGS, 0, 0, &[]), answer.clone()))
}

/// A server that greets every connection with these bytes and answers correctly.
fn greeting(bytes: Vec<u8>) -> Server {
    Server::accepting(move |stream: TcpStream| converse(stream, &bytes, |_, stream| reply(stream)))
}

/// 100 sessions a second for 250 ms, of `requests` requests on at most `streams` streams.
fn sharing(server: &Server, streams: u32, requests: &str) -> Config {
    let mut config = config(server);
    let rate = PerSecond(100.0);
    config.client = Client::SClient { rate, arrivals: Process::constant(), sockets: Sockets::Auto };
    config.streams = NonZeroU32::new(streams);
    config.requests_per_connection = Some(requests.parse().unwrap());
    config
}

/// The numbers of requests with these outcomes, which must be all that ended.
#[track_caller]
fn outcomes<const N: usize>(result: &LoadResult, outcomes: [Outcome; N]) -> [u64; N] {
    let counts = outcomes.map(|outcome| result.outcomes.get(outcome));
    assert_eq!(counts.iter().sum::<u64>(), result.outcomes.total(), "{:?}", result.outcomes);
    counts
}

/// A server that answers four requests of a connection at a time: fewer streams would wait for ever.
fn answering_four_at_a_time() -> Server {
    let mut waiting = Vec::new();
    answering(move |_, stream| {
        waiting.push(stream);
        if waiting.len() < 4 { Vec::new() } else { waiting.drain(..).rev().flat_map(reply).collect() }
    })
}

#[test]
fn requests_of_a_session_share_its_connection() {
    let server = answering_four_at_a_time();
    let result = run(all_at_the_beginning(100, sharing(&server, 4, "8")));
    assert_all(&result, Outcome::Ok);
    assert_eq!((result.offered, result.statuses.of_class(2)), (200, 200), "25 sessions of 8 requests");
    assert_eq!((result.connections.attempted, result.failed()), (25, 0));
    assert_eq!(result.latency_intended_ns.answered.count, 200);
}

#[test]
fn request_awaiting_a_stream_counts_from_its_time() {
    let pause = Nanos::from_millis(20);
    let server = answering(move |_, stream| {
        sys::readiness::poll::wait(&mut [], Some(pause)).unwrap();
        reply(stream)
    });
    let result = run(sharing(&server, 1, "4"));
    assert_all(&result, Outcome::Ok);
    let (intended, sent) = (result.latency_intended_ns, result.latency_sent_ns);
    assert!(intended.max >= Some(4 * pause.0) && intended.p50 >= Some(2 * pause.0), "{intended:?}");
    assert!(sent.p50 < intended.p50, "{sent:?}");
}

/// With a think time, a session's schedule does not wait for its replies.
#[test]
fn a_think_time_spaces_the_requests_of_an_open_loop() {
    let pause = Nanos::from_millis(30);
    let mut stalled = false;
    let server = answering(move |_, stream| {
        if !std::mem::replace(&mut stalled, true) {
            sys::readiness::poll::wait(&mut [], Some(pause)).unwrap();
        }
        reply(stream)
    });
    let mut paced = sharing(&server, 8, "4");
    paced.think = Some("5ms".parse().unwrap());
    let result = run(paced);
    let [ok] = outcomes(&result, [Outcome::Ok]);
    assert!(ok > 0 && result.offered == 100);
    let latency = result.latency_intended_ns.answered;
    // The last of four requests is due 15 ms after the first, which is answered after 30 ms.
    assert!(latency.max >= pause.0 && latency.p50 >= pause.0 / 2, "{latency:?}");
    assert_eq!(result.in_flight_at_end, 0);
}

#[test]
fn the_servers_limit_of_streams_is_kept() {
    let result = run(sharing(&greeting(allowing(1)), 8, "5"));
    assert_all(&result, Outcome::Ok);
    assert_eq!(result.offered, 125);
}

#[test]
fn a_server_that_allows_no_stream_times_out() {
    let server = Server::accepting(|stream| {
        // The streams that began before the greeting are never answered.
        converse(stream, &allowing(0), |_, _| Vec::new());
    });
    let mut config = sharing(&server, 2, "4");
    config.request_timeout = Nanos::from_millis(50);
    let result = run(config);
    assert_all(&result, Outcome::ResponseTimeout);
    assert_eq!(result.offered, 100);
}

/// Without a think time all requests of a session are due together.
#[test]
fn requests_of_connecting_sessions_are_due_at_the_end() {
    let result = run(sharing(&Server::never_accepting(), 2, "4"));
    assert_eq!((result.in_flight_at_end, result.failed()), (100, 100));
    assert_eq!(result.latency_intended_ns.unanswered, 100);
}

#[test]
fn a_silent_server_times_out_stream_by_stream() {
    let silent = answering(|_, _| Vec::new());
    let mut config = sharing(&silent, 4, "4");
    config.request_timeout = Nanos::from_millis(50);
    assert_all(&run(config.clone()), Outcome::ResponseTimeout);
    let half = answering(|number, stream| if number % 2 == 0 { reply(stream) } else { Vec::new() });
    config.urls = vec![half.url()];
    let [ok, late] = outcomes(&run(config), [Outcome::Ok, Outcome::ResponseTimeout]);
    assert!(ok > 0 && late >= 50, "the other half goes on: {ok}, {late}");
}

#[test]
fn a_stream_that_is_reset_is_one_requests_end() {
    let server = answering(|number, stream| match number % 4 {
        0 => frame(RST_STREAM, 0, stream, &[0, 0, 0, 7]),
        _ => reply(stream),
    });
    let mut config = sharing(&server, 2, "8");
    let result = run(config.clone());
    assert_eq!(outcomes(&result, [Outcome::Ok, Outcome::StreamReset]), [150, 50]);
    assert_eq!((result.statuses.total(), result.connections.attempted), (150, 25));
    assert_eq!(result.latency_intended_ns.unanswered, 50);
    config.retry = "fixed:1ms,1".parse().unwrap();
    let retries = run(config).retries;
    // A retry is the first request of its own connection, so it is reset again.
    assert!(retries.offered > 0, "{retries:?}");
    assert_eq!(retries.outcomes.get(Outcome::StreamReset), retries.outcomes.total());
}

#[test]
fn requests_after_goaway_move_to_another_connection() {
    // A connection answers two requests.
    let leaving = answering(|number, stream| match number {
        0 => reply(stream),
        1 => [goaway(stream), reply(stream)].concat(),
        _ => Vec::new(),
    });
    let result = run(all_at_the_beginning(100, sharing(&leaving, 1, "6")));
    assert_all(&result, Outcome::Ok);
    assert_eq!((result.offered, result.connections.attempted), (150, 75));
}

#[test]
fn goaway_ends_the_requests_that_it_leaves_out() {
    let mut waiting = Vec::new();
    // Answers two of four requests that are under way.
    let server = answering(move |_, stream| {
        waiting.push(stream);
        match waiting[..] {
            [first, second, _, _] => [goaway(second), reply(first), reply(second)].concat(),
            _ => Vec::new(),
        }
    });
    let result = run(all_at_the_beginning(100, sharing(&server, 4, "8")));
    assert_eq!(outcomes(&result, [Outcome::Ok, Outcome::GoAway]), [100, 100]);
    assert_eq!(result.connections.attempted, 50);
}

#[test]
fn server_leaving_at_once_gets_no_second_connection() {
    let result =
        run(all_at_the_beginning(100, sharing(&greeting([allowing(9), goaway(0)].concat()), 2, "4")));
    assert_all(&result, Outcome::GoAway);
    assert_eq!((result.offered, result.connections.attempted), (100, 25));
}

/// A session that thinks connects again only when its next request is due.
#[test]
fn ended_http2_connection_is_replaced_in_time() {
    let server = Server::accepting(|mut stream: TcpStream| {
        let mut both = stream.try_clone().unwrap();
        if both.read_exact(&mut [0; 24]).is_ok() {
            while read_frame(&mut both).is_some_and(|(kind, _)| kind != HEADERS) {}
            // The client may have gone. A close before the client's would reset the connection if bytes are unread.
            let _ = stream.write_all(&[frame(SETTINGS, 0, 0, &[]), reply(1)].concat());
            let _ = stream.shutdown(Shutdown::Write);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    let mut config = sharing(&server, 4, "3");
    config.think = Some("30ms".parse().unwrap());
    let result = run(config);
    // On a busy machine a request is sent when the next one is due, so that both share a connection that answers one.
    let [ok, together] = outcomes(&result, [Outcome::Ok, Outcome::Reset]);
    assert!(ok > 0 && result.connections.established >= ok, "{result:?}");
    // Requests in flight at the end may still be answered, or reset. A session that ends with a request may lose one more,
    // which is due after the end.
    let unanswered = together.div_ceil(2)..=together + result.in_flight_at_end;
    assert!(unanswered.contains(&result.latency_intended_ns.unanswered), "{result:?}");
}

#[test]
fn a_broken_connection_ends_its_session() {
    let closing = answering(|number, _| if number == 0 { vec![0xff; 9] } else { Vec::new() });
    let result = run(sharing(&closing, 2, "4"));
    assert_all(&result, Outcome::Malformed);
    assert_eq!((result.offered, result.connections.attempted), (100, 25));
    let resetting = Server::accepting(|mut stream| {
        let _ = stream.write_all(&frame(SETTINGS, 0, 0, &[]));
        let _ = stream.read(&mut [0; 24]);
    });
    assert_all(&run(sharing(&resetting, 2, "4")), Outcome::Reset);
}

#[test]
fn a_server_without_http2_is_told_in_one_sentence() {
    let server = Server::greeting(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let result = run(sharing(&server, 2, "4"));
    assert_all(&result, Outcome::NotHttp2);
    assert_eq!(result.verdict, Verdict::Unreachable);
    assert_eq!(result.reasons, ["The server does not speak HTTP/2 on that port; leave --http2 out."]);
    let identity = identity();
    let secure = Server::replying_over_tls(Arc::clone(&identity.config), b"HTTP/1.1 200 OK\r\n\r\n");
    let mut config = sharing(&secure, 2, "4");
    config.urls = vec![secure.secure_url()];
    config.tls.trust = Trust::Roots(identity.pem.path().to_owned());
    let result = run(config);
    assert_all(&result, Outcome::NotHttp2);
    assert_eq!(result.reasons.len(), 1, "{:?}", result.reasons);
}

/// Each stream of a closed-loop client is a user, so no request waits for a stream.
#[test]
fn closed_clients_are_one_user_for_each_stream() {
    let mut config = sharing(&answering_four_at_a_time(), 4, "20");
    config.client = Client::Closed { clients: NonZeroU32::new(2).unwrap() };
    let result = run(config);
    let [ok] = outcomes(&result, [Outcome::Ok]);
    assert!(ok > 20, "{result:?}");
    assert!(result.connections.sockets_peak <= 2);
}

#[test]
fn content_is_sent_and_replies_are_judged() {
    let server = Server::accepting(|stream: TcpStream| {
        let mut out = stream.try_clone().unwrap();
        let mut stream = stream;
        let _ = stream.read_exact(&mut [0; 24]);
        let _ = out.write_all(&frame(SETTINGS, 0, 0, &[]));
        while let Some((kind, number)) = read_frame(&mut stream) {
            // DATA: the request has content.
            if kind == 0 && out.write_all(&reply(number)).is_err() {
                return;
            }
        }
    });
    let mut posting = sharing(&server, 4, "4");
    posting.form.body = Some("a=b".parse().unwrap());
    posting.expected.length = Some(5);
    assert_all(&run(posting.clone()), Outcome::Ok);
    posting.expected.length = Some(6);
    assert_all(&run(posting), Outcome::WrongBody);
}
