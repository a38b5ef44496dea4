//! Paced responses on every architecture: they are whole and never early, and leave other responses alone.
//!
//! The bound on the bytes grows with the time that the client measures from before its request. So a slow machine only
//! loosens it, and a whole response without its pace would exceed it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::{Clock, Nanos, RealClock};
use bytes::Bytes;
use http2::client::{Connection, End, Event, RequestHead, encode_request};
use server::{ServeConfig, Server};
use site::{LiveRules, PaceRule, Rules};

use super::client::{Client, question};
use super::harness::{Files, on_every_at_once, until};
use super::secure::Identity;

/// Bytes per second, and bytes at the beginning, of a file that is sent from the disk and of one from memory.
const PACES: [(&str, u64, u64); 2] = [("200000.bin", 100_000, 50_000), ("20000.bin", 8_000, 8_000)];
/// A file that takes longer than any test.
const ENDLESS: &str = "3000000.bin";
/// Bytes of heads, and of the short response behind a paced one.
const OTHERS: u64 = 1_500;
/// Turns of all loops of a server in a few seconds in which little happens. A loop that spins has more in a blink.
const FEW_TURNS: u64 = 5_000;

fn paced(config: ServeConfig) -> ServeConfig {
    let mut texts = PACES.map(|(name, rate, after)| format!("/{name} {rate} after {after}")).to_vec();
    texts.push(format!("/{ENDLESS} 1000"));
    let paces: Vec<PaceRule> = texts.iter().map(|text| text.parse().unwrap()).collect();
    let mut config = config;
    config.hosts[0].site.rules = LiveRules::new(Rules { paces, ..Rules::default() });
    // Less than the first pause of a paced response.
    config.http.timeouts.write_stall = Nanos::from_millis(900);
    config
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// The bytes of content that may have come after this time.
fn bound((_, rate, after): (&str, u64, u64), elapsed: Nanos) -> u64 {
    after + (u128::from(rate) * u128::from((elapsed + Nanos::SECOND).0) / 1_000_000_000) as u64
}

fn content<'a>(files: &'a Files, name: &str) -> &'a [u8] {
    &files.contents.iter().find(|(found, _)| found == name).unwrap().1
}

/// Takes the next response from the front, if it has come. It must have this content.
fn take(received: &mut &[u8], expected: &[u8]) -> bool {
    let Some(head) = received.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    assert!(received.starts_with(b"HTTP/1.1 200 "));
    let rest = &received[head + 4..];
    if rest.len() < expected.len() {
        return false;
    }
    let (content, rest) = rest.split_at(expected.len());
    assert!(content == expected);
    *received = rest;
    true
}

/// Asks for a paced file, and in its first pause for a short one, and receives both.
fn ask_http1(mut stream: impl Read + Write, pace: (&str, u64, u64), files: &Files) {
    let (clock, (short, short_content)) = (RealClock::new(), &files.contents[0]);
    let start = clock.now();
    let mut ask = Some(question(short));
    stream.write_all(question(pace.0).as_bytes()).unwrap();
    stream.flush().unwrap();
    let (mut received, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        let elapsed = clock.now() - start;
        assert!(count > 0, "{}: the connection ended after {} bytes", pace.0, received.len());
        received.extend_from_slice(&buffer[..count]);
        let most = bound(pace, elapsed) + OTHERS;
        assert!(received.len() as u64 <= most, "{}: {} bytes after {elapsed}", pace.0, received.len());
        if let Some(text) = ask.take_if(|_| received.len() as u64 > pace.1 + pace.2) {
            stream.write_all(text.as_bytes()).unwrap();
            stream.flush().unwrap();
        }
        let mut rest = &received[..];
        if take(&mut rest, content(files, pace.0)) && take(&mut rest, short_content) {
            assert!(rest.is_empty());
            return;
        }
    }
}

/// Asks for all paced files and a short one, on streams of one connection, and receives them.
fn ask_http2(mut stream: impl Read + Write, files: &Files) {
    let (clock, names) = (RealClock::new(), [PACES[0].0, PACES[1].0, &files.contents[0].0]);
    let mut connection = Connection::new();
    for (tag, name) in names.iter().enumerate() {
        let path = format!("/{name}");
        let head = RequestHead { method: "GET", scheme: "http", authority: "test", path: &path };
        connection.open(tag, &encode_request(&head, std::iter::empty()), Bytes::new(), false);
    }
    let start = clock.now();
    let (mut counts, mut ended, mut buffer) = ([0; 3], Vec::new(), vec![0; 64 * 1024]);
    while ended.len() < names.len() {
        let waiting = connection.output().len();
        stream.write_all(connection.output()).unwrap();
        stream.flush().unwrap();
        connection.transmitted(waiting);
        let count = stream.read(&mut buffer).unwrap();
        let elapsed = clock.now() - start;
        assert!(count > 0, "the connection ended after {counts:?} bytes");
        let taken = connection.receive(&buffer[..count], |event| match event {
            Event::Head(_) => {}
            Event::Content(tag, bytes) => {
                let expected = &content(files, names[tag])[counts[tag]..][..bytes.len()];
                assert!(bytes == expected, "{}", names[tag]);
                counts[tag] += bytes.len();
            }
            Event::Ended(tag, End::Reply(reply)) => {
                assert_eq!((reply.status, counts[tag]), (200, content(files, names[tag]).len()));
                ended.push(tag);
            }
            Event::Ended(tag, end) => panic!("{}: {end:?}", names[tag]),
        });
        taken.unwrap();
        for (pace, count) in PACES.iter().zip(counts) {
            assert!(count as u64 <= bound(*pace, elapsed), "{}: {count} after {elapsed}", pace.0);
        }
    }
    assert_eq!(ended[0], 2, "the short response waits for none of the paced ones");
}

/// Runs the exchanges with a server side by side.
fn exchange<S: Read + Write>(files: &Files, connect: impl Fn(&'static str) -> S + Sync) {
    std::thread::scope(|scope| {
        for pace in PACES.map(Some).into_iter().chain([None]) {
            let connect = &connect;
            let thread = std::thread::Builder::new().name("paced::exchange".to_owned());
            let exchange = move || match pace {
                Some(pace) => ask_http1(connect("http/1.1"), pace, files),
                None => ask_http2(connect("h2"), files),
            };
            thread.spawn_scoped(scope, exchange).unwrap();
        }
    });
}

#[test]
fn paced_responses_are_whole_and_never_early() {
    on_every_at_once(|variant, files| {
        let server = Server::start(variant.architecture, paced(variant.config(files)), None).unwrap();
        let address = server.addresses()[0];
        exchange(files, |_| connect(address));
        let counters = server.counters();
        assert_eq!(counters.http.timeouts_write_stall, 0, "{}", variant.name());
        server.shut_down().unwrap();
    });
}

#[test]
fn paced_tls_responses_are_whole_and_never_early() {
    let identity = Identity::new();
    on_every_at_once(|variant, files| {
        let config = paced(identity.config(variant, files));
        let server = Server::start(variant.architecture, config, None).unwrap();
        let address = server.addresses()[0];
        exchange(files, |protocol| identity.stream(protocol, address));
        assert_eq!(server.counters().http.timeouts_write_stall, 0, "{}", variant.name());
        server.shut_down().unwrap();
    });
}

#[test]
fn client_that_leaves_in_a_pause_is_closed_quietly() {
    on_every_at_once(|variant, files| {
        let server = Server::start(variant.architecture, paced(variant.config(files)), None).unwrap();
        let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(server.addresses()[0])).collect();
        clients.iter_mut().for_each(|client| client.ask(ENDLESS));
        let name = variant.name();
        until(&format!("{name} to pause"), || server.counters().http.sent_bytes >= 3 * 1000);
        // The first has read all, the second some, and the third has unread bytes, which reset its connection.
        clients[0].wait_for_bytes();
        clients[1].end_sending();
        clients[1].wait_for_bytes();
        drop(clients);
        until(&format!("{name} to close all"), || server.counters().loops.closed == 3);
        let loops = server.counters().loops;
        assert!(loops.waits + loops.events < FEW_TURNS, "{name}: {loops:?}");
        assert_eq!(server.shut_down().unwrap().cut_off, 0, "{name}");
    });
}

#[test]
fn going_down_finishes_a_paced_response() {
    on_every_at_once(|variant, files| {
        let server = Server::start(variant.architecture, paced(variant.config(files)), None).unwrap();
        let (name, ..) = PACES[1];
        let mut busy = Client::connect(server.addresses()[0]);
        busy.ask(name);
        busy.wait_for_bytes();
        let drained = std::thread::scope(|scope| {
            let ends = scope.spawn(|| server.shut_down().unwrap());
            assert!(busy.response().body == content(files, name));
            assert_eq!(busy.end(), 0);
            ends.join().unwrap()
        });
        assert_eq!(drained.cut_off, 0, "{}", variant.name());
    });
}
