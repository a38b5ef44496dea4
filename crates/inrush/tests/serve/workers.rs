//! Worker processes: they have names, are replaced when they die, end with their parent, and stay counted.

use base::Nanos;
use rustix::process::Signal;

use crate::common::{Client, Files, Server, Status, has_ended, pattern, pause, send, sockets};

fn mp(files: &Files, flags: &[&str]) -> Server {
    Server::start(&files.root(), &[&["--arch=mp"], flags].concat())
}

/// Waits until every worker has begun, because a worker then changes its name.
fn names(server: &mut Server, count: usize) -> Vec<(u32, String)> {
    let named = |process: u32| std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let mut names = Vec::new();
    server.eventually_of("named", |server| {
        names = server.children().into_iter().map(|process| (process, named(process))).collect();
        names.len() == count && names.iter().all(|(_, name)| name.starts_with("mp worker "))
    });
    names
}

#[test]
fn ps_shows_what_they_are() {
    let files = Files::new();
    let mut server = mp(&files, &["--workers=3"]);
    let mut shown: Vec<(String, String)> = names(&mut server, 3)
        .into_iter()
        .map(|(process, name)| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap();
            (name.trim_end().to_owned(), String::from_utf8(line).unwrap().replace('\0', " "))
        })
        .collect();
    shown.sort();
    let expected = (0..3).map(|place| (format!("mp worker {place}"), format!("inrush: mp worker {place} ")));
    assert_eq!(shown, expected.collect::<Vec<_>>());
    server.stop_well();
}

#[test]
fn worker_keeps_only_control_socket_and_listener() {
    let files = Files::new();
    let server = mp(&files, &["--workers=1"]);
    let mut client = server.client();
    assert_eq!(client.get(Files::SMALL.0).status, 200);
    // The control socket as standard input and as another descriptor, the listener, and the connection.
    assert_eq!(sockets(server.children()[0]), 4);
    drop(client);
    server.stop_well();
}

#[test]
fn dead_worker_is_counted_named_and_replaced() {
    let files = Files::new();
    let mut server = mp(&files, &["--workers=3"]);
    let before = names(&mut server, 3);
    let mut client = server.client();
    assert!(client.get(Files::SMALL.0).body == pattern(Files::SMALL.1));
    // One of the three workers is idle: the one without a connection's socket. The test kills it.
    let mut other = server.client();
    assert_eq!(other.get(Files::SMALL.0).status, 200);
    let serving = |process: u32| {
        let folder = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        folder.filter_map(Result::ok).count()
    };
    let idle = before.iter().map(|(process, _)| *process).min_by_key(|process| serving(*process)).unwrap();
    send(idle, Signal::KILL);
    let replaced = |status: &Status| status.count("workers_started") == 4;
    let status = server.eventually("replaced", replaced);
    assert_eq!(status.count("worker_deaths"), 1);
    assert_eq!(status.connections(), 2);
    for client in [&mut client, &mut other] {
        assert!(client.get(Files::LARGE.0).body == pattern(Files::LARGE.1));
    }
    let after = names(&mut server, 3);
    assert!(after.iter().all(|(process, _)| *process != idle));
    // The counts of the dead worker stay in the totals.
    let status = server.eventually("counted", |status| status.count("requests") == 4);
    assert_eq!(status.count("accepts"), 2);
    drop((client, other));
    let (code, said) = server.stop();
    assert_eq!(code, Some(0));
    let reason = format!("(process {idle}) was killed by signal 9; another is started in 100ms\n");
    assert!(said.starts_with("inrush: mp worker ") && said.ends_with(&reason), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn dead_worker_leaves_the_queue_to_the_next() {
    let files = Files::new();
    let mut server = mp(&files, &["--workers=1"]);
    let mut served = server.client();
    served.send("GET / HT");
    server.eventually("busy", |status| status.count("received_bytes") == 8);
    let mut queued: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for client in &mut queued {
        client.send_get(Files::MEDIUM.0, "Connection: close\r\n");
    }
    send(server.children()[0], Signal::KILL);
    assert!(served.ends());
    for client in &mut queued {
        assert!(client.response().body == pattern(Files::MEDIUM.1));
    }
    let status = server.eventually("all served", |status| status.count("closed") == 5);
    assert_eq!((status.count("worker_deaths"), status.connections()), (1, 0));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn waits_of_workers_and_vain_waits_are_counted() {
    let files = Files::new();
    let waits_and_accepts = |server: &mut Server| {
        assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        let status = server.status();
        (status.count("waits"), status.count("accepts"))
    };
    let mut server = mp(&files, &["--workers=1", "--wake=exclusive"]);
    server.eventually_of("woken", |server| {
        let (waits, accepts) = waits_and_accepts(server);
        assert!(waits <= accepts, "{waits} {accepts}");
        waits > 0
    });
    assert_eq!(server.stop().0, Some(0));
    let mut server = mp(&files, &["--workers=8", "--wake=all"]);
    server.eventually_of("woken in vain", |server| {
        let (waits, accepts) = waits_and_accepts(server);
        waits > accepts
    });
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn they_do_not_outlive_a_parent_that_is_killed() {
    let files = Files::new();
    for wake in ["--wake=exclusive", "--wake=epoll-exclusive", "--wake=one", "--wake=mutex", "--wake=all"] {
        let mut server = mp(&files, &["--workers=5", wake]);
        let workers = names(&mut server, 5);
        let mut client = server.client();
        assert_eq!(client.get(Files::SMALL.0).status, 200);
        server.signal(Signal::KILL);
        assert!(client.ends());
        server.wait();
        // The kernel kills the workers with their parent. The process that adopted them reaps them.
        for (process, _) in workers {
            server.eventually_of("gone", |_| has_ended(process));
        }
        assert!(std::net::TcpStream::connect(server.address).is_err());
    }
}

#[test]
fn mutex_or_wake_up_of_a_killed_worker_moves_on() {
    let files = Files::new();
    for wake in ["--wake=mutex", "--wake=one"] {
        let mut server = mp(&files, &["--workers=3", wake]);
        for (process, _) in names(&mut server, 3) {
            send(process, Signal::KILL);
            assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        }
        server.eventually("replaced", |status| status.count("workers_started") == 6);
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn queued_connections_are_served_before_the_end() {
    let files = Files::new();
    let mut server = mp(&files, &["--workers=2", "--drain-timeout=60s"]);
    let mut busy: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for client in &mut busy {
        client.send("GET /small.bin HTTP/1.1\r\n");
    }
    server.eventually("both busy", |status| status.connections() == 2);
    let mut queued: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for client in &mut queued {
        client.send_get(Files::MEDIUM.0, "");
    }
    server.eventually("all queued", |status| status.0["queue"]["depth"] == 6);
    server.signal(Signal::TERM);
    server.refuses_connections();
    for client in &mut busy {
        client.send("Host: x\r\n\r\n");
        assert!(client.response().body == pattern(Files::SMALL.1));
        assert!(client.ends());
    }
    for client in &mut queued {
        assert!(client.response().body == pattern(Files::MEDIUM.1));
        assert!(client.ends());
    }
    drop((busy, queued));
    assert_eq!(server.wait(), (Some(0), String::new()));
}

#[test]
fn their_number_follows_the_load() {
    let files = Files::new();
    let mut server = mp(&files, &["--workers=8", "--min-spare=2", "--max-spare=3"]);
    // Five workers begin, and two of them are too many.
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send_get(Files::SMALL.0, "");
    }
    // The server serves all clients, which takes eight workers, the maximum.
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
    let status = server.eventually("at the limit", |status| status.count("limit_workers") > 0);
    assert_eq!(status.connections(), 8);
    assert_eq!(server.children().len(), 8);
    drop(clients);
    server.eventually_of("as many as the reserve has", |server| server.children().len() == 3);
    assert_eq!(server.status().count("worker_deaths"), 0);
    server.stop_well();
}

#[test]
fn process_per_connection_ends_with_its_connection() {
    let files = Files::new();
    let mut server = mp(&files, &["--processes=per-connection", "--max-connections=4"]);
    let forker = names(&mut server, 1)[0].0;
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut clients {
        assert!(client.get(Files::MEDIUM.0).body == pattern(Files::MEDIUM.1));
    }
    let mut children = server.children_of(forker);
    // The first one serves the first client.
    children.sort();
    assert_eq!(children.len(), 4);
    server.eventually("all shown", |status| status.connections() == 4);
    let mut refused = server.client();
    refused.send_get(Files::SMALL.0, "");
    assert_eq!(refused.response().status, 503);
    // A child that is killed takes its own connection with it. The client of another does not notice.
    send(children[0], Signal::KILL);
    server.eventually("one has died", |status| status.connections() == 3);
    assert!(clients.remove(0).ends());
    for client in &mut clients {
        assert_eq!(client.get(Files::SMALL.0).status, 200);
    }
    drop((clients, refused));
    let status = server.eventually("all gone", |status| status.connections() == 0);
    assert_eq!(status.count("worker_deaths"), 1);
    // The killed child took its counts along. The others have served two requests each, and the parent answered 503.
    assert_eq!((status.count("closed"), status.count("requests")), (4, 7));
    assert!(server.children_of(forker).is_empty());
    server.stop_well();
}

#[test]
fn forked_processes_finish_what_they_have_at_the_end() {
    let files = Files::new();
    let mut server = mp(&files, &["--processes=per-connection", "--drain-timeout=60s"]);
    let mut busy: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut busy {
        client.send("GET /small.bin HTTP/1.1\r\n");
    }
    server.eventually("all busy", |status| status.connections() == 3);
    let mut idle = server.client();
    assert_eq!(idle.get(Files::SMALL.0).status, 200);
    server.signal(Signal::TERM);
    server.refuses_connections();
    assert!(idle.ends());
    for client in &mut busy {
        client.send("Host: x\r\n\r\n");
        assert!(client.response().body == pattern(Files::SMALL.1));
        assert!(client.ends());
    }
    assert_eq!(server.wait(), (Some(0), String::new()));
}

#[test]
fn a_forked_process_keeps_no_connection_of_another() {
    let files = Files::new();
    let mut server = mp(&files, &["--processes=per-connection", "--accept-limit=inf"]);
    let forker = names(&mut server, 1)[0].0;
    // So it takes all three at once.
    server.stop_process(forker);
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    send(forker, Signal::CONT);
    for client in &mut clients {
        assert_eq!(client.get(Files::SMALL.0).status, 200);
    }
    let mut children = server.children_of(forker);
    children.sort();
    send(children[2], Signal::KILL);
    assert!(clients.remove(2).ends());
    drop(clients);
    server.stop_well();
}

#[test]
fn forked_process_cut_off_at_the_end_is_counted() {
    let files = Files::new();
    let mut server = mp(&files, &["--processes=per-connection", "--drain-timeout=1ms"]);
    let mut busy = server.client();
    busy.send("GET /small.bin HTTP/1.1\r\n");
    server.eventually("busy", |status| status.connections() == 1);
    server.signal(Signal::TERM);
    let said = "inrush: 1 connections had not finished within the drain timeout\n";
    assert_eq!(server.wait(), (Some(0), said.to_owned()));
}

#[test]
fn process_per_connection_refuses_pool_settings() {
    let files = Files::new();
    for (setting, flag) in [
        ("--workers", "--workers=3"),
        ("--wake", "--wake=one"),
        ("--min-spare", "--min-spare=2"),
        ("--access-log", "--access-log=-"),
    ] {
        let flags = ["serve", "--arch=mp", "--processes=per-connection", "--listen=127.0.0.1:0", flag];
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_inrush"));
        let output = command.args(flags).arg(files.root()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(setting) && said.contains("per-connection"), "{said}");
    }
}

#[test]
fn sessions_that_stay_keep_their_member() {
    let files = Files::new();
    for arch in ["--arch=mp", "--arch=mt", "--arch=knot-c"] {
        let flags = [arch, "--workers=1", "--idle-sessions=stay", "--accept-limit=inf"];
        let mut server = Server::start(&files.root(), &flags);
        let mut first = server.client();
        assert_eq!(first.get(Files::SMALL.0).status, 200);
        let mut others: Vec<Client> = (0..2).map(|_| server.client()).collect();
        others.iter_mut().for_each(|client| client.send_get(Files::SMALL.0, ""));
        // Idle connections that give way do so after a few milliseconds, and a standing pool turns away after a second.
        pause(Nanos::from_millis(1500));
        assert_eq!(first.get(Files::SMALL.0).status, 200, "{arch}");
        drop(first);
        for mut client in others {
            assert_eq!(client.response().status, 200, "{arch}");
        }
        let status = server.eventually("all ended", |status| status.count("closed") == 3);
        assert_eq!(["reclaimed", "turned_away"].map(|name| status.count(name)), [0, 0], "{arch}");
        server.stop_well();
    }
}

#[test]
fn an_acceptor_that_runs_ahead_serves() {
    let files = Files::new();
    let flags = ["--arch=knot-a", "--acceptor=runs-ahead", "--accept-limit=1"];
    let server = Server::start(&files.root(), &flags);
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.send_get(Files::SMALL.0, ""));
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
    server.stop_well();
}

#[test]
fn workers_figures_and_log_lines_are_of_one_server() {
    let files = Files::new();
    let log = files.beside("access.log");
    let flag = format!("--access-log={}", log.display());
    let mut server = mp(&files, &["--workers=4", &flag]);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut clients {
        (0..25).for_each(|_| assert_eq!(client.get(Files::SMALL.0).status, 200));
    }
    let status = server.eventually("counted", |status| status.count("requests") == 100);
    assert_eq!(status.connections(), 4);
    assert!(status.count("hits") > 0);
    let metrics = server.admin.get("/metrics");
    assert!(metrics.text().contains("\ninrush_workers_started_total 4\n"), "{}", metrics.text());
    drop(clients);
    server.stop_well();
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 100);
}
