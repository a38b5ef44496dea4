//! `--limit-rate` where other processes serve, and while a newer program takes over.
//!
//! The conformance suite of the server has the architectures of one process. Here too, the bound on the bytes grows with
//! the time that the client measures, so a slow machine only loosens it.

use base::{Clock, Nanos, RealClock};

use super::upgrade::Upgrading;
use crate::common::{Client, Files, Server, has_ended, pattern};

/// The files, their rates in bytes per second, and the bytes that the rates do not count.
const PACES: [((&str, usize), u64, u64); 2] =
    [(Files::MEDIUM, 24_000, 8_000), (Files::LARGE, 2_000_000, 500_000)];

fn flags() -> [String; 2] {
    PACES.map(|((name, _), rate, after)| format!("--limit-rate={name} {rate} after {after}"))
}

/// Asks for a file, and asserts that its content is whole and never early.
fn check_paced(server: &Server, ((name, length), rate, after): ((&str, usize), u64, u64)) {
    let (clock, mut client) = (RealClock::new(), server.client());
    let start = clock.now();
    client.send_get(name, "");
    client.response_to_head();
    let mut body = Vec::new();
    while body.len() < length {
        body.extend(client.take((length - body.len()).min(1000)));
        let elapsed = clock.now() - start;
        let most =
            after + (u128::from(rate) * u128::from((elapsed + Nanos::SECOND).0) / 1_000_000_000) as u64;
        assert!(body.len() as u64 <= most, "{name}: {} bytes after {elapsed}", body.len());
    }
    assert!(body == pattern(length), "{name}");
    assert!(client.get(Files::SMALL.0).body == pattern(Files::SMALL.1), "{name}: the next request");
}

#[test]
fn paced_responses_of_worker_processes_are_whole() {
    let files = Files::new();
    for architecture in [
        &["--arch=mp", "--workers=8"][..],
        &["--arch=mp", "--processes=per-connection"],
        &["--arch=amped", "--helpers=3"],
        &["--arch=smped", "--smped=initial=3,p-min=3,p-max=3"],
    ] {
        println!("{architecture:?}");
        let rates = flags();
        let flags = [architecture, &[&rates[0], &rates[1], "--write-timeout=900ms"]].concat();
        let server = Server::start(&files.root(), &flags);
        std::thread::scope(|scope| {
            for pace in PACES {
                let server = &server;
                scope.spawn(move || check_paced(server, pace));
            }
        });
        server.stop_well();
    }
}

#[test]
fn upgrade_finishes_a_paced_response() {
    let files = Files::new();
    let (name, length) = Files::MEDIUM;
    for flags in
        [&["--arch=sped"][..], &["--arch=sped", "--dispatch=epoll-et"], &["--arch=mt", "--workers=8"]]
    {
        println!("{flags:?}");
        let rate = format!("--limit-rate={name} 15000");
        let mut server = Upgrading::start(&files, &[flags, &[&rate]].concat());
        let before = server.process;
        let mut client = Client::connect(server.address());
        client.send_get(name, "");
        client.response_to_head();
        server.hand_over();
        assert!(client.take(length) == pattern(length));
        drop(client);
        server.server.eventually_of("the predecessor ends", |_| has_ended(before));
    }
}
