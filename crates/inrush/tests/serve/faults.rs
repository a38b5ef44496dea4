//! Peers and disks that misbehave: the server counts each, and no other client notices.

use std::fs;
use std::time::Duration;

use rustix::net::sockopt;

use crate::common::{Client, Files, PATIENCE, Server, Status, on_every_mechanism, pattern, set_length};

/// A client with ordinary requests.
struct Bystander(Client);

impl Bystander {
    fn of(server: &Server) -> Bystander {
        Bystander(server.client())
    }

    fn is_served(&mut self) {
        for (name, length) in [Files::SMALL, Files::MEDIUM] {
            assert!(self.0.get(name).body == pattern(length));
        }
    }
}

/// Sends one byte of a head after another until an answer comes.
fn send_slowly(client: &mut Client, mut meanwhile: impl FnMut()) {
    client.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    while client.stream.peek(&mut [0]).is_err() {
        client.send("x");
        meanwhile();
    }
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn a_head_that_never_ends_is_answered_408() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &["--header-timeout=200ms"]);
        let address = server.address;
        // The first bytes are there when the connections are accepted, even on a busy machine.
        let (mut bystander, mut slow) = server.while_stopped(|| {
            let (mut bystander, mut slow) = (Bystander::of(&server), Client::connect(address));
            bystander.0.send_get(Files::SMALL.0, "");
            slow.send("GET / HTTP/1.1\r\nHost: ");
            (bystander, slow)
        });
        assert_eq!(bystander.0.response().status, 200);
        send_slowly(&mut slow, || bystander.is_served());
        let response = slow.response();
        assert_eq!((response.status, response.says_close()), (408, true));
        drop(slow);
        // A connection without any byte is closed without a response.
        assert!(server.client().ends());
        bystander.is_served();
        server.eventually("both counted", |status| status.count("timeouts_header") == 2);
        server.stop_well();
    });
}

#[test]
fn first_letter_of_the_preface_begins_a_request() {
    let files = Files::new();
    let server = Server::sped(&files.root(), "epoll", &["--header-timeout=200ms"]);
    let mut slow = server.while_stopped(|| {
        let mut slow = Client::connect(server.address);
        slow.send("P");
        slow
    });
    assert_eq!(slow.response().status, 408);
    drop(slow);
    server.stop_well();
}

#[test]
fn endless_content_gets_408_and_idle_connection_ends() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let flags = ["--body-timeout=100ms", "--idle-timeout=100ms"];
        let mut server = Server::sped(&files.root(), mechanism, &flags);
        let mut slow = server.client();
        slow.send_get("/", "Content-Length: 100\r\n");
        slow.send("not all of it");
        assert_eq!(slow.response().status, 408);
        assert!(slow.ends());
        // The client's end never comes, so the server stops waiting for it.
        server.eventually("given up", |status| status.count("timeouts_linger") == 1);
        let mut idle = server.client();
        assert_eq!(idle.get(Files::SMALL.0).status, 200);
        assert!(idle.ends());
        let status = server.eventually("both closed", |status| status.count("closed") == 2);
        assert_eq!((status.count("timeouts_body"), status.count("timeouts_idle")), (1, 1));
        server.stop_well();
    });
}

#[test]
fn who_never_reads_is_given_up() {
    let files = Files::new();
    let length = files.write_endless("/endless.bin");
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &["--write-timeout=200ms"]);
        let mut bystander = Bystander::of(&server);
        let mut deaf: Vec<Client> = (0..3).map(|_| server.client()).collect();
        for client in &mut deaf {
            client.send_get("/endless.bin", "");
        }
        bystander.is_served();
        let status = server.eventually("given up", |status| status.count("timeouts_write_stall") == 3);
        assert_eq!((status.connections(), status.count("incomplete_responses")), (1, 3));
        bystander.is_served();
        for client in &mut deaf {
            assert!((client.rest().len() as u64) < length);
        }
        server.stop_well();
    });
}

#[test]
fn a_reset_in_the_middle_ends_one_connection() {
    let files = Files::new();
    files.write_endless("/endless.bin");
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &[]);
        let mut bystander = Bystander::of(&server);
        bystander.is_served();
        let reset = |client: Client| {
            sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
            drop(client);
        };
        // A reset in a response, in a request, and between two requests.
        let mut client = server.client();
        client.send_get("/endless.bin", "");
        client.take(100_000);
        reset(client);
        bystander.is_served();
        server.eventually("one broken", |status| status.count("broken") == 1);
        let mut client = server.client();
        client.send("GET / HT");
        server.eventually("accepted", |status| status.connections() == 2);
        reset(client);
        server.eventually("two broken", |status| status.count("broken") == 2);
        let mut client = server.client();
        client.get(Files::SMALL.0);
        reset(client);
        let status = server.eventually("three broken", |status| status.count("broken") == 3);
        assert_eq!(status.connections(), 1);
        assert_eq!((status.count("incomplete_responses"), status.count("incomplete_requests")), (1, 1));
        bystander.is_served();
        server.stop_well();
    });
}

#[test]
fn a_reset_in_the_accept_queue_hurts_nobody() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &["--accept-limit=inf"]);
        let mut bystander = Bystander::of(&server);
        bystander.is_served();
        let address = server.address;
        let mut last = server.while_stopped(|| {
            for _ in 0..100 {
                let client = Client::connect(address);
                sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
            }
            Client::connect(address)
        });
        assert_eq!(last.get(Files::SMALL.0).status, 200);
        bystander.is_served();
        // The loop may publish its totals before it has seen all of them.
        let ended = |status: &Status| status.count("broken") + status.count("aborted_in_queue");
        let all = |status: &Status| status.connections() == 2 && ended(status) >= 100;
        assert_eq!(ended(&server.eventually("two are left", all)), 100);
        server.stop_well();
    });
}

#[test]
fn file_truncated_in_transit_ends_its_connection_only() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let length = files.write_endless("/shrinks.bin");
        let mut server = Server::sped(&files.root(), mechanism, &[]);
        let mut bystander = Bystander::of(&server);
        let mut client = server.client();
        client.send_get("/shrinks.bin", "");
        client.take(100_000);
        set_length(&files.path("/shrinks.bin"), 200_000);
        bystander.is_served();
        assert!((client.rest().len() as u64) < length - 100_000);
        let status = server.eventually("it shows", |status| status.count("truncated") == 1);
        assert_eq!((status.connections(), status.count("broken")), (1, 0));
        bystander.is_served();
        server.stop_well();
    });
}

#[test]
fn vanished_root_is_served_again_on_its_return() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &["--arch=sped"]);
    let mut client = server.client();
    let mut until = |status: u16| {
        let asks = std::iter::repeat_with(|| client.get(Files::SMALL.0));
        // The server checks the root once a second, and a request takes some 50 us.
        asks.take(200_000).find(|answer| answer.status == status).expect("it is noticed")
    };
    assert!(until(200).body == pattern(Files::SMALL.1));
    fs::rename(files.root(), files.beside("away")).unwrap();
    assert_eq!(until(503).field("retry-after"), Some("1"));
    fs::rename(files.beside("away"), files.root()).unwrap();
    assert!(until(200).body == pattern(Files::SMALL.1));
    // Another directory takes its place, as in a deployment.
    fs::rename(files.root(), files.beside("old")).unwrap();
    fs::create_dir(files.root()).unwrap();
    until(404);
    files.write(Files::SMALL.0, "new");
    assert_eq!(until(200).text(), "new");
    let status = server.eventually("counted", |status| status.count("root_replaced") == 2);
    assert!(status.count("root_missing") > 0);
    server.stop_well();
}
