//! The common duties of all architectures.

use std::net::TcpStream;

use base::{Limit, Nanos};
use server::{AcceptLimit, ServeConfig, ServeError, Server, architecture};

use super::client::{Client, question};
use super::harness::{Files, Running, Variant, alone, chosen, on_every, on_every_at_once, until};

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

/// A server with four connections at most, all of which are open. Each client has done the steps of `begin`.
fn full(variant: &Variant, files: &Files, begin: impl Fn(&mut Client)) -> (Running, Vec<Client>) {
    let mut config = variant.config(files);
    config.max_connections = 4;
    let server = Running::start(variant, config);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(begin);
    server.until("four to be there", |counters| counters.connections == 4 && counters.loops.accepts == 4);
    (server, clients)
}

/// Waits until one of these is closed, and removes it. Gives its place.
fn wait_for_one_to_end(clients: &mut Vec<Client>) -> usize {
    let mut ended = None;
    until("one to be closed", || {
        ended = clients.iter_mut().position(Client::has_ended);
        ended.is_some()
    });
    let at = ended.expect("waited for");
    clients.remove(at);
    at
}

#[test]
fn bad_request_is_refused_before_its_rest_arrives() {
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
fn client_at_its_limit_is_refused_until_it_closes() {
    on_every(|variant, files| {
        let mut config = variant.config(files);
        config.clients.connections = Some(2);
        let server = Running::start(variant, config);
        let (name, content) = &files.contents[0];
        let mut held = [server.connect(), server.connect()];
        assert!(held.iter_mut().all(|client| client.get(name) == *content));
        for _ in 0..3 {
            let mut refused = server.connect();
            refused.ask(name);
            assert_eq!(refused.response().status, 429);
        }
        server.until("three to be refused", |counters| counters.loops.peers.limit_client_connections == 3);
        let [first, mut second] = held;
        drop(first);
        server.until("one to be closed", |counters| counters.loops.closed == 1);
        let mut third = server.connect();
        assert!(third.get(name) == *content && second.get(name) == *content);
        drop((second, third));
        server.stop();
    });
}

#[test]
fn a_proxy_tells_whose_limit_it_is() {
    const SIGNATURE: &str = "\r\n\r\n\0\r\nQUIT\n";
    on_every(|variant, files| {
        let mut config = variant.config(files);
        config.clients.connections = Some(1);
        config.clients.proxies = vec!["127.0.0.1".parse().unwrap()];
        let server = Running::start(variant, config);
        let (name, content) = &files.contents[0];
        let connect = |client: char| {
            let mut connection = server.connect();
            connection.send(SIGNATURE);
            connection.send(&format!("\x21\x11\0\x0c\x0a\0\0{client}\x0a\0\0\x01\x01\x02\0\x50"));
            connection
        };
        let mut held = ['\x07', '\x08'].map(connect);
        assert!(held.iter_mut().all(|connection| connection.get(name) == *content));
        let mut refused = connect('\x08');
        refused.ask(name);
        assert_eq!(refused.response().status, 429);
        assert!(held.iter_mut().all(|connection| connection.get(name) == *content));
        let mut silent = server.connect();
        silent.send(&question(name));
        until("no header to end it", || silent.has_ended());
        drop((held, refused, silent));
        server.until("all to be closed", |counters| counters.loops.closed == 4);
        let counters = server.counters().loops;
        assert_eq!((counters.peers.proxy_headers, counters.peers.proxy_malformed), (3, 1));
        assert_eq!(counters.peers.limit_client_connections, 1);
        server.stop();
    });
}

/// Among several threads, two connections may become idle in another order than their answers arrive.
fn knows_the_order(variant: &Variant) -> bool {
    ["sped", "tux", "knot-c", "knot-a"].contains(&variant.architecture.name)
}

#[test]
fn new_connection_replaces_longest_idle_at_the_limit() {
    on_every(|variant, files| {
        let (name, content) = &files.contents[0];
        let (server, mut clients) = full(variant, files, |client| assert_eq!(client.get(name), *content));
        for turn in 0..4 {
            let mut new = server.connect();
            new.ask(name);
            let ended = wait_for_one_to_end(&mut clients);
            assert!(ended == 0 || !knows_the_order(variant), "turn {turn}: {ended}");
            assert_eq!(new.response().body, *content);
            clients.push(new);
        }
        server.until("all to be counted", |counters| {
            counters.loops.closed == 4 && counters.http.requests == 8 && counters.connections == 4
        });
        let loops = server.counters().loops;
        assert_eq!((loops.reclaimed, loops.turned_away), (4, 0), "{loops:?}");
        drop(clients);
        server.stop();
    });
}

#[test]
fn wake_without_bytes_keeps_a_connection_idle() {
    on_every(|variant, files| {
        let (name, content) = &files.contents[0];
        let (server, mut clients) = full(variant, files, |client| assert_eq!(client.get(name), *content));
        clients[0].nudge();
        let mut new = server.connect();
        new.ask(name);
        let ended = wait_for_one_to_end(&mut clients);
        assert!(ended == 0 || !knows_the_order(variant), "{ended}");
        assert_eq!(new.response().body, *content);
        drop((clients, new));
        server.stop();
    });
}

#[test]
fn new_connection_gets_503_at_the_limit_if_none_idle() {
    on_every(|variant, files| {
        let (name, content) = &files.contents[0];
        let question = question(name);
        let (begun, rest) = question.split_at(8);
        let (server, mut clients) = full(variant, files, |client| client.send(begun));
        server.until("the questions to begin", |counters| counters.http.received_bytes >= 4 * 8);
        for _ in 0..3 {
            let mut new = server.connect();
            new.ask(name);
            let refusal = new.response();
            assert_eq!((refusal.status, refusal.retry_after()), (503, Some("1")));
            assert_eq!(new.end(), 0);
        }
        for client in &mut clients {
            client.send(rest);
            assert_eq!(client.response().body, *content);
        }
        // Loops publish their counters on their own, so each has to be waited for.
        server.until("all to be counted", |counters| {
            counters.http.requests == 7 && counters.loops.turned_away == 3 && counters.loops.accepts == 4
        });
        let loops = server.counters().loops;
        assert_eq!((loops.turned_away, loops.reclaimed), (3, 0), "{loops:?}");
        drop(clients);
        server.stop();
    });
}

#[test]
fn one_limit_is_for_all_loops() {
    let _alone = alone();
    let files = Files::new();
    let mut variant = Variant::plain(architecture::by_name("per-core").unwrap());
    variant.workers = Some(4);
    let (name, content) = &files.contents[0];
    let (server, mut clients) = full(&variant, &files, |client| assert_eq!(client.get(name), *content));
    // The kernel spreads them over the four queues as it likes: most find that others have all connections.
    for _ in 0..40 {
        let mut new = server.connect();
        assert_eq!(new.get(name), *content);
        wait_for_one_to_end(&mut clients);
        clients.push(new);
    }
    server.until("all to be counted", |counters| counters.loops.closed == 40);
    assert_eq!(server.counters().loops.reclaimed, 40);
    drop(clients);
    server.stop();
}

#[test]
fn idle_connections_of_a_full_pool_give_way() {
    let _alone = alone();
    let files = Files::new();
    for (name, setting) in [
        ("mt", Some(("--wake", "exclusive"))),
        ("mt", Some(("--wake", "one"))),
        ("mt", Some(("--wake", "mutex"))),
        ("mt", Some(("--wake", "all"))),
        ("knot-c", None),
    ] {
        let mut variant = Variant::plain(architecture::by_name(name).unwrap());
        (variant.workers, variant.setting) = (Some(4), setting);
        println!("{}", variant.name());
        let server = Running::start(&variant, variant.config(&files));
        let (name, content) = &files.contents[0];
        let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| assert_eq!(client.get(name), *content));
        for _ in 0..6 {
            let mut new = server.connect();
            assert_eq!(new.get(name), *content);
            wait_for_one_to_end(&mut clients);
            clients.push(new);
        }
        server.until("all to be counted", |counters| {
            counters.loops.closed == 6 && counters.loops.reclaimed == 6
        });
        drop(clients);
        server.stop();
    }
}

#[test]
fn stalled_pool_refuses_waiting_connections() {
    let _alone = alone();
    let files = Files::new();
    for name in ["mt", "knot-c"] {
        let mut variant = Variant::plain(architecture::by_name(name).unwrap());
        variant.workers = Some(2);
        let server = Running::start(&variant, variant.config(&files));
        let (name, content) = &files.contents[0];
        let mut busy: Vec<_> = (0..2).map(|_| server.connect()).collect();
        busy.iter_mut().for_each(|client| client.send("GET /"));
        server.until("both to be busy", |counters| counters.http.received_bytes == 10);
        let mut new = server.connect();
        new.ask(name);
        assert_eq!(new.response().status, 503);
        for client in &mut busy {
            client.send(&question(name)["GET /".len()..]);
            assert_eq!(client.response().body, *content);
        }
        drop((busy, new));
        server.stop();
    }
}

#[test]
fn idle_connection_does_not_block_its_batch() {
    let _alone = alone();
    let files = Files::new();
    for name in ["mt", "knot-c"] {
        let mut variant = Variant::plain(architecture::by_name(name).unwrap());
        variant.workers = Some(1);
        let mut config = variant.config(&files);
        config.accept_limit = Some(AcceptLimit::Fixed(Limit::AtMost(10)));
        let server = Running::start(&variant, config);
        let (name, content) = &files.contents[0];
        let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.ask(name));
        for client in &mut clients {
            assert_eq!(client.response().body, *content);
        }
        drop(clients);
        server.stop();
    }
}

#[test]
fn no_accept_phase_takes_more_than_the_limit() {
    on_every(|variant, files| {
        for limit in [1, 3] {
            let mut config = variant.config(files);
            config.accept_limit = Some(AcceptLimit::Fixed(Limit::AtMost(limit)));
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
            // A phase that took nothing is not a phase, on any mechanism.
            assert!(loops.accept_phases <= loops.accepts, "{loops:?}");
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
        let (mut idle, mut busy) = (server.connect(), server.connect());
        assert_eq!(idle.get(&small.0), small.1);
        busy.ask(&large.0);
        server.until("the requests to arrive", |counters| counters.http.requests == 2);
        let drained = server.stop_while(move || {
            assert_eq!(idle.end(), 0);
            assert!(busy.response().body == large.1);
            assert_eq!(busy.end(), 0);
        });
        assert_eq!(drained.cut_off, 0);
        assert!(TcpStream::connect(address).is_err());
    });
}

#[test]
fn going_down_gives_up_a_connection_that_never_asks() {
    on_every_at_once(|variant, files| {
        let server = Server::start(variant.architecture, variant.config(files), None).unwrap();
        let mut silent = Client::connect(server.addresses()[0]);
        let drained = std::thread::scope(|scope| {
            let ends = scope.spawn(|| server.shut_down().unwrap());
            assert_eq!(silent.end(), 0, "{}", variant.name());
            ends.join().unwrap()
        });
        assert_eq!(drained.cut_off, 0, "{}", variant.name());
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
        // A client that read before every loop's time is up could finish in it.
        let drained = server.stop_before(move || {
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
    on_every_at_once(|variant, files| {
        let mut config = variant.config(files);
        // The first bytes of a client come earlier on a busy machine too.
        config.http.timeouts.header = Nanos::from_secs(5);
        config.http.timeouts.idle = Nanos::from_millis(20);
        config.http.timeouts.linger = Nanos::from_millis(20);
        let server = Server::start(variant.architecture, config, None).unwrap();
        let connect = || Client::connect(server.addresses()[0]);
        let mut slow = connect();
        slow.send("GET / HTTP/1.1\r\nHo");
        let mut idle = connect();
        assert_eq!(idle.get(&files.contents[0].0), files.contents[0].1);
        assert_eq!(idle.end(), 0);
        let mut silent = connect();
        assert_eq!(silent.end(), 0);
        assert_eq!(slow.response().status, 408);
        assert_eq!(slow.end(), 0);
        drop((silent, slow, idle));
        until("the time-outs to be counted", || {
            let counters = server.counters();
            counters.http.timeouts_header == 2 && counters.http.timeouts_idle == 1
        });
        server.shut_down().unwrap();
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
    assert_eq!(refused("sped", &|config| config.chosen = chosen("--wake", "all")).0, "--wake");
    let (_, accepted) = refused("mt", &|config| config.chosen = chosen("--wake", "steered"));
    assert_eq!(accepted, "mt has exclusive, epoll-exclusive, one, mutex, all, reuseport");
    assert_eq!(refused("sped", &|config| config.workers = Some(2)).0, "--workers");
    assert_eq!(refused("tux", &|config| config.read_after_accept = true).0, "--read-after-accept");
    assert_eq!(refused("knot-a", &|config| config.chosen = chosen("--batch", "serial")).0, "--batch");
    assert_eq!(refused("knot-a", &|config| config.workers = Some(2)).0, "--workers");
    let per_connection = |config: &mut ServeConfig| config.chosen = chosen("--threads", "per-connection");
    assert_eq!(refused("knot-c", &per_connection).0, "--threads");
    assert_eq!(refused("mt", &per_connection).0, "--workers");
}

#[test]
fn threads_with_own_queues_serve_all_connections() {
    let _alone = alone();
    let files = Files::new();
    let variant = Variant::plain(architecture::by_name("mt").unwrap());
    let mut config = variant.config(&files);
    config.chosen = chosen("--wake", "reuseport");
    let server = Running::start(&variant, config);
    let (name, content) = &files.contents[0];
    // All at once, whichever queues they come into: those before it are idle, and give way.
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask(name));
    clients.iter_mut().for_each(|client| assert_eq!(client.response().body, *content));
    drop(clients);
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
