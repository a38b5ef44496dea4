//! SIGTERM and SIGINT: the server accepts no new client, and serves its present ones to the end, within a
//! time limit.

use rustix::process::Signal;

use crate::common::{Client, Files, Server, on_every_mechanism, pattern};

#[test]
fn what_is_under_way_is_finished() {
    let files = Files::new();
    let length = files.write_endless("/endless.bin") as usize;
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &["--drain-timeout=60s"]);
        let mut idle = server.client();
        assert_eq!(idle.get(Files::SMALL.0).status, 200);
        let mut silent = server.client();
        let mut download = server.client();
        download.send_get("/endless.bin", "");
        let head = download.response_to_head();
        assert_eq!(head.field("content-length"), Some(&*length.to_string()));
        let mut half = server.client();
        half.send("GET /small.bin HTTP/1.1\r\n");
        server.eventually("all in", |status| status.connections() == 4);
        server.signal(Signal::INT);
        // The server closes its idle connections first. From then on it accepts no client.
        assert!(idle.ends() && silent.ends());
        assert!(std::net::TcpStream::connect(server.address).is_err());
        assert_eq!(download.take(length).len(), length);
        assert!(download.ends());
        half.send("Host: x\r\n\r\n");
        let last = half.response();
        assert!(last.says_close() && last.body == pattern(Files::SMALL.1));
        assert!(half.ends());
        drop((download, half));
        assert_eq!(server.wait(), (Some(0), String::new()));
    });
}

#[test]
fn connections_in_the_queue_are_served_before_the_end() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &["--accept-limit=1"]);
        let address = server.address;
        let mut queued: Vec<Client> = server.while_stopped(|| {
            let connect = |_| {
                let mut client = Client::connect(address);
                client.send_get(Files::MEDIUM.0, "");
                client
            };
            let queued = (0..20).map(connect).collect();
            server.signal(Signal::TERM);
            queued
        });
        for client in &mut queued {
            assert!(client.response().body == pattern(Files::MEDIUM.1));
            assert!(client.ends());
        }
        drop(queued);
        assert_eq!(server.wait(), (Some(0), String::new()));
    });
}

#[test]
fn who_asks_twice_does_not_want_to_wait() {
    let files = Files::new();
    let mut server = Server::sped(&files.root(), "epoll", &["--drain-timeout=1h"]);
    let mut client = server.client();
    client.send("GET / HT");
    // The half request keeps the server draining, for an hour if need be.
    server.signal(Signal::TERM);
    server.refuses_connections();
    server.signal(Signal::TERM);
    let (code, said) = server.wait();
    assert_eq!(code, Some(1));
    assert!(said.contains("asked to end twice"), "{said}");
}

#[test]
fn unfinished_connection_is_cut_off_and_counted() {
    let files = Files::new();
    let length = files.write_endless("/endless.bin");
    for arch in [&["--arch=sped"][..], &["--arch=per-core", "--workers=1"], &["--arch=seda"]] {
        let mut server = Server::start(&files.root(), &[arch, &["--drain-timeout=100ms"]].concat());
        let mut deaf: Vec<Client> = (0..2).map(|_| server.client()).collect();
        for client in &mut deaf {
            client.send_get("/endless.bin", "");
            client.take(1000);
        }
        server.signal(Signal::TERM);
        let expected = "inrush: 2 connections had not finished within the drain timeout\n";
        assert_eq!(server.wait(), (Some(0), expected.to_owned()));
        assert!(deaf.iter_mut().all(|client| (client.rest().len() as u64) < length - 1000));
    }
}
