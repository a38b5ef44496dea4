//! `--arch amped`: helper processes fetch cold files, and the main process waits for none.

use std::fs::File;

use rustix::fs::{Advice, fadvise, fsync};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
use rustix::process::Signal;

use crate::common::{Client, Files, Server, Status, has_ended, on_every_readiness_mechanism, pattern, send};

fn amped(files: &Files, flags: &[&str]) -> Server {
    Server::start(&files.root(), &[&["--arch=amped"], flags].concat())
}

/// The length of a file that no disk reads while the kernel looks for its pages.
const LONG: usize = 16 << 20;

/// Makes the kernel forget the contents of files that no client has received yet. Prints and returns false if
/// the kernel does not. Checking a file would make the kernel read it, so another file shows the effect. It is long,
/// because a quick disk has a short one before the kernel has looked.
fn forget(files: &Files, paths: &[&str]) -> bool {
    let mut whole = pattern(LONG);
    files.write("/shown.bin", &whole);
    for path in paths.iter().chain(&["/shown.bin"]) {
        let file = File::open(files.path(path)).unwrap();
        fsync(&file).unwrap();
        // The kernel silently keeps a page that is in use at the moment, for instance by reclaim.
        for _ in 0..100 {
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }
    let shown = File::open(files.path("/shown.bin")).unwrap();
    let read = preadv2(&shown, &mut [IoSliceMut::new(&mut whole)], 0, ReadWriteFlags::NOWAIT);
    let forgets = matches!(read, Ok(..LONG) | Err(Errno::AGAIN));
    if !forgets {
        println!("skipped: this file system keeps what it is told to forget, or cannot tell what it has");
    }
    forgets
}

/// Returns true, or prints a skip, if the file system reads from memory alone when asked to.
fn tells_what_is_in_memory(files: &Files) -> bool {
    let file = File::open(files.path(Files::LARGE.0)).unwrap();
    let read = preadv2(&file, &mut [IoSliceMut::new(&mut [0; 1])], 0, ReadWriteFlags::NOWAIT);
    let tells = read != Err(Errno::OPNOTSUPP);
    if !tells {
        println!("skipped: this file system cannot tell what it has in memory");
    }
    tells
}

/// Asserts that the main process has not waited for a disk.
fn never_waited(status: &Status) {
    assert_eq!(status.count("main_waits"), 0, "{status:?}");
}

#[test]
fn what_is_in_memory_is_answered_without_helpers() {
    let files = Files::new();
    if !tells_what_is_in_memory(&files) {
        return;
    }
    let mut server = amped(&files, &["--helpers=2"]);
    let mut client = server.client();
    for (path, length) in [Files::SMALL, Files::MEDIUM, Files::LARGE].repeat(5) {
        assert!(client.get(path).body == pattern(length));
    }
    let mut before = server.eventually("counted", |status| status.count("requests") == 15);
    let known = [Files::SMALL, Files::LARGE].map(|(path, length)| (path, pattern(length)));
    loop {
        for (path, content) in known.iter().cycle().take(10) {
            assert!(client.get(path).body == *content);
        }
        let requests = before.count("requests") + 10;
        let after = server.eventually("counted", |status| status.count("requests") == requests);
        let more = |name: &str| after.count(name) - before.count(name);
        assert_eq!(more("hits") + more("revalidations"), 10, "{after:?}");
        never_waited(&after);
        // A file that was checked a second ago is looked up again, so the ten requests are repeated.
        if more("revalidations") == 0 {
            assert_eq!((more("helper_waits"), more("helper_fetches")), (0, 0), "{after:?}");
            break;
        }
        assert!(requests < 1000, "the files are looked up every time");
        before = after;
    }
    drop(client);
    server.stop_well();
}

#[test]
fn helpers_fetch_cold_files_without_main_waiting() {
    let all = [Files::SMALL, Files::MEDIUM, Files::LARGE];
    on_every_readiness_mechanism(|mechanism| {
        // The files are new, so the kernel does not know yet which siblings are absent.
        let files = Files::new();
        let dispatch = format!("--dispatch={mechanism}");
        let mut server = amped(&files, &["--helpers=2", &dispatch]);
        if !forget(&files, &all.map(|(path, _)| path)) {
            return server.stop_well();
        }
        let mut clients: Vec<Client> = (0..12).map(|_| server.client()).collect();
        for (client, (path, _)) in clients.iter_mut().zip(all.iter().cycle()) {
            client.send_get(path, "");
        }
        for (client, (_, length)) in clients.iter_mut().zip(all.iter().cycle()) {
            assert!(client.response().body == pattern(*length));
        }
        let status = server.eventually("counted", |status| status.count("requests") == 12);
        never_waited(&status);
        // Each file is looked up. The large one is also read, unless the kernel kept it (see `forget`).
        assert!(status.count("helper_fetches") >= 3, "{status:?}");
        assert!(status.count("helper_waits") >= status.count("helper_fetches"));
        drop(clients);
        server.stop_well();
    });
}

#[test]
fn pipelined_cold_files_are_answered_in_order() {
    let files = Files::new();
    let all = [Files::LARGE, Files::SMALL, Files::MEDIUM, Files::LARGE];
    let mut server = amped(&files, &["--helpers=2"]);
    if !forget(&files, &all.map(|(path, _)| path)) {
        return server.stop_well();
    }
    let mut client = server.client();
    client.send(all.map(|(path, _)| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).concat());
    client.send("GET /missing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    for (_, length) in all {
        assert!(client.response().body == pattern(length));
    }
    assert_eq!(client.response().status, 404);
    assert!(client.ends());
    never_waited(&server.eventually("counted", |status| status.count("requests") == 5));
    server.stop_well();
}

#[test]
fn requests_from_memory_do_not_wait_for_cold_ones() {
    let files = Files::new();
    let mut server = amped(&files, &["--helpers=1"]);
    let mut hot = server.client();
    assert!(hot.get(Files::SMALL.0).body == pattern(Files::SMALL.1));
    if !forget(&files, &[Files::MEDIUM.0]) {
        return server.stop_well();
    }
    // A stopped helper acts like a disk that takes forever.
    let helper = server.children()[0];
    server.stop_process(helper);
    let mut cold: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for client in &mut cold {
        client.send_get(Files::MEDIUM.0, "");
    }
    server.eventually("all wait", |status| status.count("helper_waits") >= 5);
    for _ in 0..100 {
        assert!(hot.get(Files::SMALL.0).body == pattern(Files::SMALL.1));
    }
    // The server notices a client that leaves while it waits.
    drop(cold.pop());
    send(helper, Signal::CONT);
    for client in &mut cold {
        assert!(client.response().body == pattern(Files::MEDIUM.1));
    }
    let status = server.eventually("gone", |status| status.connections() == 5);
    never_waited(&status);
    assert_eq!(status.count("worker_deaths"), 0);
    drop((hot, cold));
    server.stop_well();
}

#[test]
fn fetches_of_a_dead_helper_go_to_another() {
    let files = Files::new();
    let mut server = amped(&files, &["--helpers=2"]);
    if !forget(&files, &[Files::SMALL.0, Files::MEDIUM.0, Files::LARGE.0]) {
        return server.stop_well();
    }
    let helpers = server.children();
    for helper in &helpers {
        server.stop_process(*helper);
    }
    let mut clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
    let all = [Files::SMALL, Files::MEDIUM, Files::LARGE];
    for (client, (path, _)) in clients.iter_mut().zip(all.iter().cycle()) {
        client.send_get(path, "");
    }
    server.eventually("all wait", |status| status.count("helper_waits") >= 6);
    helpers.iter().for_each(|helper| send(*helper, Signal::KILL));
    for (client, (_, length)) in clients.iter_mut().zip(all.iter().cycle()) {
        assert!(client.response().body == pattern(*length));
    }
    let status = server.eventually("replaced", |status| status.count("workers_started") == 4);
    assert_eq!((status.count("worker_deaths"), status.connections()), (2, 6));
    assert!(status.count("helper_fetches_repeated") >= 2, "{status:?}");
    never_waited(&status);
    drop(clients);
    let children = server.children();
    let (code, said) = server.stop();
    assert_eq!(code, Some(0));
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.lines().all(|line| line.starts_with("inrush: amped helper ")), "{said}");
    assert!(children.into_iter().chain(helpers).all(has_ended));
}

#[test]
fn going_down_waits_for_what_helpers_fetch() {
    let files = Files::new();
    let mut server = amped(&files, &["--helpers=1", "--drain-timeout=60s"]);
    if !forget(&files, &[Files::LARGE.0]) {
        return server.stop_well();
    }
    let helper = server.children()[0];
    server.stop_process(helper);
    let mut client = server.client();
    client.send_get(Files::LARGE.0, "");
    server.eventually("it waits", |status| status.count("helper_waits") >= 1);
    server.signal(Signal::TERM);
    server.refuses_connections();
    send(helper, Signal::CONT);
    assert!(client.response().body == pattern(Files::LARGE.1));
    assert!(client.ends());
    drop(client);
    assert_eq!(server.wait(), (Some(0), String::new()));
    assert!(has_ended(helper));
}
