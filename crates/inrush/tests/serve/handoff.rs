//! `--handoff kernel`: the kernel gives connections to workers at their SYN, and nothing that waits is lost with a worker.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::smped::{loads, served, served_past_the_limit, serves_them_and_ends};
use crate::common::{Client, Files, Server, Status, on_every_mechanism, pattern, send};

const TWO: &str = "--smped=p-min=2,initial=2,p-max=2";

/// A server whose workers the kernel chooses, or the printed reason why there is none.
fn kernel(files: &Files, flags: &[&str]) -> Option<Server> {
    let mut server = Server::start(&files.root(), &[&["--arch=smped", "--handoff=kernel"], flags].concat());
    if let Some(reason) = server.said.lines().find(|line| line.contains("--handoff kernel: ")) {
        println!("skipped: {reason}");
        return None;
    }
    // Until then connections wait in the queues of the other workers.
    server.eventually_of("begun", |server| {
        let shown = figures(&server.status(), "connections").len();
        shown > 0 && shown == server.children().len()
    });
    Some(server)
}

fn figures(status: &Status, name: &str) -> Vec<f64> {
    let workers = status.0["workers"].as_array().map_or(&[][..], Vec::as_slice);
    workers.iter().map(|worker| worker[name].as_f64().unwrap()).collect()
}

/// Clients that have asked, while neither parent nor workers do anything.
fn asked_while_stopped(server: &mut Server, count: usize, then: impl FnOnce(&Server, &[u32])) -> Vec<Client> {
    let workers = server.children();
    for worker in &workers {
        server.stop_process(*worker);
    }
    let clients = server.while_stopped(|| {
        let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| client.send_get(Files::MEDIUM.0, ""));
        then(server, &workers);
        clients
    });
    for worker in workers {
        // A worker that was killed may be gone at any time.
        let sent = kill_process(Pid::from_raw(worker as i32).unwrap(), Signal::CONT);
        assert!(matches!(sent, Ok(()) | Err(Errno::SRCH)), "{sent:?}");
    }
    clients
}

#[test]
fn every_mechanism_keeps_bytes_order_and_limits() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let flags =
            ["--dispatch", mechanism, "--smped=initial=2,p-max=3", "--max-connections=4", "--accept-limit=1"];
        let Some(mut server) = kernel(&files, &flags) else { return };
        let children = server.children();
        let (clients, status) = served_past_the_limit(&mut server);
        assert_eq!((status.count("steered"), status.count("steering_unsteered")), (5, 0));
        drop(clients);
        server.eventually("empty", |status| status.connections() == 0 && status.count("closed") == 5);
        let mut queued = asked_while_stopped(&mut server, 4, |server, _| server.signal(Signal::TERM));
        serves_them_and_ends(&mut server, &mut queued, children);
    });
}

#[test]
fn killed_workers_queue_is_not_lost() {
    let files = Files::new();
    let Some(mut server) = kernel(&files, &[TWO, "--schedule=round-robin"]) else { return };
    let mut victim = 0;
    let mut clients = asked_while_stopped(&mut server, 100, |_, workers| {
        victim = workers[0];
        send(victim, Signal::KILL);
    });
    for client in &mut clients {
        assert!(client.response().body == pattern(Files::MEDIUM.1));
    }
    let status = server.eventually("replaced", |status| status.count("workers_started") == 3);
    assert_eq!((status.count("worker_deaths"), status.count("connections_lost_with_worker")), (1, 0));
    assert!(status.count("steering_migrated") >= 50, "{status:?}");
    drop(clients);
    let (code, said) = server.stop();
    assert_eq!(code, Some(0));
    assert!(said.contains(&format!("(process {victim}) was killed by signal 9")), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_single_worker_leaves_its_queue_to_its_successor() {
    let files = Files::new();
    let Some(mut server) = kernel(&files, &["--smped=p-min=1,initial=1,p-max=1"]) else { return };
    let mut clients = asked_while_stopped(&mut server, 20, |_, workers| {
        workers.iter().for_each(|one| send(*one, Signal::KILL))
    });
    for client in &mut clients {
        assert!(client.response().body == pattern(Files::MEDIUM.1));
    }
    assert_eq!(server.status().count("steering_migrated"), 0);
    drop(clients);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn dead_worker_takes_only_its_own_connections() {
    let files = Files::new();
    let Some(mut server) = kernel(&files, &[TWO, "--max-connections=2"]) else { return };
    let mut clients = served(&server, 2);
    server.eventually("placed", |status| loads(status) == [1, 1]);
    send(server.children()[0], Signal::KILL);
    let replaced = |status: &Status| status.count("workers_started") == 3 && loads(status).len() == 2;
    let status = server.eventually("replaced", replaced);
    assert_eq!((status.count("worker_deaths"), status.count("connections_lost_with_worker")), (1, 1));
    clients.iter_mut().for_each(|client| client.send_get(Files::SMALL.0, ""));
    server.eventually("served", |status| status.count("requests") >= 2 && status.connections() == 1);
    // Its slots of the connection limit are free again, so the next connection needs no reclaim.
    let next = served(&server, 1);
    server.eventually("placed with the new one", |status| loads(status) == [1, 1]);
    assert_eq!(server.status().count("reclaimed"), 0);
    drop((clients, next));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn stopped_workers_queue_goes_to_others() {
    let files = Files::new();
    let Some(mut server) = kernel(&files, &[TWO, "--schedule=round-robin"]) else { return };
    drop(served(&server, 2));
    server.eventually("idle", |status| status.count("closed") == 2 && loads(status) == [0, 0]);
    let stopped = server.children()[0];
    server.stop_process(stopped);
    // Every second one would be its own.
    let clients = served(&server, 20);
    let status = server.eventually("it shows", |status| status.count("workers_silent") >= 1);
    assert!(status.count("steering_migrated") >= 1);
    assert!(loads(&status).contains(&20), "{:?}", loads(&status));
    send(stopped, Signal::CONT);
    drop(clients);
    server.eventually("idle again", |status| loads(status) == [0, 0]);
    let mut clients = Vec::new();
    server.eventually_of("both at work", |server| {
        clients.extend(served(server, 2));
        loads(&server.status()).iter().all(|load| *load > 0)
    });
    drop(clients);
    server.stop_well();
}

#[test]
fn pool_grows_until_full_and_shrinks_when_idle() {
    let files = Files::new();
    let flags = ["--smped=c-max=2,p-min=1,initial=1,p-max=2,idle=3s"];
    let Some(mut server) = kernel(&files, &flags) else { return };
    let mut clients = served(&server, 4);
    let status = server.eventually("grown", |status| loads(status) == [2, 2]);
    assert_eq!((status.count("workers_started"), status.count("reclaimed")), (2, 0));
    assert!(status.count("steering_crowded") >= 1 && status.count("steering_migrated") >= 1, "{status:?}");
    // All are full, and one has an idle connection closed.
    clients.extend(served(&server, 1));
    let status = server.eventually("counted", |status| status.count("reclaimed") >= 1);
    assert!(status.count("steering_full") > 0);
    drop(clients);
    server.eventually("shrunk", |status| status.count("workers_stopped_idle") == 1);
    server.eventually_of("gone", |server| server.children().len() == 1);
    assert_eq!(server.status().count("worker_deaths"), 0);
    drop(served(&server, 1));
    server.stop_well();
}

#[test]
fn every_schedule_places_as_told() {
    let files = Files::new();
    for schedule in ["smped", "least-connections", "round-robin", "random"] {
        let Some(mut server) = kernel(&files, &[TWO, "--schedule", schedule]) else { return };
        let clients = served(&server, 8);
        let status = server.eventually("all placed", |status| loads(status).iter().sum::<u64>() == 8);
        assert_eq!(status.count("steering_unsteered"), 0, "{schedule}");
        if status.count("workers_silent") > 0 {
            // On a busy machine a worker may wait 100 ms for a CPU. What it has not taken is then placed again.
            println!("skipped: a worker got no CPU for 100 ms: {schedule}");
            continue;
        }
        assert_eq!(status.count("steered"), 8, "{schedule}");
        if matches!(schedule, "least-connections" | "round-robin") {
            assert_eq!(loads(&status), [4, 4], "{schedule}");
        }
        drop(clients);
        server.stop_well();
    }
}

#[test]
fn throughput_is_known_while_there_are_connections() {
    let files = Files::new();
    let Some(mut server) = kernel(&files, &["--smped=p-min=3,initial=3,p-max=3"]) else { return };
    let mut clients = served(&server, 3);
    server.eventually("placed", |status| loads(status) == [1, 1, 1]);
    server.eventually_of("measured", |server| {
        clients.iter_mut().for_each(|client| drop(client.get(Files::SMALL.0)));
        figures(&server.status(), "throughput_per_s").iter().all(|throughput| *throughput > 0.0)
    });
    let metrics = server.admin.get("/metrics");
    assert!(metrics.text().contains("\ninrush_worker_connections{worker=\"2\"} 1\n"));
    assert!(metrics.text().contains("\ninrush_steered_total 3\n"));
    drop(clients);
    server.eventually("idle", |status| figures(status, "throughput_per_s") == [0.0; 3]);
    server.stop_well();
}

#[test]
fn clients_that_there_is_no_room_for_get_503() {
    let files = Files::new();
    let Some(mut server) = kernel(&files, &[TWO, "--max-connections=2"]) else { return };
    let mut busy: Vec<Client> = (0..2).map(|_| server.client()).collect();
    busy.iter_mut().for_each(|client| client.send("GET / HT"));
    server.eventually("in", |status| status.0["counters"]["received_bytes"].as_u64() == Some(16));
    assert_eq!(server.client().get(Files::SMALL.0).status, 503);
    server.eventually("counted", |status| status.count("turned_away") == 1);
    drop(busy);
    server.stop_well();
}

#[test]
fn dispatcher_passes_descriptors_without_capabilities() {
    let files = Files::new();
    let flags = ["--arch=smped", TWO, "--handoff=kernel"];
    let mut server = Server::start_without_capabilities(&files.root(), &flags);
    let lines: Vec<&str> = server.said.lines().filter(|line| line.contains("--handoff kernel: ")).collect();
    assert_eq!(lines.len(), 1, "{}", server.said);
    assert!(lines[0].contains("CAP_BPF") && lines[0].ends_with("the dispatcher passes descriptors instead"));
    drop(served(&server, 2));
    // On a busy machine a worker may wait 100 ms for a CPU. What it has not begun is then placed again.
    let placed = |status: &Status| match status.count("workers_silent") {
        0 => status.count("placed_on_idle_worker") == 2,
        _ => status.count("placed_on_idle_worker") >= 1,
    };
    server.eventually("passed", placed);
    server.stop_well();
}
