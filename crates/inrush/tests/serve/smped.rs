//! A dispatcher and its workers: the placement of connections, its counters, and the loss of workers.

use rustix::process::Signal;

use crate::common::{Client, Files, Server, Status, has_ended, on_every_mechanism, pattern, send};

fn smped(files: &Files, flags: &[&str]) -> Server {
    Server::start(&files.root(), &[&["--arch=smped"], flags].concat())
}

/// C_i of each worker.
pub fn loads(status: &Status) -> Vec<u64> {
    let workers = status.0["workers"].as_array().map_or(&[][..], Vec::as_slice);
    workers.iter().map(|worker| worker["connections"].as_u64().unwrap()).collect()
}

/// Clients that have each received a response.
pub fn served(server: &Server, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    for client in &mut clients {
        let reply = client.get(Files::SMALL.0);
        assert!(reply.body == pattern(Files::SMALL.1), "{}", reply.head);
    }
    clients
}

/// Returns true if no worker has fallen silent. On a busy machine a worker may wait 100 ms for a CPU, and what it has not
/// begun is then placed again.
fn all_workers_answered(status: &Status) -> bool {
    let answered = status.count("workers_silent") == 0;
    if !answered {
        println!("skipped: a worker got no CPU for 100 ms");
    }
    answered
}

/// Clients that have each received a response. Each worker has some of them: on a busy machine it may have been passed over
/// at first.
fn served_by_all(server: &mut Server) -> Vec<Client> {
    let mut clients = Vec::new();
    server.eventually_of("all at work", |server| {
        clients.extend(served(server, 2));
        loads(&server.status()).iter().all(|load| *load > 0)
    });
    clients
}

/// Five clients of a server with a limit of four connections: each had its responses, in order, and the longest-idle one of
/// all workers had to go.
pub fn served_past_the_limit(server: &mut Server) -> (Vec<Client>, Status) {
    let mut clients = served(server, 4);
    for client in &mut clients {
        client.send_get(Files::LARGE.0, "");
        client.send_get(Files::SMALL.0, "");
    }
    for client in &mut clients {
        assert!(client.response().body == pattern(Files::LARGE.1));
        assert!(client.response().body == pattern(Files::SMALL.1));
    }
    clients.extend(served(server, 1));
    let status =
        server.eventually("full", |status| status.count("reclaimed") >= 1 && status.count("accepts") == 5);
    assert!(status.count("limit_connections") > 0);
    (clients, status)
}

/// Asserts that a server that was told to end serves the clients in its queues first, and leaves no process.
pub fn serves_them_and_ends(server: &mut Server, queued: &mut [Client], children: Vec<u32>) {
    for client in queued {
        assert!(client.response().body == pattern(Files::MEDIUM.1));
        assert!(client.ends());
    }
    assert_eq!(server.wait(), (Some(0), String::new()));
    assert!(children.into_iter().all(has_ended), "a process is left");
}

#[test]
fn every_mechanism_keeps_bytes_order_and_limits() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let flags =
            ["--dispatch", mechanism, "--smped=initial=2,p-max=3", "--max-connections=4", "--accept-limit=1"];
        let mut server = smped(&files, &flags);
        let children = server.children();
        let (clients, status) = served_past_the_limit(&mut server);
        assert_eq!(status.count("accepts"), status.count("accept_phases"));
        // The server serves clients in the queue before it ends.
        drop(clients);
        server.eventually("empty", |status| status.connections() == 0 && status.count("closed") == 5);
        let address = server.address;
        let mut queued: Vec<Client> = server.while_stopped(|| {
            let queued = (0..4).map(|_| Client::connect(address));
            let mut queued: Vec<Client> = queued.collect();
            queued.iter_mut().for_each(|client| client.send_get(Files::MEDIUM.0, ""));
            server.signal(Signal::TERM);
            queued
        });
        serves_them_and_ends(&mut server, &mut queued, children);
    });
}

#[test]
fn connections_go_to_idle_workers() {
    let files = Files::new();
    let mut server = smped(&files, &["--smped=p-min=3,initial=3,p-max=3"]);
    let mut clients = served(&server, 3);
    let status = server.eventually("placed", |status| status.connections() == 3);
    if all_workers_answered(&status) {
        assert_eq!(loads(&status), [1, 1, 1]);
        assert_eq!(status.count("placed_on_idle_worker"), 3, "{status:#?}");
    }
    let throughput = |status: &Status| {
        let workers = status.0["workers"].as_array().unwrap();
        workers.iter().map(|worker| worker["throughput_per_s"].as_f64().unwrap()).sum::<f64>()
    };
    for _ in 0..1000 {
        clients.iter_mut().for_each(|client| drop(client.get(Files::SMALL.0)));
        if throughput(&server.status()) > 0.0 {
            break;
        }
    }
    let metrics = server.admin.get("/metrics");
    let line = format!("\ninrush_worker_connections{{worker=\"2\"}} {}\n", loads(&server.status())[2]);
    assert!(metrics.text().contains(&line), "{line}");
    let line = format!("\ninrush_placed_on_idle_worker_total {}\n", status.count("placed_on_idle_worker"));
    assert!(metrics.text().contains(&line), "{line}");
    assert!(throughput(&server.status()) > 0.0);
    drop(clients);
    let status = server.eventually("idle", |status| loads(status) == [0, 0, 0]);
    assert_eq!(throughput(&status), 0.0);
    server.stop_well();
}

#[test]
fn pool_grows_until_full_and_shrinks_when_idle() {
    let files = Files::new();
    let mut server = smped(&files, &["--smped=c-max=2,p-min=1,initial=1,p-max=2,idle=3s"]);
    let mut clients = served(&server, 2);
    // On a busy machine a worker that starts is passed over at first, and another closes idle connections in its place.
    server.eventually_of("grown", |server| {
        clients.extend(served(server, 1));
        loads(&server.status()) == [2, 2]
    });
    let (status, accepted) = (server.status(), clients.len() as u64 + 1);
    if all_workers_answered(&status) {
        assert_eq!((status.count("placed_on_new_worker"), status.count("workers_started")), (1, 2));
    }
    let mut fifth = server.client();
    assert!(fifth.get(Files::SMALL.0).body == pattern(Files::SMALL.1));
    let counted = |status: &Status| status.count("reclaimed") >= 1 && status.count("accepts") == accepted;
    let status = server.eventually("counted", counted);
    assert!(status.count("all_workers_full") > 0);
    clients.push(fifth);
    drop(clients);
    server.eventually("shrunk", |status| status.count("workers_stopped_idle") >= 1);
    server.eventually_of("gone", |server| server.children().len() == 1);
    assert_eq!(server.status().count("worker_deaths"), 0);
    drop(served(&server, 1));
    server.stop_well();
}

#[test]
fn connection_for_a_slow_worker_meets_a_limit_once() {
    let files = Files::new();
    for (limit, count) in
        [("--max-connections=1", "limit_connections"), ("--max-connections=9", "all_workers_full")]
    {
        let mut server = smped(&files, &["--smped=c-max=1,p-min=1,initial=1,p-max=1", limit]);
        let idle = served(&server, 1);
        server.eventually("idle", |status| status.count("requests") == 1);
        let worker = server.children()[0];
        // The worker is to close its idle connection. The dispatcher looks again until it gives the worker up.
        server.stop_process(worker);
        let mut waits = server.client();
        waits.send_get(Files::SMALL.0, "");
        assert_eq!(waits.response().status, 503);
        let status = server.eventually("turned away", |status| status.count("turned_away") == 1);
        assert_eq!(status.count(count), 1);
        send(worker, Signal::CONT);
        drop((idle, waits));
        server.stop_well();
    }
}

#[test]
fn adaptive_c_max_is_not_reached_by_connections_alone() {
    let files = Files::new();
    let mut server = smped(&files, &["--smped=c-max=adaptive,p-min=1,initial=1,p-max=1"]);
    let clients = served(&server, 300);
    let status = server.eventually("in", |status| loads(status) == [300]);
    assert_eq!((status.count("all_workers_full"), status.count("reclaimed")), (0, 0));
    drop(clients);
    server.stop_well();
}

#[test]
fn dead_worker_takes_only_its_own_connections() {
    let files = Files::new();
    let mut server = smped(&files, &["--smped=p-min=2,initial=2,p-max=2"]);
    let mut clients = served_by_all(&mut server);
    let victim = server.children()[0];
    send(victim, Signal::KILL);
    let status = server.eventually("replaced", |status| status.count("workers_started") == 3);
    let (lost, all) = (status.count("connections_lost_with_worker"), clients.len() as u64);
    assert!(status.count("worker_deaths") == 1 && (1..all).contains(&lost), "{lost} of {all}");
    let left = all - lost;
    let is_reset = |status: &Status| loads(status).len() == 2 && status.connections() == left;
    let status = server.eventually("reset", is_reset);
    // The victim's clients have lost their connections; the others have not noticed anything.
    clients.iter_mut().for_each(|client| client.send_get(Files::SMALL.0, ""));
    let all = status.count("requests") + left;
    let status = server.eventually("served", |status| status.count("requests") >= all);
    assert_eq!(status.connections(), left);
    drop((clients, served_by_all(&mut server)));
    let (code, said) = server.stop();
    assert_eq!(code, Some(0));
    assert!(said.contains(&format!("(process {victim}) was killed by signal 9")), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn stopped_worker_gets_and_loses_no_connections() {
    let files = Files::new();
    let mut server = smped(&files, &["--smped=p-min=2,initial=2,p-max=2", "--schedule=round-robin"]);
    drop(served(&server, 2));
    server.eventually("idle", |status| status.count("accepts") == 2 && loads(status) == [0, 0]);
    let stopped = server.children()[0];
    server.stop_process(stopped);
    // Half of the connections would go to the stopped worker. The dispatcher passes it the first ones before
    // it notices the silence.
    let clients = served(&server, 20);
    let status = server.eventually("it shows", |status| status.count("workers_silent") > 0);
    assert_eq!(status.connections(), 20);
    assert!(loads(&status).contains(&20), "{:?}", loads(&status));
    send(stopped, Signal::CONT);
    drop(clients);
    server.eventually("idle again", |status| loads(status) == [0, 0]);
    // The worker answers again, and gets its share.
    drop(served_by_all(&mut server));
    server.stop_well();
}

#[test]
fn workers_do_not_outlive_a_dispatcher_that_is_killed() {
    let files = Files::new();
    let mut server = smped(&files, &["--smped=initial=3,p-max=3"]);
    let mut clients = served(&server, 3);
    let children = server.children();
    assert_eq!(children.len(), 3);
    server.signal(Signal::KILL);
    server.wait();
    assert!(clients.iter_mut().all(Client::ends));
    server.eventually_of("gone", |_| children.iter().all(|process| has_ended(*process)));
}

#[test]
fn every_schedule_serves() {
    let files = Files::new();
    for schedule in ["smped", "least-connections", "round-robin", "random"] {
        let flags = ["--smped=p-min=2,initial=2,p-max=2", "--schedule", schedule];
        let mut server = smped(&files, &flags);
        let clients = served(&server, 8);
        let status = server.eventually("all placed", |status| status.connections() == 8);
        let placed = status.count("placed_on_idle_worker") + status.count("placed_on_first_worker");
        assert!(placed >= 8, "{schedule}: {placed}");
        if all_workers_answered(&status) {
            assert_eq!(placed, 8, "{schedule}");
            let is_even = matches!(schedule, "least-connections" | "round-robin");
            assert!(!is_even || loads(&status) == [4, 4], "{schedule}: {:?}", loads(&status));
        }
        drop(clients);
        server.stop_well();
    }
}

#[test]
fn who_takes_too_long_at_the_end_is_cut_off() {
    let files = Files::new();
    let mut server = smped(&files, &["--drain-timeout=50ms"]);
    let mut half = server.client();
    half.send("GET / HT");
    server.eventually("in", |status| {
        status.connections() == 1 && status.0["counters"]["received_bytes"].as_u64() == Some(8)
    });
    let (code, said) = server.stop();
    assert!(half.ends());
    let expected = "inrush: 1 connections had not finished within the drain timeout\n";
    assert_eq!((code, &*said), (Some(0), expected));
}

#[test]
fn without_settings_there_are_ten_workers() {
    let files = Files::new();
    let mut server = smped(&files, &[]);
    assert_eq!(server.status().0["architecture"], "smped");
    assert_eq!(server.children().len(), 10);
    server.stop_well();
}
