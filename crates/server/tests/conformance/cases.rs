//! What every architecture has to do alike.

use std::net::TcpStream;

use base::{Limit, Nanos};
use server::{Batch, ServeConfig, ServeError, Server, Threads, Wake, architecture};

use super::client::question;
use super::harness::{Files, Running, Variant, alone, on_every};

#[test]
fn the_right_bytes_whoever_else_asks() {
    on_every(|variant, files| {
        let server = Running::start(variant, variant.config(files));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2 {
                        let mut client = server.connect();
                        for (name, content) in &files.contents {
                            assert!(client.get(name) == *content, "{name}");
                        }
                    }
                });
            }
        });
        server.until("all to be closed", |counters| counters.loops.closed == 16 && counters.connections == 0);
        let counters = server.counters();
        assert_eq!(counters.loops.accepts, 16);
        assert_eq!(counters.http.requests, 16 * files.contents.len() as u64);
        assert_eq!(server.stop().cut_off, 0);
    });
}

#[test]
fn answers_come_in_the_order_of_the_questions() {
    on_every(|variant, files| {
        let server = Running::start(variant, variant.config(files));
        let mut client = server.connect();
        let round: String = files.contents[..3].iter().map(|(name, _)| question(name)).collect();
        let questions = round.repeat(50);
        let (first, second) = questions.split_at(questions.len() / 2 + 5);
        client.send(first);
        client.send(second);
        for turn in 0..150 {
            let (name, content) = &files.contents[turn % 3];
            assert!(client.response().body == *content, "{turn}: {name}");
        }
        drop(client);
        server.stop();
    });
}

#[test]
fn what_will_be_refused_is_refused_before_the_rest_arrives() {
    on_every(|variant, files| {
        let server = Running::start(variant, variant.config(files));
        let (name, content) = &files.contents[0];
        let mut client = server.connect();
        client.send(&format!("POST /{name} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"));
        assert_eq!(client.response().status, 405);
        client.send("hello");
        assert!(client.get(name) == *content, "the next request is behind the content");
        for (hello, status) in [("\u{16}\u{3}\u{1}", 400), ("SSH-2.0-x\r", 400), ("GET / HTTP/5", 505)] {
            let mut client = server.connect();
            client.send(hello);
            assert_eq!(client.response().status, status, "{hello:?}");
        }
        drop(client);
        server.stop();
    });
}

#[test]
fn no_more_connections_than_the_limit() {
    on_every(|variant, files| {
        let mut config = variant.config(files);
        config.max_connections = 4;
        // The kernel would spread four connections over several queues as it likes.
        config.workers = config.workers.map(|workers| if workers == 2 { 1 } else { workers });
        let server = Running::start(variant, config);
        let (name, content) = &files.contents[0];
        let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.get(name), *content);
        }
        let mut fifth = server.connect();
        fifth.ask(name);
        server.until("the limit to be met", |counters| counters.loops.limit_connections > 0);
        // A thread that looks into the queue holds a slot for as long.
        server.until("four to be counted", |counters| {
            assert!(counters.connections <= 4 && counters.loops.accepts <= 4);
            counters.connections == 4 && counters.loops.accepts == 4
        });
        clients.pop();
        assert_eq!(fifth.response().body, *content);
        drop((clients, fifth));
        server.stop();
    });
}

#[test]
fn no_accept_phase_takes_more_than_the_limit() {
    on_every(|variant, files| {
        for limit in [1, 3] {
            let mut config = variant.config(files);
            config.accept_limit = Some(Limit::AtMost(limit));
            // While a request is worked on, connections gather in the queue.
            config.burn = Nanos::from_micros(300);
            let server = Running::start(variant, config);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..5 {
                            let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
                            let (name, content) = &files.contents[0];
                            clients.iter_mut().for_each(|client| client.ask(name));
                            // Closed one by one: under serial batches the next waits for that.
                            while !clients.is_empty() {
                                assert_eq!(clients.remove(0).response().body, *content);
                            }
                        }
                    });
                }
            });
            server.until("all to be counted", |counters| counters.loops.closed == 80);
            let loops = server.counters().loops;
            assert_eq!(loops.accepts, 80);
            assert!(loops.accepts <= loops.accept_phases * u64::from(limit), "{loops:?}");
            server.stop();
        }
    });
}

#[test]
fn going_down_finishes_what_has_begun() {
    on_every(|variant, files| {
        let server = Running::start(variant, variant.config(files));
        let address = server.address;
        let (small, large) = (&files.contents[0], files.largest());
        let (mut idle, mut silent, mut busy) = (server.connect(), server.connect(), server.connect());
        assert_eq!(idle.get(&small.0), small.1);
        busy.ask(&large.0);
        server.until("the requests to arrive", |counters| counters.http.requests == 2);
        let drained = server.stop_while(move || {
            assert_eq!(idle.end(), 0);
            assert_eq!(silent.end(), 0);
            assert!(busy.response().body == large.1);
            assert_eq!(busy.end(), 0);
        });
        assert_eq!(drained.cut_off, 0);
        assert!(TcpStream::connect(address).is_err());
    });
}

#[test]
fn going_down_cuts_off_who_takes_too_long() {
    on_every(|variant, files| {
        let mut config = variant.config(files);
        config.drain_timeout = Nanos::from_millis(30);
        let server = Running::start(variant, config);
        let (mut slow, mut slower) = (server.connect(), server.connect());
        // More than the kernel buffers for somebody who does not read.
        let (name, content) = files.largest();
        let questions = question(name).repeat(20);
        slow.send(&questions);
        slower.send("GET / HT");
        server.until("both to arrive", |counters| {
            counters.http.requests > 0 && counters.http.received_bytes > questions.len() as u64
        });
        let drained = server.stop_while(move || {
            assert_eq!(slower.end(), 0);
            assert!(slow.end() < 20 * content.len());
        });
        assert_eq!(drained.cut_off, 2);
    });
}

#[test]
fn an_event_loop_may_take_for_ever_to_go_down() {
    let _alone = alone();
    let files = Files::new();
    for name in ["per-core", "sped", "tux"] {
        let variant = Variant::plain(architecture::by_name(name).unwrap());
        let mut config = variant.config(&files);
        config.drain_timeout = Nanos::MAX;
        let server = Running::start(&variant, config);
        let mut busy = server.connect();
        let (name, content) = files.largest();
        busy.ask(name);
        server.until("the request to arrive", |counters| counters.http.requests == 1);
        let drained = server.stop_while(move || assert!(busy.response().body == *content));
        assert_eq!(drained.cut_off, 0);
    }
}

#[test]
fn deadlines_pass_for_those_who_send_nothing() {
    on_every(|variant, files| {
        let mut config = variant.config(files);
        config.http.timeouts.header = Nanos::from_millis(20);
        config.http.timeouts.idle = Nanos::from_millis(20);
        config.http.timeouts.linger = Nanos::from_millis(20);
        let server = Running::start(variant, config);
        let (mut silent, mut slow, mut idle) = (server.connect(), server.connect(), server.connect());
        slow.send("GET / HTTP/1.1\r\nHo");
        assert_eq!(idle.get(&files.contents[0].0), files.contents[0].1);
        assert_eq!(silent.end(), 0);
        assert_eq!(slow.response().status, 408);
        assert_eq!(slow.end(), 0);
        assert_eq!(idle.end(), 0);
        drop((silent, slow, idle));
        server.until("the time-outs to be counted", |counters| {
            counters.http.timeouts_header == 2 && counters.http.timeouts_idle == 1
        });
        server.stop();
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    let _alone = alone();
    let files = Files::new();
    let refused = |architecture, change: &dyn Fn(&mut ServeConfig)| {
        let variant = Variant::plain(architecture::by_name(architecture).unwrap());
        let mut config = variant.config(&files);
        change(&mut config);
        match Server::start(variant.architecture, config, None) {
            Err(ServeError::Setting { setting, accepted, .. }) => (setting, accepted),
            _ => panic!("{architecture} took it"),
        }
    };
    let (setting, accepted) = refused("mt", &|config| config.dispatch = Some("poll"));
    assert_eq!(setting, "--dispatch");
    assert!(accepted.starts_with("mt waits for one descriptor at a time"), "{accepted}");
    assert_eq!(refused("sped", &|config| config.wake = Some(Wake::All)).0, "--wake");
    let (_, accepted) = refused("mt", &|config| config.wake = Some(Wake::Steered));
    assert_eq!(accepted, "mt has exclusive, one, mutex, all, reuseport");
    assert_eq!(refused("sped", &|config| config.workers = Some(2)).0, "--workers");
    assert_eq!(refused("tux", &|config| config.read_after_accept = true).0, "--read-after-accept");
    assert_eq!(refused("knot-a", &|config| config.batch = Some(Batch::Serial)).0, "--batch");
    assert_eq!(refused("knot-a", &|config| config.workers = Some(2)).0, "--workers");
    let per_connection = |config: &mut ServeConfig| config.threads = Some(Threads::PerConnection);
    assert_eq!(refused("knot-c", &per_connection).0, "--threads");
    assert_eq!(refused("mt", &per_connection).0, "--workers");
}

#[test]
fn threads_with_queues_of_their_own_serve_all_that_come() {
    let _alone = alone();
    let files = Files::new();
    let variant = Variant::plain(architecture::by_name("mt").unwrap());
    let mut config = variant.config(&files);
    config.wake = Some(Wake::Reuseport);
    let server = Running::start(&variant, config);
    let (name, content) = &files.contents[0];
    // All at once, whichever queues they come into: each waits at most for those before it to close.
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| assert_eq!(server.connect().get(name), *content));
        }
    });
    server.until("all to be closed", |counters| counters.loops.closed == 40 && counters.connections == 0);
    // One waits in a queue, perhaps behind the other; both are served before the end.
    let (mut first, mut second) = (server.connect(), server.connect());
    first.ask(name);
    second.ask(name);
    server.until("one to be answered", |counters| counters.http.requests > 40);
    let drained = server.stop_while(move || {
        assert_eq!(first.response().body, *content);
        assert_eq!(second.response().body, *content);
    });
    assert_eq!(drained.cut_off, 0);
}

#[test]
fn ten_thousand_user_level_threads() {
    let _alone = alone();
    let files = Files::new();
    let variant = Variant::plain(architecture::by_name("knot-c").unwrap());
    let mut config = variant.config(&files);
    config.workers = Some(10_000);
    let server = Running::start(&variant, config);
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get(&files.contents[0].0), files.contents[0].1);
    }
    assert_eq!(server.counters().loops.no_thread, 0);
    drop(clients);
    server.stop();
}
