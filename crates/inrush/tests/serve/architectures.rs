//! One suite over every architecture, from outside: properties that do not depend on the accepting and
//! serving processes.

use base::{Clock, Nanos, RealClock};
use rustix::process::Signal;
use server::architecture::ALL;

use super::serving::many_at_once;
use crate::common::{Client, Files, Server, Status, has_ended, pattern, sockets};

/// The time after which a connection without a request is idle.
const FIRST_REQUEST: Nanos = Nanos::SECOND;

/// Runs a test on every architecture, with the completion driver, and on smped with each hand-off. The output names the
/// one that failed.
pub fn on_every_architecture(test: impl Fn(&[&str])) {
    on_every_plain_architecture(&test);
    on_the_completion_driver(&test);
    let flags = ["--arch=smped", "--smped=initial=3,p-min=3,p-max=3", "--handoff=kernel"];
    let files = Files::new();
    let server = Server::start(&files.root(), &flags);
    if let Some(reason) = server.said.lines().find(|line| line.contains("--handoff kernel: ")) {
        return println!("skipped: {reason}");
    }
    drop(server);
    println!("--arch smped --handoff kernel");
    test(&flags);
}

/// Runs a test on every architecture that has the completion driver.
pub fn on_the_completion_driver(test: impl Fn(&[&str])) {
    let smped = ["--arch=smped", "--smped=initial=3,p-min=3,p-max=3"];
    for flags in [&["--arch=sped"][..], &["--arch=per-core", "--workers=2"], &smped] {
        let flags = [flags, &["--driver=completion"]].concat();
        let files = Files::new();
        let server = Server::start(&files.root(), &flags);
        if let Some(reason) = server.said.lines().find(|line| line.contains("--driver completion ")) {
            return println!("skipped: {reason}");
        }
        drop(server);
        println!("{}", flags.join(" "));
        test(&flags);
    }
}

pub fn on_every_plain_architecture(test: impl Fn(&[&str])) {
    for known in ALL {
        println!("--arch {}", known.name);
        let arch = format!("--arch={}", known.name);
        // The tests start fewer workers than the default, so that they start quickly and each serves several
        // connections. They start more workers than clients, because a full pool closes idle connections.
        let workers = match known.name {
            "per-core" => "--workers=2",
            "mp" | "mt" | "knot-c" => "--workers=24",
            "smped" => "--smped=initial=3,p-min=3,p-max=3",
            "amped" => "--helpers=3",
            _ => {
                test(&[&arch]);
                continue;
            }
        };
        test(&[&arch, workers]);
    }
}

/// Stops a server, and asserts that none of its processes is left.
fn stop(server: Server) {
    let children = server.children();
    server.stop_well();
    assert!(children.into_iter().all(has_ended), "a process is left");
}

/// Descriptors of sockets in a worker that accepts by itself: its standard input, a duplicate of it, and a listener.
const CONTROL_AND_LISTENER: usize = 3;

/// Waits until every worker process has its name. A worker has then received its descriptors and opens no
/// other sockets. With the kernel's hand-off, waits for the worker's listener as well.
fn all_workers_have_begun(server: &mut Server, processes: usize, by_kernel: bool) {
    let named = |process: u32| std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let begun = |child: &u32| {
        let noun = [" worker ", " helper "].iter().any(|noun| named(*child).contains(noun));
        noun && (!by_kernel || sockets(*child) == CONTROL_AND_LISTENER)
    };
    server.eventually_of("all workers", |server| {
        let started = server.status().count("workers_started") == processes as u64;
        let children = server.children();
        started && children.len() == processes && children.iter().all(begun)
    });
}

#[test]
fn many_clients_get_their_bytes_leak_no_descriptor() {
    let files = Files::new();
    on_every_architecture(|flags| {
        let mut server = Server::start(&files.root(), flags);
        let processes = match flags[0] {
            "--arch=mp" => 24,
            "--arch=smped" | "--arch=amped" => 3,
            _ => 0,
        };
        all_workers_have_begun(&mut server, processes, flags.contains(&"--handoff=kernel"));
        let before = server.sockets();
        many_at_once(&mut server);
        server.eventually_of("the sockets of before", |server| server.sockets() == before);
        stop(server);
    });
}

#[test]
fn processes_wake_for_many_at_once_by_every_strategy() {
    let files = Files::new();
    for wake in ["exclusive", "epoll-exclusive", "one", "mutex", "all"] {
        let mut server = Server::start(&files.root(), &["--arch=mp", "--workers=24", "--wake", wake]);
        many_at_once(&mut server);
        stop(server);
    }
}

#[test]
fn an_accept_phase_takes_as_many_as_its_limit_at_most() {
    let files = Files::new();
    on_every_architecture(|flags| {
        for limit in [1, 3] {
            let accept_limit = format!("--accept-limit={limit}");
            let flags = [flags, &[&accept_limit, "--burn=300us"]].concat();
            let mut server = Server::start(&files.root(), &flags);
            let mut clients: Vec<Client> = (0..30).map(|_| server.client()).collect();
            clients.iter_mut().for_each(|client| client.send_get(Files::SMALL.0, "Connection: close\r\n"));
            assert!(clients.iter_mut().all(|client| client.response().status == 200));
            let status = server.eventually("all counted", |status| status.count("closed") == 30);
            assert_eq!(status.count("accepts"), 30);
            let phases = status.count("accept_phases");
            assert!((30_u64.div_ceil(limit)..=30).contains(&phases), "{limit}: {status:?}");
            drop(clients);
            stop(server);
        }
    });
}

#[test]
fn pipelined_requests_keep_their_order_and_limits() {
    let files = Files::new();
    let both = [Files::SMALL, Files::MEDIUM];
    let one = |(name, _): (&str, usize)| format!("GET {name} HTTP/1.1\r\nHost: x\r\n\r\n");
    on_every_architecture(|flags| {
        let server = Server::start(&files.root(), &[flags, &["--max-fields=5"]].concat());
        let mut client = server.client();
        client.send(both.map(one).concat().repeat(100));
        for turn in 0..200 {
            assert!(client.response().body == pattern(both[turn % 2].1), "{turn}");
        }
        assert_eq!(client.get_with(Files::SMALL.0, &"X: y\r\n".repeat(10)).status, 431);
        drop(client);
        stop(server);
    });
}

#[test]
fn going_down_finishes_what_has_begun() {
    let files = Files::new();
    let length = files.write_endless("/endless.bin") as usize;
    on_every_architecture(|flags| {
        let mut server = Server::start(&files.root(), &[flags, &["--drain-timeout=60s"]].concat());
        let (mut idle, mut silent, mut download) = (server.client(), server.client(), server.client());
        assert_eq!(idle.get(Files::SMALL.0).status, 200);
        download.send_get("/endless.bin", "");
        download.response_to_head();
        server.eventually("all in", |status| status.count("accepts") == 3);
        let children = server.children();
        server.signal(Signal::TERM);
        assert!(idle.ends() && silent.ends());
        assert_eq!(download.take(length).len(), length);
        assert!(download.ends());
        assert!(std::net::TcpStream::connect(server.address).is_err());
        drop((idle, silent, download));
        assert_eq!(server.wait(), (Some(0), String::new()));
        assert!(children.into_iter().all(has_ended), "a process is left");
    });
}

/// A server with at most four connections, and clients that hold all of them.
fn full(files: &Files, flags: &[&str]) -> (Server, Vec<Client>) {
    let server = Server::start(&files.root(), &[flags, &["--max-connections=4"]].concat());
    let clients = (0..4).map(|_| server.client()).collect();
    (server, clients)
}

#[test]
fn idle_connections_lock_nobody_out() {
    let files = Files::new();
    on_every_architecture(|flags| {
        let (mut server, mut idle) = full(&files, flags);
        for client in &mut idle {
            assert_eq!(client.get(Files::SMALL.0).status, 200);
        }
        // A client may have its answer before the connection counts as idle.
        server.eventually("all idle", |status| status.count("responses_2xx") == 4);
        let mut new: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for client in &mut new {
            assert!(client.get(Files::SMALL.0).body == pattern(Files::SMALL.1));
        }
        // Behind the kernel's hand-off a worker whose peers are slow to give way closes an idle connection of its own.
        if !flags.contains(&"--handoff=kernel") {
            assert!(idle.iter_mut().all(Client::ends));
        }
        // If a worker process is slow to give way, the server asks another one too.
        let counted = |status: &Status| status.count("closed") >= 4 && status.count("reclaimed") >= 4;
        let status = server.eventually("all counted", counted);
        assert_eq!(status.count("turned_away"), 0, "{status:?}");
        drop((idle, new));
        stop(server);
    });
}

#[test]
fn new_connection_gets_503_if_none_is_idle() {
    let files = Files::new();
    on_every_architecture(|flags| {
        let (mut server, mut inside) = full(&files, flags);
        inside.iter_mut().for_each(|client| client.send("GET /small.bin HTTP/1.1\r\n"));
        server.eventually("all inside", |status| {
            status.connections() == 4 && status.count("received_bytes") == 4 * 25
        });
        // The client sends its request after the answer is ready.
        let mut new = server.client();
        server.eventually("turned away", |status| status.count("turned_away") == 1);
        let refused = new.get(Files::SMALL.0);
        assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
        assert!(refused.says_close() && new.ends());
        for client in &mut inside {
            client.send("Host: x\r\n\r\n");
            assert!(client.response().body == pattern(Files::SMALL.1));
        }
        drop((inside, new));
        stop(server);
    });
}

#[test]
fn connection_before_the_end_is_served_a_late_request() {
    let files = Files::new();
    on_every_architecture(|flags| {
        let mut server = Server::start(&files.root(), flags);
        let mut idle = server.client();
        assert_eq!(idle.get(Files::SMALL.0).status, 200);
        let clock = RealClock::new();
        let begun = clock.now();
        let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
        server.eventually("all in", |status| status.count("accepts") == 4);
        server.signal(Signal::TERM);
        assert!(idle.ends());
        clients.iter_mut().for_each(|client| client.send_get(Files::SMALL.0, ""));
        if clock.now() - begun >= FIRST_REQUEST {
            return println!("skipped: this machine is too busy to ask within {FIRST_REQUEST}: {flags:?}");
        }
        for client in &mut clients {
            assert!(client.response().body == pattern(Files::SMALL.1));
            assert!(client.ends());
        }
        drop(clients);
        assert_eq!(server.wait(), (Some(0), String::new()));
    });
}
